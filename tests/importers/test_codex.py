"""What items of a Codex rollout become, in each of its formats, and how threads hang together."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.importers.conftest import Desk
from tests.importers.natives import THREAD, Codex

from onward.core.bodies import Checkpoint, Context, Message, Outcome, Reasoning, ToolCall, ToolResult
from onward.core.digests import content_digest
from onward.importers.codex import CodexReader
from onward.importers.codex_items import message_drafts
from onward.importers.codex_rows import Item
from onward.importers.contract import Strand
from onward.importers.lines import lines_of

FORK = "019a2b3c-5d5e-7f60-8a1b-2c3d4e5f6072"


def imported(desk: Desk, told: Codex, name: str = "rollout.jsonl") -> str:
    report = desk.one(desk.write(desk.folder / name, told.bytes()))
    assert report.status == "imported"
    (session,) = report.sessions
    return session


def test_a_turn_becomes_messages_reasoning_a_call_and_its_result(desk: Desk) -> None:
    told = (
        Codex()
        .user("Fix it")
        .item("reasoning", summary=[{"type": "summary_text", "text": "Look"}], encrypted_content="e")
    )
    told.calls("c1").result("c1").says("Fixed").row("turn_context", model="gpt-x", cwd="/other")
    session = imported(desk, told)
    assert desk.said(session) == ["Fix it", "Fixed"]
    assert desk.bodies(session, "reasoning") == [Reasoning(text="Look", signature="e")]
    assert desk.bodies(session, "tool_call") == [
        ToolCall(call="c1", name="exec_command", input={"cmd": "ls"}, provider_call="c1")
    ]
    assert desk.bodies(session, "tool_result") == [
        ToolResult(call="c1", output="README.md", name="exec_command", provider_call="c1")
    ]
    workspace = desk.store.workspace_by_id(desk.sessions()[0].workspace_id or "")
    assert workspace is not None
    assert workspace.path == "C:\\code\\shop"


def test_arguments_that_are_no_json_stay_the_text_they_are(desk: Desk) -> None:
    session = imported(
        desk, Codex().user("Go").calls("c1", arguments='{"cmd": ').calls("c2", arguments="plain")
    )
    assert [b.input for b in desk.bodies(session, "tool_call") if isinstance(b, ToolCall)] == [
        '{"cmd": ',
        "plain",
    ]


def test_every_kind_of_call_and_output_is_read(desk: Desk) -> None:
    told = Codex().user("Go")
    told.item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="p1")
    told.item("custom_tool_call_output", call_id="p1", output=[{"type": "input_text", "text": "ok"}])
    told.item(
        "local_shell_call", action={"type": "exec", "command": ["ls"]}, call_id="s1", status="completed"
    )
    told.item("function_call_output", call_id="s1", output="files", success=False)
    told.item("web_search_call", id="w1", status="completed", action={"type": "search", "query": "x"})
    told.item("tool_search_call", call_id="q1", arguments={"query": "y"}).item(
        "tool_search_output", call_id="q1", tools=[]
    )
    told.item("function_call", name="T", namespace="mcp__S", arguments="{}", call_id="m1")
    report = desk.one(desk.write(desk.folder / "a.jsonl", told.bytes()))
    assert (report.messages.tool_calls, report.messages.tool_results) == (5, 3)
    calls = {b.call: b for b in desk.bodies(report.sessions[0], "tool_call") if isinstance(b, ToolCall)}
    assert [c.name for c in calls.values()] == [
        "apply_patch",
        "local_shell",
        "web_search",
        "tool_search",
        "mcp__S__T",
    ]
    assert calls["p1"].input == "*** Begin"
    assert calls["s1"].input == {"type": "exec", "command": ["ls"]}
    results = {
        b.call: (b.output, b.status)
        for b in desk.bodies(report.sessions[0], "tool_result")
        if isinstance(b, ToolResult)
    }
    assert results["p1"] == ("ok", "ok")
    assert results["s1"] == ("files", "error")
    assert results["w1"] == (None, "ok")
    assert results["m1"][1] == "outcome_unknown"


def test_harness_text_is_set_apart_and_stays_out_of_the_title(desk: Desk) -> None:
    told = Codex().item("message", role="developer", content=[{"type": "input_text", "text": "Be brief"}])
    told.user(
        "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>a</INSTRUCTIONS>",
        "<environment_context>\n</environment_context>",
    )
    told.user(
        "machine facts",
        internal_chat_message_metadata_passthrough={"content_item_kinds": ["environments.facts"]},
    )
    told.user(
        "# Context from my IDE setup:\n\n## Open tabs:\n- a.md\n\n## My request for Codex:\nRename it\n"
    ).says("Ok")
    session = imported(desk, told)
    assert len(desk.said(session)) == 2
    assert desk.sessions()[0].title == "Rename it"
    roles = [(b.role, b.aside) for b in desk.bodies(session, "message") if isinstance(b, Message)]
    asides = [("user", True)] * 3
    assert roles == [("system", True), *asides, ("user", False), ("assistant", False)]


def test_editor_context_is_set_apart_from_the_ask_and_the_ask_keeps_its_identity(desk: Desk) -> None:
    clutter = "# Context from my IDE setup:\n\n## Open tabs:\n- a.md\n\n## My request for Codex:"
    session = imported(desk, Codex().user(f"{clutter}\nRename it\n").says("Ok"))
    said = [(b.text, b.aside) for b in desk.bodies(session, "message") if isinstance(b, Message)]
    assert said == [(clutter, True), ("Rename it", False), ("Ok", False)]
    whole = {"type": "message", "role": "user"}
    item = msgspec.convert(whole, Item)
    before = {}
    for text in ("Rename it", f"{clutter}\nRename it", f"{clutter}\n"):
        item.content = msgspec.Raw(msgspec.json.encode(text))
        drafts = message_drafts(Strand(key=""), item, 0, "row", child=False)
        before[text] = [draft.ident for draft in drafts]
    alone, beside, empty = before.values()
    assert beside[1:] == alone == empty, "nothing behind the context: then it is what was said"
    assert len(beside) == 2


def test_a_name_given_to_the_thread_is_its_title(desk: Desk) -> None:
    imported(
        desk, Codex().user("hm").event("thread_name_updated", thread_id=THREAD, thread_name="Release notes")
    )
    assert desk.sessions()[0].title == "Release notes"


def test_a_mirror_is_raw_unless_only_it_has_the_text(desk: Desk) -> None:
    told = Codex().user("Said as an item").event("user_message", message="Said as an item")
    told.user("# Context from my IDE setup:\n## My request for Codex:\nTyped").event(
        "user_message", message="Typed"
    )
    told.event("user_message", message="Only in the mirror").says("Ok").event("agent_message", message="Ok")
    session = imported(desk, told)
    assert [text.splitlines()[-1] for text in desk.said(session)] == [
        "Said as an item",
        "Typed",
        "Only in the mirror",
        "Ok",
    ]


def test_a_mirror_that_was_read_before_its_item_is_not_said_twice(desk: Desk) -> None:
    path = desk.folder / "a.jsonl"
    told = Codex().event("user_message", message="Hello")
    desk.one(desk.write(path, told.bytes()))
    report = desk.one(desk.write(path, told.user("Hello").says("Hi").bytes()))
    assert desk.said(report.sessions[0]) == ["Hello", "Hi"]


def test_an_aborted_turn_is_an_outcome_and_closes_its_calls(desk: Desk) -> None:
    told = Codex().user("Go").calls("c1").event("turn_aborted", reason="interrupted")
    told.user("<turn_aborted>\nThe user interrupted\n</turn_aborted>").user("Again").says("Ok")
    session = imported(desk, told)
    kinds = [e.kind for e in desk.events(session, "tool_call", "tool_result", "outcome", "message")]
    assert kinds == ["message", "tool_call", "tool_result", "outcome", "message", "message", "message"]
    assert desk.bodies(session, "outcome") == [
        Outcome(text="The turn was aborted: interrupted.", status="interrupted")
    ]
    assert desk.said(session) == ["Go", "Again", "Ok"]


def test_a_compaction_is_a_checkpoint_that_names_what_it_keeps(desk: Desk) -> None:
    told = Codex().user("First").says("One").user("Second").says("Two")
    kept = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": t}]}
        for t in ("Second", "Summary")
    ]
    told.row("compacted", message="", replacement_history=kept).user("Third")
    session = imported(desk, told)
    (event,) = desk.events(session, "checkpoint")
    second = next(e.id for e in desk.events(session, "message") if b"Second" in e.body)
    assert desk.bodies(session, "checkpoint") == [
        Checkpoint(text="Summary", first_seq=1, last_seq=event.seq - 1, kept=(second,))
    ]


def test_images_come_from_data_urls(desk: Desk) -> None:
    url = "data:image/png;base64," + base64.b64encode(b"pixels").decode()
    content = [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": url}]
    session = imported(desk, Codex().item("message", role="user", content=content))
    (message,) = desk.bodies(session, "message")
    assert isinstance(message, Message)
    assert [part.blob for part in message.parts] == [content_digest(b"pixels")]


def test_a_message_between_agents_is_context(desk: Desk) -> None:
    content = [{"type": "input_text", "text": "Report"}]
    session = imported(
        desk, Codex().user("Go").item("agent_message", author="a", recipient="b", content=content)
    )
    (context,) = desk.bodies(session, "context")
    assert isinstance(context, Context)
    assert context.text == "Report"


def test_bare_items_of_the_oldest_lines_are_read_and_state_lines_kept(desk: Desk) -> None:
    rows = [
        {
            "id": "cf4def41-0000-4000-8000-000000000000",
            "timestamp": "2025-09-10T18:58:38Z",
            "instructions": "x",
        },
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"record_type": "state"},
        {"record_type": "state"},
        {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "{}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
    ]
    data = b"".join(json.dumps(row).encode() + b"\r\n" for row in rows)
    report = desk.one(desk.write(desk.folder / "old.jsonl", data))
    assert (report.engine, report.records.read, report.records.raw) == ("codex", 8, 4)
    assert desk.said(report.sessions[0]) == ["Hello", "Hi"]
    assert len(desk.events(report.sessions[0], "raw")) == 4


def test_the_first_format_is_one_document_and_its_records_are_its_items(desk: Desk) -> None:
    document = {
        "session": {"id": "old", "cwd": "/w", "timestamp": "2025-05-01T10:00:00Z"},
        "items": [
            {"role": "user", "content": "Port it", "timestamp": 1736900000},
            {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
            {"type": "function_call_output", "call_id": "c1", "output": "ok"},
            {"role": "assistant", "content": "Ported", "timestamp": 1736900010},
        ],
    }
    path = desk.write(desk.folder / "old.json", json.dumps(document, indent=1).encode())
    report = desk.one(path)
    assert (report.status, report.records.read, report.records.mapped) == ("imported", 4, 4)
    assert desk.said(report.sessions[0]) == ["Port it", "Ported"]
    assert desk.one(path).status == "unchanged"
    document["items"].append({"role": "user", "content": "Thanks", "timestamp": 1736900020})  # type: ignore[attr-defined]
    again = desk.one(desk.write(path, json.dumps(document, indent=1).encode()))
    assert (again.status, again.records.read, again.sessions) == ("imported", 5, report.sessions)
    assert desk.said(report.sessions[0]) == ["Port it", "Ported", "Thanks"]


def base(ordinal: int, thread: str = THREAD) -> dict[str, object]:
    return {"history_base": {"thread_id": thread, "end_ordinal_exclusive": ordinal, "end_byte_offset": 1}}


def source(desk: Desk) -> Path:
    told = Codex(ordinals=0).user("One").says("Two").user("Three").says("Four")
    return desk.write(desk.folder / f"rollout-1-{THREAD}.jsonl", told.bytes())


def test_a_fork_by_reference_hangs_on_the_event_before_its_ordinal(desk: Desk) -> None:
    source(desk)
    fork = Codex(FORK, ordinals=3, forked_from_id=THREAD, **base(3)).user("Other way").says("Ok")
    desk.write(desk.folder / f"rollout-2-{FORK}.jsonl", fork.bytes())
    main, branch = (file.sessions[0] for file in desk.imports(desk.folder).files)
    link = desk.link_to(branch)
    assert link is not None
    assert (link.type, link.from_session) == ("fork", main)
    event = desk.store.event(link.event_id or "")
    assert event is not None
    assert b"Two" in event.body
    assert desk.said(branch) == ["Other way", "Ok"]


def test_a_fork_whose_source_is_missing_says_so_and_is_linked_when_it_comes(desk: Desk) -> None:
    fork = Codex(FORK, ordinals=3, **base(3)).user("Other way").says("Ok")
    path = desk.write(desk.folder / f"rollout-2-{FORK}.jsonl", fork.bytes())
    report = desk.one(path)
    assert report.status == "imported"
    assert THREAD in (report.reason or "")
    desk.one(source(desk))
    desk.one(path)
    assert desk.link_to(report.sessions[0]) is not None


def test_a_segment_after_a_revert_is_a_branch_of_its_own_thread(desk: Desk) -> None:
    source(desk)
    segment = Codex(THREAD, ordinals=3, **base(3)).user("After the revert").says("Ok")
    desk.write(desk.folder / f"rollout-2-{THREAD}_{FORK}.jsonl", segment.bytes())
    main, branch = (file.sessions[0] for file in desk.imports(desk.folder).files)
    assert main != branch
    assert desk.said(main) == ["One", "Two", "Three", "Four"]
    link = desk.link_to(branch)
    assert link is not None
    assert link.from_session == main


def test_a_subagents_thread_is_a_child_of_the_call_that_spawned_it(desk: Desk) -> None:
    told = Codex().user("Delegate").calls("c1", "spawn_agent").result("c1", '{"agent_id": "x"}')
    told.event("collab_agent_spawn_end", call_id="c1", new_thread_id=FORK)
    desk.write(desk.folder / f"rollout-1-{THREAD}.jsonl", told.bytes())
    spawned = Codex(FORK, source={"subagent": {"thread_spawn": {"parent_thread_id": THREAD, "depth": 1}}})
    desk.write(desk.folder / f"rollout-2-{FORK}.jsonl", spawned.user("Explore").says("Explored").bytes())
    main, child = (file.sessions[0] for file in desk.imports(desk.folder).files)
    link = desk.link_to(child)
    assert link is not None
    assert (link.type, link.from_session) == ("child", main)
    event = desk.store.event(link.event_id or "")
    assert event is not None
    assert event.kind == "tool_call"
    assert desk.events(child, "message")[0].actor == "trigger"


@pytest.mark.parametrize(
    "times", [[1737400000.0, 1737400001], [1737400000000, 1737400001000], [None, "soon"]]
)
def test_odd_times_are_understood_or_taken_from_before(desk: Desk, times: list[object]) -> None:
    rows = [
        {"timestamp": times[0], "type": "session_meta", "payload": {"id": "odd", "cwd": "/w"}},
        {"timestamp": times[1], "type": "response_item", "payload": {"role": "user", "content": "Hi"}},
    ]
    report = desk.one(
        desk.write(desk.folder / "odd.jsonl", b"".join(json.dumps(r).encode() + b"\n" for r in rows))
    )
    (message,) = desk.events(report.sessions[0], "message")
    assert message.at > 0
    if times[0] is not None:
        assert message.at == 1737400001 * 1_000_000


words = st.text("ab ", min_size=1, max_size=6).filter(str.strip)


@given(items=st.lists(words, max_size=6), mirror=words)
def test_a_mirror_is_known_by_the_end_of_any_item(items: list[str], mirror: str) -> None:
    told = Codex()
    for text in items:
        told.user(text)
    data = told.event("user_message", message=mirror).bytes()
    lines = list(lines_of(io.BytesIO(data), offset=0, limit=len(data)))
    reader = CodexReader()
    reader.survey(lines)
    *_, outcome = [reader.read(line) for line in lines]
    repeats = any(text.strip().endswith(mirror.strip()) for text in items)
    assert outcome.verdict == ("raw" if repeats else "mapped")
