"""The engine against the real opencode and Gemini CLI: their own conversations, a model that follows directives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from tests.engines.real.cli_homes import Home, gemini_home, opencode_home

from onward.engines.acp import AcpEngine
from onward.engines.acp_presets import GeminiEngine, OpencodeEngine
from onward.engines.contract import (
    Finished,
    NativeSession,
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

PATIENCE = 90.0
BRIEF = "<brief>\nThe launch word is heron.\n</brief>"


class Agent(NamedTuple):
    """One of the programs, at home in a folder of the test."""

    name: str
    home: Home
    engine: type[AcpEngine]
    shell: str
    ours: str

    def make(self, **options: Any) -> AcpEngine:
        options = {"timeout": 60.0, **options}
        return self.engine(program=str(self.home.program), env=dict(self.home.env), **options)  # type: ignore[call-arg]

    def turn(self, text: str, *, run: str = "run_a", **more: Any) -> Turn:
        given: dict[str, Any] = {"permission_mode": "dangerously_skip_permissions", **more}
        return Turn(session_id="ses_a", run_id=run, input=text, workdir=str(self.home.workdir), **given)

    def call_shell(self, command: str) -> str:
        return f"[[call {self.shell} {json.dumps({'command': command, 'description': 'a test'})}]]"

    def aged(self) -> None:
        """Let a minute pass for the conversations that are there: Gemini keeps time in the names of its files."""
        if self.name == "gemini":
            for file in self.home.native_files():
                file.rename(file.with_name(file.name.replace("session-20", "session-19", 1)))


@pytest.fixture(params=["opencode", "gemini"])
def agent(
    request: pytest.FixtureRequest, tmp_path: Path, stub: StubModels, monkeypatch: pytest.MonkeyPatch
) -> Agent:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if request.param == "opencode":
        return Agent("opencode", opencode_home(tmp_path, stub), OpencodeEngine, "bash", "onward_{}")
    home = gemini_home(tmp_path, stub)
    return Agent("gemini", home, GeminiEngine, "run_shell_command", "mcp_onward_{}")


async def collect(engine: AcpEngine, turn: Turn) -> list[Signal]:
    async with asyncio.timeout(PATIENCE), closing(engine, turn) as stream:
        return [one async for one in stream]


@asynccontextmanager
async def closing(engine: AcpEngine, turn: Turn) -> AsyncIterator[AsyncIterator[Signal]]:
    stream = engine.run(turn)
    try:
        yield stream
    finally:
        await stream.aclose()


def take(engine: AcpEngine, turn: Turn) -> list[Signal]:
    return asyncio.run(collect(engine, turn))


def said(signals: list[Signal]) -> str:
    return "\n".join(one.text for one in signals if isinstance(one, Said))


def start_of(signals: list[Signal]) -> Started:
    return next(one for one in signals if isinstance(one, Started))


def end_of(signals: list[Signal]) -> Finished:
    assert isinstance(signals[-1], Finished)
    return signals[-1]


def left(agent: Agent) -> list[str]:
    """What still runs of what was started in this home, by the mark that all processes of engines carry."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if MARK in environment and environment.get("HOME") == agent.home.env["HOME"]:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def test_a_turn_with_a_tool_call_is_told_as_it_happens(agent: Agent) -> None:
    signals = take(agent.make(), agent.turn(f"Go. {agent.call_shell('echo tool-out')} [[say all done]]"))
    start = start_of(signals)
    assert start.native_id
    assert (start.resumed, start.briefed) == (False, False)
    (called,) = [one for one in signals if isinstance(one, ToolCalled)]
    (answered,) = [one for one in signals if isinstance(one, ToolAnswered)]
    assert called.call == answered.call == "run_a.1"
    assert called.name == agent.shell
    assert "echo tool-out" in json.dumps(called.input)
    assert answered.status == "ok"
    assert "tool-out" in json.dumps(answered.output)
    assert said(signals) == "all done"
    assert "".join(one.text for one in signals if isinstance(one, TextDelta)) == "all done"
    assert end_of(signals) == Finished(status="completed")
    assert left(agent) == []


def test_a_conversation_is_resumed_again_and_again_and_its_history_is_no_news(
    agent: Agent, stub: StubModels
) -> None:
    first = take(agent.make(), agent.turn(f"{agent.call_shell('echo one')} [[say the first]]"))
    native = NativeSession(id=start_of(first).native_id or "")
    for number in (2, 3):
        agent.aged()
        engine = agent.make()
        signals = take(
            engine, agent.turn(f"[[say turn {number}]]", run=f"run_{number}", native=native, brief=BRIEF)
        )
        start = start_of(signals)
        assert (start.resumed, start.briefed, start.native_id) == (True, False, native.id), start.why
        assert said(signals) == f"turn {number}"
        assert not [one for one in signals if isinstance(one, ToolCalled | ToolAnswered)]
        assert end_of(signals).status == "completed"
    seen = "\n".join(one.text for one in stub.heard())
    assert "the first" in seen
    assert "turn 2" in seen
    assert BRIEF not in seen


@pytest.mark.requirement("O2")
def test_without_its_native_files_it_starts_anew_with_the_brief_once_before_the_instruction(
    agent: Agent, stub: StubModels
) -> None:
    native = NativeSession(id=start_of(take(agent.make(), agent.turn("[[say one]]"))).native_id or "")
    for file in agent.home.native_files():
        file.unlink()
    signals = take(agent.make(), agent.turn("[[say two]]", native=native, brief=BRIEF))
    start = start_of(signals)
    assert (start.resumed, start.briefed) == (False, True)
    assert start.native_id != native.id
    assert start.why
    assert "session" not in start.why.lower()
    assert end_of(signals).status == "completed"
    texts = [one.text for one in stub.heard() if one.who == "user"]
    assert sum(text.count(BRIEF) for text in texts) == 1
    (text,) = [text for text in texts if BRIEF in text]
    assert text.index(BRIEF) < text.index("[[say two]]")


@pytest.mark.requirement("O5")
def test_resuming_or_nothing_means_nothing_where_the_conversation_is_gone(agent: Agent) -> None:
    native = NativeSession(id="01a22a9e-0000-42c3-a48e-16adf3f4ff94")
    signals = take(agent.make(), agent.turn("[[say two]]", native=native, native_only=True, brief=BRIEF))
    assert [type(one) for one in signals] == [Finished]
    assert (end_of(signals).status, end_of(signals).code) == ("failed", "resume_refused")
    assert left(agent) == []


@pytest.mark.skipif(os.name != "posix", reason="kills with a signal that only POSIX has")
def test_killed_in_the_middle_of_a_tool_it_keeps_what_was_told_and_leaves_nothing_running(
    agent: Agent,
) -> None:
    engine = agent.make()
    began = agent.home.workdir / "began"
    os.mkfifo(began)
    pids: list[int] = []

    async def kill() -> None:
        assert await asyncio.to_thread(began.read_text) == "on\n"
        for process in psutil.Process().children():
            if process.environ().get("HOME") == agent.home.env["HOME"]:
                pids.append(process.pid)
                os.kill(process.pid, signal.SIGKILL)

    async def both() -> list[Signal]:
        killing = asyncio.ensure_future(kill())
        told = await collect(engine, turn)
        await killing
        return told

    turn = agent.turn(f"{agent.call_shell(f'echo on > {began}; sleep 61')} [[say never]]")
    signals = asyncio.run(both())
    assert pids
    assert [one.name for one in signals if isinstance(one, ToolCalled)] == [agent.shell]
    assert not [one for one in signals if isinstance(one, ToolAnswered)]
    assert (end_of(signals).status, end_of(signals).code) == ("failed", "crashed")
    assert left(agent) == []
    agent.aged()
    native = NativeSession(id=start_of(signals).native_id or "")
    after = take(agent.make(), agent.turn("[[say after]]", run="run_b", native=native, brief=BRIEF))
    assert said(after) == "after"
    assert end_of(after).status == "completed"


@pytest.mark.parametrize("where", ["text", "tool"])
def test_stopped_in_the_middle_it_ends_its_tool_and_itself(agent: Agent, where: str) -> None:
    async def stop() -> None:
        text = "[[slow 40 0.25]] [[say a long answer that goes on and on]]"
        doing = text if where == "text" else f"{agent.call_shell('sleep 62')} [[say never]]"
        async with asyncio.timeout(PATIENCE), closing(agent.make(), agent.turn(doing)) as stream:
            async for one in stream:
                if isinstance(one, TextDelta | ToolCalled):
                    break

    asyncio.run(stop())
    assert left(agent) == []


def test_a_warm_agent_takes_two_turns_in_one_process(agent: Agent) -> None:
    async def two() -> tuple[list[Signal], list[Signal], int]:
        engine = agent.make(warm=True)
        try:
            first = await collect(engine, agent.turn("[[say one]]"))
            (awake,) = engine.awake()
            native = NativeSession(id=start_of(first).native_id or "")
            second = await collect(engine, agent.turn("[[say two]]", run="run_b", native=native))
            assert [one.pid for one in engine.awake()] == [awake.pid]
            assert await engine.sleep("ses_a")
            assert engine.awake() == ()
            return first, second, awake.pid or 0
        finally:
            await engine.aclose()

    first, second, pid = asyncio.run(two())
    assert start_of(second).resumed
    assert start_of(second).native_id == start_of(first).native_id
    assert said(second) == "two"
    assert not psutil.pid_exists(pid)
    assert left(agent) == []


def test_a_tool_of_ours_that_ends_the_turn_ends_it_cleanly(agent: Agent) -> None:
    calls: list[dict[str, Any]] = []

    async def leave(call: str, given: dict[str, Any]) -> ToolOutcome:
        calls.append(given)
        return ToolOutcome(output="went on elsewhere", ends_turn=True, recorded=True)

    schema = {"type": "object", "properties": {"reason": {"type": "string"}}}
    tool = Tool(name="continue_session", description="Continue elsewhere.", schema=schema, call=leave)
    name = agent.ours.format("continue_session")
    text = f'[[call {name} {{"reason": "other"}}]] [[say never said]]'
    signals = take(agent.make(), agent.turn(text, tools=(tool,), permission_mode="default"))
    assert calls == [{"reason": "other"}]
    (called,) = [one for one in signals if isinstance(one, ToolCalled)]
    (answered,) = [one for one in signals if isinstance(one, ToolAnswered)]
    assert called.name == "continue_session"
    assert answered.recorded
    assert end_of(signals).status == "continued"
    assert "never said" not in said(signals)
    assert left(agent) == []


def test_what_asks_first_is_refused_where_nobody_can_be_asked(agent: Agent) -> None:
    if agent.name == "opencode":
        settings = json.loads(Path(agent.home.env["OPENCODE_CONFIG"]).read_text())
        settings["permission"] = {"bash": "ask"}
        Path(agent.home.env["OPENCODE_CONFIG"]).write_text(json.dumps(settings))
    touched = agent.home.workdir / "touched"
    text = f"{agent.call_shell(f'touch {touched}; sleep 0')} [[say went on]]"
    signals = take(agent.make(), agent.turn(text, permission_mode="default"))
    assert [one.status for one in signals if isinstance(one, ToolAnswered)] == ["not_started"]
    assert not touched.exists()
    assert end_of(signals).status in ("completed", "cancelled")


def test_a_conversation_of_another_folder_is_not_gone_on_with_there(agent: Agent) -> None:
    native = NativeSession(id=start_of(take(agent.make(), agent.turn("[[say one]]"))).native_id or "")
    agent.aged()
    moved = agent.home.workdir.with_name("moved")
    moved.mkdir()
    turn = Turn(
        session_id="ses_a",
        run_id="run_b",
        input=f"{agent.call_shell('pwd')} [[say here]]",
        workdir=str(moved),
        native=native,
        brief=BRIEF,
        permission_mode="dangerously_skip_permissions",
    )
    signals = take(agent.make(), turn)
    start = start_of(signals)
    assert (start.resumed, start.briefed) == (False, True)
    assert start.why
    if agent.name == "opencode":
        (answered,) = [one for one in signals if isinstance(one, ToolAnswered)]
        assert str(moved) in json.dumps(answered.output)
