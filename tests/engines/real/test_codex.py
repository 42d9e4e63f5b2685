"""The engine against the real Codex: its own threads, its own files, a model that follows directives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.engines.real.cli_homes import MODEL, Home, codex_home

from onward.core.transcript import TranscriptMessage
from onward.engines.codex import CodexEngine
from onward.engines.codex_stream import NOISE
from onward.engines.contract import (
    Finished,
    Measured,
    NativeSession,
    Permission,
    Permitted,
    Said,
    Signal,
    Started,
    TextDelta,
    Thought,
    Tool,
    ToolAnswered,
    ToolCalled,
    ToolOutcome,
    Turn,
)
from onward.errors import LeaseLost
from onward.testing.engine_contract import Case, EngineContract
from onward.testing.stub_models import Reply, StubModels

UNKNOWN = "01a22a9e-0000-72c3-a48e-16adf3f4ff94"
PATIENCE = 60.0
S = TypeVar("S", bound=Signal)


@pytest.fixture
def home(tmp_path: Path, stub: StubModels, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return codex_home(tmp_path, stub)


def engine(home: Home, **options: Any) -> CodexEngine:
    return CodexEngine(program=str(home.program), env=dict(home.env), **options)


def turn(home: Home, text: str, *, run: str = "run_a", **more: Any) -> Turn:
    given: dict[str, Any] = {"permission_mode": "dangerously_skip_permissions", **more}
    return Turn(session_id="ses_a", run_id=run, input=text, workdir=str(home.workdir), **given)


async def collect(
    engine: CodexEngine,
    turn: Turn,
    *,
    hearing: Callable[[Signal], Awaitable[None]] | None = None,
    seen: list[Signal] | None = None,
) -> list[Signal]:
    signals: list[Signal] = [] if seen is None else seen
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


def take(engine: CodexEngine, turn: Turn) -> list[Signal]:
    return asyncio.run(collect(engine, turn))


def one(signals: list[Signal], kind: type[S]) -> S:
    (found,) = [signal for signal in signals if isinstance(signal, kind)]
    return found


def all_of(signals: list[Signal], kind: type[S]) -> list[S]:
    return [signal for signal in signals if isinstance(signal, kind)]


def user_texts(stub: StubModels, index: int = -1) -> list[str]:
    return [text for text in stub.asked(index) if text]


def tools(outcome: ToolOutcome, called: list[str]) -> tuple[Tool, ...]:
    async def call(id: str, given: dict[str, Any]) -> ToolOutcome:
        called.append(f"{id} {given}")
        return outcome

    schema = {"type": "object", "properties": {"value": {"type": "string"}}}
    return (Tool(name="lookup", description="Looks up.", schema=schema, call=call),)


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


@pytest.mark.parametrize("mode", ["app-server", "exec"])
def test_a_turn_calls_its_own_tool_and_one_of_ours(mode: str, home: Home, stub: StubModels) -> None:
    called: list[str] = []
    given = tools(ToolOutcome(output={"found": "heron"}), called)
    text = (
        '[[call exec_command {"cmd": "echo here"}]] [[call mcp__onward__lookup {"value": "x"}]] [[say Done.]]'
    )
    signals = take(engine(home, mode=mode), turn(home, text, tools=given))
    assert one(signals, Started).native_id
    own, ours = all_of(signals, ToolCalled)
    assert own.name == "exec_command"
    assert "echo here" in own.input["command"]
    assert (ours.name, ours.input) == ("lookup", {"value": "x"})
    assert [own.call, ours.call] == ["run_a.1", "run_a.2"]
    answers = all_of(signals, ToolAnswered)
    assert answers[0].output["output"].endswith("here\n")
    assert answers[1].output == {"found": "heron"}
    assert called == ["run_a.2 {'value': 'x'}"]
    assert one(signals, Said).text == "Done."
    assert signals[-1] == Finished(status="completed")
    assert any("heron" in said.text for said in stub.heard() if said.who == "tool")


@pytest.mark.parametrize("mode", ["app-server", "exec"])
@pytest.mark.requirement("O2")
def test_what_codex_holds_is_resumed_and_the_brief_is_dropped(
    mode: str, home: Home, stub: StubModels
) -> None:
    codex = engine(home, mode=mode)
    first = take(codex, turn(home, "[[say One.]]", brief="NOT TOLD TWICE"))
    native = one(first, Started).native_id
    assert one(first, Started).briefed
    assert native is not None
    second = take(codex, turn(home, "[[say Two.]]", native=NativeSession(id=native), brief="NOT USED"))
    started = one(second, Started)
    assert (started.resumed, started.briefed, started.native_id, started.why) == (True, False, native, "")
    told = "\n".join(text.text for text in stub.heard())
    assert "One." in told
    assert told.count("NOT TOLD TWICE") == 1
    assert "NOT USED" not in told
    first_use, second_use = all_of(first, Measured)[-1].usage, all_of(second, Measured)[-1].usage
    assert second_use.output_tokens == first_use.output_tokens, "a turn's own, not the thread's"


@pytest.mark.parametrize("mode", ["app-server", "exec"])
@pytest.mark.requirement("O3")
def test_without_its_file_the_brief_goes_in_front_of_the_instruction_once(
    mode: str, home: Home, stub: StubModels
) -> None:
    codex = engine(home, mode=mode)
    native = one(take(codex, turn(home, "[[say One.]]")), Started).native_id
    assert native is not None
    (file,) = home.native_files()
    file.unlink()
    signals = take(codex, turn(home, "[[say Two.]]", native=NativeSession(id=native), brief="THE BRIEF"))
    started = one(signals, Started)
    assert not started.resumed
    assert started.briefed
    assert started.native_id not in (None, native)
    assert native in started.why
    assert "session" not in started.why
    assert user_texts(stub) == ["THE BRIEF\n\n[[say Two.]]"]
    assert signals[-1] == Finished(status="completed")


@pytest.mark.parametrize("mode", ["app-server", "exec"])
@pytest.mark.parametrize("native", [UNKNOWN, "latest"])
@pytest.mark.requirement("O5")
def test_resume_or_nothing_fails_before_anything_is_sent(
    mode: str, native: str, home: Home, stub: StubModels
) -> None:
    asked = turn(home, "[[say Two.]]", native=NativeSession(id=native), native_only=True)
    signals = take(engine(home, mode=mode), asked)
    end = one(signals, Finished)
    assert (end.status, end.code) == ("failed", "resume_refused")
    assert native in end.reason
    assert not all_of(signals, Started)
    assert not stub.requests


def test_a_new_thread_is_known_before_the_prompt_goes_out(home: Home, stub: StubModels) -> None:
    before: list[int] = []

    async def hearing(signal: Signal) -> None:
        if isinstance(signal, Started):
            before.append(len(stub.requests))

    signals = asyncio.run(collect(engine(home), turn(home, "[[say One.]]"), hearing=hearing))
    assert before == [0]
    assert signals[-1] == Finished(status="completed")


@pytest.mark.skipif(os.name != "posix", reason="kills with a signal that only POSIX has")
def test_killed_in_the_middle_of_a_tool_nothing_of_it_runs_on_and_the_next_turn_is_accepted(
    home: Home, stub: StubModels, tmp_path: Path
) -> None:
    tells = tmp_path / "tells"
    os.mkfifo(tells)
    command = f"echo $PPID $$ > {tells}; echo going; exec sleep 300"
    pids: list[int] = []

    async def hearing(signal_: Signal) -> None:
        if isinstance(signal_, ToolCalled):
            codex, shell = (await asyncio.to_thread(tells.read_text)).split()
            pids.extend((int(codex), int(shell)))
            os.kill(pids[0], signal.SIGKILL)

    codex = engine(home)
    text = f'[[call exec_command {{"cmd": "{command}", "yield_time_ms": 30000}}]] [[say Done.]]'
    signals = asyncio.run(collect(codex, turn(home, text), hearing=hearing))
    native = one(signals, Started).native_id
    assert native is not None
    assert one(signals, ToolCalled).name == "exec_command"
    assert not all_of(signals, ToolAnswered), "nobody knows how it ended"
    end = signals[-1]
    assert isinstance(end, Finished)
    assert (end.status, end.code) == ("failed", "crashed")
    assert [gone(pid) for pid in pids] == [True, True]
    again = take(codex, turn(home, "[[say On.]]", run="run_b", native=NativeSession(id=native)))
    assert one(again, Started).resumed
    assert again[-1] == Finished(status="completed")
    assert [said.text for said in stub.heard() if said.who == "tool"] == ["aborted"]


@pytest.mark.skipif(os.name != "posix", reason="tells through a named pipe")
def test_cancelled_in_the_middle_of_a_tool_it_is_interrupted_and_its_command_is_ended(
    home: Home, stub: StubModels, tmp_path: Path
) -> None:
    tells = tmp_path / "tells"
    os.mkfifo(tells)
    command = f"echo $PPID $$ > {tells}; exec sleep 300"
    codex = engine(home, warm=True)
    seen: list[Signal] = []

    async def cancel() -> list[int]:
        text = f'[[call exec_command {{"cmd": "{command}", "yield_time_ms": 30000}}]] [[say Done.]]'
        task = asyncio.create_task(collect(codex, turn(home, text), seen=seen))
        pids = [int(pid) for pid in (await asyncio.to_thread(tells.read_text)).split()]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert codex.awake() == ()
        return pids

    pids = asyncio.run(cancel())
    assert [gone(pid) for pid in pids] == [True, True]
    native = one(seen, Started).native_id
    assert native is not None
    again = take(codex, turn(home, "[[say On.]]", run="run_b", native=NativeSession(id=native)))
    assert one(again, Started).resumed
    assert any("turn_aborted" in said.text for said in stub.heard()), "Codex knows that it was interrupted"


def test_a_turn_that_takes_too_long_is_stopped_and_says_so(home: Home) -> None:
    signals = take(engine(home, timeout=1.5), turn(home, "[[say A long answer.]] [[slow 9 5]]"))
    assert all_of(signals, TextDelta)
    end = signals[-1]
    assert isinstance(end, Finished)
    assert (end.status, end.code) == ("failed", "timeout")
    assert "1.5 seconds" in end.reason


def test_kept_warm_the_same_process_takes_the_next_turn_with_its_own_tools(
    home: Home, stub: StubModels
) -> None:
    codex, called = engine(home, warm=True), []
    text = "[[call mcp__onward__lookup {}]] [[say Done.]]"

    async def turns() -> tuple[list[Signal], list[Signal], list[int | None]]:
        first = await collect(codex, turn(home, text, tools=tools(ToolOutcome(output="one"), called)))
        pids = [awake.pid for awake in codex.awake()]
        native = one(first, Started).native_id
        assert native is not None
        second = await collect(
            codex,
            turn(
                home,
                text,
                run="run_b",
                native=NativeSession(id=native),
                tools=tools(ToolOutcome(output="two"), called),
            ),
        )
        pids += [awake.pid for awake in codex.awake()]
        assert await codex.sleep("ses_a")
        assert not await codex.sleep("ses_a")
        assert codex.awake() == ()
        return first, second, pids

    first, second, pids = asyncio.run(turns())
    assert len(pids) == 2
    assert pids[0] == pids[1]
    assert gone(pids[0] or 0)
    assert one(second, Started).resumed
    assert [one(first, ToolAnswered).output, one(second, ToolAnswered).output] == ["one", "two"]
    assert called == ["run_a.1 {}", "run_b.1 {}"]
    assert second[-1] == Finished(status="completed")


def test_a_warm_process_that_waits_holds_no_thread(home: Home) -> None:
    warm, other = engine(home, warm=True), engine(home)

    async def turns() -> list[Signal]:
        native = one(await collect(warm, turn(home, "[[say One.]]")), Started).native_id
        assert native is not None
        try:
            return await collect(other, turn(home, "[[say Two.]]", native=NativeSession(id=native)))
        finally:
            await warm.aclose()

    signals = asyncio.run(turns())
    assert one(signals, Started).resumed
    assert signals[-1] == Finished(status="completed")


@pytest.mark.skipif(os.name != "posix", reason="tells through a named pipe")
@pytest.mark.parametrize("warm", [True, False])
def test_a_command_that_a_turn_leaves_running_is_ended_with_it(
    warm: bool, home: Home, tmp_path: Path
) -> None:
    tells = tmp_path / "tells"
    os.mkfifo(tells)
    command = f"echo $$ > {tells}; exec sleep 300"
    text = f'[[call exec_command {{"cmd": "{command}", "yield_time_ms": 250}}]] [[say Left.]]'
    codex = engine(home, warm=warm)

    async def leave() -> tuple[list[Signal], int]:
        taking = asyncio.create_task(collect(codex, turn(home, text)))
        pid = int(await asyncio.to_thread(tells.read_text))
        signals = await taking
        assert gone(pid)
        assert len(codex.awake()) == warm
        await codex.aclose()
        return signals, pid

    signals, _ = asyncio.run(leave())
    assert signals[-1] == Finished(status="completed")


def test_a_second_writer_is_refused_and_nothing_is_sent(home: Home, stub: StubModels) -> None:
    codex = engine(home)

    async def turns() -> list[Signal]:
        second: list[Signal] = []

        async def hearing(signal: Signal) -> None:
            if isinstance(signal, TextDelta) and not second:
                asked = turn(home, "[[say Two.]]", run="run_b", native=NativeSession(id=native[0]))
                second.extend(await collect(codex, asked))
            elif isinstance(signal, Started):
                native.append(signal.native_id or "")

        native: list[str] = []
        first = await collect(codex, turn(home, "[[say One.]]"), hearing=hearing)
        assert first[-1] == Finished(status="completed")
        return second

    (end,) = asyncio.run(turns())
    assert isinstance(end, Finished)
    assert (end.status, end.code, end.retryable) == ("failed", "busy", True)
    assert len(stub.requests) == 1


def test_a_history_is_put_into_a_new_thread_as_items_before_the_instruction(
    home: Home, stub: StubModels
) -> None:
    history = (
        TranscriptMessage(role="user", content="The release is on 14 March."),
        TranscriptMessage(
            role="assistant", tool_call_id="run_0.1", tool_name="read", tool_input={"path": "plan.md"}
        ),
        TranscriptMessage(role="tool", tool_call_id="run_0.1", tool_name="read", tool_output="1 release"),
        TranscriptMessage(role="assistant", content="Noted."),
    )
    signals = take(engine(home, seed="items"), turn(home, "[[say Two.]]", history=history))
    assert one(signals, Started).briefed
    assert not one(signals, Started).resumed
    assert user_texts(stub) == ["The release is on 14 March.", "[[say Two.]]"]
    items = [item for item in stub.requests[-1].body["input"] if item["type"].startswith("function_call")]
    assert [item["call_id"] for item in items] == ["run_0.1", "run_0.1"]
    assert items[0]["name"] == "read"
    native = one(signals, Started).native_id
    assert native is not None
    again = take(engine(home), turn(home, "[[say Three.]]", run="run_b", native=NativeSession(id=native)))
    assert one(again, Started).resumed
    assert user_texts(stub)[0] == "The release is on 14 March.", "it is in the thread's own file"


def test_a_brief_can_be_an_item_of_its_own(home: Home, stub: StubModels) -> None:
    signals = take(engine(home, seed="items"), turn(home, "[[say Two.]]", brief="THE BRIEF"))
    assert one(signals, Started).briefed
    assert user_texts(stub) == ["THE BRIEF", "[[say Two.]]"]


def test_a_fork_holds_what_its_source_did_and_leaves_that_alone(home: Home, stub: StubModels) -> None:
    codex = engine(home)
    native = one(take(codex, turn(home, "[[say One.]]")), Started).native_id
    assert native is not None
    fork = asyncio.run(codex.fork(native))
    assert fork != native
    aside = take(codex, turn(home, "[[say Aside.]]", run="run_b", native=NativeSession(id=fork)))
    assert one(aside, Started).native_id == fork
    assert user_texts(stub) == ["[[say One.]]", "[[say Aside.]]"]
    other = turn(home, "[[say Other.]]", run="run_c", native=NativeSession(id=native), options={"fork": True})
    started = one(take(codex, other), Started)
    assert started.resumed
    assert started.native_id not in (native, fork)
    assert user_texts(stub) == ["[[say One.]]", "[[say Other.]]"]
    take(codex, turn(home, "[[say Two.]]", run="run_d", native=NativeSession(id=native)))
    assert user_texts(stub) == ["[[say One.]]", "[[say Two.]]"]


@pytest.mark.parametrize("mode", ["app-server", "exec"])
def test_a_tool_of_ours_ends_the_turn_from_inside(mode: str, home: Home, stub: StubModels) -> None:
    called: list[str] = []
    leaving = ToolOutcome(output="went on elsewhere", ends_turn=True, recorded=True)
    text = "[[call mcp__onward__lookup {}]] [[say Never heard.]] [[slow 9 5]]"
    signals = take(engine(home, mode=mode), turn(home, text, tools=tools(leaving, called)))
    assert len(called) == 1
    answered = next(at for at, signal in enumerate(signals) if isinstance(signal, ToolAnswered))
    assert [getattr(signal, "status", signal) for signal in signals[answered + 1 :]] == ["continued"]


@pytest.mark.parametrize("mode", ["app-server", "exec"])
@pytest.mark.parametrize(
    "raised", [ZeroDivisionError("a bug"), LeaseLost(run="run_a", why="it was taken over")]
)
def test_what_a_tool_of_ours_raises_passes_through_and_codex_is_ended(
    raised: Exception, mode: str, home: Home
) -> None:
    async def call(id: str, given: dict[str, Any]) -> ToolOutcome:
        raise raised

    tool = Tool(name="lookup", description="Looks up.", schema={"type": "object"}, call=call)
    codex = engine(home, warm=True, mode=mode)
    with pytest.raises(type(raised)):
        take(codex, turn(home, "[[call mcp__onward__lookup {}]]", tools=(tool,)))


@pytest.mark.parametrize("granted", [True, False])
def test_codex_asks_before_it_leaves_its_sandbox(granted: bool, home: Home, stub: StubModels) -> None:
    asked: list[Permission] = []

    async def permit(permission: Permission) -> Permitted:
        asked.append(permission)
        return Permitted(granted=granted)

    command = '{"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "to try"}'
    text = f"[[call exec_command {command}]] [[say Done.]]"
    signals = take(engine(home), turn(home, text, permission_mode="default", permit=permit))
    (permission,) = asked
    assert permission.tool == "exec_command"
    assert permission.call == one(signals, ToolCalled).call
    assert "touch made" in permission.subject
    assert one(signals, ToolAnswered).status == ("ok" if granted else "not_started")
    assert (home.workdir / "made").exists() == granted
    assert signals[-1] == Finished(status="completed")


def test_where_nobody_can_be_asked_the_answer_is_no(home: Home) -> None:
    command = '{"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "to try"}'
    text = f"[[call exec_command {command}]] [[say Done.]]"
    signals = take(engine(home), turn(home, text, permission_mode="default"))
    assert one(signals, ToolAnswered).status == "not_started"
    assert not (home.workdir / "made").exists()


def test_reasoning_keeps_its_encrypted_content(home: Home) -> None:
    signals = take(engine(home), turn(home, "[[think Herons first.]] [[say Done.]]"))
    assert one(signals, Thought) == Thought(text="Herons first.", signature="c2VhbGVk")


def test_a_compaction_is_a_checkpoint_with_its_text(home: Home, stub: StubModels) -> None:
    codex = engine(home, config={"model_auto_compact_token_limit": 1000})
    signals = take(codex, turn(home, "[[usage 5000]] [[say One.]]"))
    native = one(signals, Started).native_id
    assert native is not None
    again = take(codex, turn(home, "[[say Two.]]", run="run_b", native=NativeSession(id=native)))
    noted = [signal for signal in (*signals, *again) if getattr(signal, "kind", "") == "checkpoint"]
    assert noted
    assert "You said" in noted[0].body.text, "what the model was asked to write"  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", ["app-server", "exec"])
def test_a_refused_request_fails_the_turn_and_says_why(mode: str, home: Home) -> None:
    signals = take(engine(home, mode=mode), turn(home, "[[status 400]]"))
    end = signals[-1]
    assert isinstance(end, Finished)
    assert (end.status, end.code, end.retryable) == ("failed", "invalid_request", False)


def test_a_provider_that_is_too_busy_is_worth_another_attempt(home: Home) -> None:
    end = take(engine(home), turn(home, "[[status 429]]"))[-1]
    assert isinstance(end, Finished)
    assert (end.status, end.code, end.retryable) == ("failed", "rate_limited", True)


@pytest.mark.parametrize("mode", ["app-server", "exec"])
@pytest.mark.requirement("C4")
def test_what_goes_to_the_model_stays_as_it_was_given(mode: str, home: Home, stub: StubModels) -> None:
    text = "Zeilen\n\n\tmit “Zeichen”, 漢字, 🦩, \\u0000 und --flags; [[say Ja.]]"
    assert take(engine(home, mode=mode), turn(home, text))[-1] == Finished(status="completed")
    said = [
        part["text"]
        for item in stub.requests[-1].body["input"]
        if item.get("role") == "user"
        for part in item["content"]
    ]
    assert said[-1] == text, "byte for byte, with no line end added"


def test_where_app_server_does_not_start_exec_takes_the_turn(home: Home, tmp_path: Path) -> None:
    wrapper = tmp_path / "codex-without-server"
    wrapper.write_text(
        f'#!/bin/sh\nif [ "$1" = app-server ]; then echo "no such command" >&2; exit 2; fi\nexec {home.program} "$@"\n'
    )
    wrapper.chmod(0o755)
    codex = CodexEngine(program=str(wrapper), env=dict(home.env))
    signals = take(codex, turn(home, "[[say One.]]"))
    assert b"app-server did not start" in signals[0].body  # type: ignore[attr-defined]
    assert one(signals, Started).model in (None, MODEL)
    assert signals[-1] == Finished(status="completed")


def test_exec_counts_what_it_has_never_seen_before_as_unknown(home: Home) -> None:
    native = one(take(engine(home, mode="exec"), turn(home, "[[say One.]]")), Started).native_id
    assert native is not None
    another = engine(home, mode="exec")
    signals = take(another, turn(home, "[[say Two.]]", run="run_b", native=NativeSession(id=native)))
    assert one(signals, Started).resumed
    assert not all_of(signals, Measured)


def test_the_answer_of_a_script_is_told_as_it_comes(home: Home, tmp_path: Path) -> None:
    with StubModels([Reply(text="In three pieces.", chunks=3)]) as scripted:
        other = codex_home(tmp_path / "other", scripted)
        signals = take(engine(other), turn(other, "Say it."))
    assert "".join(delta.text for delta in all_of(signals, TextDelta)) == "In three pieces."
    assert one(signals, Said) == Said(text="In three pieces.", model=MODEL)


class TestCodexKeepsTheContract(EngineContract):
    deterministic = False

    @pytest.fixture(autouse=True)
    def _home(self, home: Home) -> None:
        self.codex = CodexEngine(program=str(home.program), env=dict(home.env))

    def talking(self) -> Case:
        return Case(engine=self.codex, input="[[say All is well.]]")

    def calling(self, tool: str, given: dict[str, Any]) -> Case | None:
        if tool == "nowhere":
            return None  # Codex refuses it by itself and tells nobody
        call = f"[[call mcp__onward__{tool} {json.dumps(given)}]]"
        return Case(engine=self.codex, input=f"{call} [[say Done.]]")

    def lasting(self) -> Case:
        return Case(engine=self.codex, input="[[say A long answer.]] [[slow 9 5]]")

    def failing(self) -> Case:
        return Case(engine=self.codex, input="[[status 400]]")


def test_what_is_listed_as_noise_is_what_codex_can_notify(home: Home, tmp_path: Path) -> None:
    """A notification that is renamed would otherwise be waited for in vain."""
    environment = os.environ | home.env
    words = [
        home.program,
        "app-server",
        "generate-json-schema",
        "--experimental",
        "--out",
        tmp_path / "schema",
    ]
    subprocess.run(words, check=True, env=environment, capture_output=True, timeout=60)
    schema = json.loads((tmp_path / "schema" / "ServerNotification.json").read_bytes())
    known = {one["properties"]["method"]["enum"][0] for one in schema["oneOf"]}
    assert set(NOISE) - known <= {"rawResponse/completed"}, "an experimental one is not in the schema"
