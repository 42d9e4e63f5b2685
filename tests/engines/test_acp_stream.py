"""Each rule by which what an agent says becomes signals; recordings, and the one-shot output of the same programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import needs

from onward.core.bodies import Terminal, Usage
from onward.engines.acp_agents import PLAIN, AcpAgent, agent_named, recognised
from onward.engines.acp_conversation import offered
from onward.engines.acp_stream import NOISE, AcpStream
from onward.engines.acp_words import Option, chosen, error_of, failure, in_words
from onward.engines.calling import Numbers
from onward.engines.claude_stream import ClaudeTurn
from onward.engines.contract import (
    FAILURES,
    Finished,
    Measured,
    Noted,
    Said,
    Signal,
    Started,
    TextDelta,
    Thought,
    ToolAnswered,
    ToolCalled,
)
from onward.engines.gemini_files import seconds_until_safe, sweep
from onward.engines.gemini_stream import GeminiStream
from onward.engines.jsonrpc import PeerError
from onward.engines.opencode_stream import OpencodeStream

RECORDINGS = Path(__file__).parent / "recordings" / "acp"


def stream(agent: AcpAgent = PLAIN, **more: Any) -> AcpStream:
    return AcpStream(next_call=Numbers("run_a").next, agent=agent, **more)


def tell(into: AcpStream, kind: str, **fields: Any) -> tuple[Signal, ...]:
    return into.update({"sessionId": "s", "update": {"sessionUpdate": kind, **fields}}, b"{}")


def chunk(into: AcpStream, text: str, **fields: Any) -> tuple[Signal, ...]:
    return tell(into, "agent_message_chunk", content={"type": "text", "text": text}, **fields)


def test_a_message_is_finished_when_something_else_begins() -> None:
    talk = stream()
    assert chunk(talk, "one ", messageId="a") == (TextDelta(text="one "),)
    assert chunk(talk, "two", messageId="a") == (TextDelta(text="two"),)
    assert chunk(talk, "three", messageId="b") == (Said(text="one two"), TextDelta(text="three"))
    called = tell(talk, "tool_call", toolCallId="1", title="ls", status="in_progress", rawInput={"a": 1})
    assert called[0] == Said(text="three")
    assert called[1] == ToolCalled(call="run_a.1", name="ls", input={"a": 1}, provider_call="1")


def test_reasoning_is_one_thought() -> None:
    talk = stream()
    for piece in ("hm, ", "well"):
        assert tell(talk, "agent_thought_chunk", content={"type": "text", "text": piece}) == ()
    assert chunk(talk, "yes") == (Thought(text="hm, well"), TextDelta(text="yes"))


def test_a_call_whose_input_comes_later_is_told_when_it_runs() -> None:
    talk = stream(agent_named("opencode"))
    assert (
        tell(talk, "tool_call", toolCallId="1", title="bash", status="pending", rawInput={"cwd": "/"}) == ()
    )
    (called,) = tell(
        talk, "tool_call_update", toolCallId="1", status="in_progress", title="ls", rawInput={"command": "ls"}
    )
    assert called == ToolCalled(call="run_a.1", name="bash", input={"command": "ls"}, provider_call="1")
    (answered,) = tell(talk, "tool_call_update", toolCallId="1", status="failed", rawOutput={"exit": 1})
    assert answered == ToolAnswered(call="run_a.1", output={"exit": 1}, status="error", name="bash")


@pytest.mark.parametrize(
    ("agent", "report"),
    [
        (agent_named("opencode"), {"toolCallId": "c", "title": "onward_lookup"}),
        (
            agent_named("gemini"),
            {"toolCallId": "mcp_onward_lookup__c", "title": "lookup (onward MCP Server)"},
        ),
        (
            agent_named("qwen"),
            {"toolCallId": "c", "title": "lookup", "_meta": {"toolName": "mcp__onward__lookup"}},
        ),
        (PLAIN, {"toolCallId": "c", "title": "mcp__onward__lookup"}),
    ],
    ids=["opencode", "gemini", "qwen", "another"],
)
def test_calls_of_our_tools_are_announced_to_the_bridge_once_and_told_by_nobody_else(
    agent: AcpAgent, report: dict[str, Any]
) -> None:
    talk = stream(agent, tools=("lookup",))
    chunk(talk, "let me look")
    assert tell(talk, "tool_call", **report, status="pending") == (Said(text="let me look"),)
    assert tell(talk, "tool_call_update", **report, status="in_progress") == ()
    assert tell(talk, "tool_call_update", **report, status="completed", rawOutput="x") == ()
    assert talk.coming == ["lookup"]
    assert talk.answered({"stopReason": "end_turn"}) == (Finished(status="completed"),)


def test_a_question_makes_the_call_and_says_what_it_is_about() -> None:
    talk = stream(agent_named("gemini"))
    call = {"toolCallId": "write_file__1", "status": "pending", "title": "Writing to x", "kind": "edit"}
    signals, asked = talk.asked({"toolCall": call, "options": [{"optionId": "y", "kind": "allow_once"}]})
    assert [type(one) for one in signals] == [ToolCalled]
    assert (asked.permission.subject, asked.permission.tool) == ("Writing to x", "write_file")
    assert (asked.permission.call, asked.permission.edits) == ("run_a.1", True)
    (answered,) = tell(talk, "tool_call_update", toolCallId="write_file__1", status="completed", content=[])
    assert answered == ToolAnswered(call="run_a.1", output="", name="write_file")


def test_what_the_agent_left_open_is_closed_for_what_it_is() -> None:
    talk = stream()
    tell(talk, "tool_call", toolCallId="1", title="a", status="in_progress")
    tell(talk, "tool_call", toolCallId="2", title="b", status="pending")
    signals = talk.answered({"stopReason": "end_turn"})
    statuses = {one.name: one.status for one in signals if isinstance(one, ToolAnswered)}
    assert statuses == {"a": "outcome_unknown", "b": "not_started"}


def test_a_crash_leaves_calls_open_and_keeps_what_they_had_put_out() -> None:
    talk = stream()
    chunk(talk, "half a sen")
    content = [{"type": "content", "content": {"type": "text", "text": "compiled 3 of 9"}}]
    talk.flush()
    tell(talk, "tool_call", toolCallId="1", title="make", status="in_progress", content=content)
    signals = talk.broken()
    assert signals == (Noted(kind="terminal", body=Terminal(text="compiled 3 of 9"), actor="tool"),)


def test_noise_is_counted_and_unknown_kinds_are_kept() -> None:
    talk = stream()
    for kind in sorted(NOISE):
        assert tell(talk, kind) == ()
    assert set(talk.dropped) == NOISE
    assert tell(talk, "weather") == (Noted(kind="raw", body=b"{}"),)
    assert tell(talk, "tool_call_update", toolCallId="never seen", status="in_progress") == (
        Noted(kind="raw", body=b"{}"),
    )


def test_another_conversation_of_the_same_process_is_not_ours() -> None:
    talk = stream(native_id="ours")
    assert chunk(talk, "hello") == (Noted(kind="raw", body=b"{}"),)


def test_usage_is_of_the_turn_and_cost_only_what_it_added() -> None:
    talk = stream(cost_before=0.5)
    (one,) = tell(talk, "usage_update", used=100, size=1000, cost={"amount": 0.7, "currency": "USD"})
    assert one == Measured(usage=Usage(context_tokens=100, window=1000, cost_usd=0.2))
    unknown = stream(cost_before=None)
    (two,) = tell(unknown, "usage_update", used=100, size=1000, cost={"amount": 0.7, "currency": "USD"})
    assert two == Measured(usage=Usage(context_tokens=100, window=1000))
    qwen = stream(agent_named("qwen"))
    for _ in range(2):
        last = chunk(qwen, "", _meta={"usage": {"inputTokens": 10, "outputTokens": 2}})
    assert last == (
        Measured(usage=Usage(input_tokens=20, output_tokens=4, cache_read_tokens=0, context_tokens=10)),
    )


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("end_turn", "completed"),
        ("cancelled", "cancelled"),
        ("max_tokens", "failed"),
        ("max_turn_requests", "failed"),
        ("refusal", "failed"),
        ("something new", "failed"),
        (None, "failed"),
    ],
)
def test_only_an_end_of_turn_is_a_success(reason: Any, status: str) -> None:
    ending, why, code = in_words(reason)
    assert ending == status
    assert bool(why) == (status != "completed")
    assert code in ("", *FAILURES)


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (PeerError(-32000, "Authentication required"), "authentication", False),
        (PeerError(429, "slow down"), "rate_limited", True),
        (PeerError(503, "later"), "unavailable", True),
        (PeerError(400, "bad"), "invalid_request", False),
        (PeerError(-32603, "Internal error", {"details": "429 slow down"}), "rate_limited", True),
        (PeerError(-32603, "Internal error: boom"), "unknown", False),
        (error_of("just words"), "unknown", False),
    ],
)
def test_errors_are_told_apart(error: PeerError, code: str, retryable: bool) -> None:
    end = failure(error, did_nothing=True)
    assert (end.status, end.code, end.retryable) == ("failed", code, retryable)
    assert end.reason
    assert not failure(error, did_nothing=False).retryable


def test_a_permission_is_never_given_for_longer_than_once() -> None:
    always, once, never = (
        Option(id=kind, kind=kind) for kind in ("allow_always", "allow_once", "reject_always")
    )
    assert chosen((always, once), granted=True) == "allow_once"
    assert chosen((always,), granted=True) is None
    assert chosen((always, never), granted=False) == "reject_always"
    assert chosen((), granted=False) is None


def test_choices_are_read_in_both_forms_of_the_protocol() -> None:
    old = offered({"modes": {"currentModeId": "a", "availableModes": [{"id": "a"}, {"id": "b"}]}})
    assert (old.modes, old.mode, old.mode_option) == (("a", "b"), "a", None)
    groups = [{"group": "g", "options": [{"value": "x/m"}]}, {"value": "y"}]
    option = {"id": "model", "category": "model", "currentValue": "y", "options": groups}
    new = offered({"configOptions": [option]})
    assert (new.models, new.model, new.model_option) == (("x/m", "y"), "y", "model")
    assert offered(None).modes == offered({"configOptions": ["Model"]}).modes == ()


def test_an_agent_is_recognised_by_what_it_says_of_itself() -> None:
    assert recognised(PLAIN, {"name": "OpenCode"}) is agent_named("opencode")
    assert recognised(PLAIN, {"name": "somebody"}) is PLAIN
    assert recognised(agent_named("qwen"), {"name": "OpenCode"}) is agent_named("qwen")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_fields = st.sampled_from(
    [
        "toolCallId",
        "status",
        "content",
        "rawInput",
        "rawOutput",
        "locations",
        "entries",
        "_meta",
        "used",
        "title",
    ]
)
_kinds = st.sampled_from(
    [
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "usage_update",
        "x",
    ]
)


@given(
    st.lists(
        st.tuples(_kinds, st.dictionaries(_fields, _json | st.sampled_from(["1", "completed", "pending"])))
    )
)
def test_whatever_an_agent_sends_nothing_breaks_and_every_call_ends_once(
    updates: list[tuple[str, dict[str, Any]]],
) -> None:
    talk = stream()
    signals = [one for kind, fields in updates for one in tell(talk, kind, **fields)]
    signals += talk.answered({"stopReason": "end_turn"})
    called = [one.call for one in signals if isinstance(one, ToolCalled)]
    answered = [one.call for one in signals if isinstance(one, ToolAnswered)]
    assert sorted(called) == sorted(answered) == sorted(set(called))
    assert isinstance(signals[-1], Finished)


CHATS = Path(".gemini/tmp/project/chats")
ID = "36d1f7b3-e10e-40d6-b7ed-10d853cc0879"
NOON = 1_796_040_030.0  # 2026-11-30 12:00:30 UTC
EMPTY = ({"sessionId": ID, "kind": "main"}, {"$set": {"messages": [{"id": "x", "type": "user"}]}})
FULL = (*EMPTY, {"id": "m", "type": "user", "content": "hi"})


def write(home: Path, name: str, rows: Iterable[dict[str, Any]]) -> Path:
    file = home / CHATS / f"session-{name}-{ID[:8]}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_a_load_waits_for_the_minute_after_the_one_in_a_files_name(tmp_path: Path) -> None:
    assert seconds_until_safe(tmp_path, ID, NOON) == 0
    write(tmp_path, "2026-11-30T11-59", FULL)
    assert seconds_until_safe(tmp_path, ID, NOON) == 0
    write(tmp_path, "2026-11-30T12-00", FULL)
    wait = seconds_until_safe(tmp_path, ID, NOON)
    assert 30 < wait < 31
    assert seconds_until_safe(tmp_path, ID, NOON + wait) == 0


def test_only_empty_files_beside_a_full_one_of_the_same_conversation_are_taken_away(tmp_path: Path) -> None:
    assert sweep(tmp_path, ID) == 0
    alone = write(tmp_path, "2026-11-30T11-00", EMPTY)
    assert sweep(tmp_path, ID) == 0
    full = write(tmp_path, "2026-11-30T10-00", FULL)
    other = write(tmp_path, "2026-11-30T10-30", ({**EMPTY[0], "sessionId": f"{ID[:8]}-other"},))
    broken = write(tmp_path, "2026-11-30T10-45", ())
    broken.write_text("{half a row")
    assert sweep(tmp_path, ID) == 1
    assert [file.exists() for file in (alone, full, other, broken)] == [False, True, True, True]
    assert sweep(tmp_path, "*") == sweep(tmp_path, "[a-z]*[a-z]") == 0


def exchange(recorded: bytes, agent: AcpAgent) -> list[list[Signal]]:
    """The turns of a recorded exchange, each from its prompt to the answer."""
    turns: list[list[Signal]] = []
    talk, prompt, numbers = None, None, Numbers("run_a")
    for line in recorded.splitlines():
        ours, message = line[:1] == b">", json.loads(line[2:])
        if ours and message.get("method") == "session/prompt":
            talk, prompt = AcpStream(next_call=numbers.next, agent=agent, tools=("lookup",)), message["id"]
            turns.append([])
        elif ours or talk is None:
            continue
        elif message.get("method") == "session/update":
            turns[-1] += talk.update(message["params"], line[2:])
        elif message.get("method") == "session/request_permission":
            turns[-1] += talk.asked(message["params"])[0]
        elif message.get("id") == prompt and "method" not in message:
            if "result" in message:
                turns[-1] += talk.answered(message["result"])
            else:
                turns[-1] += (
                    *talk.broken(),
                    failure(error_of(message["error"]), did_nothing=not talk.effects),
                )
            talk = None
    return turns


@pytest.mark.parametrize("name", ["gemini", "opencode", "qwen"])
def test_a_recorded_exchange_with_calls_says_what_happened_twice(name: str) -> None:
    recorded = (RECORDINGS / f"{name}-tools.jsonl").read_bytes()
    turns = exchange(recorded, agent_named(name))
    assert turns == exchange(recorded, agent_named(name))
    calling, writing, failing = turns
    shell = {"opencode": "bash"}.get(name, "run_shell_command")
    assert [one.name for one in calling if isinstance(one, ToolCalled)] == [shell]
    assert [one.status for one in calling if isinstance(one, ToolAnswered)] == ["ok"]
    assert [one.text for one in calling if isinstance(one, Said)] == ["all done"]
    write = {"opencode": "write"}.get(name, "write_file")
    assert [one.name for one in writing if isinstance(one, ToolCalled)] == [write]
    assert [one.status for one in (calling[-1], writing[-1], failing[-1]) if isinstance(one, Finished)] == [
        "completed",
        "completed",
        "failed",
    ]
    assert not [one for turn in turns for one in turn if isinstance(one, Noted)]


def one_shot(engine: str, recorded: bytes) -> list[Signal]:
    if engine == "qwen":  # Claude Code's own form
        lines = recorded.splitlines()
        conversation = next((json.loads(line).get("session_id") for line in lines), "")
        turn = ClaudeTurn(conversation, Numbers("run_a"))
        heard = [turn.hear(line) for line in lines]
        return [*(one for each in heard for one in each.signals), *(each.end for each in heard if each.end)]
    if engine == "gemini":
        gemini = GeminiStream(next_call=Numbers("run_a").next)
        return [one for line in recorded.splitlines() for one in gemini.line(line)]
    opencode = OpencodeStream(next_call=Numbers("run_a").next)
    return [one for line in recorded.splitlines() for one in opencode.line(line)] + [opencode.ended()]


def one_shots() -> list[tuple[str, Path]]:
    samples = needs.found("samples")
    found = [
        (engine, file)
        for engine in ("gemini", "opencode", "qwen")
        for file in sorted((samples / engine / "stream").glob("*.jsonl") if samples else ())
    ]
    return found or [("gemini", Path("missing"))]


@pytest.mark.parametrize(("engine", "file"), one_shots(), ids=lambda value: getattr(value, "stem", value))
def test_the_one_shot_output_of_these_programs_reads_the_same_twice(engine: str, file: Path) -> None:
    needs.need("samples")
    recorded = file.read_bytes()
    signals = one_shot(engine, recorded)
    assert signals == one_shot(engine, recorded)
    assert signals
    ends = [one for one in signals if isinstance(one, Finished)]
    assert len(ends) <= 1
    if file.stem[3:] in ("tool", "mcp", "t1", "t2", "id1", "id2"):
        assert isinstance(signals[0], Started)
        assert ends == [Finished(status="completed")]
        assert not [one for one in signals if isinstance(one, Noted)]
    if "kill" in file.stem or "err" in file.stem or "term" in file.stem:
        assert not [one for one in ends if one.status == "completed"]
