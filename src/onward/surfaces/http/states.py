"""What is known of a session beside its log: plan and pins, how its runs opened, how full its context is, what it used.

Each is read from events and runs when it is asked for; nothing here is kept twice.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from onward.core import bodies, wording
from onward.core.codec import body_of
from onward.core.events import PERSON, iso
from onward.core.pressure import Pressure
from onward.core.pricing import Rate, Spent
from onward.errors import Conflict
from onward.service import pressure, sessions, usage, verifying
from onward.service.platform import Platform
from onward.store.contract import Append, Batch, HeadIs
from onward.surfaces.http import bounds, shapes
from onward.surfaces.http.routing import Ask, Route

PAGE: Final = 200
MOST_STEPS: Final = 1000


class Step(bodies.PlanStep, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of a plan."""


class Planning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The next revision of the plan: all of its steps."""

    steps: Annotated[tuple[Step, ...], Meta(max_length=MOST_STEPS)]
    closed: bool = False
    revision: bounds.After | None = None
    """The revision that this one was made from: another one in the meantime is a conflict."""


class PinGiven(bodies.Pin, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool or resource that stays loaded."""


class Pinning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The next revision of the pins: all of them."""

    pins: Annotated[tuple[PinGiven, ...], Meta(max_length=MOST_STEPS)]
    revision: bounds.After | None = None
    """The revision that this one was made from: another one in the meantime is a conflict."""


class StateShape(shapes.Shape, frozen=True, kw_only=True):
    """The state of a session: its newest plan and pins, each as an event; a branch has those of its source."""

    plan: shapes.EventShape | None
    pins: shapes.EventShape | None


class OpeningShape(shapes.Shape, frozen=True, kw_only=True):
    """How a run got its context."""

    seq: int
    run: str | None
    at: str
    opening: str | None
    """``resumed``, ``restored``, ``seeded`` or ``fresh``, as the runner confirmed it; null where nothing was confirmed."""
    told: str
    """The same, in words for a person."""
    facts: Any


class OpeningsShape(shapes.Shape, frozen=True, kw_only=True):
    """How the runs of a session got their context, newest first."""

    openings: tuple[OpeningShape, ...]
    next: int | None
    """Pass it as ``before`` for older ones."""


class Older(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page, from the newest back."""

    before: bounds.Seq | None = None
    """Only what stands before this event."""
    limit: bounds.To200 = 20


class PressureShape(shapes.Shape, frozen=True, kw_only=True):
    """How full the model's context window was when it was last asked."""

    pressure: Pressure | None
    """Null before that was measured: there are no estimates."""


class Pricing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What tokens cost where an engine did not say what it spent."""

    rates: dict[bounds.Name, Rate] = {}
    """By model, by a prefix of models, or by engine; dollars for a million tokens."""


class RunUsageShape(shapes.Shape, frozen=True, kw_only=True):
    """What one run used."""

    run: str
    engine: str
    state: str
    usage: bodies.Usage | None
    cost_usd: float | None


class UsageShape(shapes.Shape, frozen=True, kw_only=True):
    """What a session used."""

    session: str
    total: Spent
    engines: dict[str, Spent]
    complete: bool
    """Whether every run was added up (they are up to ten thousand)."""
    runs: tuple[RunUsageShape, ...]
    """The newest hundred, newest first."""


def state(ask: Ask) -> StateShape:
    """Return the plan and the pins."""
    return _state(ask.platform, ask.path["session"])


def _state(platform: Platform, session_id: str) -> StateShape:
    found = sessions.state(platform, platform.session(session_id))
    shown = {kind: shapes.event(event) for kind, event in found.items()}
    return StateShape(plan=shown.get("plan"), pins=shown.get("pins"))


def plan(ask: Ask) -> StateShape:
    """Write the next revision of the plan."""
    given: Planning = ask.body
    steps = tuple(bodies.PlanStep(**msgspec.structs.asdict(step)) for step in given.steps)
    return _write(
        ask, "plan", given.revision, lambda n: bodies.Plan(revision=n, steps=steps, closed=given.closed)
    )


def pins(ask: Ask) -> StateShape:
    """Write the next revision of the pins."""
    given: Pinning = ask.body
    kept = tuple(bodies.Pin(**msgspec.structs.asdict(pin)) for pin in given.pins)
    return _write(ask, "pins", given.revision, lambda n: bodies.Pins(revision=n, pins=kept))


def _write(ask: Ask, kind: str, made_from: int | None, made: Any) -> StateShape:
    """Write a revision on the head that it was made on, so that of two at the same time one is told."""
    platform, session_id = ask.platform, ask.path["session"]
    session = platform.session(session_id)
    found = sessions.state(platform, session).get(kind)
    body = body_of(found) if found is not None else None
    revision = body.revision if isinstance(body, bodies.Plan | bodies.Pins) else 0
    if made_from is not None and made_from != revision:
        raise Conflict(what=f"the {kind}, which is at revision {revision}")
    event = platform.event(kind, made(revision + 1), "user", source=PERSON)
    guards = (HeadIs(session_id, session.head_seq),)
    platform.store.commit(Batch(guards=guards, appends=(Append(session_id=session_id, events=(event,)),)))
    return _state(platform, session_id)


def openings(ask: Ask) -> OpeningsShape:
    """Return how runs got their context."""
    given: Older = ask.query
    platform, name = ask.platform, ask.path["session"]
    head = platform.session(name).head_seq
    upto = head if given.before is None else given.before - 1
    shown: list[OpeningShape] = []
    while upto > 0:
        page = platform.store.events(name, upto=upto, limit=PAGE, kinds=("session",), newest_first=True)
        for event in page:
            body = body_of(event)
            if not isinstance(body, bodies.SessionChange) or body.change != "opening":
                continue
            if len(shown) == given.limit:
                return OpeningsShape(openings=tuple(shown), next=shown[-1].seq)
            facts = wording.facts_of(body)
            shown.append(
                OpeningShape(
                    seq=event.seq,
                    run=event.run_id,
                    at=iso(event.at),
                    opening=body.opening,
                    told=wording.sentence(facts),
                    facts=wording.document(facts),
                )
            )
        upto = page[-1].seq - 1 if len(page) == PAGE else 0
    return OpeningsShape(openings=tuple(shown), next=None)


def full(ask: Ask) -> PressureShape:
    """Return how full the context is."""
    return PressureShape(pressure=pressure.meter(ask.platform, ask.path["session"]))


def used(ask: Ask) -> UsageShape:
    """Return what a session used, as its engines said."""
    return _used(ask, Pricing())


def priced(ask: Ask) -> UsageShape:
    """Return what a session used, priced by rates where its engines did not say."""
    return _used(ask, ask.body)


def _used(ask: Ask, given: Pricing) -> UsageShape:
    found = usage.of_session(ask.platform, ask.path["session"], given.rates)
    runs = tuple(
        RunUsageShape(run=u.run, engine=u.engine, state=u.state, usage=u.usage, cost_usd=u.cost_usd)
        for u in found.runs[:100]
    )
    return UsageShape(
        session=found.session, total=found.total, engines=found.engines, complete=found.complete, runs=runs
    )


def verify(ask: Ask) -> verifying.Verified:
    """Re-derive every digest of a session."""
    return verifying.verify(ask.platform, ask.path["session"])


_PLAN = {"steps": [{"id": "1", "text": "Write the release notes", "status": "open"}]}
ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/sessions/{session}/state",
        does="Return the newest plan and pins.",
        scope="read",
        handler=state,
        answer=StateShape,
        tag="weak",
    ),
    Route(
        method="PUT",
        path="/v1/sessions/{session}/plan",
        does="Write the next revision of the plan.",
        scope="write",
        handler=plan,
        body=Planning,
        answer=StateShape,
        errors=(Conflict,),
        example=_PLAN,
    ),
    Route(
        method="PUT",
        path="/v1/sessions/{session}/pins",
        does="Write the next revision of the pins.",
        scope="write",
        handler=pins,
        body=Pinning,
        answer=StateShape,
        errors=(Conflict,),
        example={"pins": [{"kind": "tool", "name": "search", "version": "2"}]},
    ),
    Route(
        method="GET",
        path="/v1/sessions/{session}/openings",
        does="Say how its runs got their context, as their runners confirmed it.",
        scope="read",
        handler=openings,
        query=Older,
        answer=OpeningsShape,
    ),
    Route(
        method="GET",
        path="/v1/sessions/{session}/pressure",
        does="Return how full the context window was at the newest measured request.",
        scope="read",
        handler=full,
        answer=PressureShape,
    ),
    Route(
        method="GET",
        path="/v1/sessions/{session}/usage",
        does="Return what its runs used and cost, as their engines said.",
        scope="read",
        handler=used,
        answer=UsageShape,
    ),
    Route(
        method="POST",
        path="/v1/sessions/{session}/usage",
        does="Work out what its runs cost by rates that are given; nothing is stored.",
        scope="read",
        handler=priced,
        body=Pricing,
        answer=UsageShape,
        example={"rates": {"script": {"input": 3.0, "output": 15.0}}},
    ),
    Route(
        method="GET",
        path="/v1/sessions/{session}/verify",
        does="Derive every digest and chain value of a session anew, and name the first that does not hold.",
        scope="read",
        handler=verify,
        answer=verifying.Verified,
    ),
)
