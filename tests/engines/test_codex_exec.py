"""Lines of ``codex exec --json`` as signals: recorded streams, and each rule by itself."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.needs import found, need

from onward.core.bodies import Plan, Usage
from onward.core.transcript import TranscriptMessage
from onward.engines.codex_exec import ExecStream, exec_turn
from onward.engines.codex_server import Setup
from onward.engines.contract import (
    Finished,
    Measured,
    NativeSession,
    Noted,
    Said,
    Signal,
    Started,
    Thought,
    ToolAnswered,
    ToolCalled,
    Turn,
)

RECORDINGS = Path(__file__).parent / "recordings" / "codex"
SAMPLES = sorted(((found("samples") or Path("nowhere")) / "codex" / "stream").glob("*.jsonl"))
THREAD = "01a22a9e-f694-72c3-a48e-16adf3f4ff94"


def stream(**given: Any) -> ExecStream:
    numbers = itertools.count(1)
    return ExecStream(**{"next_call": lambda: f"run_a.{next(numbers)}", **given})


def replay(path: Path, **given: Any) -> list[Signal]:
    follow = stream(**given)
    signals = [signal for line in path.read_bytes().splitlines() for signal in follow.line(line)]
    return [*signals, follow.finished] if follow.finished else signals


def line(**record: Any) -> bytes:
    return json.dumps(record).encode()


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("exec-*.jsonl")), ids=lambda path: path.stem)
def test_a_recorded_stream_gives_the_same_signals_twice(path: Path) -> None:
    assert replay(path) == replay(path)
    assert isinstance(replay(path)[-1], Finished)


def test_every_sample_stream_gives_the_same_signals_twice_and_loses_no_line() -> None:
    need("samples")
    assert SAMPLES
    for path in SAMPLES:
        assert replay(path) == replay(path)
        for data in path.read_bytes().splitlines():
            kind = json.loads(data)["type"]
            quiet = kind in ("thread.started", "turn.started", "turn.completed", "turn.failed")
            assert quiet or b'"server": "onward"' in data or stream().line(data), data


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("cx-t1", "completed"),
        ("cx-tool", "completed"),
        ("cx-mcp", "completed"),
        ("cx-err", "failed"),
        ("cx-drop", "failed"),
        ("cx-kill-tool", None),
        ("cx-kill-stream", None),
        ("cx-int-stream", None),
        ("x128-t1", "completed"),
    ],
)
def test_a_sample_ends_as_its_last_record_says(name: str, ends: str | None) -> None:
    signals = replay(need("samples") / "codex" / "stream" / f"{name}.jsonl")
    ended = [signal.status for signal in signals if isinstance(signal, Finished)]
    assert ended == ([] if ends is None else [ends])


def test_a_tool_of_another_server_that_was_not_allowed_is_an_error() -> None:
    signals = replay(need("samples") / "codex" / "stream" / "cx-mcp.jsonl")
    called, answered = (signal for signal in signals if isinstance(signal, ToolCalled | ToolAnswered))
    assert isinstance(called, ToolCalled)
    assert called.name == "mcp__continuity__continue_session"
    assert isinstance(answered, ToolAnswered)
    assert answered.status == "error"
    assert "approval" in answered.output


def test_reasoning_a_failing_command_and_the_answer_come_in_order() -> None:
    signals = replay(RECORDINGS / "exec-tool-and-answer.jsonl")
    kinds = [type(signal) for signal in signals if not isinstance(signal, Noted)]
    assert kinds == [Thought, ToolCalled, ToolAnswered, Thought, Said, Measured, Finished]
    answered = next(signal for signal in signals if isinstance(signal, ToolAnswered))
    assert (answered.status, answered.output) == ("error", {"exit_code": 3, "output": "here"})


@pytest.mark.requirement("O5")
def test_another_thread_than_the_one_that_was_asked_for_is_noticed_with_the_first_line() -> None:
    follow = stream(asked=THREAD)
    assert not follow.elsewhere
    follow.line(line(type="thread.started", thread_id=THREAD))
    assert not follow.elsewhere
    other = stream(asked=THREAD)
    other.line((need("samples") / "codex" / "stream" / "cx-missing-name.jsonl").read_bytes().splitlines()[0])
    assert other.elsewhere


def test_usage_is_the_turns_own_where_the_count_before_is_known() -> None:
    total = {"input_tokens": 300, "cached_input_tokens": 50, "output_tokens": 30}
    ends = line(type="turn.completed", usage=total)
    assert stream().line(ends) == (
        Measured(usage=Usage(input_tokens=300, output_tokens=30, cache_read_tokens=50)),
    )
    before = {"input_tokens": 100, "cached_input_tokens": 20, "output_tokens": 10}
    assert stream(asked=THREAD, before=before).line(ends) == (
        Measured(usage=Usage(input_tokens=200, output_tokens=20, cache_read_tokens=30)),
    )
    unknown = stream(asked=THREAD)
    assert unknown.line(ends) == ()
    assert unknown.total == total


def test_a_list_of_things_to_do_is_a_plan() -> None:
    items = [{"text": "a", "completed": True}, {"text": "b", "completed": False}]
    (noted,) = stream().line(line(type="item.updated", item={"id": "1", "type": "todo_list", "items": items}))
    assert isinstance(noted, Noted)
    assert isinstance(noted.body, Plan)
    assert [(step.text, step.status) for step in noted.body.steps] == [("a", "done"), ("b", "open")]


def test_calls_of_our_own_tools_are_named_and_left_to_the_bridge() -> None:
    follow = stream()
    item = {"id": "1", "type": "mcp_tool_call", "server": "onward", "tool": "recall", "status": "in_progress"}
    assert follow.line(line(type="item.started", item=item)) == ()
    assert follow.asked_for == "recall"
    assert follow.line(line(type="item.completed", item={**item, "status": "completed"})) == ()
    assert follow.asked_for is None


def test_reconnections_and_warnings_are_no_failure() -> None:
    follow = stream()
    for data in (
        line(type="error", message="Reconnecting... 1/5"),
        line(type="item.completed", item={"id": "0", "type": "error", "message": "a warning"}),
    ):
        assert follow.line(data) == (Noted(kind="raw", body=data, actor="system"),)
    assert follow.finished is None
    assert follow.trouble == "Reconnecting... 1/5"


@given(st.binary(min_size=1, max_size=60).filter(lambda data: data.strip() != b""))
def test_a_line_of_any_kind_is_kept(data: bytes) -> None:
    assert stream().line(data) == (Noted(kind="raw", body=data, actor="system"),)


PROGRAM = """\
#!/bin/sh
{first}
cat > "{told}"
echo '{{"type":"thread.started","thread_id":"{thread}"}}'
{rest}
"""


def program(folder: Path, *, thread: str = THREAD, first: str = "", rest: str = "") -> tuple[Setup, Path]:
    """A program that says it is Codex."""
    told, made = folder / "told", folder / "codex"
    made.write_text(PROGRAM.format(first=first, told=told, thread=thread, rest=rest))
    made.chmod(0o755)
    return Setup(words=(str(made),)), told


def take(setup: Setup, **given: Any) -> list[Signal]:
    async def taken() -> list[Signal]:
        turn = Turn(session_id="ses_a", run_id="run_a", input="Go on.", **given)
        async with asyncio.timeout(30):
            return [signal async for signal in exec_turn(turn, setup)]

    return asyncio.run(taken())


@pytest.fixture(autouse=True)
def _leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


DONE = """echo '{"type":"turn.completed","usage":{}}'"""
NEW = "01a22a9f-0000-72c3-a48e-16adf3f4ff94"


@pytest.mark.requirement("O5")
def test_a_new_thread_in_the_place_of_the_asked_one_is_stopped_and_another_is_told_the_brief(
    tmp_path: Path,
) -> None:
    """It would have gone on for long; nothing of what it says counts."""
    rest = f"""case "$*" in *resume*) echo '{{"type":"turn.completed","usage":{{}}}}'; sleep 300;; esac\n{DONE}"""
    setup, told = program(tmp_path, thread=NEW, rest=rest)
    signals = take(setup, native=NativeSession(id=THREAD), brief="THE BRIEF")
    (started,) = [signal for signal in signals if isinstance(signal, Started)]
    assert (started.resumed, started.briefed, started.native_id) == (False, True, NEW)
    assert THREAD in started.why
    assert told.read_text() == "THE BRIEF\n\nGo on."
    assert signals[-1] == Finished(status="completed")
    refused = take(setup, native=NativeSession(id=THREAD), native_only=True)
    assert [getattr(signal, "code", "") for signal in refused] == ["resume_refused"]


def test_a_program_that_just_ends_has_failed_whatever_its_exit_code(tmp_path: Path) -> None:
    for code in (0, 1):
        setup, _ = program(tmp_path, rest=f"echo oh no >&2; exit {code}")
        end = take(setup)[-1]
        assert isinstance(end, Finished)
        assert (end.status, end.code) == ("failed", "crashed")
        assert f"exit code {code}" in end.reason
        assert "oh no" in end.reason


def test_a_thread_that_somebody_writes_in_is_busy(tmp_path: Path) -> None:
    says = (
        f"echo 'Error: thread/resume: thread/resume failed: thread {THREAD} already has an active writer' >&2"
    )
    setup, _ = program(tmp_path, first=f"cat > /dev/null; {says}; exit 1")
    (end,) = take(setup, native=NativeSession(id=THREAD))
    assert isinstance(end, Finished)
    assert (end.code, end.retryable) == ("busy", True)


def test_options_that_this_mode_cannot_follow_are_refused(tmp_path: Path) -> None:
    setup, told = program(tmp_path, rest=DONE)
    (end,) = take(setup, options={"fork": True})
    assert isinstance(end, Finished)
    assert "fork" in end.reason
    assert not told.exists()


def test_messages_that_this_mode_cannot_tell_are_refused_and_not_dropped(tmp_path: Path) -> None:
    setup, told = program(tmp_path, rest=DONE)
    (end,) = take(setup, history=(TranscriptMessage(role="user", content="Before."),))
    assert isinstance(end, Finished)
    assert (end.status, end.code) == ("failed", "invalid_request")
    assert not told.exists()


def test_a_record_whose_type_is_no_text_is_kept_as_it_came() -> None:
    line = b'{"type": [{"type": []}]}'
    assert ExecStream(next_call=lambda: "call").line(line) == (Noted(kind="raw", body=line, actor="system"),)
