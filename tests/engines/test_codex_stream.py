"""Notifications of app-server as signals: recorded streams, and each rule by itself."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.needs import need

from onward.core.bodies import Checkpoint, Plan, Terminal, Usage
from onward.engines.codex_stream import NOISE, AppServerStream, ends_compaction, own_call
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

RECORDINGS = Path(__file__).parent / "recordings" / "codex"
STREAMS = sorted(path for path in RECORDINGS.glob("*.jsonl") if not path.name.startswith("exec-"))
THREAD, TURN = "thread-1", "turn-1"


def numbered() -> Any:
    numbers = itertools.count(1)
    return lambda: f"run_a.{next(numbers)}"


def stream(**given: Any) -> AppServerStream:
    made = AppServerStream(**{"thread": THREAD, "next_call": numbered(), "model": "m", **given})
    made.turn = TURN
    return made


def replay(lines: list[bytes]) -> list[list[Signal]]:
    """The signals of each turn of a recording."""
    turns: list[list[Signal]] = [[]]
    now: AppServerStream | None = None
    for line in lines:
        record = json.loads(line)
        params = record.get("params") or {}
        if "id" in record:
            continue  # a request: it is answered, not translated
        if now is None or (record["method"] == "turn/started" and now.over()):
            thread = params.get("threadId") or params.get("thread", {}).get("id")
            if now is None and thread is None:
                continue
            thread = now.thread if now is not None else thread
            now = AppServerStream(thread=thread, next_call=numbered(), model="m", signed=True)
            turns.append([])
        if record["method"] == "turn/started":
            now.turn = params["turn"]["id"]
        over = now.over()
        turns[-1] += now.line(line)
        if now.over() and not over:
            assert now.finished is not None
            turns[-1].append(now.finished)
    return [turn for turn in turns if turn]


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def of(name: str) -> list[list[Signal]]:
    return replay(lines_of(RECORDINGS / f"{name}.jsonl"))


def kinds(signals: list[Signal]) -> list[str]:
    return [type(signal).__name__ for signal in signals if not isinstance(signal, Measured | TextDelta)]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_recorded_stream_gives_the_same_signals_twice(path: Path) -> None:
    assert replay(lines_of(path)) == replay(lines_of(path))
    assert replay(lines_of(path))


def test_the_sample_transcript_gives_the_same_signals_twice_and_loses_no_text() -> None:
    transcript = need("samples") / "codex" / "app-server-transcript.jsonl"
    lines = [line[2:] for line in transcript.read_bytes().splitlines() if line.startswith(b"< ")]
    lines = [line for line in lines if b'"method"' in line]
    turns = replay(lines)
    assert turns == replay(lines)
    told = [signal for turn in turns for signal in turn]
    messages = [
        record["params"]["item"]["text"]
        for record in map(json.loads, lines)
        if record["method"] == "item/completed" and record["params"]["item"]["type"] == "agentMessage"
    ]
    assert [signal.text for signal in told if isinstance(signal, Said)] == messages
    assert [signal.status for signal in told if isinstance(signal, Finished)][-1] == "cancelled"


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_whatever_is_not_translated_is_listed_as_noise(path: Path) -> None:
    """Every notification gives a signal, or is one of those of which it is written down why nothing is lost."""
    silent = {
        "item/started",  # a message that begins, a call of ours, our own input
        "item/commandExecution/outputDelta",  # told with the end of the command, or by `left`
        "rawResponseItem/completed",  # only reasoning says something new
        "turn/completed",  # `finished`
        "error",  # turn/completed says the same
        "mcpServer/startupStatus/updated",
        "thread/tokenUsage/updated",  # repeated for an earlier turn
    }
    for line in lines_of(path):
        record = json.loads(line)
        if "id" in record or record["method"] in NOISE or record["method"] in silent:
            continue
        item = record["params"].get("item") or {}
        if item.get("type") in ("userMessage", "reasoning"):
            continue
        thread = record["params"].get("threadId")
        got = AppServerStream(thread=thread or THREAD, next_call=numbered()).line(line)
        assert got, record["method"]


def test_reasoning_a_failing_command_and_the_answer_come_in_order() -> None:
    (signals,) = of("tool-and-answer")
    first = next(at for at, signal in enumerate(signals) if isinstance(signal, Thought))
    assert kinds(signals[first:]) == [
        "Thought",
        "ToolCalled",
        "ToolAnswered",
        "Thought",
        "Said",
        "Finished",
    ]
    thought, called, answered = signals[first : first + 3]
    assert thought == Thought(text="Look first.", signature="c2VhbGVk")
    assert isinstance(called, ToolCalled)
    assert (called.call, called.name) == ("run_a.1", "exec_command")
    assert isinstance(answered, ToolAnswered)
    assert (answered.call, answered.status, answered.output) == (
        "run_a.1",
        "error",
        {"exit_code": 3, "output": "here"},
    )
    assert signals[-1] == Finished(status="completed")


def test_a_patch_is_a_call_with_its_changes() -> None:
    (signals,) = of("patch")
    called = next(signal for signal in signals if isinstance(signal, ToolCalled))
    assert called.name == "apply_patch"
    assert called.input["changes"][0]["path"].endswith("y.txt")
    answered = next(signal for signal in signals if isinstance(signal, ToolAnswered))
    assert (answered.status, answered.output) == ("ok", "completed")


def test_what_was_declined_did_not_start() -> None:
    (signals,) = of("declined")
    (answered,) = [signal for signal in signals if isinstance(signal, ToolAnswered)]
    assert answered.status == "not_started"
    assert signals[-1] == Finished(status="completed")


def test_a_provider_that_refuses_fails_the_turn_and_may_be_asked_again() -> None:
    (signals,) = of("refused-by-the-provider")
    end = signals[-1]
    assert isinstance(end, Finished)
    assert (end.status, end.code, end.retryable) == ("failed", "rate_limited", True)
    assert "429" in end.reason


@pytest.mark.parametrize("name", ["two-turns", "compaction", "tool-and-answer"])
def test_a_turn_is_told_what_its_own_requests_used(name: str) -> None:
    """The provider's answers, which say it one by one, are the measure."""
    answers = [
        record["params"]
        for record in map(json.loads, lines_of(RECORDINGS / f"{name}.jsonl"))
        if record["method"] == "rawResponse/completed"
    ]
    for signals, (_, requests) in zip(
        of(name), itertools.groupby(answers, lambda answer: answer["turnId"]), strict=True
    ):
        used = [request["usage"] for request in requests]
        usage = [signal.usage for signal in signals if isinstance(signal, Measured)][-1]
        assert usage.input_tokens == sum(one["inputTokens"] for one in used)
        assert usage.output_tokens == sum(one["outputTokens"] for one in used)
        assert usage.context_tokens
        assert usage.window


def test_an_interrupted_turn_leaves_its_call_open_and_tells_what_the_command_wrote() -> None:
    lines = lines_of(RECORDINGS / "interrupted-in-a-tool.jsonl")
    (signals,) = replay(lines)
    assert not [signal for signal in signals if isinstance(signal, ToolAnswered)]
    assert signals[-1] == Finished(status="cancelled", reason="Codex was interrupted")
    thread = next(json.loads(line)["params"]["threadId"] for line in lines if b"turn/started" in line)
    again = AppServerStream(thread=thread, next_call=numbered())
    for line in lines:
        again.line(line)
    (left,) = again.left()
    assert isinstance(left, Noted)
    assert isinstance(left.body, Terminal)
    assert left.body.text.endswith("going\n")
    assert again.left() == (), "told once"


def test_a_stream_that_is_cut_off_has_no_end() -> None:
    (signals,) = of("cut-off-in-a-sentence")
    assert isinstance(signals[-1], TextDelta)
    assert not [signal for signal in signals if isinstance(signal, Finished | Said)]


def test_a_compaction_is_a_checkpoint_where_its_text_is_known_and_raw_where_not() -> None:
    item = {"item": {"type": "contextCompaction", "id": "c"}, "threadId": THREAD}
    assert ends_compaction("item/completed", item)
    assert not ends_compaction("item/started", item)
    (known,) = stream().take("item/completed", item, summary="We had agreed.")
    assert known == Noted(
        kind="checkpoint", body=Checkpoint(text="We had agreed.", trigger="auto"), actor="system"
    )
    (unknown,) = stream().take("item/completed", item, raw=b"as it came")
    assert unknown == Noted(kind="raw", body=b"as it came", actor="system")


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"threadId": THREAD, "turnId": TURN, "item": {"type": kind, "id": "i1", **fields}}


@pytest.mark.parametrize(
    ("completed", "name", "output", "status"),
    [
        (
            item("commandExecution", command="ls", aggregatedOutput="a\n", exitCode=0, status="completed"),
            "exec_command",
            {"exit_code": 0, "output": "a\n"},
            "ok",
        ),
        (
            item("mcpToolCall", server="web", tool="get", status="failed", error={"message": "gone"}),
            "mcp__web__get",
            "gone",
            "error",
        ),
        (
            item(
                "mcpToolCall",
                server="web",
                tool="get",
                status="completed",
                result={"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            ),
            "mcp__web__get",
            "a\nb",
            "ok",
        ),
        (item("webSearch", query="herons", results=None), "web_search", None, "ok"),
        (item("imageView", path="/a.png"), "view_image", None, "ok"),
        (
            item("dynamicToolCall", tool="t", namespace="n", success=False, status="completed"),
            "n__t",
            None,
            "error",
        ),
        (
            item("collabAgentToolCall", tool="spawnAgent", prompt="go", status="completed"),
            "spawnAgent",
            None,
            "ok",
        ),
        (
            item("commandExecution", command="ls", status="inProgress"),
            "exec_command",
            {"exit_code": None, "output": ""},
            "outcome_unknown",
        ),
    ],
)
def test_a_call_that_is_only_told_when_it_is_over_is_told_as_both(
    completed: dict[str, Any], name: str, output: Any, status: str
) -> None:
    called, answered = stream().take("item/completed", completed)
    assert isinstance(called, ToolCalled)
    assert isinstance(answered, ToolAnswered)
    assert (called.name, called.provider_call) == (name, "i1")
    assert (answered.call, answered.output, answered.status) == (called.call, output, status)


def test_a_search_is_told_once_its_query_is_known() -> None:
    follow = stream()
    assert follow.take("item/started", item("webSearch", query="")) == ()
    called, _ = follow.take("item/completed", item("webSearch", query="herons"))
    assert isinstance(called, ToolCalled)
    assert called.input == {"query": "herons"}


def test_calls_of_our_own_tools_are_left_to_the_bridge() -> None:
    follow, ours = stream(), item("mcpToolCall", server="onward", tool="recall", status="completed")
    assert follow.take("item/started", ours) == follow.take("item/completed", ours) == ()
    assert own_call("item/started", ours) == "recall"
    assert own_call("item/completed", ours) is None
    assert own_call("item/started", item("mcpToolCall", server="web", tool="get")) is None
    assert not follow.acted


def test_a_plan_is_a_revision_of_the_plan() -> None:
    steps = [
        {"step": "a", "status": "completed"},
        {"step": "b", "status": "inProgress"},
        {"step": "c", "status": "pending"},
    ]
    follow = stream()
    for revision in (1, 2):
        (noted,) = follow.take("turn/plan/updated", {"threadId": THREAD, "turnId": TURN, "plan": steps})
        assert isinstance(noted, Noted)
        assert isinstance(noted.body, Plan)
        assert noted.body.revision == revision
        assert [(step.id, step.text, step.status) for step in noted.body.steps] == [
            ("1", "a", "done"),
            ("2", "b", "active"),
            ("3", "c", "open"),
        ]


def test_reasoning_without_encrypted_content_is_told_before_what_comes_next() -> None:
    follow = stream(signed=True)
    thinking = item("reasoning", summary=["I ", "think"])
    assert follow.take("item/completed", thinking) == ()
    said = {"threadId": THREAD, "turnId": TURN, "delta": "so", "itemId": "i2"}
    assert follow.take("item/agentMessage/delta", said) == (Thought(text="I \n\nthink"), TextDelta(text="so"))
    assert stream().take("item/completed", thinking) == (Thought(text="I \n\nthink"),)


def test_usage_counts_from_the_beginning_of_the_turn() -> None:
    def used(total: int, last: int, turn: str = TURN) -> dict[str, Any]:
        counts = {
            "inputTokens": total,
            "outputTokens": total // 10,
            "cachedInputTokens": 0,
            "cacheWriteInputTokens": 0,
        }
        newest = {"inputTokens": last, "outputTokens": last // 10, "totalTokens": last}
        told = {"total": counts, "last": newest, "modelContextWindow": 900}
        return {"threadId": THREAD, "turnId": turn, "tokenUsage": told}

    follow = stream()
    assert follow.take("thread/tokenUsage/updated", used(100, 100, "an earlier turn")) == ()
    follow.take("thread/tokenUsage/updated", used(300, 200))
    (measured,) = follow.take("thread/tokenUsage/updated", used(550, 250))
    assert measured == Measured(
        usage=Usage(
            input_tokens=450,
            output_tokens=45,
            cache_read_tokens=0,
            cache_write_tokens=0,
            window=900,
            context_tokens=250,
        )
    )


@pytest.mark.requirement("O5")
def test_only_the_end_of_our_own_turn_ends_it() -> None:
    def ended(turn: str, status: str = "completed", thread: str = THREAD) -> dict[str, Any]:
        return {"threadId": thread, "turn": {"id": turn, "status": status, "items": [], "error": None}}

    follow = stream()
    (another,) = follow.take("turn/completed", ended("turn-0"))
    (elsewhere,) = follow.take("turn/completed", ended(TURN, thread="thread-2"))
    assert isinstance(another, Noted)
    assert isinstance(elsewhere, Noted)
    assert not follow.over()
    follow.take("turn/completed", ended(TURN, "inProgress"))
    assert follow.finished is not None
    assert (follow.finished.status, follow.finished.code) == ("failed", "protocol")
    done = stream()
    done.take("turn/completed", ended(TURN))
    assert done.finished == Finished(status="completed")


def test_a_failure_after_a_call_is_not_offered_as_worth_another_attempt() -> None:
    follow = stream()
    follow.take("item/started", item("commandExecution", command="rm -r x", status="inProgress"))
    error = {"message": "busy", "codexErrorInfo": "serverOverloaded"}
    follow.take(
        "turn/completed", {"threadId": THREAD, "turn": {"id": TURN, "status": "failed", "error": error}}
    )
    assert follow.finished is not None
    assert (follow.finished.code, follow.finished.retryable) == ("unavailable", False)


def test_a_reconnection_is_no_failure() -> None:
    error = {"message": "Reconnecting... 1/5", "codexErrorInfo": {"responseStreamDisconnected": {}}}
    follow = stream()
    (noted,) = follow.take("error", {"threadId": THREAD, "turnId": TURN, "error": error, "willRetry": True})
    assert isinstance(noted, Noted)
    assert not follow.over()
    assert "Reconnecting" in follow.trouble


def test_other_threads_are_kept_where_something_of_them_is_complete() -> None:
    other = {**item("agentMessage", text="from a subagent"), "threadId": "thread-2"}
    (noted,) = stream().take("item/completed", other)
    assert isinstance(noted, Noted)
    assert b"from a subagent" in noted.body  # type: ignore[operator]
    assert stream().take("item/agentMessage/delta", {"threadId": "thread-2", "delta": "fr"}) == ()


@given(st.binary(max_size=60) | st.text(max_size=30).map(str.encode))
def test_a_line_of_any_kind_is_kept_or_understood(data: bytes) -> None:
    assert stream().line(data) == (Noted(kind="raw", body=data),)


@given(
    st.text(min_size=1, max_size=30).filter(lambda method: method not in NOISE),
    st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8), max_size=4),
)
def test_a_method_that_nobody_knows_is_kept_whole(method: str, params: dict[str, Any]) -> None:
    params.pop("threadId", None)
    line = json.dumps({"method": f"x/{method}", "params": params}).encode()
    assert stream().line(line) == (Noted(kind="raw", body=line, actor="system"),)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("text", "status", "server", "tool", "result", "error", "changes", "query", "summary", "arguments")


@given(
    st.sampled_from(["item/started", "item/completed"]),
    st.sampled_from(
        [
            "agentMessage",
            "reasoning",
            "commandExecution",
            "fileChange",
            "mcpToolCall",
            "webSearch",
            "plan",
            "new",
        ]
    ),
    st.dictionaries(st.sampled_from(FIELDS), ANY, max_size=5),
)
def test_an_item_of_unexpected_shape_stops_nothing(method: str, kind: str, fields: dict[str, Any]) -> None:
    signals = stream().take(method, item(kind, **fields))
    assert all(isinstance(signal, Signal) for signal in signals)
