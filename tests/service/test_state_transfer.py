"""What moves along moves as state, by id and version; what stays is named with how it ended (P6, C6)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.service.conversations import COMMAND, World, bodies, queued

from onward.core.bodies import Pin, Pins, Plan, PlanStep, ProjectionContext
from onward.core.plans import CLOSED
from onward.errors import InvalidContinuation, UnresolvedWork

STEPS = (
    PlanStep(id="s1", text="find it", status="done", resolution="it was the clock"),
    PlanStep(id="s2", text="mend it", status="active"),
    PlanStep(id="s3", text="tell them", status="open"),
    PlanStep(id="s4", text="rewrite it all", status="dropped", resolution="too much"),
)
PINS = Pins(
    revision=1,
    pins=(
        Pin(kind="tool", name="shell", version="2.1", scope="read"),
        Pin(kind="tool", name="browser", version="7"),
        Pin(kind="resource", name="spec", version="sha256:aa"),
    ),
)


def planned(world: World) -> str:
    """A conversation with a plan and pins."""
    session_id = world.conversation()
    world.log.set_state(session_id, Plan(revision=1, steps=STEPS[:2]))
    world.log.set_state(session_id, Plan(revision=2, steps=STEPS))
    world.log.set_state(session_id, PINS)
    return session_id


def moved(world: World, session_id: str, **transfer: Any) -> str:
    """Continue with this transfer and return the successor."""
    return world.log.continue_session(session_id, {**COMMAND, "transfer": transfer}).successor


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("asked", [{}, {"plan": "carry"}])
def test_a_plan_with_open_steps_is_carried_with_every_id_status_and_resolution(
    world: World, asked: dict[str, str]
) -> None:
    session_id = planned(world)
    before = world.store.state(session_id)["plan"]
    successor = moved(world, session_id, **asked)
    (plan,) = bodies(world.events(successor), Plan)
    assert (plan.steps, plan.revision, plan.carried_from) == (STEPS, 1, before.id)
    state = world.log.manifest(successor).state.plan
    assert (state.transfer, state.event, state.revision, state.steps) == ("carry", before.id, 2, STEPS)


@pytest.mark.requirement("P6")
def test_a_plan_keeps_its_ids_and_resolutions_through_many_continuations(world: World) -> None:
    session_id = planned(world)
    for _ in range(4):
        before = world.store.state(session_id)["plan"]
        session_id = moved(world, session_id)
        (plan,) = bodies(world.events(session_id), Plan)
        assert plan.steps == STEPS
        assert plan.carried_from == before.id
        world.log.run(session_id, engine="script")
        world.say(session_id, "Go on.")
        world.clock.tick(600)


@pytest.mark.requirement("P6", "C1")
@pytest.mark.parametrize("how", ["close", "omit"])
def test_a_plan_that_stays_is_as_it_was_and_the_manifest_says_how_its_steps_ended(
    world: World, how: str
) -> None:
    session_id = planned(world)
    before = world.events(session_id)
    successor = moved(world, session_id, plan=how)
    assert world.events(session_id)[: len(before)] == before
    assert [e.kind for e in world.events(session_id)[len(before) :]] == ["session"]
    assert bodies(world.events(successor), Plan) == []
    state = world.log.manifest(successor).state.plan
    assert (state.transfer, state.revision) == (how, 2)
    ends = {step.id: (step.status, step.resolution) for step in state.steps}
    assert ends["s1"] == ("done", "it was the clock")
    assert ends["s4"] == ("dropped", "too much")
    unfinished = {"s2": ("dropped", CLOSED), "s3": ("dropped", CLOSED)}
    assert {k: ends[k] for k in ("s2", "s3")} == (
        unfinished if how == "close" else {"s2": ("active", None), "s3": ("open", None)}
    )
    (projection,) = bodies(world.events(successor), ProjectionContext)
    assert ("steps closed unfinished: s2, s3" in projection.text) == (how == "close")


@pytest.mark.requirement("P6")
def test_pins_move_by_name_at_the_version_that_was_chosen(world: World) -> None:
    session_id = planned(world)
    before = world.store.state(session_id)["pins"]
    successor = moved(world, session_id, pinned_tools=["shell"], pinned_resources=["spec"])
    (pins,) = bodies(world.events(successor), Pins)
    assert pins.pins == (PINS.pins[0], PINS.pins[2])
    assert (pins.revision, pins.carried_from) == (1, before.id)
    state = world.log.manifest(successor).state
    assert state.pins == ("tool shell@2.1", "resource spec@sha256:aa")
    assert state.pins_event == before.id
    assert world.store.state(session_id)["pins"] == before


@pytest.mark.requirement("P6")
def test_pins_that_nobody_named_stay(world: World) -> None:
    successor = moved(world, planned(world))
    assert bodies(world.events(successor), Pins) == []
    assert world.log.manifest(successor).state.pins == ()


def test_a_pin_that_is_not_there_is_refused_with_those_that_are(world: World) -> None:
    session_id = planned(world)
    before = world.everything()
    with pytest.raises(InvalidContinuation, match=r"pinned here: spec; pinned are .*tool browser"):
        moved(world, session_id, pinned_tools=["spec"])
    assert world.everything() == before


@pytest.mark.requirement("C6")
def test_a_refusal_lists_everything_that_is_unresolved_and_naming_it_all_moves_it(world: World) -> None:
    session_id = planned(world)
    world.call(session_id, "call-1")
    world.call(session_id, "call-2")
    first, second = queued(world.log, session_id, "one"), queued(world.log, session_id, "two")
    names = ["call-1", "call-2", first.id, second.id]
    with pytest.raises(UnresolvedWork) as refused:
        moved(world, session_id)
    items = refused.value.details["items"]
    assert [next(n for n in names if n in item) for item in items] == names
    successor = moved(world, session_id, pending_runs=names)
    state = world.log.manifest(successor).state
    assert (state.calls, state.runs) == (("call-1", "call-2"), (first.id, second.id))
    waiting = [r for r in world.store.unfinished(successor) if r.input is not None]
    assert [(r.id, r.input) for r in waiting] == [(r.id, r.input) for r in (first, second)]


@pytest.mark.requirement("C4")
def test_a_message_that_stands_in_what_a_branch_shares_is_named_with_its_session(world: World) -> None:
    source = world.conversation()
    branch = world.log.fork(source).id
    made = world.log.continue_session(branch, COMMAND)
    asked = world.log.manifest(made.manifest).initiating
    assert asked.session == source
    found = world.store.event(asked.event)
    assert found is not None
    assert (found.session_id, found.seq) == (source, asked.seq)
    (projection,) = bodies(world.events(made.successor), ProjectionContext)
    assert f'<initiating_event id="{asked.event}" session="{source}" seq="{asked.seq}" />' in projection.text
    own = world.conversation()
    (plain,) = bodies(world.events(world.log.continue_session(own, COMMAND).successor), ProjectionContext)
    assert "<initiating_event id=" in plain.text
    assert f'session="{own}" seq=' not in plain.text
