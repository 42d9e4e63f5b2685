"""Plans, pins and run states: state moves whole, with its ids, and only as it may."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.bodies import Pin, Pins, Plan, PlanStep
from onward.core.plans import carried_pins, carried_plan, default_transfer, pinned, revised, unfinished
from onward.core.records import FINAL_STATES, TRANSITIONS, RunState, may_become

steps = st.builds(
    PlanStep,
    id=st.text(min_size=1, max_size=5),
    text=st.text(max_size=10),
    status=st.sampled_from(("open", "active", "done", "dropped")),
    resolution=st.none() | st.text(max_size=10),
)
plans = st.builds(
    Plan, revision=st.integers(1, 99), steps=st.lists(steps, max_size=5).map(tuple), closed=st.booleans()
)
pin_lists = st.lists(
    st.builds(
        Pin,
        kind=st.sampled_from(("tool", "resource")),
        name=st.sampled_from("abc"),
        version=st.none() | st.sampled_from("12"),
    ),
    max_size=6,
).map(tuple)


@pytest.mark.requirement("P6")
@given(plans)
def test_a_carried_plan_keeps_every_step_with_its_id_status_and_resolution(plan: Plan) -> None:
    carried = carried_plan(plan, "evt_1")
    assert carried.steps == plan.steps
    assert (carried.revision, carried.carried_from, carried.closed) == (1, "evt_1", False)


@given(plans)
def test_a_plan_is_carried_by_itself_exactly_when_a_step_is_unfinished(plan: Plan) -> None:
    waiting = not plan.closed and any(s.status in ("open", "active") for s in plan.steps)
    assert default_transfer(plan) == ("carry" if waiting else "omit")
    assert bool(unfinished(plan)) == waiting


def test_without_a_plan_nothing_is_carried() -> None:
    assert default_transfer(None) == "omit"
    assert unfinished(None) == ()


@given(plans, st.lists(steps, max_size=3))
def test_a_revision_counts_on_and_remembers_where_the_plan_came_from(plan: Plan, new: list[PlanStep]) -> None:
    carried = carried_plan(plan, "evt_1")
    assert revised(carried, new) == Plan(revision=2, steps=tuple(new), carried_from="evt_1")
    assert revised(None, new, closed=True) == Plan(revision=1, steps=tuple(new), closed=True)


@pytest.mark.requirement("P6")
@given(pin_lists, st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd")))
def test_only_pins_that_are_named_move_and_at_their_versions(
    pins: tuple[Pin, ...], tools: set[str], resources: set[str]
) -> None:
    kept, missing = carried_pins(Pins(revision=7, pins=pins), "evt_1", tools, resources)
    wanted = {("tool", t) for t in tools} | {("resource", r) for r in resources}
    moved = tuple(p for p in pins if (p.kind, p.name) in wanted)
    assert (kept.pins if kept else ()) == moved
    if kept:
        assert (kept.revision, kept.carried_from) == (1, "evt_1")
    assert missing == sorted(
        name for kind, name in wanted if (kind, name) not in {(p.kind, p.name) for p in pins}
    )


def test_pinning_makes_the_next_revision() -> None:
    first = pinned(None, [Pin(kind="tool", name="ls")])
    assert (first.revision, pinned(first, []).revision) == (1, 2)


def test_a_final_state_is_never_left_and_every_state_is_final_or_has_a_way_on() -> None:
    states = set(get_args(RunState))
    assert set(TRANSITIONS) | FINAL_STATES == states
    assert not set(TRANSITIONS) & FINAL_STATES
    for state in FINAL_STATES:
        assert not any(may_become(state, other) for other in states)


@pytest.mark.parametrize(
    ("state", "wanted", "allowed"),
    [
        ("queued", "running", True),
        ("queued", "cancelled", True),
        ("queued", "completed", False),
        ("queued", "continued", False),
        ("running", "continued", True),
        ("running", "queued", False),
        ("completed", "failed", False),
        ("nonsense", "running", False),
    ],
)
def test_a_run_changes_only_as_it_may(state: str, wanted: str, allowed: bool) -> None:
    assert may_become(state, wanted) is allowed
