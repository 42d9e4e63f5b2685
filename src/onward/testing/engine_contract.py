"""The suite that every engine passes: inherit it, say how to make the engine do things, and run pytest.

    class TestMyEngine(EngineContract):
        def talking(self) -> Case:
            return Case(engine=MyEngine(), input="Hello.")

A ``Case`` is an engine and a text that makes it behave in one way. An engine that cannot be brought to a behaviour
(it has no tools, it never fails) returns None for that case, and the tests that need it are skipped with the reason.
Nothing here knows how an engine works inside; what is checked is what ``engines.contract`` promises.

Tests are synchronous and run their own event loop, so no plugin is needed. Waits are bounded by ``patience``.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from onward.core.transcript import TranscriptMessage
from onward.engines.contract import (
    Engine,
    Finished,
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

HISTORY = (
    TranscriptMessage(role="user", content="The release is planned for 14 March."),
    TranscriptMessage(role="assistant", content="I have noted that."),
    TranscriptMessage(
        role="assistant",
        tool_call_id="run_a.1",
        tool_name="read",
        tool_input={"path": "plan.md", "lines": [1, 2]},
    ),
    TranscriptMessage(role="tool", tool_call_id="run_a.1", tool_name="read", tool_output="1 plan\n2 release"),
    TranscriptMessage(role="assistant", content="The plan says the same."),
)
"""A short history with a tool call in it, valid for any provider."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """An engine, and the text that makes it behave in the way that is asked for."""

    engine: Engine
    input: str


class RecordingTool:
    """A tool that remembers its calls, and which signals had been seen when each began."""

    def __init__(self, name: str, outcome: ToolOutcome) -> None:
        self.outcome = outcome
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.seen: list[Signal] = []
        """The driver of the engine puts every signal here as it gets it."""
        self.announced: list[bool] = []
        """For each call, whether its ``ToolCalled`` had been seen by then."""
        schema = {"type": "object", "properties": {"value": {"type": "string"}}}
        self.tool = Tool(name=name, description="A tool for tests.", schema=schema, call=self._call)

    async def _call(self, call: str, given: dict[str, Any]) -> ToolOutcome:
        self.announced.append(
            any(isinstance(signal, ToolCalled) and signal.call == call for signal in self.seen)
        )
        self.calls.append((call, given))
        return self.outcome


def run_turn(
    engine: Engine, turn: Turn, *, seen: list[Signal] | None = None, patience: float = 60.0
) -> list[Signal]:
    """Run one turn to its end in an event loop of its own and return the signals."""
    return asyncio.run(collect(engine, turn, seen=seen, patience=patience))


async def collect(
    engine: Engine, turn: Turn, *, seen: list[Signal] | None = None, patience: float = 60.0
) -> list[Signal]:
    """Run one turn to its end and return the signals; ``seen`` gets each as it comes."""
    signals: list[Signal] = [] if seen is None else seen
    async with asyncio.timeout(patience), _closing(engine.run(turn)) as stream:
        async for signal in stream:
            signals.append(signal)  # noqa: PERF401 (`seen` is watched while the turn runs)
    return signals


@contextlib.asynccontextmanager
async def _closing(stream: AsyncIterator[Signal]) -> AsyncIterator[AsyncIterator[Signal]]:
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


class EngineContract:
    """Inherit this, override the cases, and name the class ``Test…``."""

    patience: ClassVar[float] = 60.0
    """Seconds that one turn may take."""
    stops_within: ClassVar[float] = 5.0
    """Seconds that stopping may take."""
    deterministic: ClassVar[bool] = True
    """Whether the same turn gives the same signals twice."""

    def talking(self) -> Case:
        """Return a case that answers with text."""
        raise NotImplementedError

    def calling(self, tool: str, given: dict[str, Any]) -> Case | None:
        """Return a case that calls this tool once with this input and then answers; None if it has no tools."""
        del tool, given
        return None

    def lasting(self) -> Case | None:
        """Return a case that says something (a delta) and would then go on for long; None if there is none."""
        return None

    def failing(self) -> Case | None:
        """Return a case that fails; None if it cannot be made to."""
        return None

    def test_ends_with_exactly_one_finished(self) -> None:
        signals = self._run(self.talking())
        assert [type(signal) for signal in signals].count(Finished) == 1
        assert signals[-1] == Finished(status="completed", reason=getattr(signals[-1], "reason", ""))

    def test_says_first_that_it_has_started(self) -> None:
        signals = self._run(self.talking())
        assert isinstance(signals[0], Started)
        assert sum(isinstance(signal, Started) for signal in signals) == 1
        assert not signals[0].resumed, "nothing was given to resume, so nothing may be reported as resumed"

    def test_a_finished_message_holds_what_its_deltas_said(self) -> None:
        case = self.talking()
        signals = self._run(case)
        said = [signal.text for signal in signals if isinstance(signal, Said)]
        deltas = [signal.text for signal in signals if isinstance(signal, TextDelta)]
        assert said
        assert all(text.strip() for text in said)
        assert bool(deltas) == case.engine.capabilities.streaming
        if deltas:
            assert "".join("".join(deltas).split()) == "".join("".join(said).split())

    def test_the_history_is_left_as_it_was(self) -> None:
        before = msgspec.json.encode(HISTORY)
        given = msgspec.json.decode(before, type=tuple[TranscriptMessage, ...])
        signals = self._run(self.talking(), history=given)
        assert msgspec.json.encode(given) == before
        assert isinstance(signals[-1], Finished)
        assert signals[-1].status == "completed", signals[-1].reason

    def test_the_same_turn_gives_the_same_signals(self) -> None:
        if not self.deterministic:
            pytest.skip("this engine does not promise the same answer twice")
        first = self._run(self.talking(), history=HISTORY)
        assert self._run(self.talking(), history=HISTORY) == first

    def test_an_engine_can_take_a_second_turn(self) -> None:
        case = self.talking()
        self._run(case)
        assert isinstance(self._run(case, run_id="run_b")[-1], Finished)

    def test_two_turns_at_once_do_not_mix(self) -> None:
        case = self.talking()

        async def both() -> tuple[list[Signal], list[Signal]]:
            one = collect(case.engine, self._turn(case, run_id="run_1"), patience=self.patience)
            other = collect(case.engine, self._turn(case, run_id="run_2"), patience=self.patience)
            first, second = await asyncio.gather(one, other)
            return first, second

        for signals in asyncio.run(both()):
            assert sum(isinstance(signal, Finished) for signal in signals) == 1
            assert sum(isinstance(signal, Said) for signal in signals) == 1

    def test_a_call_is_announced_before_the_tool_runs(self) -> None:
        tool = RecordingTool("lookup", ToolOutcome(output={"found": ["x"]}))
        signals = self._run(self._calling("lookup", {"value": "a"}), tool=tool)
        assert tool.announced == [True]
        (called,) = [signal for signal in signals if isinstance(signal, ToolCalled)]
        (answered,) = [signal for signal in signals if isinstance(signal, ToolAnswered)]
        assert tool.calls == [(called.call, {"value": "a"})]
        assert called.call.startswith("run_a"), "the id of a call is made from the run"
        assert called.input == {"value": "a"}
        assert (answered.call, answered.output, answered.status) == (called.call, {"found": ["x"]}, "ok")
        assert signals.index(called) < signals.index(answered) < len(signals) - 1
        assert signals[-1] == Finished(status="completed", reason=getattr(signals[-1], "reason", ""))

    def test_after_a_tool_that_ends_the_turn_nothing_comes_but_the_end(self) -> None:
        outcome = ToolOutcome(output="went on elsewhere", ends_turn=True, recorded=True)
        tool = RecordingTool("leave", outcome)
        signals = self._run(self._calling("leave", {}), tool=tool)
        assert len(tool.calls) == 1
        answered = next(index for index, signal in enumerate(signals) if isinstance(signal, ToolAnswered))
        assert signals[answered].recorded  # type: ignore[attr-defined]
        rest = [getattr(signal, "status", signal) for signal in signals[answered + 1 :]]
        assert rest == ["continued"]
        assert isinstance(signals[-1], Finished)

    def test_a_call_to_a_tool_that_is_not_offered_is_answered_as_an_error(self) -> None:
        signals = self._run(self._calling("nowhere", {}))
        answers = [signal for signal in signals if isinstance(signal, ToolAnswered)]
        assert [answer.status for answer in answers] == ["error"]
        assert "nowhere" in str(answers[0].output)
        assert isinstance(signals[-1], Finished)

    def test_a_tool_that_fails_does_not_fail_the_turn(self) -> None:
        tool = RecordingTool("lookup", ToolOutcome(output="no such value", status="error"))
        signals = self._run(self._calling("lookup", {}), tool=tool)
        (answered,) = [signal for signal in signals if isinstance(signal, ToolAnswered)]
        assert answered.status == "error"
        assert signals[-1] == Finished(status="completed", reason=getattr(signals[-1], "reason", ""))

    def test_a_failure_is_the_last_signal_and_no_exception(self) -> None:
        case = self._need(self.failing(), "to fail")
        signals = self._run(case)
        assert sum(isinstance(signal, Finished) for signal in signals) == 1
        end = signals[-1]
        assert isinstance(end, Finished)
        assert end.status == "failed"
        assert end.reason, "a failure says why"

    @pytest.mark.parametrize("way", ["cancel the task", "close the iterator"])
    def test_stopping_is_quick_and_leaves_nothing_behind(self, way: str) -> None:
        case = self._need(self.lasting(), "to go on for long")
        self._run(
            self.talking()
        )  # what an engine keeps for the whole process may stay, so it is there before
        threads, children = set(threading.enumerate()), _children()

        async def stop() -> tuple[float, set[asyncio.Task[Any]]]:
            speaking = asyncio.Event()
            stream = case.engine.run(self._turn(case))

            async def drive() -> None:
                async for signal in stream:
                    if isinstance(signal, TextDelta):
                        speaking.set()
                        if way == "close the iterator":
                            break
                await stream.aclose()  # type: ignore[attr-defined]

            task = asyncio.create_task(drive())
            async with asyncio.timeout(self.patience):
                await speaking.wait()
            began = time.monotonic()
            if way == "cancel the task":
                task.cancel()
            async with asyncio.timeout(self.stops_within):
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await stream.aclose()  # type: ignore[attr-defined]
            took = time.monotonic() - began
            return took, asyncio.all_tasks() - {_current()}

        took, tasks = asyncio.run(stop())
        assert took < self.stops_within
        assert not tasks
        for thread in set(threading.enumerate()) - threads:
            thread.join(self.stops_within)
            assert not thread.is_alive(), f"{thread.name} is still running"
        assert _children() <= children

    def test_after_being_stopped_it_takes_another_turn(self) -> None:
        case = self._need(self.lasting(), "to go on for long")

        async def stop() -> None:
            async with asyncio.timeout(self.patience), _closing(case.engine.run(self._turn(case))) as stream:
                async for signal in stream:
                    if isinstance(signal, TextDelta):
                        return

        asyncio.run(stop())
        assert isinstance(self._run(self.talking())[-1], Finished)

    def test_asking_whether_it_can_run_costs_nothing(self) -> None:
        engine = self.talking().engine
        threads, children = set(threading.enumerate()), _children()
        answers = [engine.unavailable() for _ in range(3)]
        assert answers == [None, None, None], "the engine of a talking case can run here"
        assert set(threading.enumerate()) <= threads
        assert _children() <= children

    def test_it_says_what_it_is(self) -> None:
        engine = self.talking().engine
        assert engine.name
        assert engine.name == engine.name.strip().lower()
        assert engine.capabilities == engine.capabilities

    def _run(
        self,
        case: Case,
        *,
        run_id: str = "run_a",
        history: tuple[TranscriptMessage, ...] = (),
        tool: RecordingTool | None = None,
    ) -> list[Signal]:
        turn = self._turn(case, run_id=run_id, history=history, tool=tool)
        return run_turn(case.engine, turn, seen=tool.seen if tool else None, patience=self.patience)

    def _turn(
        self,
        case: Case,
        *,
        run_id: str = "run_a",
        history: tuple[TranscriptMessage, ...] = (),
        tool: RecordingTool | None = None,
    ) -> Turn:
        return Turn(
            session_id="ses_a",
            run_id=run_id,
            input=case.input,
            history=history,
            tools=(tool.tool,) if tool else (),
        )

    def _calling(self, tool: str, given: dict[str, Any]) -> Case:
        case = self.calling(tool, given)
        if case is not None:
            assert case.engine.capabilities.tools
        return self._need(case, "to call a tool")

    def _need(self, case: Case | None, what: str) -> Case:
        if case is None:
            pytest.skip(f"this engine cannot be made {what}")
        return case


def _current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _children() -> set[str]:
    """Return the ids of the processes that this one started and that still run, where the system tells."""
    found: set[str] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.update(file.read_text().split())
    return found
