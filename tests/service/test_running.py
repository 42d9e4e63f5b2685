"""Runs as records: their states, their order, their leases, and what is left when one is cut off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.conversations import COMMAND, World, bodies, queued, texts

from onward.core.bodies import Message, RunChange, ToolCall, ToolResult
from onward.core.codec import body_of
from onward.core.records import FINAL_STATES, TRANSITIONS, Run
from onward.errors import (
    Conflict,
    InvalidInput,
    InvalidTransition,
    LeaseLost,
    LimitExceeded,
    RunNotFound,
    SessionArchived,
)
from onward.service import running
from onward.store import contract
from onward.store.contract import Batch
from onward.store.memory import MemoryStore

STATES = ("queued", *FINAL_STATES, "running")


def claimed(world: World, session_id: str, text: str = "Do it.", engine: str = "script") -> Run:
    run = world.log.submit(session_id, text, engine=engine)
    return running.claim(world.platform, run.id, "runner", engine=engine)


def calling(world: World, run: Run, call: str = "c1") -> None:
    event = world.platform.event("tool_call", ToolCall(call=call, name="make"), "agent", run_id=run.id)
    running.record(world.platform, run, (event,))


def lapse(world: World) -> list[Run]:
    """Let every lease end, and close what is left."""
    world.clock.tick(running.LEASE_SECONDS + 1)
    return world.log.expire()


@given(st.lists(st.sampled_from(STATES), max_size=6))
def test_a_run_takes_no_step_that_is_not_allowed_from_where_it_is(steps: list[str]) -> None:
    world = World(opened=MemoryStore)
    run = queued(world.log, world.log.start().id)
    state = "queued"
    for wanted in steps:
        change = contract.RunChange(run_id=run.id, state=wanted)  # type: ignore[arg-type]
        if wanted in TRANSITIONS.get(state, ()):
            world.store.commit(Batch(run_changes=(change,)))
            state = wanted
        else:
            with pytest.raises(InvalidTransition):
                world.store.commit(Batch(run_changes=(change,)))
        assert running.get(world.platform, run.id).state == state


def test_a_message_waits_outside_the_log_until_its_run_starts(world: World) -> None:
    session = world.log.start()
    run = queued(world.log, session.id, "Wait for it.")
    assert texts(world.events(session.id)) == []
    started = running.claim(world.platform, run.id, "runner", engine="script")
    (message,) = [e for e in world.events(session.id) if e.kind == "message"]
    assert (started.input_event, started.input, message.run_id) == (message.id, None, run.id)
    assert message.actor == "user"


def test_one_run_of_a_session_works_at_a_time_and_the_others_wait_in_order(world: World) -> None:
    session = world.log.start(engine="script")
    runs = []
    for number in range(5):
        runs.append(queued(world.log, session.id, f"Message {number}"))
        world.clock.tick()
    working = running.claim(world.platform, runs[0].id, "runner", engine="script")
    assert running.next_queued(world.platform, session.id) is None
    with pytest.raises(Conflict):
        running.claim(world.platform, runs[1].id, "another", engine="script")
    running.settle(world.platform, working, "completed")
    for expected in runs[1:]:
        upcoming = running.next_queued(world.platform, session.id)
        assert upcoming is not None
        assert upcoming.id == expected.id
        done = running.claim(world.platform, upcoming.id, "runner", engine="script")
        running.settle(world.platform, done, "completed")
    assert texts(world.events(session.id)) == [f"Message {n}" for n in range(5)]


def test_the_oldest_of_very_many_waiting_messages_is_next(world: World) -> None:
    session = world.log.start(engine="script")
    first = queued(world.log, session.id)
    world.clock.tick()
    for _ in range(130):
        queued(world.log, session.id)
    upcoming = running.next_queued(world.platform, session.id)
    assert upcoming is not None
    assert upcoming.id == first.id


def test_a_run_that_is_tried_again_goes_before_what_was_said_after_it(world: World) -> None:
    session = world.log.start(engine="script")
    cut_off = claimed(world, session.id, "First.")
    queued(world.log, session.id, "Second.")
    lapse(world)
    upcoming = running.next_queued(world.platform, session.id)
    assert upcoming is not None
    assert upcoming.retry_of == cut_off.id


def test_a_run_can_be_claimed_once(world: World) -> None:
    session = world.log.start()
    run = claimed(world, session.id)
    with pytest.raises(Conflict, match="runner is working on"):
        running.claim(world.platform, run.id, "another", engine="script")
    running.settle(world.platform, run, "completed")
    with pytest.raises(InvalidTransition):
        running.claim(world.platform, run.id, "another", engine="script")


@pytest.mark.parametrize(
    ("text", "actor", "error"),
    [
        ("", "user", InvalidInput),
        (" \n\t", "user", InvalidInput),
        ("x", "agent", InvalidInput),
        ("é" * (2 * 1024 * 1024 + 1), "user", LimitExceeded),
    ],
    ids=["empty", "blank", "actor", "large"],
)
def test_a_message_that_cannot_be_one_is_refused_and_stored_nowhere(
    world: World, text: str, actor: str, error: type[Exception]
) -> None:
    session = world.log.start()
    with pytest.raises(error):
        world.log.submit(session.id, text, actor=actor, engine="script")
    assert not world.store.runs(session.id)


def test_an_archived_session_takes_no_message(world: World) -> None:
    session = world.log.start()
    world.log.archive(session.id)
    with pytest.raises(SessionArchived):
        queued(world.log, session.id)


def test_a_lease_that_is_renewed_does_not_expire(world: World) -> None:
    run = claimed(world, world.log.start().id)
    for _ in range(5):
        world.clock.tick(running.LEASE_SECONDS - 1)
        running.heartbeat(world.platform, run)
        assert world.log.expire() == []
    assert [r.id for r in lapse(world)] == [run.id]


@pytest.mark.requirement("L6")
def test_a_runner_that_lost_its_lease_can_write_nothing_at_all(world: World) -> None:
    session = world.log.start()
    run = claimed(world, session.id)
    lapse(world)
    again = running.next_queued(world.platform, session.id)
    assert again is not None
    running.claim(world.platform, again.id, "another", engine="script")
    before = world.everything()
    said = world.platform.event("message", Message(role="assistant", text="late"), "agent", run_id=run.id)
    for late in (
        lambda: running.record(world.platform, run, (said,)),
        lambda: running.keep_draft(world.platform, run, "late"),
        lambda: running.heartbeat(world.platform, run),
        lambda: running.opened(world.platform, run, (said,)),
        lambda: running.settle(world.platform, run, "completed"),
        lambda: world.log.continue_session(
            session.id, COMMAND, run_id=run.id, fence=run.fence, call="c1", actor="agent"
        ),
    ):
        with pytest.raises(Exception) as refused:
            late()
        assert refused.value.code in ("lease_lost", "unresolved_work")  # type: ignore[attr-defined]
    assert world.everything() == before


@pytest.mark.requirement("L6")
def test_a_run_that_was_cancelled_refuses_its_runner_in_the_same_way(world: World) -> None:
    run = claimed(world, world.log.start().id)
    world.log.cancel(run.id)
    for late in (running.heartbeat, lambda p, r: running.keep_draft(p, r, "late")):
        with pytest.raises(LeaseLost):
            late(world.platform, run)  # type: ignore[operator]
    with pytest.raises(LeaseLost):
        running.settle(world.platform, run, "completed")


def test_what_was_streamed_is_in_the_log_after_the_lease_ended(world: World) -> None:
    session = world.log.start()
    run = claimed(world, session.id)
    running.keep_draft(world.platform, run, "The answer is forty-")
    world.reopen()
    lapse(world)
    (said,) = [b for b in bodies(world.events(session.id), Message) if b.role == "assistant"]
    assert (said.text, said.interrupted) == ("The answer is forty-", True)
    assert world.store.draft(run.id) is None


@pytest.mark.parametrize(
    ("engine", "statuses"),
    [("script", ["outcome_unknown", "not_started", "not_started"]), ("acp", ["outcome_unknown"] * 3)],
)
def test_open_calls_of_a_run_that_was_cut_off_are_closed_for_what_is_known_of_them(
    world: World, engine: str, statuses: list[str]
) -> None:
    session = world.log.start()
    world.call(session.id, "not of this run")
    run = claimed(world, session.id, engine=engine)
    for number in range(3):
        calling(world, run, f"{run.id}.{number}")
    lapse(world)
    results = bodies(world.events(session.id), ToolResult)
    assert [r.status for r in results] == statuses
    assert all(r.closer for r in results)
    assert [c.call for c in world.store.open_calls(session.id)] == ["not of this run"]


def test_a_run_that_called_nothing_is_queued_again_and_one_that_did_is_not(world: World) -> None:
    for called in (False, True):
        session = world.log.start(engine="script")
        run = claimed(world, session.id)
        if called:
            calling(world, run)
        (ended,) = lapse(world)
        assert (ended.id, ended.state) == (run.id, "interrupted")
        waiting = world.store.unfinished(session.id)
        assert [r.retry_of for r in waiting] == ([] if called else [run.id])


def test_a_call_of_an_earlier_run_does_not_count_as_an_effect_of_this_one(world: World) -> None:
    session = world.log.start(engine="script")
    first = claimed(world, session.id)
    for number in range(120):
        calling(world, first, f"{first.id}.{number}")
    running.settle(world.platform, first, "failed")
    again = world.log.retry(first.id)
    second = running.claim(world.platform, again.id, "runner", engine="script")
    lapse(world)
    assert [r.retry_of for r in world.store.unfinished(session.id)] == [second.id]


def test_a_late_effect_among_very_many_events_is_seen(world: World) -> None:
    session = world.log.start(engine="script")
    run = claimed(world, session.id)
    calling(world, run)
    for number in range(250):
        event = world.platform.event(
            "run", RunChange(run=f"other {number}", state="running"), "system", run_id=None
        )
        world.tell(session.id, event)
    lapse(world)
    assert not world.store.unfinished(session.id)


def test_a_run_is_queued_again_at_most_so_often(world: World) -> None:
    session = world.log.start(engine="script")
    run = claimed(world, session.id)
    attempts = 1
    while lapse(world) and (waiting := running.next_queued(world.platform, session.id)):
        attempts += 1
        assert (waiting.attempt, waiting.input_event) == (attempts, run.input_event)
        running.claim(world.platform, waiting.id, "runner", engine="script")
    assert attempts == running.MAX_ATTEMPTS
    assert [r.state for r in world.store.runs(session.id)] == ["interrupted"] * attempts
    assert len(texts(world.events(session.id))) == 1


def test_expiring_twice_or_from_two_places_closes_a_run_once(world: World) -> None:
    session = world.log.start()
    claimed(world, session.id)
    assert len(lapse(world)) == 1
    before = world.everything()
    assert world.log.expire() == []
    assert world.everything() == before


def test_cancelling_what_waits_keeps_what_was_written_and_trying_again_does_not_say_it_twice(
    world: World,
) -> None:
    session = world.log.start(engine="script")
    run = queued(world.log, session.id, "Never mind.")
    ended = world.log.cancel(run.id)
    assert (ended.state, ended.input) == ("cancelled", None)
    assert texts(world.events(session.id)) == ["Never mind."]
    world.log.retry(run.id)
    result = world.log.run(session.id)
    assert result.state == "completed"
    assert "Never mind." in result.reply
    asked = [b.text for b in bodies(world.events(session.id), Message) if b.role == "user"]
    assert asked == ["Never mind."]


def test_cancelling_what_has_ended_changes_nothing(world: World) -> None:
    session = world.log.start(engine="script")
    result = world.log.run(session.id, "Hello.", engine="script")
    before = world.everything()
    assert world.log.cancel(result.run).state == "completed"
    assert world.everything() == before


@pytest.mark.parametrize("state", ["completed", "continued"])
def test_a_run_that_ended_well_is_not_tried_again(world: World, state: str) -> None:
    session = world.log.start()
    run = claimed(world, session.id)
    running.settle(world.platform, run, state)  # type: ignore[arg-type]
    with pytest.raises(InvalidTransition):
        world.log.retry(run.id)


def test_a_run_that_nobody_knows_is_not_found(world: World) -> None:
    with pytest.raises(RunNotFound):
        world.log.cancel("run_00000000000000000000000000")


def test_how_a_run_ended_is_told_in_the_log_with_its_reason(world: World) -> None:
    session = world.log.start()
    run = claimed(world, session.id)
    running.settle(world.platform, run, "failed", reason="no network")
    last = body_of(world.events(session.id)[-1])
    assert isinstance(last, RunChange)
    assert (last.run, last.state, last.reason) == (run.id, "failed", "no network")
    found = running.get(world.platform, run.id)
    assert (found.state, found.reason, found.ended_at) == ("failed", "no network", world.clock())
