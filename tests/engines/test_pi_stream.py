"""pi's events as signals: recorded streams replay alike, and no record goes unseen."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.needs import ROOT

from onward.core.bodies import Checkpoint, Message, Outcome
from onward.engines.contract import (
    Finished,
    Measured,
    Noted,
    Said,
    Signal,
    TextDelta,
    Thought,
    ToolAnswered,
    ToolCalled,
)
from onward.engines.pi_stream import DIALOGS, NOISE, QUIET_ROLES, QUIET_UPDATES, SCREEN, PiStream, failure_of

OURS = {"mcp__onward__look": "look"}
RECORDED = sorted((Path(__file__).parent / "recordings" / "pi").glob("*.jsonl"))
SAMPLES = sorted((ROOT.parent / "shared" / "engines" / "samples" / "pi" / "stream").glob("*.jsonl"))
TOLD = frozenset(
    {
        "message_update",
        "message_end",
        "tool_execution_start",
        "tool_execution_end",
        "agent_settled",
        "compaction_end",
        "auto_retry_start",
        "summarization_retry_scheduled",
        "extension_error",
        "extension_ui_request",
        "response",
    }
)


def stream_of() -> PiStream:
    numbers = itertools.count(1)
    return PiStream(next_call=lambda: f"run_a.{next(numbers)}", ours=OURS)


def replay(path: Path) -> tuple[PiStream, list[Signal]]:
    stream, signals = stream_of(), []
    for line in path.read_bytes().splitlines():
        if not line.startswith(b"> "):  # what was said to pi, in a transcript of both sides
            signals += stream.take(line.removeprefix(b"< "))
    return stream, signals


def recorded(name: str) -> tuple[Finished | None, list[Signal]]:
    stream, signals = replay(next(path for path in RECORDED if path.stem == name))
    return stream.finished, signals


def of(kind: type[Any], signals: list[Signal]) -> list[Any]:
    return [one for one in signals if isinstance(one, kind)]


def take(record: object, stream: PiStream | None = None) -> tuple[Signal, ...]:
    return (stream or stream_of()).take(json.dumps(record).encode())


@pytest.mark.parametrize("path", [*RECORDED, *SAMPLES], ids=lambda path: path.stem)
def test_a_recorded_stream_gives_the_same_signals_every_time(path: Path) -> None:
    (first, once), (second, again) = replay(path), replay(path)
    assert once == again
    assert first.finished == second.finished
    assert (first.finished is not None) == (b'"agent_settled"' in path.read_bytes())


@pytest.mark.requirement("L4")
@pytest.mark.parametrize("path", [*RECORDED, *SAMPLES], ids=lambda path: path.stem)
def test_every_record_of_a_stream_is_told_or_listed_as_noise(path: Path) -> None:
    stream = stream_of()
    for line in path.read_bytes().splitlines():
        if line.startswith(b"> "):
            continue
        line = line.removeprefix(b"< ")
        kind = json.loads(line)["type"]
        signals = stream.take(line)
        raw = any(isinstance(one, Noted) and one.kind == "raw" for one in signals)
        assert kind in NOISE | TOLD or raw, kind
        assert not (kind in NOISE and signals)


def test_a_text_is_streamed_and_then_said_with_what_was_thought_before_it() -> None:
    finished, signals = recorded("tool-and-text")
    assert finished == Finished(status="completed")
    thoughts, said = of(Thought, signals), of(Said, signals)
    assert [one.text for one in thoughts] == ["Let me see.", "Let me see."], "once in each of two messages"
    assert signals.index(thoughts[0]) < signals.index(said[0])
    assert [one.text for one in said] == ["All done here."]
    assert "".join(one.text for one in of(TextDelta, signals)) == "All done here."
    (called,), (answered,) = of(ToolCalled, signals), of(ToolAnswered, signals)
    assert (called.call, called.name, called.input) == ("run_a.1", "bash", {"command": "printf tool-out"})
    assert (answered.call, answered.output, answered.status) == ("run_a.1", "tool-out", "ok")
    assert signals.index(called) < signals.index(answered) < signals.index(said[0])


def test_usage_adds_up_over_the_requests_of_a_turn() -> None:
    _, signals = recorded("tool-and-text")
    first, last = (one.usage for one in of(Measured, signals))
    assert last.input_tokens == first.input_tokens + last.context_tokens
    assert last.output_tokens > first.output_tokens
    assert last.cost_usd is None, "a model without prices says nothing about its cost"


def test_a_call_of_our_tool_is_left_to_the_bridge() -> None:
    stream = stream_of()
    path = next(path for path in RECORDED if path.stem == "our-tool")
    signals: list[Signal] = []
    for line in path.read_bytes().splitlines():
        signals += stream.take(line)
        for name in stream.shown():
            assert name == "look"
            stream.bridged(name)
    assert not of(ToolCalled, signals)
    assert not of(ToolAnswered, signals)
    assert [one.text for one in of(Said, signals)] == ["Seen."]


def test_a_call_of_our_tool_that_never_reached_us_is_told_as_pi_answered_it() -> None:
    stream = stream_of()
    take(
        {
            "type": "tool_execution_start",
            "toolCallId": "c",
            "toolName": "mcp__onward__look",
            "args": {"a": 1},
        },
        stream,
    )
    result = {"content": [{"type": "text", "text": "still starting"}]}
    end = {
        "type": "tool_execution_end",
        "toolCallId": "c",
        "toolName": "mcp__onward__look",
        "isError": True,
        "result": result,
    }
    assert take(end, stream) == (
        ToolCalled(call="run_a.1", name="look", input={"a": 1}, provider_call="c"),
        ToolAnswered(call="run_a.1", output="still starting", status="error", name="look"),
    )


def test_tools_that_are_refused_or_not_there_are_answered_with_an_error() -> None:
    _, refused = recorded("refused-tool")
    assert [(one.name, one.status, one.output) for one in of(ToolAnswered, refused)] == [
        ("write", "error", "Not today.")
    ]
    _, unknown = recorded("unknown-tool")
    assert [(one.name, one.status) for one in of(ToolAnswered, unknown)] == [
        ("no_such_tool", "error"),
        ("mcp__onward__nowhere", "error"),
    ]
    assert [one.name for one in of(ToolCalled, unknown)] == ["no_such_tool", "mcp__onward__nowhere"]


def test_a_message_that_broke_off_is_kept_as_interrupted_when_pi_tries_again() -> None:
    finished, signals = recorded("broken-off-and-tried-again")
    assert finished is not None
    assert finished.status == "failed"
    assert not of(Said, signals)
    cut = [one.body for one in of(Noted, signals) if one.kind == "message"]
    assert cut
    assert all(isinstance(body, Message) and body.interrupted for body in cut)
    deltas = "".join(one.text for one in of(TextDelta, signals))
    assert deltas.startswith("".join(body.text for body in cut))
    again = [one.body for one in of(Noted, signals) if one.kind == "outcome"]
    assert [body.status for body in again if isinstance(body, Outcome)] == ["retrying", "retrying"]
    assert "1 of 2" in again[0].text


def test_a_provider_that_refuses_is_a_failure_although_pi_settles() -> None:
    finished, _ = recorded("provider-refuses")
    assert finished is not None
    assert (finished.status, finished.code, finished.retryable) == ("failed", "authentication", False)


def test_a_stream_that_just_stops_has_no_end_and_an_open_call() -> None:
    finished, signals = recorded("killed-in-a-tool")
    assert finished is None
    assert [one.name for one in of(ToolCalled, signals)] == ["bash"]
    assert not of(ToolAnswered, signals)


def test_a_compaction_is_a_checkpoint_with_its_summary() -> None:
    _, signals = recorded("compacted")
    (checkpoint,) = [one.body for one in of(Noted, signals) if one.kind == "checkpoint"]
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.text
    assert checkpoint.trigger == "manual"


@pytest.mark.parametrize(
    ("message", "code", "retryable"),
    [
        ("401: no", "authentication", False),
        ("402: pay", "quota", False),
        ("429: slow down", "rate_limited", True),
        ("503: {}", "unavailable", True),
        ("529 overloaded", "unavailable", True),
        ("400: bad", "invalid_request", False),
        ("fetch failed", "unavailable", True),
        ("No API key found for openai", "authentication", False),
        ("something else", "unknown", False),
    ],
)
def test_a_failure_has_its_kind(message: str, code: str, retryable: bool) -> None:
    assert failure_of(message) == Finished(status="failed", reason=message, code=code, retryable=retryable)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("stop", "completed"),
        ("length", "completed"),
        ("error", "failed"),
        ("aborted", "cancelled"),
        ("deferred", "failed"),
    ],
)
def test_the_last_message_says_how_the_turn_went(reason: str, status: str) -> None:
    stream = stream_of()
    take(
        {"type": "message_end", "message": {"role": "assistant", "content": [], "stopReason": reason}}, stream
    )
    take({"type": "agent_settled", "aborted": False}, stream)
    assert stream.finished is not None
    assert stream.finished.status == status
    assert reason == "stop" or stream.finished.reason


def test_work_that_ends_without_an_answer_is_no_success() -> None:
    stream = stream_of()
    take({"type": "agent_settled", "aborted": False}, stream)
    assert stream.finished is not None
    assert (stream.finished.status, stream.finished.code) == ("failed", "protocol")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KNOWN = sorted(TOLD | {"message_start", "session"})


@pytest.mark.requirement("L4")
@given(
    line=st.binary()
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.builds(
        lambda kind, more: json.dumps({**more, "type": kind}).encode(),
        st.sampled_from(KNOWN),
        st.dictionaries(
            st.sampled_from(
                ["message", "assistantMessageEvent", "result", "toolCallId", "method", "success", "usage"]
            ),
            JSON,
        ),
    )
)
def test_a_line_of_any_shape_is_told_or_kept_and_never_raises(line: bytes) -> None:
    signals = stream_of().take(line)
    try:
        kind = json.loads(line).get("type")
    except (ValueError, AttributeError, RecursionError):
        kind = None
    if kind not in TOLD | NOISE and line.strip():
        assert signals == (Noted(kind="raw", body=line, actor="system"),)


def test_the_lists_of_what_is_left_out_do_not_overlap_with_what_is_told() -> None:
    assert not NOISE & TOLD
    assert all(count == 1 for count in Counter([*SCREEN, *DIALOGS]).values())
    assert "assistant" not in QUIET_ROLES
    assert "text_delta" not in QUIET_UPDATES
