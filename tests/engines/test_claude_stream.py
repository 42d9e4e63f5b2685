"""What a line of Claude Code's stream means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import needs

from onward.core.bodies import Checkpoint, Plan, Usage
from onward.engines.calling import Numbers
from onward.engines.claude_costs import Spent
from onward.engines.claude_stream import NOISE, ClaudeTurn, Heard
from onward.engines.contract import (
    Finished,
    Measured,
    Mirrored,
    Noted,
    Said,
    Signal,
    Started,
    TextDelta,
    Thought,
    ToolAnswered,
    ToolCalled,
)

ID = "5c3ab1de-9a63-4f0e-8a5e-0c8f6a4f1b01"
OTHER = "5c3ab1de-9a63-4f0e-8a5e-0c8f6a4f1b02"
RECORDINGS = Path(__file__).parent / "recordings" / "claude-code"


def a_turn(**more: Any) -> ClaudeTurn:
    return ClaudeTurn(ID, Numbers("run_a"), **more)


def line(**fields: Any) -> bytes:
    return json.dumps({"session_id": ID, **fields}).encode()


def assistant(*blocks: dict[str, Any], **more: Any) -> bytes:
    message = {"id": "msg_1", "model": "m", "content": list(blocks)} | more.pop("message", {})
    return line(type="assistant", message=message, **more)


def results(*blocks: dict[str, Any], **more: Any) -> bytes:
    return line(type="user", message={"role": "user", "content": list(blocks)}, **more)


def piece(event: dict[str, Any], **more: Any) -> bytes:
    return line(type="stream_event", event=event, **more)


def result(**more: Any) -> bytes:
    return line(**{"type": "result", "subtype": "success", "is_error": False, "result": "ok"} | more)


INIT = line(type="system", subtype="init", model="m")


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def use(id: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def signals(turn: ClaudeTurn, *lines: bytes) -> list[Signal]:
    return [signal for one in lines for signal in turn.hear(one).signals]


def end(turn: ClaudeTurn, *lines: bytes) -> Finished:
    heard = [turn.hear(one) for one in lines]
    (found,) = [one.end for one in heard if one.end]
    return found


@pytest.mark.requirement("O2")
def test_the_start_is_told_when_the_program_reports_the_id_that_was_asked_for() -> None:
    turn = a_turn(started=Started(resumed=True))
    assert signals(turn, INIT) == [Started(model="m", native_id=ID, resumed=True)]
    assert turn.hear(INIT) == Heard(noise="system/init again")


@pytest.mark.requirement("O5")
@pytest.mark.parametrize(
    "elsewhere", [line(type="system", subtype="init", session_id=OTHER), result(session_id=OTHER)]
)
def test_another_conversation_than_the_one_asked_for_fails_the_turn(elsewhere: bytes) -> None:
    turn = a_turn(started=Started(resumed=True))
    found = end(turn, elsewhere)
    assert (found.status, found.code) == ("failed", "protocol")
    assert OTHER in found.reason
    assert not turn.begun


def test_text_comes_as_deltas_and_then_whole() -> None:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "On"}}
    assert signals(a_turn(), INIT, piece(delta), assistant(text("One.")))[1:] == [
        TextDelta(text="On"),
        Said(text="One.", model="m"),
    ]


def test_a_thought_keeps_its_signature() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s1"}
    hidden = {"type": "redacted_thinking", "data": "sealed"}
    assert signals(a_turn(), assistant(thinking, hidden)) == [
        Thought(text="Hm.", signature="s1"),
        Thought(text="", signature="sealed"),
    ]


def test_its_own_calls_are_told_with_our_ids_and_paired_with_their_results() -> None:
    turn = a_turn()
    called = signals(turn, assistant(use("t1", "Bash", command="ls"), use("t2", "Read", file_path="x")))
    assert called == [
        ToolCalled(call="run_a.1", name="Bash", input={"command": "ls"}, provider_call="t1"),
        ToolCalled(call="run_a.2", name="Read", input={"file_path": "x"}, provider_call="t2"),
    ]
    assert turn.call_of("t2") == "run_a.2"
    answers = results(
        {"type": "tool_result", "tool_use_id": "t2", "content": "no such file", "is_error": True},
        {"type": "tool_result", "tool_use_id": "t1", "content": [text("a.txt")]},
    )
    assert signals(turn, answers) == [
        ToolAnswered(call="run_a.2", output="no such file", status="error", name="Read"),
        ToolAnswered(call="run_a.1", output="a.txt", name="Bash"),
    ]
    assert turn.call_of("t2") is None


def test_calls_of_our_tools_are_left_to_the_bridge() -> None:
    turn = a_turn(ours=frozenset({"lookup"}))
    heard = turn.hear(assistant(text("I look."), use("t1", "mcp__onward__lookup")))
    assert heard.ours == ("lookup",)
    assert heard.signals == (Said(text="I look.", model="m"),)
    answered = turn.hear(results({"type": "tool_result", "tool_use_id": "t1", "content": "x"}))
    assert answered == Heard(noise="user/ours")
    assert turn.acted


def test_a_tool_of_another_server_of_ours_by_name_only_is_its_own() -> None:
    turn = a_turn(ours=frozenset({"lookup"}))
    (called,) = signals(turn, assistant(use("t1", "mcp__elsewhere__lookup")))
    assert isinstance(called, ToolCalled)
    assert called.name == "mcp__elsewhere__lookup"


def test_a_result_that_nothing_asked_for_is_kept_whole() -> None:
    block = {"type": "tool_result", "tool_use_id": "before", "content": "late"}
    (noted,) = signals(a_turn(), results(block))
    assert isinstance(noted, Noted)
    assert isinstance(noted.body, bytes)
    assert json.loads(noted.body) == block


def test_an_image_in_a_result_is_named_and_not_copied() -> None:
    turn = a_turn()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
    shown = {"type": "tool_result", "tool_use_id": "t1", "content": [text("seen"), image]}
    *_, answered = signals(turn, assistant(use("t1", "Read")), results(shown))
    assert isinstance(answered, ToolAnswered)
    assert answered.output[0] == text("seen")
    assert answered.output[1]["base64_characters"] == 4
    assert answered.output[1]["base64_digest"].startswith("sha256:")


def test_what_a_subagent_says_is_kept_and_is_not_the_answer() -> None:
    turn = a_turn()
    said = assistant(text("Mine, not yours."), parent_tool_use_id="t1")
    assert signals(turn, said) == [Noted(kind="raw", body=said)]
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Mi"}}
    assert turn.hear(piece(delta, parent_tool_use_id="t1")) == Heard(noise="stream_event")


def test_a_compaction_is_a_checkpoint_with_its_summary() -> None:
    boundary = line(type="system", subtype="compact_boundary", compact_metadata={"trigger": "auto"})
    summary = results(text("So far: one."), isSynthetic=True)
    _, point = signals(a_turn(), boundary, summary)
    assert point == Noted(
        kind="checkpoint", body=Checkpoint(text="So far: one.", trigger="auto"), actor="system"
    )


def test_a_list_of_things_to_do_is_a_plan_too() -> None:
    todos = [
        {"content": "Look", "status": "completed", "activeForm": "Looking"},
        {"content": "Leap", "status": "in_progress"},
        {"content": "Land", "status": "pending"},
    ]
    called, plan = signals(a_turn(), assistant(use("t1", "TodoWrite", todos=todos)))
    assert isinstance(called, ToolCalled)
    assert isinstance(plan, Noted)
    assert isinstance(plan.body, Plan)
    assert [(step.id, step.text, step.status) for step in plan.body.steps] == [
        ("1", "Look", "done"),
        ("2", "Leap", "active"),
        ("3", "Land", "open"),
    ]


def test_what_the_program_says_for_itself_is_no_message_of_the_model() -> None:
    filler = assistant(text("API Error: 400"), message={"model": "<synthetic>"})
    assert signals(a_turn(), filler) == [Noted(kind="raw", body=filler)]


@pytest.mark.requirement("L4")
@pytest.mark.parametrize("unknown", [b'{"type":"new_thing","x":1}', b"{torn", b"[1]", b"\xff\xfe", b'"x"'])
def test_what_is_unknown_is_kept_as_it_came(unknown: bytes) -> None:
    assert signals(a_turn(), unknown) == [Noted(kind="raw", body=unknown)]


def test_usage_adds_up_over_requests_and_the_context_is_the_newest_prompt() -> None:
    turn = a_turn()

    def start(id: str, read: int) -> bytes:
        usage = {"input_tokens": 10, "cache_read_input_tokens": read, "output_tokens": 1}
        return piece({"type": "message_start", "message": {"id": id, "usage": usage}})

    def stop(output: int) -> bytes:
        return piece({"type": "message_delta", "delta": {}, "usage": {"output_tokens": output}})

    heard = signals(turn, start("a", 0), stop(7), start("b", 90), stop(3))
    assert [one.usage for one in heard if isinstance(one, Measured)][-1] == Usage(
        input_tokens=110, output_tokens=10, cache_read_tokens=90, cache_write_tokens=0, context_tokens=100
    )


def test_what_a_turn_cost_is_how_far_the_totals_of_the_conversation_rose() -> None:
    def totals(cost: float, tokens: int) -> dict[str, Any]:
        usage = {"inputTokens": tokens, "outputTokens": 1, "contextWindow": 200_000}
        return {"total_cost_usd": cost, "modelUsage": {"m": usage}}

    before = Spent(cost_usd=1.5, models={"m": {"inputTokens": 100, "outputTokens": 0}})
    turn = a_turn(spent=before)
    (measured,) = signals(turn, result(**totals(2.0, 130)))
    assert isinstance(measured, Measured)
    assert (measured.usage.cost_usd, measured.usage.input_tokens, measured.usage.window) == (0.5, 30, 200_000)
    assert turn.spent.cost_usd == 2.0
    anew = a_turn(spent=turn.spent)
    (fell,) = signals(anew, result(**totals(0.25, 9)))
    assert isinstance(fell, Measured)
    assert fell.usage.cost_usd is None, "a counter that began anew tells nothing"


@pytest.mark.parametrize(
    ("more", "status", "code", "retryable"),
    [
        ({}, "completed", "", False),
        ({"is_error": True, "api_error_status": 401}, "failed", "authentication", False),
        ({"is_error": True, "api_error_status": 429}, "failed", "rate_limited", True),
        ({"is_error": True, "api_error_status": 529}, "failed", "unavailable", True),
        ({"is_error": True, "api_error_status": 503}, "failed", "unavailable", True),
        ({"is_error": True, "api_error_status": 400}, "failed", "invalid_request", False),
        (
            {"is_error": True, "api_error_status": 400, "result": "Credit balance is too low"},
            "failed",
            "quota",
            False,
        ),
        ({"is_error": True, "subtype": "error_max_turns", "result": None}, "failed", "policy", False),
        ({"is_error": None}, "failed", "protocol", False),
        ({"is_error": True, "subtype": "success"}, "failed", "unknown", False),
    ],
)
def test_the_end_is_what_the_result_says_and_not_its_subtype(
    more: dict[str, Any], status: str, code: str, retryable: bool
) -> None:
    found = end(a_turn(), result(**more))
    assert (found.status, found.code, found.retryable) == (status, code, retryable)
    assert status == "completed" or found.reason


def test_what_has_acted_is_not_simply_tried_again() -> None:
    acted = end(a_turn(), assistant(use("t1", "Bash")), result(is_error=True, api_error_status=429))
    assert not acted.retryable


def test_an_error_that_we_asked_for_is_a_cancellation() -> None:
    turn = a_turn()
    turn.interrupting = True
    assert end(turn, result(is_error=True, subtype="error_during_execution")).status == "cancelled"


def test_rows_of_its_own_files_are_mirrored_to_the_byte_even_after_the_end() -> None:
    turn = a_turn()
    rows = [b'{"uuid": "a",  "text":"\\u00e9"}', b'{"type":"x"}']
    file = f"/home/x/.claude/projects/-work/{ID}/subagents/agent-a1.jsonl"
    frame = b'{"type":"transcript_mirror","filePath":"%s","entries":[%s]}' % (file.encode(), b",".join(rows))
    end(turn, result())
    assert signals(turn, frame) == [Mirrored(native_id=ID, path="subagents/agent-a1", rows=tuple(rows))]


def test_the_control_protocol_is_told_apart() -> None:
    turn = a_turn()
    ask = turn.hear(
        line(type="control_request", request_id="r1", request={"subtype": "can_use_tool", "input": {}})
    ).ask
    assert ask is not None
    assert (ask.id, ask.subtype) == ("r1", "can_use_tool")
    assert turn.hear(line(type="control_cancel_request", request_id="r1")).withdrawn == "r1"
    refused = turn.hear(
        line(type="control_response", response={"subtype": "error", "request_id": "o1", "error": "no"})
    ).reply
    assert refused is not None
    assert (refused.id, refused.error) == ("o1", "no")


@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([INIT, assistant(text("x")), result()]), max_size=12)
)
def test_no_line_breaks_it_and_none_vanishes(lines: list[bytes]) -> None:
    turn = a_turn()
    for one in lines:
        accounted(turn.hear(one))


def accounted(heard: Heard) -> None:
    """A line gives signals, or is part of the control protocol, or is listed as saying nothing. Not two of these."""
    speaks = bool(heard.signals or heard.ours or heard.ask or heard.withdrawn or heard.reply or heard.end)
    assert speaks != (heard.noise is not None)
    assert heard.noise is None or heard.noise in NOISE


def recorded() -> list[Any]:
    folder = needs.found("samples")
    files = sorted(RECORDINGS.glob("*.jsonl"))
    files += sorted((folder / "claude-code" / "stream").glob("*.jsonl")) if folder else []
    return [pytest.param(file, id=file.stem) for file in files]


@pytest.mark.parametrize("file", recorded())
def test_every_recorded_line_is_told_or_listed_and_twice_the_same(file: Path) -> None:
    lines = file.read_bytes().splitlines()
    ids = [json.loads(one).get("session_id") for one in lines if one.startswith(b"{")]
    conversation = next(filter(None, ids), ID)

    def read() -> list[Heard]:
        turn, found, ended = ClaudeTurn(conversation, Numbers("run_a")), [], False
        for one in lines:
            if ended and b'"init"' in one:  # the next turn of a process that was kept
                turn, ended = ClaudeTurn(conversation, Numbers("run_b")), False
            found.append(turn.hear(one))
            ended = ended or found[-1].end is not None
        return found

    first = read()
    assert first == read()
    for heard in first:
        accounted(heard)


def test_a_recorded_turn_that_asked_for_permission_reads_as_it_went() -> None:
    turn = a_turn()
    heard = [
        turn.hear(one) for one in (RECORDINGS / "tool-that-was-permitted.jsonl").read_bytes().splitlines()
    ]
    told = [one for each in heard for one in each.signals]
    assert [type(one).__name__ for one in told if not isinstance(one, Measured | Mirrored | TextDelta)] == [
        "Started", "Thought", "ToolCalled", "ToolAnswered", "Thought", "Said",
    ]  # fmt: skip
    (ask,) = [each.ask for each in heard if each.ask]
    assert ask.request["tool_name"] == "Bash"
    assert [each.end.status for each in heard if each.end] == ["completed"]
    usage = [one for one in told if isinstance(one, Measured)][-1].usage
    assert usage.cost_usd is not None
    assert usage.cost_usd > 0
    assert {one.native_id for one in told if isinstance(one, Mirrored)} == {ID}
