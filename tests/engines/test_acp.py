"""The engine for agents of the Agent Client Protocol, with an agent that does what it is told, well or badly."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from onward.core.bodies import Plan, PlanStep
from onward.engines import engine_by_name
from onward.engines.acp import AcpEngine
from onward.engines.contract import (
    Finished,
    KeepsProcesses,
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
from onward.engines.leases import native_lease
from onward.errors import LeaseLost
from onward.testing.engine_contract import collect, run_turn

BRIEF = "<brief>The launch word is heron.</brief>"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    return tmp_path


def make(folder: Path, *traits: str, **options: Any) -> AcpEngine:
    command = [sys.executable, "-m", "onward.testing.acp_agent", "--store", str(folder), *traits]
    return AcpEngine(command=command, **{"timeout": 40.0, **options})


def turn(folder: Path, text: str, *, run: str = "run_a", **more: Any) -> Turn:
    given: dict[str, Any] = {"workdir": str(folder / "work"), **more}
    return Turn(session_id="ses_a", run_id=run, input=text, **given)


def take(engine: AcpEngine, given: Turn) -> list[Signal]:
    return run_turn(engine, given, patience=60.0)


def began(folder: Path, text: str = "Remember heron.") -> NativeSession:
    (start, *_) = take(make(folder), turn(folder, text))
    assert isinstance(start, Started)
    return NativeSession(id=start.native_id or "")


def said(signals: list[Signal]) -> list[str]:
    return [one.text for one in signals if isinstance(one, Said)]


def raws(signals: list[Signal]) -> list[bytes]:
    return [one.body for one in signals if isinstance(one, Noted) and isinstance(one.body, bytes)]


def start_of(signals: list[Signal]) -> Started:
    (start,) = [one for one in signals if isinstance(one, Started)]
    return start


def end_of(signals: list[Signal]) -> Finished:
    (end,) = [one for one in signals if isinstance(one, Finished)]
    assert signals[-1] is end
    return end


@pytest.mark.parametrize("traits", [(), ("--only", "load"), ("--only", "load", "--late")], ids=" ".join)
def test_a_conversation_is_resumed_and_its_replayed_history_is_no_news(
    folder: Path, traits: tuple[str, ...]
) -> None:
    native = began(folder)
    engine = make(folder, *traits)
    signals = take(engine, turn(folder, "[[recall]]", native=native, brief=BRIEF))
    start = start_of(signals)
    assert (start.resumed, start.briefed, start.native_id, start.why) == (True, False, native.id, "")
    assert said(signals) == ["I hold 1 earlier prompts, the first: Remember heron."]
    assert not [one for one in signals if isinstance(one, ToolCalled | Noted)]
    assert engine.dropped["replayed history"] == (3 if traits else 0)


@pytest.mark.requirement("O2")
def test_a_conversation_that_the_agent_does_not_know_starts_anew_with_the_brief_in_front(
    folder: Path,
) -> None:
    signals = take(make(folder), turn(folder, "Go on.", native=NativeSession(id="gone"), brief=BRIEF))
    start = start_of(signals)
    assert (start.resumed, start.briefed) == (False, True)
    assert "does not know" in start.why
    assert "session" not in start.why
    (kept,) = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    assert kept["prompts"] == [f"{BRIEF}\n\nGo on."]


@pytest.mark.requirement("O5")
@pytest.mark.parametrize("traits", [(), ("--only", "nothing"), ("--new-id-on-resume",)], ids=" ".join)
def test_an_agent_that_cannot_resume_fails_closed(folder: Path, traits: tuple[str, ...]) -> None:
    native = NativeSession(id="gone") if not traits else began(folder)
    signals = take(make(folder, *traits), turn(folder, "Go on.", native=native, native_only=True))
    end = end_of(signals)
    assert (end.status, end.code) == ("failed", "resume_refused")
    assert not [one for one in signals if isinstance(one, Started)]


@pytest.mark.requirement("O5")
def test_an_answer_with_another_id_is_no_resume(folder: Path) -> None:
    native = began(folder)
    signals = take(make(folder, "--new-id-on-resume"), turn(folder, "Hi.", native=native, brief=BRIEF))
    start = start_of(signals)
    assert (start.resumed, start.briefed) == (False, True)
    assert start.why


def test_a_conversation_of_another_folder_is_left_alone(folder: Path) -> None:
    native = began(folder)
    (folder / "other").mkdir()
    given = turn(folder, "Hi.", native=native, brief=BRIEF, workdir=str(folder / "other"))
    start = start_of(take(make(folder), given))
    assert (start.resumed, start.briefed) == (False, True)
    assert "another folder" in start.why


def test_what_is_not_understood_is_kept_byte_for_byte_and_in_its_place(folder: Path) -> None:
    signals = take(make(folder), turn(folder, "[[say one]] [[garbage]] [[unknown]] [[say two]]"))
    kinds = [type(one).__name__ for one in signals if not isinstance(one, TextDelta)]
    assert kinds == ["Started", "Said", "Noted", "Noted", "Said", "Finished"]
    assert raws(signals)[0] == b"this is {no JSON"
    assert json.loads(raws(signals)[1])["params"]["update"] == {
        "sessionUpdate": "weather_report",
        "sky": "blue",
    }


def test_a_huge_line_is_a_message_like_any_other(folder: Path) -> None:
    signals = take(make(folder), turn(folder, "[[huge 3000000]]"))
    assert [len(text) for text in said(signals)] == [3_000_000]
    assert end_of(signals).status == "completed"


def test_what_an_agent_says_after_its_answer_is_not_part_of_the_next_turn(folder: Path) -> None:
    async def two() -> tuple[list[Signal], list[Signal], int]:
        engine = make(folder, warm=True)
        try:
            first = await collect(engine, turn(folder, "[[say one]] [[late]]"))
            native = NativeSession(id=start_of(first).native_id or "")
            # What is asked before the prompt is answered behind what came late.
            await engine._waiting["ses_a"]._ask("session/list", {})
            second = await collect(engine, turn(folder, "[[say two]]", run="run_b", native=native))
            return first, second, engine._waiting["ses_a"].dropped["said between turns"]
        finally:
            await engine.aclose()

    first, second, dropped = asyncio.run(two())
    assert said(first) == ["one"]
    assert said(second) == ["two"]
    assert dropped == 1


def test_an_agent_that_dies_has_failed_whatever_it_said_before(folder: Path) -> None:
    signals = take(make(folder), turn(folder, "[[say half]] [[die]]"))
    assert [one.text for one in signals if isinstance(one, TextDelta)]
    assert said(signals) == []
    assert (end_of(signals).status, end_of(signals).code) == ("failed", "crashed")
    assert "exit code 3" in end_of(signals).reason


def test_an_agent_that_just_ends_has_failed_although_its_exit_code_is_zero(folder: Path) -> None:
    signals = take(make(folder), turn(folder, "[[stop]]"))
    assert (end_of(signals).status, end_of(signals).code) == ("failed", "crashed")


def test_a_refusal_is_a_failure(folder: Path) -> None:
    signals = take(make(folder), turn(folder, "[[say I would rather not]] [[refuse]]"))
    assert said(signals) == ["I would rather not"]
    assert end_of(signals).status == "failed"
    assert "refused" in end_of(signals).reason


def test_a_turn_may_take_only_so_long(folder: Path) -> None:
    signals = take(make(folder, timeout=1.5), turn(folder, "[[hang]]"))
    assert (end_of(signals).status, end_of(signals).code) == ("failed", "timeout")
    assert "1.5 seconds" in end_of(signals).reason


def test_files_of_the_client_are_not_offered(folder: Path) -> None:
    engine = make(folder)
    signals = take(engine, turn(folder, "[[file /etc/hostname]]"))
    assert said(signals) == ["I was refused"]
    assert engine.dropped["asked for fs/read_text_file"] == 1


def test_a_plan_is_a_plan(folder: Path) -> None:
    signals = take(make(folder), turn(folder, "[[plan Measure twice]]"))
    (noted,) = [one for one in signals if isinstance(one, Noted)]
    assert noted.kind == "plan"
    assert noted.body == Plan(
        revision=1, steps=(PlanStep(id="step-1", text="Measure twice", status="active"),)
    )


@pytest.mark.parametrize(
    ("mode", "word", "granted"),
    [
        ("default", "edit", False),
        ("default", "shell", False),
        ("accept_edits", "edit", True),
        ("accept_edits", "shell", False),
        ("plan", "edit", False),
        ("full_auto", "shell", True),
        ("dangerously_skip_permissions", "shell", True),
    ],
)
def test_the_mode_decides_where_nobody_can_be_asked(
    folder: Path, mode: Any, word: str, granted: bool
) -> None:
    signals = take(make(folder), turn(folder, f"[[{word} true]]", permission_mode=mode))
    (answered,) = [one for one in signals if isinstance(one, ToolAnswered)]
    assert answered.status == ("ok" if granted else "not_started")
    if not granted:
        assert "permission" in answered.output or "plans" in answered.output


@pytest.mark.parametrize("granted", [True, False])
def test_a_person_is_asked_about_a_call_that_is_in_the_log_already(folder: Path, granted: bool) -> None:
    asked: list[tuple[Permission, list[Signal]]] = []
    seen: list[Signal] = []

    async def permit(permission: Permission) -> Permitted:
        asked.append((permission, list(seen)))
        return Permitted(granted=granted, note="not today")

    given = turn(folder, "[[say before]] [[shell echo hi]]", permit=permit)
    signals = run_turn(make(folder), given, seen=seen)
    ((permission, before),) = asked
    (called,) = [one for one in before if isinstance(one, ToolCalled)]
    assert (permission.call, permission.tool, permission.edits) == (called.call, "shell", False)
    assert permission.input == {"command": "echo hi"}
    (answered,) = [one for one in signals if isinstance(one, ToolAnswered)]
    assert (answered.status, answered.output) == (("ok", "hi\n") if granted else ("not_started", "not today"))


@pytest.mark.parametrize(
    ("rules", "granted"),
    [
        ({"allowed_tools": ("shell",)}, True),
        ({"allowed_tools": ("read",), "permission_mode": "full_auto"}, False),
        ({"denied_tools": ("shell",), "allowed_tools": ("shell",)}, False),
    ],
)
def test_lists_of_tools_come_before_the_mode(folder: Path, rules: dict[str, Any], granted: bool) -> None:
    signals = take(make(folder), turn(folder, "[[shell true]]", **rules))
    (answered,) = [one for one in signals if isinstance(one, ToolAnswered)]
    assert answered.status == ("ok" if granted else "not_started")


def test_text_said_before_a_call_of_our_tool_is_logged_before_it(folder: Path) -> None:
    async def call(call: str, given: dict[str, Any]) -> ToolOutcome:
        return ToolOutcome(output="found")

    tool = Tool(name="lookup", description="Look it up.", schema={"type": "object"}, call=call)
    text = "[[say let me look]] [[call lookup {}]] [[say there it is]]"
    signals = take(make(folder), turn(folder, text, tools=(tool,)))
    kinds = [type(one).__name__ for one in signals if not isinstance(one, TextDelta)]
    assert kinds == ["Started", "Said", "ToolCalled", "ToolAnswered", "Said", "Finished"]


def test_an_exception_of_our_tool_passes_through_and_the_agent_is_gone(folder: Path) -> None:
    async def lost(call: str, given: dict[str, Any]) -> ToolOutcome:
        raise RuntimeError("the lease is lost")

    tool = Tool(name="lookup", description="Look it up.", schema={"type": "object"}, call=lost)
    with pytest.raises(RuntimeError, match="the lease is lost"):
        take(make(folder), turn(folder, "[[call lookup {}]]", tools=(tool,)))
    assert running(folder) == []


@pytest.mark.skipif(os.name != "posix", reason="waits on a pipe that has a name")
@pytest.mark.parametrize("warm", [False, True])
def test_stopped_in_the_middle_of_a_command_nothing_of_it_is_left(folder: Path, warm: bool) -> None:
    began, script = folder / "began", folder / "work.sh"
    os.mkfifo(began)
    script.write_text(f"echo on > {began}\nexec sleep 67\n")

    async def stop() -> int:
        engine = make(folder, warm=warm)
        given = turn(folder, f"[[shell sh {script}]]", permission_mode="full_auto")
        task = asyncio.ensure_future(collect(engine, given))
        assert await asyncio.to_thread(began.read_text) == "on\n"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not [line for line in running(folder) if "sleep 67" in line]
        awake = len(engine.awake())
        await engine.aclose()
        return awake

    assert asyncio.run(stop()) == (1 if warm else 0)
    assert running(folder) == []


def test_a_warm_agent_is_asked_in_its_process_and_gives_its_tools_anew(folder: Path) -> None:
    calls: list[str] = []

    def tool(name: str) -> Tool:
        async def call(call: str, given: dict[str, Any]) -> ToolOutcome:
            calls.append(f"{name} {call}")
            return ToolOutcome(output="found")

        return Tool(name=name, description="A tool.", schema={"type": "object"}, call=call)

    async def three() -> list[int | None]:
        engine = make(folder, warm=True)
        assert isinstance(engine, KeepsProcesses)
        pids: list[int | None] = []
        native: NativeSession | None = None
        try:
            for number in (1, 2, 3):
                given = turn(
                    folder,
                    f"[[call lookup_{number} {{}}]] [[recall]]",
                    run=f"run_{number}",
                    native=native,
                    tools=(tool(f"lookup_{number}"),),
                    brief=BRIEF,
                )
                signals = await collect(engine, given)
                native = NativeSession(id=start_of(signals).native_id or "")
                assert start_of(signals).resumed == (number > 1)
                assert said(signals)[-1].startswith(f"I hold {number - 1} earlier prompts")
                (awake,) = engine.awake()
                assert awake.session_id == "ses_a"
                pids.append(awake.pid)
            assert await engine.sleep("ses_a")
            assert not await engine.sleep("ses_a")
        finally:
            await engine.aclose()
        return pids

    pids = asyncio.run(three())
    assert len(set(pids)) == 1
    assert calls == ["lookup_1 run_1.1", "lookup_2 run_2.1", "lookup_3 run_3.1"]
    assert running(folder) == []


def test_a_warm_agent_that_died_is_started_again(folder: Path) -> None:
    async def two() -> list[Signal]:
        engine = make(folder, warm=True)
        try:
            first = await collect(engine, turn(folder, "One."))
            (awake,) = engine.awake()
            psutil.Process(awake.pid).kill()
            await engine._waiting["ses_a"].child.wait()
            native = NativeSession(id=start_of(first).native_id or "")
            return await collect(engine, turn(folder, "[[recall]]", run="run_b", native=native))
        finally:
            await engine.aclose()

    signals = asyncio.run(two())
    assert start_of(signals).resumed
    assert said(signals) == ["I hold 1 earlier prompts, the first: One."]


def test_two_warm_turns_of_one_session_at_once_keep_one_process(folder: Path) -> None:
    async def both() -> None:
        engine = make(folder, warm=True)
        try:
            await asyncio.gather(
                *(collect(engine, turn(folder, "Hi.", run=f"run_{number}")) for number in (1, 2))
            )
            (awake,) = engine.awake()
            assert awake.pid is not None
            assert psutil.Process(awake.pid).is_running()
            assert sum("acp_agent" in line for line in running(folder)) == 1
        finally:
            await engine.aclose()

    asyncio.run(both())
    assert running(folder) == []


def test_a_conversation_in_which_somebody_works_is_busy(folder: Path) -> None:
    native = began(folder)
    with native_lease("acp", native.id):
        end = end_of(take(make(folder), turn(folder, "Hi.", native=native)))
    assert (end.status, end.code, end.retryable) == ("failed", "busy", True)
    assert start_of(take(make(folder), turn(folder, "Hi.", native=native))).resumed


def test_a_model_that_is_not_offered_is_refused_before_the_prompt(folder: Path) -> None:
    end = end_of(take(make(folder), turn(folder, "Hi.", model="gpt-9")))
    assert (end.status, end.code) == ("failed", "invalid_request")
    assert "gpt-9" in end.reason


def test_a_program_that_speaks_something_else_is_named(folder: Path) -> None:
    engine = AcpEngine(command=[sys.executable, "-c", "print('hello')"], timeout=20)
    end = end_of(take(engine, turn(folder, "Hi.")))
    assert (end.status, end.code) == ("failed", "crashed")
    assert "initialize" in end.reason


DEAF = """
import json, sys, time
for result in {"protocolVersion": 1, "agentCapabilities": {}}, {"sessionId": "s1"}:
    print(json.dumps({"id": json.loads(sys.stdin.readline())["id"], "result": result}), flush=True)
time.sleep(3600)
"""


def test_an_agent_that_never_reads_what_it_is_asked_has_the_time_of_a_turn_and_no_more(folder: Path) -> None:
    engine = AcpEngine(command=[sys.executable, "-c", DEAF], timeout=1.0)
    end = end_of(take(engine, turn(folder, "x" * 2**20)))
    assert (end.status, end.code) == ("failed", "timeout")


def test_a_turn_of_an_agent_that_reads_nothing_can_be_cancelled(folder: Path) -> None:
    async def cancelled() -> None:
        engine = AcpEngine(command=[sys.executable, "-c", DEAF])
        begun = asyncio.Event()

        async def go() -> None:
            async for signal in engine.run(turn(folder, "x" * 2**20)):
                assert isinstance(signal, Started)
                begun.set()

        going = asyncio.create_task(go())
        await asyncio.wait_for(begun.wait(), 30)
        await asyncio.sleep(0)
        going.cancel()
        await asyncio.wait({going}, timeout=30)
        assert going.cancelled()

    asyncio.run(cancelled())
    assert running(folder) == []


def test_half_a_character_in_what_is_asked_ends_no_turn(folder: Path) -> None:
    assert said(take(make(folder), turn(folder, "a \ud83d b"))) == ["You said: a � b"]


@pytest.mark.requirement("L6")
def test_what_whoever_may_permit_raises_ends_the_turn_and_is_raised(folder: Path) -> None:
    async def lost(_asked: Permission) -> Permitted:
        raise LeaseLost(run="run_a", why="somebody cancelled it")

    with pytest.raises(LeaseLost):
        take(make(folder), turn(folder, "[[shell echo hi]]", permit=lost))
    assert running(folder) == []


@pytest.mark.parametrize("name", ["opencode", "gemini", "qwen"])
def test_an_agent_that_is_not_installed_says_how_to_get_it(name: str) -> None:
    engine = engine_by_name(name, program="/nowhere/agent")
    assert engine.name == name
    why = engine.unavailable()
    assert why is not None
    assert "npm install" in why
    end = end_of(run_turn(engine, Turn(session_id="ses_a", run_id="run_a", input="Hi.")))
    assert (end.status, end.code) == ("failed", "not_installed")


def test_the_generic_engine_asks_for_its_command() -> None:
    assert "command" in (engine_by_name("acp").unavailable() or "")


def running(folder: Path) -> list[str]:
    """The command lines of what this test's agents started and of the agents themselves."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("XDG_STATE_HOME") == str(
                folder / "state"
            ):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found
