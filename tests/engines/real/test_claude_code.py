"""The engine against the real Claude Code: its own conversations, its own files, a model that follows directives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from tests.engines.real.cli_homes import Home, claude_home

from onward.engines.claude_code import ClaudeCodeEngine
from onward.engines.contract import (
    Finished,
    KeepsProcesses,
    Measured,
    Mirrored,
    NativeFile,
    NativeSession,
    Permission,
    Permitted,
    Said,
    Signal,
    Started,
    TextDelta,
    Tool,
    ToolAnswered,
    ToolCalled,
    ToolOutcome,
    Turn,
)
from onward.engines.processes import MARK
from onward.testing.stub_models import StubModels

PATIENCE = 60.0
BRIEF = "This is not the previous conversation. THE BRIEF."
ID = "5c3ab1de-9a63-4f0e-8a5e-0c8f6a4f1b01"
S = TypeVar("S", bound=Signal)


@pytest.fixture
def home(tmp_path: Path, stub: StubModels, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return claude_home(tmp_path, stub)


def engine(home: Home, **options: Any) -> ClaudeCodeEngine:
    return ClaudeCodeEngine(program=str(home.program), env=dict(home.env), **options)


def turn(home: Home, text: str, *, run: str = "run_a", **more: Any) -> Turn:
    given: dict[str, Any] = {"permission_mode": "dangerously_skip_permissions", **more}
    return Turn(session_id="ses_a", run_id=run, input=text, workdir=str(home.workdir), **given)


async def collect(
    engine: ClaudeCodeEngine,
    turn: Turn,
    *,
    hearing: Callable[[Signal], Awaitable[None]] | None = None,
) -> list[Signal]:
    signals: list[Signal] = []
    stream = engine.run(turn)
    async with asyncio.timeout(PATIENCE):
        try:
            async for one in stream:
                signals.append(one)
                if hearing is not None:
                    await hearing(one)
        finally:
            await stream.aclose()  # type: ignore[attr-defined]
    return signals


def take(engine: ClaudeCodeEngine, turn: Turn) -> list[Signal]:
    return asyncio.run(collect(engine, turn))


def one(signals: list[Signal], kind: type[S]) -> S:
    (found,) = [signal for signal in signals if isinstance(signal, kind)]
    return found


def all_of(signals: list[Signal], kind: type[S]) -> list[S]:
    return [signal for signal in signals if isinstance(signal, kind)]


def tools(outcome: ToolOutcome, called: list[str]) -> tuple[Tool, ...]:
    async def call(id: str, given: dict[str, Any]) -> ToolOutcome:
        called.append(f"{id} {given}")
        return outcome

    schema = {"type": "object", "properties": {"value": {"type": "string"}}}
    return (Tool(name="lookup", description="Looks up.", schema=schema, call=call),)


def recorded(*signals: list[Signal]) -> tuple[NativeFile, ...]:
    """What a runner would hold of the engine's own files after these turns."""
    files: dict[tuple[str, str], list[bytes]] = defaultdict(list)
    for mirrored in (one for turn in signals for one in all_of(turn, Mirrored)):
        files[mirrored.native_id, mirrored.path].extend(mirrored.rows)
    return tuple(NativeFile(native_id=id, path=path, rows=tuple(rows)) for (id, path), rows in files.items())


def shell(command: str) -> str:
    return f"[[call Bash {json.dumps({'command': command, 'description': 'x'})}]]"


def marked(home: Home) -> list[psutil.Process]:
    """The processes of the engine that still run in this home, whoever their parents are by now."""
    found = []
    for process in psutil.process_iter():
        try:
            env = process.environ()
            if (
                MARK in env
                and env.get("HOME") == home.env["HOME"]
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def program_of(home: Home) -> int:
    """The process of Claude Code that is at work, by its own register."""
    (entry,) = (Path(home.env["CLAUDE_CONFIG_DIR"]) / "sessions").glob("*.json")
    return int(entry.stem)


async def there(pipe: Path) -> None:
    """Wait until a tool has written into this pipe, and so is at work."""
    written, loop = asyncio.Event(), asyncio.get_running_loop()
    opened = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    loop.add_reader(opened, written.set)
    try:
        async with asyncio.timeout(PATIENCE):
            await written.wait()
    finally:
        loop.remove_reader(opened)
        os.close(opened)


@pytest.fixture
def began(tmp_path: Path) -> Path:
    """A pipe into which a tool writes once it has begun."""
    pipe = tmp_path / "began"
    os.mkfifo(pipe)
    return pipe


def working(pipe: Path) -> str:
    """Make the model call a tool that says when it has begun, and does not end by itself."""
    return shell(f"echo begun > {pipe}; tail -f /dev/null")


def asked(stub: StubModels, index: int = -1) -> list[str]:
    return [text for text in stub.asked(index) if text.strip()]


def test_a_turn_calls_its_own_tool_and_one_of_ours(home: Home, stub: StubModels) -> None:
    called: list[str] = []
    given = tools(ToolOutcome(output={"found": "heron"}), called)
    text = f'{shell("echo here")} [[call mcp__onward__lookup {{"value": "x"}}]] [[say Done.]]'
    signals = take(engine(home), turn(home, text, tools=given, new_id=ID))
    started = one(signals, Started)
    assert signals[0] is started
    assert (started.native_id, started.resumed, started.briefed) == (ID, False, False)
    own, ours = all_of(signals, ToolCalled)
    assert (own.name, own.input["command"]) == ("Bash", "echo here")
    assert (ours.name, ours.input) == ("lookup", {"value": "x"})
    assert (own.call, ours.call) == ("run_a.1", "run_a.2")
    answers = all_of(signals, ToolAnswered)
    assert [answer.output for answer in answers] == ["here", {"found": "heron"}]
    assert called == ["run_a.2 {'value': 'x'}"]
    assert one(signals, Said).text == "Done."
    assert "".join(delta.text for delta in all_of(signals, TextDelta)) == "Done."
    usage = all_of(signals, Measured)[-1].usage
    assert usage.context_tokens
    assert usage.input_tokens
    assert 2.5 * usage.context_tokens < usage.input_tokens < 3 * usage.context_tokens, "three requests"
    assert usage.window
    assert signals[-1] == Finished(status="completed")
    assert any("heron" in said.text for said in stub.heard() if said.who == "tool")
    assert {mirrored.native_id for mirrored in all_of(signals, Mirrored)} == {ID}
    assert not marked(home)


@pytest.mark.requirement("O2")
def test_what_claude_code_holds_is_resumed_and_the_brief_is_dropped(home: Home, stub: StubModels) -> None:
    claude = engine(home)
    first = take(claude, turn(home, "[[say One.]]", new_id=ID))
    again = turn(home, "[[say Two.]]", run="run_b", native=NativeSession(id=ID), brief=BRIEF)
    second = take(claude, again)
    started = one(second, Started)
    assert (started.native_id, started.resumed, started.why) == (ID, True, "")
    assert asked(stub) == ["[[say One.]]", "[[say Two.]]"]
    costs = [all_of(signals, Measured)[-1].usage.cost_usd for signals in (first, second)]
    assert costs[0] == pytest.approx(costs[1], rel=0.2), (
        "each turn is told its own cost, not the conversation's"
    )


@pytest.mark.requirement("O2", "O5")
def test_without_its_file_the_brief_stands_once_in_front_of_the_instruction(
    home: Home, stub: StubModels
) -> None:
    claude = engine(home)
    take(claude, turn(home, "[[say One.]]", new_id=ID))
    for file in home.native_files():
        file.unlink()
    other = str(uuid.uuid4())
    again = turn(home, "[[say Two.]]", run="run_b", native=NativeSession(id=ID), new_id=other, brief=BRIEF)
    signals = take(claude, again)
    started = one(signals, Started)
    assert (started.native_id, started.resumed, started.restored, started.briefed) == (
        other,
        False,
        False,
        True,
    )
    assert "does not know" in started.why
    assert "session" not in started.why
    assert asked(stub) == [f"{BRIEF}\n\n[[say Two.]]"]
    assert len(stub.requests) == 2, "finding out cost no request"
    assert signals[-1] == Finished(status="completed")


@pytest.mark.requirement("O5")
def test_resume_or_nothing_fails_closed_before_a_model_is_asked(home: Home, stub: StubModels) -> None:
    asked_for = turn(
        home,
        "[[say Two.]]",
        native=NativeSession(id=ID),
        native_only=True,
        brief=BRIEF,
        new_id=str(uuid.uuid4()),
    )
    signals = take(engine(home), asked_for)
    (end,) = signals
    assert isinstance(end, Finished)
    assert (end.status, end.code) == ("failed", "resume_refused")
    assert not stub.requests
    assert not home.native_files()


def test_an_id_that_is_taken_gives_way_to_another(home: Home) -> None:
    claude = engine(home)
    take(claude, turn(home, "[[say One.]]", new_id=ID))
    started = one(take(claude, turn(home, "[[say Other.]]", run="run_b", new_id=ID)), Started)
    assert started.native_id != ID
    assert "taken" in started.why


@pytest.mark.requirement("O2", "T1")
def test_it_is_restored_on_an_empty_home_with_its_tool_calls(
    home: Home, stub: StubModels, tmp_path: Path
) -> None:
    first = take(engine(home), turn(home, f"{shell('echo heron')} [[say One.]]", new_id=ID))
    elsewhere = claude_home(tmp_path / "other", stub)
    again = turn(
        elsewhere,
        "[[say Two.]]",
        run="run_b",
        native=NativeSession(id=ID),
        recorded=recorded(first),
        brief=BRIEF,
    )
    signals = take(engine(elsewhere), again)
    started = one(signals, Started)
    assert (started.native_id, started.restored, started.resumed, started.briefed) == (ID, True, False, False)
    assert signals[-1] == Finished(status="completed")
    heard = stub.heard()
    assert any(said.who == "tool" and "heron" in said.text for said in heard), "its tool call came along"
    assert not any("THE BRIEF" in said.text for said in heard)
    (file,) = elsewhere.native_files()
    assert file.name == f"{ID}.jsonl"
    third = turn(elsewhere, "[[say Three.]]", run="run_c", native=NativeSession(id=ID))
    assert one(take(engine(elsewhere), third), Started).resumed


def test_a_workspace_that_moved_is_resumed_from_where_it_is_now(home: Home, tmp_path: Path) -> None:
    claude = engine(home)
    take(claude, turn(home, "[[say One.]]", new_id=ID))
    moved = tmp_path / "moved"
    home.workdir.rename(moved)
    there = Turn(
        session_id="ses_a",
        run_id="run_b",
        input=f"{shell('pwd')} [[say Two.]]",
        workdir=str(moved),
        native=NativeSession(id=ID),
        permission_mode="dangerously_skip_permissions",
    )
    signals = take(claude, there)
    assert one(signals, Started).resumed
    assert one(signals, ToolAnswered).output == str(moved)


@pytest.mark.requirement("L1")
def test_killed_in_the_middle_of_a_tool_it_leaves_what_it_said_and_no_process(
    home: Home, stub: StubModels, began: Path
) -> None:
    claude = engine(home)

    async def kill(said: Signal) -> None:
        if isinstance(said, ToolCalled):
            await there(began)
            os.kill(program_of(home), signal.SIGKILL)

    signals = asyncio.run(collect(claude, turn(home, working(began), new_id=ID), hearing=kill))
    assert one(signals, Started).native_id == ID
    assert one(signals, ToolCalled).name == "Bash"
    assert not all_of(signals, ToolAnswered), "its outcome is not known"
    end = signals[-1]
    assert isinstance(end, Finished)
    assert (end.status, end.code, end.retryable) == ("failed", "crashed", False)
    assert not marked(home)
    after = take(claude, turn(home, "[[say Again.]]", run="run_b", native=NativeSession(id=ID)))
    assert one(after, Started).resumed
    assert after[-1] == Finished(status="completed")
    assert any("begun" in text for text in asked(stub))


@pytest.mark.parametrize("way", ["cancel the task", "close the iterator"])
def test_stopped_in_the_middle_of_a_tool_it_is_interrupted_and_goes_on_later(
    way: str, home: Home, began: Path
) -> None:
    claude = engine(home)

    async def stop() -> float:
        stream = claude.run(turn(home, working(began), new_id=ID))
        at_work = asyncio.create_task(there(began))

        async def drive() -> None:
            async for said in stream:
                if isinstance(said, ToolCalled) and way == "close the iterator":
                    await at_work
                    break
            await stream.aclose()  # type: ignore[attr-defined]

        task = asyncio.create_task(drive())
        await at_work
        since = time.monotonic()
        if way == "cancel the task":
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return time.monotonic() - since

    assert asyncio.run(stop()) < 5
    assert not marked(home)
    (file,) = home.native_files()
    assert "Request interrupted" in file.read_text(), "Claude Code was asked to stop before it was made to"
    after = take(claude, turn(home, "[[say Again.]]", run="run_b", native=NativeSession(id=ID)))
    assert one(after, Started).resumed


def test_rows_written_while_nobody_listened_are_mirrored_with_the_next_turn(home: Home) -> None:
    claude = engine(home)
    first = take(claude, turn(home, "[[say One.]]", new_id=ID))
    by_hand = subprocess.run(
        [str(home.program), "-p", "--resume", ID, "[[say By hand.]]"],
        env={**os.environ, **home.env},
        cwd=home.workdir,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    assert by_hand.stdout.strip() == b"By hand."
    held = recorded(first)
    second = take(claude, turn(home, "[[say Two.]]", run="run_b", native=NativeSession(id=ID), recorded=held))
    rows = b"\n".join(row for mirrored in all_of(second, Mirrored) for row in mirrored.rows)
    assert rows.index(b"By hand.") < rows.index(b"Two.")
    assert rows.count(b'"text":"By hand."') == 1


def test_a_warm_process_takes_two_turns_and_sleeps(home: Home, stub: StubModels) -> None:
    claude = engine(home, warm=True)
    assert isinstance(claude, KeepsProcesses)
    called: list[str] = []

    async def two() -> tuple[list[Signal], list[Signal], tuple[int | None, ...]]:
        given = tools(ToolOutcome(output="heron"), called)
        first = await collect(claude, turn(home, "[[call mcp__onward__lookup {}]]", new_id=ID, tools=given))
        pids = tuple(one.pid for one in claude.awake())
        again = turn(
            home,
            "[[call mcp__onward__lookup {}]]",
            run="run_b",
            native=NativeSession(id=ID),
            tools=tools(ToolOutcome(output="crane"), called),
            brief=BRIEF,
        )
        second = await collect(claude, again)
        pids += tuple(one.pid for one in claude.awake())
        assert await claude.sleep("ses_a")
        assert not await claude.sleep("ses_a")
        return first, second, pids

    first, second, pids = asyncio.run(two())
    assert pids[0] == pids[1]
    assert one(second, Started).resumed
    assert [one(signals, ToolAnswered).output for signals in (first, second)] == ["heron", "crane"]
    assert [one(signals, ToolCalled).call for signals in (first, second)] == ["run_a.1", "run_b.1"]
    assert all(signals[-1] == Finished(status="completed") for signals in (first, second))
    costs = [all_of(signals, Measured)[-1].usage.cost_usd for signals in (first, second)]
    assert costs[0] == pytest.approx(costs[1], rel=0.2)
    assert not any("THE BRIEF" in said.text for said in stub.heard())
    assert not claude.awake()
    assert not marked(home)


TWO_LOOPS = """
import asyncio, json, sys
from onward.engines.claude_code import ClaudeCodeEngine
from onward.engines.contract import Finished, NativeSession, Started, Turn

given = json.load(sys.stdin)
engine = ClaudeCodeEngine(program=given["program"], env=given["env"], warm=True)

async def take(run, native):
    turn = Turn(session_id="ses_a", run_id=run, input="[[say Yes.]]", workdir=given["workdir"], native=native)
    return [one async for one in engine.run(turn) if isinstance(one, Started | Finished)]

started, _ = asyncio.run(take("run_a", None))
again, end = asyncio.run(take("run_b", NativeSession(id=started.native_id)))
print(again.native_id == started.native_id, again.resumed, end.status)
asyncio.run(engine.aclose())
"""


def test_a_warm_process_of_an_event_loop_that_has_ended_is_replaced(home: Home) -> None:
    given = {"program": str(home.program), "env": dict(home.env), "workdir": str(home.workdir)}
    # In a process of its own: what belonged to the loop that ended complains whenever it is collected.
    told = subprocess.run(
        [sys.executable, "-c", TWO_LOOPS],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert told.stdout == "True True completed\n"
    assert not marked(home)


def test_a_warm_process_that_died_is_replaced(home: Home) -> None:
    claude = engine(home, warm=True)

    async def two() -> list[Signal]:
        await collect(claude, turn(home, "[[say One.]]", new_id=ID))
        (waiting,) = claude.awake()
        assert waiting.pid is not None
        os.kill(waiting.pid, signal.SIGKILL)
        again = turn(home, "[[say Two.]]", run="run_b", native=NativeSession(id=ID))
        second = await collect(claude, again)
        await claude.aclose()
        return second

    second = asyncio.run(two())
    assert one(second, Started).resumed
    assert second[-1] == Finished(status="completed")
    assert not marked(home)


@pytest.mark.requirement("C1")
def test_continuing_from_inside_ends_the_turn(home: Home, stub: StubModels) -> None:
    called: list[str] = []
    given = tools(ToolOutcome(output="went on", ends_turn=True, recorded=True), called)
    signals = take(
        engine(home), turn(home, "[[call mcp__onward__lookup {}]] [[say Never.]]", tools=given, new_id=ID)
    )
    answered = one(signals, ToolAnswered)
    assert answered.recorded
    end = signals[-1]
    assert isinstance(end, Finished)
    assert end.status == "continued"
    assert signals[signals.index(answered) + 1 :] == [end]
    assert not all_of(signals, Said)
    assert len(called) == 1
    assert not marked(home)


@pytest.mark.requirement("L6")
def test_a_conversation_that_another_process_works_in_is_busy(home: Home, stub: StubModels) -> None:
    claude = engine(home)
    take(claude, turn(home, "[[say One.]]", new_id=ID))
    before = len(stub.requests)
    words = [str(home.program), "-p", "--input-format", "stream-json", "--output-format", "stream-json"]
    other = subprocess.Popen(
        [*words, "--verbose", "--resume", ID],
        env={**os.environ, **home.env},
        cwd=home.workdir,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdin is not None
    assert other.stdout is not None
    try:
        ask = {"type": "control_request", "request_id": "x", "request": {"subtype": "initialize"}}
        other.stdin.write(json.dumps(ask).encode() + b"\n")
        other.stdin.flush()
        assert b"control_response" in other.stdout.readline()
        (end,) = take(claude, turn(home, "[[say Two.]]", run="run_b", native=NativeSession(id=ID)))
    finally:
        other.kill()
        other.wait()
        other.stdin.close()
        other.stdout.close()
    assert isinstance(end, Finished)
    assert (end.status, end.code, end.retryable) == ("failed", "busy", True)
    assert str(other.pid) in end.reason
    assert len(stub.requests) == before
    after = take(claude, turn(home, "[[say Two.]]", run="run_c", native=NativeSession(id=ID)))
    assert one(after, Started).resumed, "what a process leaves behind that was killed keeps nobody out"


@pytest.mark.parametrize("granted", [True, False])
def test_it_asks_before_it_acts(granted: bool, home: Home) -> None:
    wanted: list[Permission] = []

    async def permit(permission: Permission) -> Permitted:
        wanted.append(permission)
        return Permitted(granted=granted, note="Not today.")

    text = f"{shell('touch here.txt')} [[say Done.]]"
    signals = take(engine(home), turn(home, text, permission_mode="default", permit=permit))
    (permission,) = wanted
    assert permission.tool == "Bash"
    assert permission.subject == "Bash: touch here.txt"
    assert permission.call == one(signals, ToolCalled).call
    assert not permission.edits
    assert (home.workdir / "here.txt").exists() == granted
    answered = one(signals, ToolAnswered)
    assert answered.status == ("ok" if granted else "error")
    assert granted or "Not today." in answered.output
    assert signals[-1] == Finished(status="completed")


def test_stopped_while_somebody_is_asked_it_leaves_no_question_open(home: Home) -> None:
    async def stop() -> set[asyncio.Task[Any]]:
        asked = asyncio.Event()

        async def permit(_: Permission) -> Permitted:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        asking = turn(home, shell("touch here.txt"), permission_mode="default", permit=permit)
        task = asyncio.create_task(collect(engine(home), asking))
        async with asyncio.timeout(PATIENCE):
            await asked.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    assert asyncio.run(stop()) == set()
    assert not marked(home)
    assert not (home.workdir / "here.txt").exists()


def test_where_nobody_can_be_asked_it_is_refused(home: Home) -> None:
    signals = take(
        engine(home), turn(home, f"{shell('touch here.txt')} [[say Done.]]", permission_mode="default")
    )
    assert one(signals, ToolAnswered).status == "error"
    assert not (home.workdir / "here.txt").exists()


def test_where_only_planning_is_allowed_nobody_is_asked_to_do_more(home: Home) -> None:
    async def permit(permission: Permission) -> Permitted:
        raise AssertionError(permission.subject)

    given = {"file_path": str(home.workdir / "here.txt"), "content": "x"}
    asking = turn(
        home, f"[[call Write {json.dumps(given)}]] [[say Planned.]]", permission_mode="plan", permit=permit
    )
    signals = take(engine(home), asking)
    assert one(signals, ToolAnswered).status == "error"
    assert not (home.workdir / "here.txt").exists()
    assert signals[-1] == Finished(status="completed")


@pytest.mark.parametrize("mode", ["accept_edits", "full_auto"])
def test_edits_that_the_mode_accepts_are_not_asked_about(mode: str, home: Home) -> None:
    given = {"file_path": str(home.workdir / "here.txt"), "content": "x"}
    signals = take(engine(home), turn(home, f"[[call Write {json.dumps(given)}]]", permission_mode=mode))
    assert one(signals, ToolAnswered).status == "ok"
    assert (home.workdir / "here.txt").read_text() == "x"


def test_what_it_refuses_to_begin_with_is_told_in_its_words(home: Home) -> None:
    claude = engine(home, arguments=["--no-such-option"])
    (end,) = take(claude, turn(home, "[[say One.]]"))
    assert isinstance(end, Finished)
    assert end.status == "failed"
    assert "no-such-option" in end.reason


def test_options_of_a_turn_are_checked_before_anything_starts(home: Home, stub: StubModels) -> None:
    for options in ({"colour": "blue"}, {"max_turns": "many"}, {"effort": "--print"}):
        (end,) = take(engine(home), turn(home, "[[say One.]]", options=options))
        assert isinstance(end, Finished)
        assert (end.status, end.code) == ("failed", "invalid_request")
    assert not stub.requests
    signals = take(engine(home), turn(home, shell("echo x"), options={"max_turns": 1}))
    end = signals[-1]
    assert isinstance(end, Finished)
    assert (end.status, end.code) == ("failed", "policy")


def test_what_a_permission_raises_is_raised(home: Home) -> None:
    async def permit(_: Permission) -> Permitted:
        raise LookupError("the lease is gone")

    asking = turn(home, shell("touch here.txt"), permission_mode="default", permit=permit)
    with pytest.raises(LookupError, match="lease"):
        take(engine(home), asking)
    assert not marked(home)


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [(401, "authentication", False), (429, "rate_limited", True), (400, "invalid_request", False)],
)
def test_an_error_of_the_provider_is_a_failure_of_its_kind(
    status: int, code: str, retryable: bool, home: Home
) -> None:
    env = home.with_env(CLAUDE_CODE_MAX_RETRIES="0")
    claude = ClaudeCodeEngine(program=str(home.program), env=env)
    end = take(claude, turn(home, f"[[status {status}]]"))[-1]
    assert isinstance(end, Finished)
    assert (end.status, end.code, end.retryable) == ("failed", code, retryable)
    assert str(status) in end.reason


def test_a_turn_that_takes_too_long_is_stopped(home: Home, stub: StubModels) -> None:
    signals = take(engine(home, timeout=3.0), turn(home, shell("tail -f /dev/null")))
    end = signals[-1]
    assert isinstance(end, Finished)
    assert (end.status, end.code) == ("failed", "timeout")
    assert not marked(home)


def test_forgetting_removes_the_conversation_and_nothing_else(home: Home) -> None:
    claude = engine(home)
    take(claude, turn(home, "[[say One.]]", new_id=ID))
    take(claude, turn(home, "[[say Other.]]", run="run_b", new_id=str(uuid.uuid4())))
    (removed,) = claude.forget(ID)
    assert removed.name == f"{ID}.jsonl"
    (left,) = home.native_files()
    assert left.name != removed.name
    assert claude.forget(ID) == ()


def test_what_a_subagent_says_is_not_the_answer(home: Home) -> None:
    given = {
        "description": "d",
        "prompt": "look around",
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    signals = take(engine(home), turn(home, f"[[call Task {json.dumps(given)}]] [[say Mine.]]"))
    assert [said.text for said in all_of(signals, Said)] == ["Mine."]
    assert signals[-1] == Finished(status="completed")
