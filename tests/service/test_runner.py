"""The runner: every signal is in the log before the next, and however a turn stops, the log says how."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.service.conversations import World, bodies, queued, script, texts

from onward.core.bodies import (
    Message,
    Plan,
    PlanStep,
    Reasoning,
    RunChange,
    SessionChange,
    ToolCall,
    ToolResult,
    Usage,
)
from onward.core.records import Run
from onward.engines.contract import (
    Capabilities,
    Finished,
    Measured,
    Noted,
    Said,
    Signal,
    Started,
    TextDelta,
    Thought,
    ToolAnswered,
    ToolCalled,
    Turn,
)
from onward.engines.script import Begin, Call, Fail, Hang, Measure, Mutter, Say, ScriptEngine, Stop, Think
from onward.errors import Conflict, EngineUnavailable, InvalidInput, LeaseLost
from onward.library import Onward
from onward.runner import RunResult, execute
from onward.service import running
from onward.store.contract import Batch

PATIENCE = 20.0
"""Seconds that a wait may take before the test fails."""


def drive(log: Onward, run: Run, engine: Any, **options: Any) -> RunResult:
    """Execute one run, within bounds."""

    async def bounded() -> RunResult:
        return await asyncio.wait_for(execute(log.platform, run.id, engine, **options), PATIENCE)

    return asyncio.run(bounded())


class Played:
    """An engine whose turn is a function, and which notes whether it was stopped."""

    name = "script"

    def __init__(self, turn: Callable[[Turn], AsyncIterator[Signal]]) -> None:
        self._turn = turn
        self.capabilities = Capabilities(tools=True, streaming=True)
        self.stopped = False

    def unavailable(self) -> str | None:
        return None

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        try:
            async for signal in self._turn(turn):
                yield signal
        except (asyncio.CancelledError, GeneratorExit):
            self.stopped = True
            raise


def test_a_turn_is_written_down_signal_by_signal(world: World) -> None:
    session = world.log.start(engine="script")
    engine = script(
        Think(text="Hm.", signature="sig"),
        Say(text="First."),
        Call(name="nothing", input={"a": 1}),
        Say(text="Second."),
        Measure(usage=Usage(input_tokens=7)),
    )
    result = world.log.run(session.id, "Hello.", engine=engine)
    kinds = [e.kind for e in world.events(session.id) if e.run_id == result.run]
    assert kinds == [
        "message",
        "run",
        "session",
        "reasoning",
        "message",
        "tool_call",
        "tool_result",
        "message",
        "run",
    ]
    assert (result.state, result.reply, result.usage) == (
        "completed",
        "First.\n\nSecond.",
        Usage(input_tokens=7),
    )
    events = world.events(session.id)
    assert bodies(events, Reasoning)[0].signature == "sig"
    assert bodies(events, RunChange)[-1].usage == Usage(input_tokens=7)
    assert not world.store.open_calls(session.id)


def test_every_signal_is_in_the_log_before_the_engine_is_asked_for_the_next(world: World) -> None:
    session = world.log.start()
    seen: list[int] = []

    async def turn(turn: Turn) -> AsyncIterator[Signal]:
        def count() -> None:
            seen.append(len(world.events(session.id)))

        for signal in (
            Started(),
            Thought(text="t"),
            Said(text="s"),
            ToolCalled(call="c", name="n"),
            ToolAnswered(call="c", output="o"),
            Said(text="u"),
        ):
            count()
            yield signal
        count()
        yield Finished(status="completed")

    drive(world.log, queued(world.log, session.id), Played(turn))
    assert [after - before for before, after in itertools.pairwise(seen)] == [1] * 6


def test_a_listener_hears_text_at_once_and_everything_else_when_it_is_written(world: World) -> None:
    session = world.log.start()
    heard: list[tuple[str, int]] = []

    def listen(run: Run, signal: Signal) -> None:
        heard.append((type(signal).__name__, len(texts(world.events(session.id)))))

    drive(world.log, queued(world.log, session.id), script(Say(text="abc", deltas=2)), listener=listen)
    assert heard == [("Started", 1), ("TextDelta", 1), ("TextDelta", 1), ("Said", 2), ("Finished", 2)]


def test_an_engine_that_stops_without_saying_how_has_failed(world: World) -> None:
    session = world.log.start()
    result = world.log.run(session.id, "Hello.", engine=script(Say(text="All is well."), Stop()))
    assert (result.state, result.reply) == ("failed", "All is well.")
    assert "without saying" in result.reason


def test_an_engine_that_says_it_failed_is_an_answer(world: World) -> None:
    session = world.log.start()
    result = world.log.run(session.id, "Hello.", engine=script(Mutter(text="I was ab"), Fail(reason="No.")))
    assert (result.state, result.reason) == ("failed", "No.")
    said = bodies(world.events(session.id), Message)[-1]
    assert (said.text, said.interrupted) == ("I was ab", True)


def test_an_engine_that_raises_fails_its_run_and_its_exception_goes_on(world: World) -> None:
    session = world.log.start()

    async def turn(turn: Turn) -> AsyncIterator[Signal]:
        yield TextDelta(text="I was ab")
        yield ToolCalled(call="c", name="n")
        raise ZeroDivisionError("of course")

    run = queued(world.log, session.id)
    with pytest.raises(ZeroDivisionError):
        drive(world.log, run, Played(turn))
    ended = running.get(world.platform, run.id)
    assert ended.state == "failed"
    assert "ZeroDivisionError: of course" in (ended.reason or "")
    assert bodies(world.events(session.id), ToolResult)[-1].status == "outcome_unknown"
    assert bodies(world.events(session.id), Message)[-1].interrupted


def test_an_engine_that_cannot_run_here_claims_nothing(world: World) -> None:
    session = world.log.start()
    engine = ScriptEngine()
    engine.unavailable = lambda: "it is not installed"  # type: ignore[method-assign]
    run = queued(world.log, session.id)
    with pytest.raises(EngineUnavailable, match="not installed"):
        drive(world.log, run, engine)
    assert running.get(world.platform, run.id).state == "queued"
    with pytest.raises(EngineUnavailable):
        world.log.run(session.id, "More.", engine=engine)
    assert [r.id for r in world.store.unfinished(session.id)] == [run.id]


class Paused:
    """A turn that streams, calls a tool, and then waits until it is stopped."""

    def __init__(self) -> None:
        self.reached = threading.Event()

    async def __call__(self, turn: Turn) -> AsyncIterator[Signal]:
        yield Started()
        yield ToolCalled(call=f"{turn.run_id}.1", name="deploy")
        yield TextDelta(text="The answer ")
        yield TextDelta(text="is forty-")
        self.reached.set()
        await asyncio.Event().wait()
        yield Finished(status="completed")


def in_background(log: Onward, run: Run, engine: Any, **options: Any) -> tuple[threading.Thread, list[Any]]:
    """Execute a run on another thread. Return the thread and what came of it, once it ended."""
    out: list[Any] = []

    def work() -> None:
        try:
            out.append(drive(log, run, engine, **options))
        except BaseException as error:
            out.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, out


@pytest.mark.requirement("L6")
def test_a_run_that_is_cancelled_elsewhere_stops_its_engine_within_a_heartbeat(world: World) -> None:
    session = world.log.start()
    turn = Paused()
    engine = Played(turn)
    run = queued(world.log, session.id)
    thread, out = in_background(world.log, run, engine, lease=0.3)
    assert turn.reached.wait(PATIENCE)
    world.log.cancel(run.id, reason="enough")
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert isinstance(out[0], LeaseLost)
    assert "cancelled, enough" in out[0].message
    assert engine.stopped
    ended = running.get(world.platform, run.id)
    assert (ended.state, ended.reason) == ("cancelled", "enough")
    assert bodies(world.events(session.id), RunChange)[-1].state == "cancelled"


@pytest.mark.requirement("L6")
def test_a_run_that_is_cancelled_elsewhere_stops_its_engine_at_its_next_word(world: World) -> None:
    session = world.log.start()
    run = queued(world.log, session.id)

    async def turn(turn: Turn) -> AsyncIterator[Signal]:
        yield Said(text="One.")
        await asyncio.to_thread(world.log.cancel, run.id)
        yield Said(text="Two.")
        yield Said(text="Three.")

    engine = Played(turn)
    with pytest.raises(LeaseLost):
        drive(world.log, run, engine)
    assert engine.stopped
    assert texts(world.events(session.id)) == ["Later.", "One."]


@pytest.mark.requirement("L6")
def test_whoever_waits_for_a_cancelled_run_is_told_that_it_was_cancelled(world: World) -> None:
    session = world.log.start()

    async def turn(turn: Turn) -> AsyncIterator[Signal]:
        await asyncio.to_thread(world.log.cancel, turn.run_id, reason="enough")
        yield Said(text="Too late.")

    result = world.log.run(session.id, "Work.", engine=Played(turn))  # type: ignore[arg-type]
    assert (result.state, result.reply, result.reason) == ("cancelled", "", "enough")


@pytest.mark.requirement("L6")
def test_a_runner_that_was_taken_for_dead_stops_and_its_late_words_are_not_written(world: World) -> None:
    session = world.log.start()

    async def turn(turn: Turn) -> AsyncIterator[Signal]:
        yield Said(text="One.")
        world.clock.tick(running.LEASE_SECONDS + 1)
        await asyncio.to_thread(world.log.expire)
        yield Said(text="Late.")

    engine = Played(turn)
    run = queued(world.log, session.id)
    with pytest.raises(LeaseLost):
        drive(world.log, run, engine)
    assert engine.stopped
    assert texts(world.events(session.id)) == ["Later.", "One."]
    assert [r.state for r in world.store.runs(session.id)] == ["queued", "interrupted"]


def test_the_lease_is_renewed_while_the_engine_thinks(world: World) -> None:
    session = world.log.start()
    run = queued(world.log, session.id)
    renewed = threading.Event()
    until: list[int] = []

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.store, name)

        def commit(self, batch: Batch) -> Any:
            done = world.store.commit(batch)
            until.extend(c.lease_until for c in batch.run_changes if c.lease_until is not None)
            if len(until) >= 4:
                renewed.set()
            return done

    async def turn(turn: Turn) -> AsyncIterator[Signal]:
        yield Started()
        assert await asyncio.to_thread(renewed.wait, PATIENCE)
        yield Finished(status="completed")

    result = drive(world.acting(store=Watching()), run, Played(turn), lease=0.03)  # type: ignore[arg-type]
    assert result.state == "completed"


def test_a_cancelled_task_settles_its_run_as_cancelled_and_keeps_what_was_said(world: World) -> None:
    session = world.log.start()
    turn = Paused()
    engine = Played(turn)
    run = queued(world.log, session.id)

    async def cancel() -> None:
        task = asyncio.create_task(execute(world.platform, run.id, engine))
        assert await asyncio.to_thread(turn.reached.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, PATIENCE)

    asyncio.run(cancel())
    assert engine.stopped
    assert running.get(world.platform, run.id).state == "cancelled"
    said = bodies(world.events(session.id), Message)[-1]
    assert (said.text, said.interrupted) == ("The answer is forty-", True)
    assert bodies(world.events(session.id), ToolResult)[-1].status == "outcome_unknown"
    assert world.store.draft(run.id) is None


@pytest.mark.parametrize("cut", ["claim", "opening", "finished message", "end"])
def test_a_task_that_is_cancelled_in_the_middle_of_a_write_loses_and_repeats_nothing(
    world: World, cut: str
) -> None:
    session = world.log.start()
    run = queued(world.log, session.id)
    inside, go_on = threading.Event(), threading.Event()

    def is_it(batch: Batch) -> bool:
        if cut == "claim":
            return any(change.state == "running" for change in batch.run_changes)
        if cut == "end":
            return any(change.state == "completed" for change in batch.run_changes)
        kinds = [event.kind for append in batch.appends for event in append.events]
        return kinds == ["session" if cut == "opening" else "message"]

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.store, name)

        def commit(self, batch: Batch) -> Any:
            if is_it(batch) and not inside.is_set():
                inside.set()
                assert go_on.wait(PATIENCE)
            return world.store.commit(batch)

    async def cancel() -> None:
        log = world.acting(store=Slow())  # type: ignore[arg-type]
        task = asyncio.create_task(execute(log.platform, run.id, script(Say(text="Said once."))))
        assert await asyncio.to_thread(inside.wait, PATIENCE)
        task.cancel()
        asyncio.get_running_loop().call_later(0.01, go_on.set)
        await asyncio.wait((task,), timeout=PATIENCE)
        assert task.cancelled()

    asyncio.run(cancel())
    state = running.get(world.platform, run.id).state
    assert state == ("completed" if cut == "end" else "cancelled")
    said = [b.text for b in bodies(world.events(session.id), Message) if b.role == "assistant"]
    assert said == (["Said once."] if cut in ("finished message", "end") else [])
    assert [b.state for b in bodies(world.events(session.id), RunChange)] == ["running", state]


def test_the_last_words_before_an_engine_falls_silent_are_kept_without_another_word(world: World) -> None:
    session = world.log.start()
    run = queued(world.log, session.id)
    kept = threading.Event()

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.store, name)

        def commit(self, batch: Batch) -> Any:
            done = world.store.commit(batch)
            if any(draft.text == "The answer is forty-" for draft in batch.drafts):
                kept.set()
            return done

    turn = Paused()
    thread, out = in_background(world.acting(store=Watching()), run, Played(turn), lease=0.5)  # type: ignore[arg-type]
    assert kept.wait(PATIENCE)
    assert world.store.draft(run.id) is not None
    world.clock.tick(running.LEASE_SECONDS + 1)
    world.log.expire()
    assert bodies(world.events(session.id), Message)[-1].text == "The answer is forty-"
    thread.join(PATIENCE)
    assert isinstance(out[0], LeaseLost), "the next beat found out"


def test_a_finished_message_takes_the_place_of_its_draft(world: World) -> None:
    session = world.log.start()

    async def turn(turn: Turn) -> AsyncIterator[Signal]:
        for number in range(3):
            yield TextDelta(text="word ")
            if number == 0:
                assert await asyncio.to_thread(world.store.draft, turn.run_id) is not None
        yield Said(text="word word word")
        assert await asyncio.to_thread(world.store.draft, turn.run_id) is None
        yield Finished(status="completed")

    drive(world.log, queued(world.log, session.id), Played(turn))
    said = [b for b in bodies(world.events(session.id), Message) if b.role == "assistant"]
    assert [(b.text, b.interrupted) for b in said] == [("word word word", False)]


def test_messages_that_wait_are_answered_in_order_before_the_one_that_was_just_sent(world: World) -> None:
    session = world.log.start(engine="script")
    queued(world.log, session.id, "One.")
    queued(world.log, session.id, "Two.")
    result = world.log.run(session.id, "Three.", engine="script")
    assert "Three." in result.reply
    asked = [b.text for b in bodies(world.events(session.id), Message) if b.role == "user"]
    assert asked == ["One.", "Two.", "Three."]


def test_a_message_behind_a_working_run_waits_and_says_so(world: World) -> None:
    session = world.log.start(engine="script")
    running.claim(world.platform, queued(world.log, session.id).id, "elsewhere", engine="script")
    result = world.log.run(session.id, "And me?", engine="script")
    assert result.state == "queued"
    assert "another runner" in result.reason


def test_a_message_for_another_engine_is_not_answered_by_this_one(world: World) -> None:
    session = world.log.start(engine="script")
    first = world.log.submit(session.id, "For the big model.", engine="model")
    result = world.log.run(session.id, "For the script.", engine="script")
    assert result.state == "queued"
    assert "model" in result.reason
    assert running.get(world.platform, first.id).state == "queued"


def test_without_a_message_what_waits_is_run_and_when_nothing_waits_that_is_said(world: World) -> None:
    session = world.log.start(engine="script")
    run = queued(world.log, session.id, "Waiting.")
    assert world.log.run(session.id).run == run.id
    with pytest.raises(InvalidInput, match="nothing waits"):
        world.log.run(session.id)


def test_a_run_that_another_runner_took_first_is_not_an_error(world: World) -> None:
    session = world.log.start(engine="script")

    class Faster:
        """Claims whatever is about to be claimed, and answers it."""

        def __init__(self) -> None:
            self.done = False

        def __getattr__(self, name: str) -> Any:
            return getattr(world.store, name)

        def commit(self, batch: Batch) -> Any:
            if not self.done and any(change.state == "running" for change in batch.run_changes):
                self.done = True
                drive(world.log, running.get(world.platform, batch.run_changes[0].run_id), ScriptEngine())
            return world.store.commit(batch)

    result = world.acting(store=Faster()).run(session.id, "Race.", engine="script")  # type: ignore[arg-type]
    assert result.state == "completed"
    assert texts(world.events(session.id)).count("Race.") == 1


def test_claiming_a_run_twice_at_once_lets_one_of_them_work(world: World) -> None:
    session = world.log.start()
    run = queued(world.log, session.id)
    barrier = threading.Barrier(4)
    out: list[Any] = []

    def work() -> None:
        barrier.wait(PATIENCE)
        try:
            out.append(
                running.claim(world.platform, run.id, threading.current_thread().name, engine="script")
            )
        except Conflict as conflict:
            out.append(conflict)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sum(isinstance(found, Run) for found in out) == 1
    assert len(out) == 4
    assert len(texts(world.events(session.id))) == 1


def test_inside_an_event_loop_the_blocking_call_refuses_and_the_other_works(world: World) -> None:
    session = world.log.start(engine="script")

    async def inside() -> RunResult:
        with pytest.raises(RuntimeError, match="await"):
            world.log.run(session.id, "Hello.", engine="script")
        return await world.log.arun(session.id, "Hello.", engine="script")

    assert asyncio.run(inside()).state == "completed"


def test_an_engine_that_hangs_can_be_given_up_on(world: World) -> None:
    session = world.log.start()
    run = queued(world.log, session.id)

    async def bounded() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(execute(world.platform, run.id, script(Say(text="Hm."), Hang())), 0.05)

    asyncio.run(bounded())
    assert running.get(world.platform, run.id).state == "cancelled"


def test_the_conversation_of_each_engine_is_remembered_apart(world: World) -> None:
    session = world.log.start()
    memory = Capabilities(memory=True, tools=True, streaming=True)
    engine = script(Begin(model="m1", native_id="native-1"), Say(text="Hello."), capabilities=memory)
    world.log.run(session.id, "Hello.", engine=engine)
    assert world.log.provider_sessions(session.id) == {
        "script": {"provider_session_id": "native-1", "model": "m1"}
    }
    world.reopen()
    other = Played(_other)
    other.name = "other"
    world.log.run(session.id, "Hello, you.", engine=other)  # type: ignore[arg-type]
    assert world.log.provider_sessions(session.id) == {
        "script": {"provider_session_id": "native-1", "model": "m1"},
        "other": {"provider_session_id": "native-2", "model": None},
    }
    openings = [b.engine for b in bodies(world.events(session.id), SessionChange) if b.change == "opening"]
    assert openings == ["script", "other"]


async def _other(turn: Turn) -> AsyncIterator[Signal]:
    yield Started(native_id="native-2")
    yield Measured(usage=Usage(output_tokens=1))
    yield Finished(status="completed")


def test_a_call_of_a_tool_that_nobody_offers_is_answered_and_recorded(world: World) -> None:
    session = world.log.start()
    world.log.run(session.id, "Hello.", engine=script(Call(name="teleport"), Say(text="I cannot.")))
    events = world.events(session.id)
    (call,), (answer,) = bodies(events, ToolCall), bodies(events, ToolResult)
    assert (answer.call, answer.status) == (call.call, "error")


class Planning:
    """An engine that notes a plan, counting its revisions from one in every turn."""

    name = "script"
    capabilities = Capabilities()

    def unavailable(self) -> str | None:
        return None

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        yield Started()
        for number in (1, 2):
            step = PlanStep(id="s1", text=f"{turn.input} {number}")
            yield Noted(kind="plan", body=Plan(revision=number, steps=(step,)))
        yield Finished(status="completed")


@pytest.mark.requirement("P6")
def test_the_revisions_of_an_engines_plan_go_on_from_those_of_the_session(world: World) -> None:
    session = world.log.start(engine="script")
    for text in ("First", "Second"):
        world.log.run(session.id, text, engine=Planning())
    plans = bodies(world.events(session.id), Plan)
    assert [(plan.revision, plan.steps[0].text) for plan in plans] == [
        (1, "First 1"),
        (2, "First 2"),
        (3, "Second 1"),
        (4, "Second 2"),
    ]
