"""The pi engine with the real pi, against the stub: what it promises, seen from both sides."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.engines.real.cli_homes import MODEL, Home, pi_home
from tests.service.conversations import COMMAND

import onward
from onward.engines.contract import (
    Finished,
    NativeSession,
    Noted,
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
from onward.engines.pi import PiEngine
from onward.testing.engine_contract import Case, EngineContract, collect, run_turn
from onward.testing.stub_models import Reply, Request, StubModels

BRIEF = "<onward_brief>The release is planned for 14 March.</onward_brief>"


@pytest.fixture
def home(tmp_path: Path, stub: StubModels, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return pi_home(tmp_path, stub)


def engine_of(home: Home, **options: Any) -> PiEngine:
    return PiEngine(program=str(home.program), env=home.env, model=f"stub/{MODEL}", **options)


def turn(home: Home, text: str, number: int = 1, **more: Any) -> Turn:
    given: dict[str, Any] = {"permission_mode": "dangerously_skip_permissions"} | more
    return Turn(session_id="ses_a", run_id=f"run_{number}", input=text, workdir=str(home.workdir), **given)


def started(signals: list[Signal]) -> Started:
    assert isinstance(signals[0], Started), signals
    return signals[0]


def end(signals: list[Signal]) -> Finished:
    assert isinstance(signals[-1], Finished)
    return signals[-1]


def of(kind: type[Any], signals: list[Signal]) -> list[Any]:
    return [one for one in signals if isinstance(one, kind)]


def said(signals: list[Signal]) -> list[str]:
    return [one.text for one in of(Said, signals)]


def marked(mark: str) -> list[int]:
    """Processes whose environment holds this, and that still run."""
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            if (
                mark.encode() in file.read_bytes()
                and "Z" not in (file.parent / "stat").read_text().rpartition(")")[2][:3]
            ):
                found.append(int(file.parent.name))
        except OSError:
            continue
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class TestContract(EngineContract):
    stops_within = 8.0
    deterministic = False  # where a text is cut into pieces is pi's business

    @pytest.fixture(autouse=True)
    def _home(self, home: Home) -> None:
        self.engine = PiEngine(program=str(home.program), env=home.env, model=f"stub/{MODEL}")

    def talking(self) -> Case:
        return Case(engine=self.engine, input="[[say All is well.]]")

    def calling(self, tool: str, given: dict[str, Any]) -> Case:
        return Case(
            engine=self.engine, input=f"[[call mcp__onward__{tool} {json.dumps(given)}]] [[say done]]"
        )

    def lasting(self) -> Case:
        return Case(engine=self.engine, input="[[say one two three four five six]] [[slow 30 1]]")

    def failing(self) -> Case:
        return Case(engine=self.engine, input="[[status 400]]")


def test_a_turn_with_a_call_of_its_own_tool(home: Home, stub: StubModels) -> None:
    text = """[[call bash {"command": "printf '%s-%s' over there"}]] [[say That was all.]]"""
    signals = run_turn(engine_of(home), turn(home, text, new_id="chosen-1"))
    assert started(signals) == Started(model=MODEL, native_id="chosen-1")
    (called,), (answered,) = of(ToolCalled, signals), of(ToolAnswered, signals)
    assert (called.name, called.call) == ("bash", "run_1.1")
    assert (answered.call, answered.output, answered.status) == ("run_1.1", "over-there", "ok")
    assert said(signals) == ["That was all."]
    assert end(signals) == Finished(status="completed")
    assert not of(Noted, signals)


def test_a_conversation_is_resumed_and_told_nothing_twice(home: Home, stub: StubModels) -> None:
    engine = engine_of(home)
    run_turn(engine, turn(home, "[[say first]]", new_id="chosen-1", brief=BRIEF))
    signals = run_turn(
        engine,
        turn(home, "[[say second]]", 2, native=NativeSession(id="chosen-1"), brief=BRIEF, new_id="chosen-2"),
    )
    assert started(signals) == Started(model=MODEL, native_id="chosen-1", resumed=True)
    assert stub.asked(1) == (f"{BRIEF}\n\n[[say first]]", "[[say second]]")
    assert said(signals) == ["second"]


@pytest.mark.requirement("O2", "O5")
def test_where_the_native_file_is_gone_the_brief_comes_once_before_the_instruction(
    home: Home, stub: StubModels
) -> None:
    engine = engine_of(home)
    run_turn(engine, turn(home, "[[say first]]", new_id="chosen-1"))
    for file in home.native_files():
        file.unlink()
    given = turn(
        home, "[[say second]]", 2, native=NativeSession(id="chosen-1"), new_id="chosen-2", brief=BRIEF
    )
    signals = run_turn(engine, given)
    assert not started(signals).resumed
    assert started(signals).briefed
    assert started(signals).native_id == "chosen-2"
    assert "chosen-1" in started(signals).why
    assert "session" not in started(signals).why.lower()
    assert stub.asked(1) == (f"{BRIEF}\n\n[[say second]]",)
    assert said(signals) == ["second"]


@pytest.mark.requirement("O5")
def test_it_fails_closed_where_only_the_conversation_itself_will_do(home: Home, stub: StubModels) -> None:
    given = turn(home, "Hello.", native=NativeSession(id="unknown-1"), native_only=True, brief=BRIEF)
    signals = run_turn(engine_of(home), given)
    assert [type(one) for one in signals] == [Finished]
    assert end(signals).code == "resume_refused"
    assert not stub.requests


def test_a_conversation_of_another_folder_is_not_resumed(
    home: Home, tmp_path: Path, stub: StubModels
) -> None:
    engine = engine_of(home)
    run_turn(engine, turn(home, "[[say first]]", new_id="chosen-1"))
    other = tmp_path / "other"
    other.mkdir()
    given = Turn(
        session_id="ses_a",
        run_id="run_2",
        input="[[say second]]",
        native=NativeSession(id="chosen-1"),
        new_id="chosen-2",
        workdir=str(other),
        brief=BRIEF,
    )
    signals = run_turn(engine, given)
    assert (started(signals).resumed, started(signals).native_id) == (False, "chosen-2")
    assert stub.asked(1) == (f"{BRIEF}\n\n[[say second]]",)


def test_an_id_that_is_taken_does_not_begin_a_new_conversation(home: Home, stub: StubModels) -> None:
    engine = engine_of(home)
    run_turn(engine, turn(home, "[[say first]]", new_id="chosen-1"))
    signals = run_turn(engine, turn(home, "[[say second]]", 2, new_id="chosen-1"))
    assert end(signals).status == "failed"
    assert "already" in end(signals).reason
    assert len(stub.requests) == 1


def test_a_beginning_of_an_id_is_not_taken_for_the_id(home: Home, stub: StubModels) -> None:
    engine = engine_of(home)
    run_turn(engine, turn(home, "[[say first]]", new_id="chosen-1"))
    given = turn(home, "Hello.", 2, native=NativeSession(id="chosen"), native_only=True)
    assert end(run_turn(engine, given)).code == "resume_refused"


@pytest.mark.requirement("L6")
def test_after_a_kill_in_the_middle_of_a_tool_the_call_stays_open_and_the_next_turn_is_taken(
    home: Home, stub: StubModels
) -> None:
    engine = PiEngine(
        program=str(home.program), env=home.with_env(PI_TEST_MARK="kill-1"), model=f"stub/{MODEL}"
    )
    seen: list[Signal] = []
    up = home.workdir / "up"
    os.mkfifo(up)

    async def kill() -> None:
        """Kill pi itself once its tool is at work."""
        opened, running = os.open(up, os.O_RDWR | os.O_NONBLOCK), asyncio.Event()
        asyncio.get_running_loop().add_reader(opened, running.set)
        await running.wait()
        asyncio.get_running_loop().remove_reader(opened)
        os.close(opened)
        (pi,) = [pid for pid in marked("PI_TEST_MARK=kill-1") if parent(pid) == os.getpid()]
        os.kill(pi, signal.SIGKILL)

    async def killed() -> None:
        killing = asyncio.create_task(kill())
        text = """[[say Looking.]] [[call bash {"command": "echo up > up; sleep 61"}]]"""
        await collect(engine, turn(home, text, new_id="chosen-1"), seen=seen)
        await killing

    asyncio.run(asyncio.wait_for(killed(), 30))
    assert len(of(ToolCalled, seen)) == 1
    assert not of(ToolAnswered, seen)
    assert (end(seen).status, end(seen).code) == ("failed", "crashed")
    assert marked("PI_TEST_MARK=kill-1") == []
    signals = run_turn(engine, turn(home, "[[say Back.]]", 2, native=NativeSession(id="chosen-1")))
    assert started(signals).resumed
    assert said(signals) == ["Back."]


def test_stopping_in_the_middle_leaves_nothing_and_the_conversation_usable(home: Home) -> None:
    engine = PiEngine(
        program=str(home.program), env=home.with_env(PI_TEST_MARK="stop-1"), model=f"stub/{MODEL}"
    )

    async def stop() -> None:
        text = """[[call bash {"command": "sleep 62"}]]"""
        stream = engine.run(turn(home, text, new_id="chosen-1"))
        async for one in stream:
            if isinstance(one, ToolCalled):
                break
        await stream.aclose()  # type: ignore[attr-defined]

    began = time.monotonic()
    asyncio.run(asyncio.wait_for(stop(), 30))
    assert time.monotonic() - began < 10
    assert marked("PI_TEST_MARK=stop-1") == []
    signals = run_turn(engine, turn(home, "[[say Back.]]", 2, native=NativeSession(id="chosen-1")))
    assert (started(signals).resumed, said(signals)) == (True, ["Back."])


def test_a_turn_that_takes_too_long_is_stopped_and_told(home: Home) -> None:
    engine = engine_of(home, timeout=2.0)
    signals = run_turn(engine, turn(home, """[[call bash {"command": "sleep 63"}]]"""))
    assert (end(signals).status, end(signals).code) == ("failed", "timeout")
    assert "2 s" in end(signals).reason


def test_a_refusal_of_the_provider_is_a_failure_with_its_kind(home: Home) -> None:
    assert end(run_turn(engine_of(home), turn(home, "[[status 401]]"))).code == "authentication"


def test_a_warm_process_takes_the_next_turn(home: Home, stub: StubModels) -> None:
    engine = engine_of(home, warm=True)

    async def two() -> tuple[list[Signal], list[Signal], list[int | None]]:
        first = await collect(engine, turn(home, "[[say first]]", new_id="chosen-1"))
        pids = [one.pid for one in engine.awake()]
        second = await collect(engine, turn(home, "[[say second]]", 2, native=NativeSession(id="chosen-1")))
        pids += [one.pid for one in engine.awake()]
        assert await engine.sleep("ses_a")
        assert not await engine.sleep("ses_a")
        assert engine.awake() == ()
        await engine.aclose()
        return first, second, pids

    first, second, pids = asyncio.run(two())
    assert not started(first).resumed
    assert started(second).resumed
    assert len(pids) == 2
    assert pids[0] == pids[1]
    assert said(second) == ["second"]
    assert stub.asked(1) == ("[[say first]]", "[[say second]]")


def test_a_warm_process_offers_the_tools_of_the_turn_that_it_takes(home: Home) -> None:
    engine = engine_of(home, warm=True)
    calls: list[str] = []

    def tool(name: str) -> Tool:
        async def call(call: str, given: dict[str, Any]) -> ToolOutcome:
            calls.append(f"{call} {name} {given}")
            return ToolOutcome(output=f"from {name}")

        return Tool(name=name, description="A tool.", schema={"type": "object"}, call=call)

    async def two() -> list[Signal]:
        text = "[[call mcp__onward__look {}]] [[say done]]"
        await collect(engine, turn(home, text, new_id="chosen-1", tools=(tool("look"),)))
        again = turn(home, text, 2, native=NativeSession(id="chosen-1"), tools=(tool("look"),))
        signals = await collect(engine, again)
        await engine.aclose()
        return signals

    signals = asyncio.run(two())
    assert calls == ["run_1.1 look {}", "run_2.1 look {}"]
    assert [one.output for one in of(ToolAnswered, signals)] == ["from look"]


def test_a_tool_that_continues_elsewhere_ends_the_turn(home: Home, stub: StubModels) -> None:
    async def leave(call: str, given: dict[str, Any]) -> ToolOutcome:
        return ToolOutcome(output="Continued.", ends_turn=True, recorded=True)

    tool = Tool(name="continue_session", description="Continues.", schema={"type": "object"}, call=leave)
    text = "[[call mcp__onward__continue_session {}]] [[say must not be said]] [[slow 3 1]]"
    signals = run_turn(engine_of(home), turn(home, text, tools=(tool,)))
    assert [type(one) for one in signals[-3:]] == [ToolCalled, ToolAnswered, Finished]
    assert end(signals).status == "continued"
    assert not said(signals)


@pytest.mark.requirement("C2", "O2")
def test_an_agent_continues_and_its_successor_opens_with_the_projection(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    asked = "Please write the notes."

    def answer(request: Request) -> Reply:
        told = json.dumps(request.body["messages"])
        if "<session_continuation>" in told:
            return Reply(text="Answered elsewhere.")
        if '"role": "tool"' in told:
            return Reply(text="must not be said", gate=threading.Event())
        return Reply(calls=(("mcp__onward__continue_session", COMMAND),))

    with StubModels(answer) as stub, onward.open("memory://") as log:
        home = pi_home(tmp_path, stub)
        engine = engine_of(home)
        session = log.start("Notes", workspace=str(home.workdir))
        result = log.run(session.id, asked, engine=engine)
        assert (result.state, result.reply) == ("completed", "Answered elsewhere.")
        assert result.session != session.id
        assert result.opening == "seeded"
        # The stub saw the successor's only request: the projection before the message, in one.
        last = [one for one in stub.requests[-1].body["messages"] if one["role"] == "user"]
        assert len(last) == 1
        text = json.dumps(last[0])
        assert text.index("<session_continuation>") < text.rindex(asked)
        own, other = log.read(session.id), log.read(result.session)
        assert not [one for one in own.events if "must not be said" in str(one.body)]
        assert other.events


@pytest.mark.parametrize(
    ("mode", "granted", "runs"),
    [
        ("default", True, True),
        ("default", False, False),
        ("accept_edits", None, True),
        ("plan", True, False),
        ("default", None, False),
    ],
)
def test_a_tool_that_changes_something_runs_only_if_it_may(
    home: Home, mode: str, granted: bool | None, runs: bool
) -> None:
    asked: list[Permission] = []

    async def permit(permission: Permission) -> Permitted:
        asked.append(permission)
        return Permitted(granted=bool(granted), note="" if granted else "Not today.")

    text = """[[call write {"path": "made.txt", "content": "x"}]] [[say done]]"""
    more = {} if granted is None else {"permit": permit}
    signals = run_turn(engine_of(home), turn(home, text, permission_mode=mode, **more))
    assert (home.workdir / "made.txt").exists() == runs
    (answered,) = of(ToolAnswered, signals)
    assert answered.status == ("ok" if runs else "error")
    assert said(signals) == ["done"]
    if mode == "default" and granted is not None:
        (permission,) = asked
        assert (permission.tool, permission.edits, permission.call) == ("write", True, "run_1.1")
        assert "made.txt" in permission.subject
    else:
        assert not asked


def test_what_asking_raises_ends_the_turn_with_it(home: Home) -> None:
    class Gone(Exception):
        pass

    async def permit(permission: Permission) -> Permitted:
        raise Gone

    text = """[[call bash {"command": "echo x"}]]"""
    with pytest.raises(Gone):
        run_turn(engine_of(home), turn(home, text, permission_mode="default", permit=permit))


def test_a_mode_that_pi_has_no_notion_of_is_refused(home: Home) -> None:
    signals = run_turn(engine_of(home), turn(home, "Hello.", permission_mode="full_auto"))
    assert end(signals).code == "invalid_request"
    assert "sandbox" in end(signals).reason


def test_the_way_to_our_tools_is_not_told_to_the_shell_of_the_agent(home: Home) -> None:
    async def look(call: str, given: dict[str, Any]) -> ToolOutcome:
        return ToolOutcome(output="x")

    tool = Tool(name="look", description="Looks.", schema={"type": "object"}, call=look)
    text = """[[call bash {"command": "env | grep -c '^ONWARD_PI' || true"}]] [[say done]]"""
    signals = run_turn(engine_of(home), turn(home, text, tools=(tool,)))
    assert [one.output.strip() for one in of(ToolAnswered, signals)] == ["0"]


def test_two_at_once_in_one_conversation_are_refused(home: Home) -> None:
    engine = engine_of(home)
    run_turn(engine, turn(home, "[[say first]]", new_id="chosen-1"))

    async def both() -> list[Signal]:
        native = NativeSession(id="chosen-1")
        one = engine.run(turn(home, "[[say a b c d e f]] [[slow 6 1]]", 2, native=native))
        async for said_so_far in one:
            if isinstance(said_so_far, TextDelta):
                break
        other = await collect(engine, turn(home, "[[say second]]", 3, native=native))
        await one.aclose()  # type: ignore[attr-defined]
        return other

    signals = asyncio.run(both())
    assert [type(one) for one in signals] == [Finished]
    assert (end(signals).code, end(signals).retryable) == ("busy", True)
