"""The suite for engines catches the engines that it is there to catch."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onward.engines.contract import (
    Capabilities,
    Finished,
    Said,
    Signal,
    Started,
    TextDelta,
    ToolAnswered,
    ToolCalled,
    Turn,
)
from onward.testing.engine_contract import Case, EngineContract


class Rogue:
    """An engine that answers properly, with one fault that it is told to have."""

    name = "rogue"
    capabilities = Capabilities(tools=True, streaming=True)

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._turns = 0

    def unavailable(self) -> str | None:
        if self._fault == "asking starts a thread":
            threading.Thread(target=threading.Event().wait, args=(2,), daemon=True).start()
        return None

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        fault = self._fault
        self._turns += 1
        yield Started(resumed=fault == "claims to have resumed")
        if fault == "leaves a task":
            self._task = asyncio.create_task(asyncio.Event().wait())
        if fault == "changes the history" and turn.history:
            turn.history[2].tool_input["path"] = "changed"
        if fault == "raises":
            raise RuntimeError("no")
        yield TextDelta(text="hel" if fault == "says other words than it streamed" else "hello")
        if "last" in turn.input:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if fault == "does not stop":
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(asyncio.Event().wait(), 1)
                raise
        if "call" in turn.input:
            called = ToolCalled(call=f"{turn.run_id}.1", name="lookup", input={"value": "a"})
            tool = turn.tools[0]
            given = {"value": "a"} if tool.name == "lookup" else {}
            if fault == "calls before it says so":
                outcome = await tool.call(called.call, given)
                yield called
            else:
                yield called
                outcome = await tool.call(called.call, given)
            yield ToolAnswered(
                call=called.call, output=outcome.output, status=outcome.status, recorded=outcome.recorded
            )
            if outcome.ends_turn and fault != "goes on after the turn was ended":
                yield Finished(status="continued")
                return
        yield Said(text=f"hello {self._turns}" if fault == "is never the same" else "hello")
        if fault == "never finishes":
            return
        yield Finished(status="completed")
        if fault == "finishes twice":
            yield Finished(status="completed")


CAUGHT = [
    ("never finishes", "test_ends_with_exactly_one_finished"),
    ("finishes twice", "test_ends_with_exactly_one_finished"),
    ("claims to have resumed", "test_says_first_that_it_has_started"),
    ("says other words than it streamed", "test_a_finished_message_holds_what_its_deltas_said"),
    ("changes the history", "test_the_history_is_left_as_it_was"),
    ("is never the same", "test_the_same_turn_gives_the_same_signals"),
    ("calls before it says so", "test_a_call_is_announced_before_the_tool_runs"),
    ("goes on after the turn was ended", "test_after_a_tool_that_ends_the_turn_nothing_comes_but_the_end"),
    ("raises", "test_a_failure_is_the_last_signal_and_no_exception"),
    ("asking starts a thread", "test_asking_whether_it_can_run_costs_nothing"),
]


class _Suite(EngineContract):
    stops_within = 0.5

    def __init__(self, fault: str) -> None:
        self._engine = Rogue(fault)

    def talking(self) -> Case:
        return Case(engine=self._engine, input="talk")

    def calling(self, tool: str, given: dict[str, Any]) -> Case:
        return Case(engine=self._engine, input="call")

    def lasting(self) -> Case:
        return Case(engine=self._engine, input="last")

    def failing(self) -> Case:
        return Case(engine=self._engine, input="talk")


@pytest.mark.parametrize(("fault", "test"), CAUGHT)
def test_the_suite_catches_an_engine_that(fault: str, test: str) -> None:
    with pytest.raises((AssertionError, RuntimeError)):
        getattr(_Suite(fault), test)()
    if test != "test_a_failure_is_the_last_signal_and_no_exception":
        getattr(_Suite("none"), test)()


@pytest.mark.parametrize("fault", ["leaves a task", "does not stop"])
def test_the_suite_catches_an_engine_that_is_stopped_and(fault: str) -> None:
    with pytest.raises((AssertionError, TimeoutError)):
        _Suite(fault).test_stopping_is_quick_and_leaves_nothing_behind("cancel the task")
    _Suite("none").test_stopping_is_quick_and_leaves_nothing_behind("cancel the task")
