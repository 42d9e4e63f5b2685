"""The decision to continue: which checks hold, and then exactly what is written.

``decide_continuation(command, snapshot, now, ids)`` is pure. It answers with everything that one transaction must write
(C2), or raises the first check that fails, in the design's order: shape (done by ``continuing_command``), delegated child,
loop and limits, initiating message, sources, unresolved work, budget. The key that was used before is asked for earlier,
in the service, because its answer is not a decision.

The predecessor gains the tool result, if a tool asked, and the ``session.continued`` event, and nothing else (C1), unless
a person says something with it: then their message comes first (``snapshot.spoken``), in the same transaction. The decision
needs its number and digest in advance, so it is sealed behind the head that the write states (``spoken``). The successor
begins with what it was opened from, its state, its projection and the initiating message, byte for byte (C4).
"""

from __future__ import annotations

from typing import Final

import msgspec

from onward.core import digests
from onward.core import ids as make
from onward.core.bodies import (
    ContinuedFrom,
    Message,
    Pins,
    Plan,
    ProjectionContext,
    SessionChange,
    ToolResult,
)
from onward.core.budget import Counter
from onward.core.codec import body_of, encode
from onward.core.continuing_command import Command
from onward.core.events import ONWARD, Event, NewEvent, seal
from onward.core.ids import Ids
from onward.core.manifest import (
    CarriedPlan,
    CarriedState,
    Coverage,
    Initiating,
    Manifest,
    Scope,
    encode_manifest,
)
from onward.core.plans import carried_pins, carried_plan, default_transfer, left_steps
from onward.core.projection import Inputs, Offer, Projection, compile_projection
from onward.core.recommending import unused
from onward.core.records import Link, OpenCall, Run, Session, StoredManifest
from onward.errors import (
    ContinuationLoop,
    DelegatedChild,
    InvalidContinuation,
    NothingToContinue,
    RateLimited,
    SessionArchived,
    SourceNotFound,
    TooManySuccessors,
    UnresolvedWork,
)

MAX_SUCCESSORS: Final = 8
RATE_LIMIT: Final = 20
"""Continuations within one lineage in ``RATE_WINDOW`` seconds."""
RATE_WINDOW: Final = 600


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A delegated session that has not reported back."""

    link: Link
    session: Session


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the decision is made on. The write states that it still holds."""

    session: Session
    successors: int = 0
    recent_continuations: int = 0
    """Continuations of this lineage within the rate window."""
    parent: Link | None = None
    """The delegation that this session is expected to report back to."""
    initiating: Event | None = None
    spoken: NewEvent | None = None
    """What a person says with the continuation: it is not stored yet, and ``initiating`` is how it will be."""
    offers: tuple[Offer, ...] = ()
    """The command's sources, in order, with both ids and numbers filled in."""
    plan: Event | None = None
    pins: Event | None = None
    open_calls: tuple[OpenCall, ...] = ()
    children: tuple[Child, ...] = ()
    queued: tuple[Run, ...] = ()
    running: Run | None = None
    scope: tuple[Scope, ...] = ()
    recent: tuple[Event, ...] = ()
    relevant: tuple[Event, ...] = ()
    identity: tuple[tuple[str, str], ...] = ()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The command together with how it came."""

    command: Command
    key: str
    actor: str = "agent"
    run_id: str | None = None
    """The run whose agent asked. Its turn ends."""
    call: str | None = None
    """Our id of the tool call that asked."""
    engine: str | None = None
    model: str | None = None
    budget: int
    options: bytes = b"{}"
    text: str | None = None
    """What a person says with it."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is written, together or not at all."""

    successor: Session
    link: Link
    manifest: StoredManifest
    projection: Projection
    run: Run
    predecessor_events: tuple[NewEvent, ...]
    successor_events: tuple[NewEvent, ...]
    moved_runs: tuple[str, ...]
    moved_children: tuple[str, ...]
    """Links of children that report to the successor from now on."""
    blobs: tuple[tuple[str, bytes], ...] = ()
    """What was read of resources and memories, by digest: the versions that the manifest pins."""


def with_spoken(snapshot: Snapshot, spoken: NewEvent) -> Snapshot:
    """Return a snapshot as it would be if a message had been said right before it was taken.

    The session in it stays as it is stored, because that is the head which the write depends on.
    """
    before = snapshot.session
    event = seal(spoken, before.id, before.head_seq + 1, before.head_chain)
    return msgspec.structs.replace(
        snapshot,
        initiating=event,
        spoken=spoken,
        scope=tuple(
            msgspec.structs.replace(s, to_seq=event.seq) if s.session == before.id else s
            for s in snapshot.scope
        ),
        recent=(*snapshot.recent, event),
    )


def decide_continuation(
    request: Request, snapshot: Snapshot, now: int, ids: Ids, counter: Counter
) -> Decision:
    """Decide a continuation. Raises the first ``ContinuationRefused`` that applies; see the module's order."""
    command, before = request.command, snapshot.session
    initiating = _permitted(request, snapshot)
    state, plan, pins = _state(request, snapshot)
    successor_id, link_id, manifest_id = ids.new(make.SESSION), ids.new(make.LINK), ids.new(make.MANIFEST)
    origin = before.origin_id or before.id
    inputs = Inputs(
        manifest=manifest_id,
        link=link_id,
        predecessor=before.id,
        predecessor_title=before.title,
        successor=successor_id,
        origin=origin,
        reason=command.reason,
        created_at=now,
        initiating=initiating,
        handoff=command.handoff,
        written_by=request.actor,
        offers=snapshot.offers,
        state=state,
        identity=snapshot.identity,
        scope=snapshot.scope,
        recent=snapshot.recent,
        relevant=snapshot.relevant,
        budget=request.budget,
    )
    projection = compile_projection(inputs, counter)
    engine = request.engine or before.engine or ""
    manifest = _manifest(request, snapshot, inputs, projection, counter.name, engine)
    body = encode_manifest(manifest)
    new = _EventMaker(now, ids)
    copy = new.event("message", carried_message(initiating), initiating.actor)
    run = Run(
        id=ids.new(make.RUN),
        session_id=successor_id,
        created_at=now,
        engine=engine,
        input_event=copy.id,
        input_actor=initiating.actor,
        options=request.options,
    )
    link = Link(
        id=link_id,
        type="continuation",
        from_session=before.id,
        to_session=successor_id,
        created_at=now,
        reason=command.reason,
        key=request.key,
        event_id=initiating.id,
        seq=initiating.seq,
        manifest_id=manifest_id,
        actor=request.actor,
    )
    opened = SessionChange(
        change="opened",
        title=command.title,
        link=link_id,
        other=before.id,
        reason=command.reason,
        event=initiating.id,
    )
    successor_events = [new.event("session", encode(opened), "system")]
    if plan is not None:
        successor_events.append(new.event("plan", encode(plan), "system"))
    if pins is not None:
        successor_events.append(new.event("pins", encode(pins), "system"))
    context = ProjectionContext(text=projection.text, manifest=manifest_id)
    successor_events += [new.event("context", encode(context), "system"), copy]
    return Decision(
        successor=Session(
            id=successor_id,
            account_id=before.account_id,
            workspace_id=before.workspace_id,
            created_at=now,
            title=command.title,
            description=command.description,
            origin_id=origin,
            engine=engine or None,
        ),
        link=link,
        manifest=StoredManifest(
            id=manifest_id,
            link_id=link_id,
            from_session=before.id,
            to_session=successor_id,
            body=body,
            digest=digests.content_digest(body),
            created_at=now,
        ),
        projection=projection,
        run=run,
        predecessor_events=(
            *((snapshot.spoken,) if snapshot.spoken is not None else ()),
            *_farewell(request, command, successor_id, link_id, new),
        ),
        successor_events=tuple(successor_events),
        moved_runs=state.runs,
        moved_children=tuple(c.link.id for c in snapshot.children if c.session.id in state.children),
        blobs=tuple(
            (offer.pinned.digest, offer.text.encode())
            for offer in snapshot.offers
            if offer.pinned is not None and offer.text is not None
        ),
    )


def _permitted(request: Request, snapshot: Snapshot) -> Event:
    """Run checks 3 to 7 of the design, in order. Return the initiating message."""
    before, command = snapshot.session, request.command
    if before.archived:
        raise SessionArchived(session=before.id)
    if snapshot.parent is not None:
        raise DelegatedChild(parent=snapshot.parent.report_to or snapshot.parent.from_session)
    initiating = snapshot.initiating
    if initiating is not None:
        asked = body_of(initiating)
        if isinstance(asked, Message) and asked.continued_from is not None:
            raise ContinuationLoop
    if snapshot.successors >= MAX_SUCCESSORS:
        raise TooManySuccessors(limit=MAX_SUCCESSORS, found=snapshot.successors)
    if snapshot.recent_continuations >= RATE_LIMIT:
        raise RateLimited(limit=RATE_LIMIT, found=snapshot.recent_continuations, window=RATE_WINDOW)
    if initiating is None or not isinstance(body_of(initiating), Message):
        raise NothingToContinue(session=before.id)
    for number, offer in enumerate(snapshot.offers, 1):
        # A resource or memory that is not there is told to the successor: it may be back, or be somewhere else.
        if offer.cause == "missing" and offer.source.is_events:
            raise SourceNotFound(
                index=number, address=offer.source.address(), why=offer.note or "it is not in the log"
            )
    unresolved = _unresolved(request, snapshot)
    if unresolved:
        raise UnresolvedWork(unresolved="; ".join(unresolved), items=unresolved)
    known = (
        {r.id for r in snapshot.queued}
        | {c.session.id for c in snapshot.children}
        | {c.call for c in snapshot.open_calls if c.call != request.call}
    )
    if stray := [name for name in command.transfer.pending_runs if name not in known]:
        raise InvalidContinuation(
            why=f"transfer.pending_runs names {', '.join(stray)}, which is not pending here"
            + (f"; pending are {', '.join(sorted(known))}" if known else "; nothing is pending")
        )
    return initiating


def _unresolved(request: Request, snapshot: Snapshot) -> list[str]:
    """Return what would be orphaned: open calls, pending children and queued input that were not named (C6)."""
    named = set(request.command.transfer.pending_runs)
    out = [
        f"tool call {c.call} (event {c.seq}) has no result"
        for c in snapshot.open_calls
        if c.call != request.call and c.call not in named
    ]
    out += [
        f"delegated session {c.session.id} “{c.session.title}” has not reported back"
        for c in snapshot.children
        if c.session.id not in named
    ]
    out += [f"queued input {r.id} waits for its turn" for r in snapshot.queued if r.id not in named]
    if snapshot.running is not None and snapshot.running.id != request.run_id:
        out.append(
            f"run {snapshot.running.id} is working; cancel it or wait (a run that is executing cannot move)"
        )
    return out


def _state(request: Request, snapshot: Snapshot) -> tuple[CarriedState, Plan | None, Pins | None]:
    """Return what moves as state, and the first revisions of plan and pins in the successor (P6).

    A plan that is closed or omitted gets none: the predecessor keeps it as it is (C1), and the manifest says how each step
    ended.
    """
    transfer = request.command.transfer
    plan = body_of(snapshot.plan) if snapshot.plan else None
    if snapshot.plan is not None and not isinstance(plan, Plan) and transfer.plan == "carry":
        raise InvalidContinuation(
            why=f"the plan of event {snapshot.plan.seq} cannot be read here, so it cannot be carried; use omit"
        )
    plan = plan if isinstance(plan, Plan) else None
    how = transfer.plan or default_transfer(plan)
    if snapshot.plan is None:
        how = "omit"
    pins = body_of(snapshot.pins) if snapshot.pins else None
    wanted = (*transfer.pinned_tools, *transfer.pinned_resources)
    kept: Pins | None = None
    if wanted:
        if not isinstance(pins, Pins) or snapshot.pins is None:
            raise InvalidContinuation(
                why=f"transfer names pins ({', '.join(wanted)}), but nothing is pinned here"
            )
        kept, missing = carried_pins(pins, snapshot.pins.id, transfer.pinned_tools, transfer.pinned_resources)
        if missing:
            there = ", ".join(f"{p.kind} {p.name}" for p in pins.pins) or "nothing"
            raise InvalidContinuation(
                why=f"transfer names pins that are not pinned here: {', '.join(missing)}; pinned are {there}"
            )
    named = set(transfer.pending_runs)
    carried = carried_plan(plan, snapshot.plan.id) if plan and snapshot.plan and how == "carry" else None
    state = CarriedState(
        plan=CarriedPlan(
            transfer=how,
            event=snapshot.plan.id if snapshot.plan else None,
            revision=plan.revision if plan else None,
            steps=left_steps(plan, how) if plan else (),
        ),
        pins_event=snapshot.pins.id if kept and snapshot.pins else None,
        pins=tuple(f"{p.kind} {p.name}{'@' + p.version if p.version else ''}" for p in kept.pins)
        if kept
        else (),
        children=tuple(c.session.id for c in snapshot.children if c.session.id in named),
        runs=tuple(r.id for r in snapshot.queued if r.id in named),
        calls=tuple(c.call for c in snapshot.open_calls if c.call in named and c.call != request.call),
    )
    return state, carried, kept


def _manifest(
    request: Request, snapshot: Snapshot, inputs: Inputs, projection: Projection, tokenizer: str, engine: str
) -> Manifest:
    command, initiating = request.command, inputs.initiating
    return Manifest(
        id=inputs.manifest,
        link=inputs.link,
        predecessor=inputs.predecessor,
        predecessor_title=inputs.predecessor_title,
        successor=inputs.successor,
        origin=inputs.origin,
        initiating=Initiating(
            event=initiating.id,
            seq=initiating.seq,
            digest=digests.spell(initiating.digest),
            session=initiating.session_id,
        ),
        created_at=inputs.created_at,
        actor=request.actor,
        reason=command.reason,
        title=command.title,
        description=command.description,
        engine=engine or None,
        model=request.model,
        budget=request.budget,
        tokenizer=tokenizer,
        costs=projection.costs,
        tokens=projection.tokens,
        handoff=command.handoff,
        sources=tuple(offer.source for offer in snapshot.offers),
        scope=snapshot.scope,
        recent=_stretches(snapshot.recent),
        relevant=tuple(e.id for e in snapshot.relevant),
        identity=snapshot.identity,
        included=projection.included,
        contents=projection.contents,
        omitted=projection.omitted,
        state=inputs.state,
        coverage=Coverage(
            facts=len(command.handoff.established_facts),
            decisions=len(command.handoff.decisions),
            sources=len(command.sources),
        ),
        adjusted=command.adjusted,
        recommended_unused=unused(command.recommended, [offer.source for offer in snapshot.offers]),
        digest=projection.digest,
    )


def _stretches(events: tuple[Event, ...]) -> tuple[Scope, ...]:
    """Return the contiguous stretches that events cover."""
    out: list[Scope] = []
    for event in events:
        if out and out[-1].session == event.session_id and out[-1].to_seq + 1 == event.seq:
            out[-1] = Scope(session=event.session_id, from_seq=out[-1].from_seq, to_seq=event.seq)
        else:
            out.append(Scope(session=event.session_id, from_seq=event.seq, to_seq=event.seq))
    return tuple(out)


def carried_message(initiating: Event) -> bytes:
    """Return the body of a message that goes along to another session: its provenance is added, nothing else changed (C4).

    The provenance becomes the last member of the object; every byte before it is the original's. (Of two members with the
    same name the last one counts, so a ``continued_from`` that was there before is not one any more.)
    """
    provenance = ContinuedFrom(
        session=initiating.session_id,
        event=initiating.id,
        seq=initiating.seq,
        digest=digests.spell(initiating.digest),
    )
    open_object = initiating.body.rstrip(b" \t\r\n").removesuffix(b"}")
    return open_object + b',"continued_from":' + encode(provenance) + b"}"


def _farewell(
    request: Request, command: Command, successor_id: str, link_id: str, new: _EventMaker
) -> tuple[NewEvent, ...]:
    """Return what the predecessor gains: the tool's result, if a tool asked, and ``session.continued`` (C1)."""
    events = []
    if request.call is not None:
        result = ToolResult(
            call=request.call,
            name="continue_session",
            output={"successor": successor_id, "link": link_id, "title": command.title},
        )
        events.append(new.event("tool_result", encode(result), "tool", request.run_id))
    carried = [
        _counted(len(found), name)
        for name, found in (
            ("established fact", command.handoff.established_facts),
            ("decision", command.handoff.decisions),
            ("open question", command.handoff.open_questions),
            ("next action", command.handoff.next_actions),
            ("source reference", command.sources),
        )
        if found
    ]
    continued = SessionChange(
        change="continued",
        title=command.title,
        link=link_id,
        other=successor_id,
        reason=command.reason,
        note=f"Carried {', '.join(['the current request', *carried])}.",
    )
    events.append(new.event("session", encode(continued), request.actor, request.run_id))
    return tuple(events)


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


class _EventMaker:
    """Makes new events of one moment."""

    def __init__(self, now: int, ids: Ids) -> None:
        self._now, self._ids = now, ids

    def event(self, kind: str, body: bytes, actor: str, run_id: str | None = None) -> NewEvent:
        return NewEvent(
            id=self._ids.new(make.EVENT),
            at=self._now,
            kind=kind,
            actor=actor,
            body=body,
            salt=self._ids.salt(),
            source=ONWARD,
            run_id=run_id,
        )
