"""Plans and pins: state that moves as state (invariant P6).

A plan is a list of steps with ids and resolutions; pins are the tools and resources that stay loaded, at a version. Both
change by whole revisions, each an event, so any earlier one can be shown. Carrying one into a successor writes a new
revision there that names the event it carries on; step ids, statuses and versions are kept as they are.

A plan that is closed or omitted at a continuation gets no last revision: the predecessor gains nothing but the facts of the
continuation (C1). How its steps ended is in the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from onward.core.bodies import Pin, Pins, Plan, PlanStep

PlanTransfer = Literal["carry", "close", "omit"]

CLOSED: Final = "closed unfinished when the work went on elsewhere"
"""The resolution of a step that was unfinished when its plan was closed at a continuation."""


def unfinished(plan: Plan | None) -> tuple[PlanStep, ...]:
    """Return the steps that are neither done nor dropped; none of a closed plan."""
    if plan is None or plan.closed:
        return ()
    return tuple(step for step in plan.steps if step.status in ("open", "active"))


def default_transfer(plan: Plan | None) -> PlanTransfer:
    """Return what happens to a plan when nobody says: carry if a step is open, else omit."""
    return "carry" if unfinished(plan) else "omit"


def carried_plan(plan: Plan, event_id: str) -> Plan:
    """Return the first revision of a plan in a successor."""
    return Plan(revision=1, steps=plan.steps, closed=False, carried_from=event_id)


def left_steps(plan: Plan, how: PlanTransfer) -> tuple[PlanStep, ...]:
    """Return the steps of a plan as a manifest records them: those of a closed one that were unfinished are dropped."""
    if how != "close":
        return plan.steps
    open_steps = {step.id for step in unfinished(plan)}
    return tuple(
        msgspec.structs.replace(step, status="dropped", resolution=step.resolution or CLOSED)
        if step.id in open_steps
        else step
        for step in plan.steps
    )


def carried_pins(
    pins: Pins, event_id: str, tools: Iterable[str], resources: Iterable[str]
) -> tuple[Pins | None, list[str]]:
    """Return the pins that were named, at their versions, and the names that are not pinned.

    None when nothing was named: pins move only by name.
    """
    wanted = {("tool", name) for name in tools} | {("resource", name) for name in resources}
    kept = tuple(pin for pin in pins.pins if (pin.kind, pin.name) in wanted)
    missing = sorted(
        name for kind, name in wanted if not any(p.kind == kind and p.name == name for p in kept)
    )
    return (Pins(revision=1, pins=kept, carried_from=event_id) if kept else None), missing


def revised(plan: Plan | None, steps: Iterable[PlanStep], *, closed: bool = False) -> Plan:
    """Return the next revision of a plan with these steps."""
    return Plan(
        revision=(plan.revision if plan else 0) + 1,
        steps=tuple(steps),
        closed=closed,
        carried_from=plan.carried_from if plan else None,
    )


def pinned(pins: Pins | None, chosen: Iterable[Pin]) -> Pins:
    """Return the next revision of the pins."""
    return Pins(revision=(pins.revision if pins else 0) + 1, pins=tuple(chosen))
