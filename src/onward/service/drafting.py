"""Drafting a handoff without a model: a deterministic reading of the log that a person edits and sends.

What is in it is chosen by ``core.recommending`` from what ``service.recommending`` read, for one purpose; every statement
is a quotation with its event. It is then weighed: what it would cost is counted by compiling the projection, without writing
anything, a section and a source at a time; what would not fit is told; and each fact and decision is looked up, whether an
event holds its words, whether a later event replaces it. ``review`` does that second half for a handoff that somebody edited
or wrote.

The draft is the JSON that ``continue`` takes. What it says about itself beside the handoff is ignored there, except
``recommended``: what of it is no longer cited is remembered in the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from onward.core import claims
from onward.core.bodies import Message
from onward.core.claims import Claim
from onward.core.codec import body_of, encode
from onward.core.continuation import Request, Snapshot, decide_continuation
from onward.core.continuing_command import MAX_TITLE, Command
from onward.core.events import Event
from onward.core.manifest import Handoff
from onward.core.projection import DEFAULT_BUDGET, GONE, Projection
from onward.core.recommending import recommend
from onward.core.records import Session
from onward.core.references import Source
from onward.errors import NothingToContinue
from onward.service import continuing, recommending, sessions, superseded
from onward.service.platform import Platform

HEADINGS: Final = ("established_facts", "decisions")
"""The headings whose entries are claims."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What one source would cost."""

    source: str
    """Its address."""
    tokens: int | None = None
    """None for what stays a link, or is loaded by another source already."""
    fits: bool = True
    note: str = ""
    """Why it is not loaded, in words."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An editable handoff: the same fields that ``continue`` takes, what it would cost, and what to look at before."""

    session: str
    title: str
    reason: str
    handoff: Handoff
    sources: tuple[Source, ...]
    recommended: tuple[str, ...] = ()
    """Addresses of the sources that were recommended."""
    estimated_tokens: int
    """The whole projection and the initiating message, counted by ``counter``."""
    budget: int
    counter: str
    costs: dict[str, int]
    """A section each."""
    estimates: tuple[Estimate, ...] = ()
    """A source each, in their order."""
    left_out: tuple[str, ...] = ()
    """Sources that would not fit the budget."""
    claims: tuple[Claim, ...] = ()
    """What the log says about each fact and decision."""
    warnings: tuple[str, ...] = ()
    """What to look at before it is sent, in words."""

    def command(self) -> Command:
        """Return the command to continue with this draft."""
        return Command(
            reason=self.reason,
            title=self.title,
            handoff=self.handoff,
            sources=self.sources,
            recommended=self.recommended,
        )


def draft_handoff(
    platform: Platform,
    session_id: str,
    purpose: str,
    *,
    title: str = "",
    reason: str = "user_request",
    budget: int = DEFAULT_BUDGET,
) -> Draft:
    """Draft a handoff for a purpose. The same log, and the same files that it cites, give the same draft.

    Nothing is written. Raises NothingToContinue when nobody has written in the session, BudgetTooSmall when what is never
    left out does not fit.
    """
    session, initiating = _begun(platform, session_id)
    plan = sessions.plan_of(sessions.state(platform, session))
    found = recommend(recommending.gather(platform, session, purpose, initiating, plan))
    name = " ".join((title or purpose).split())
    command = Command(
        reason=reason,
        title=name if len(name) <= MAX_TITLE else name[: MAX_TITLE - 1] + "…",
        handoff=Handoff(
            purpose=purpose,
            current_request=_current(platform, session, initiating),
            established_facts=found.facts,
            decisions=found.decisions,
            next_actions=found.next_actions,
            cautions=(
                *found.cautions,
                "This handoff was drafted from the log without a model. Files may have changed since; read them again.",
            ),
        ),
        sources=found.sources,
    )
    command, gone = _available(platform, session, command)
    judged = _judged(platform, session, command)
    command = msgspec.structs.replace(command, handoff=_marked(command.handoff, judged, session_id))
    return _weighed(platform, session, initiating, command, budget, judged, gone)


def _current(platform: Platform, session: Session, asked: Event) -> str:
    """Return what was asked last, saying so when it has been answered: then nothing is waiting to be done about it."""
    body = body_of(asked)
    words = continuing.shortened(body.text if isinstance(body, Message) else "", continuing.REQUEST_SHOWN)
    answer = continuing.answered_by(platform, session, asked)
    return words if answer is None else f"(answered already, in [{answer.seq}]) {words}"


def review(platform: Platform, session_id: str, command: Command, *, budget: int = DEFAULT_BUDGET) -> Draft:
    """Weigh a handoff that somebody edited or wrote, as a draft is weighed. It is not changed, and nothing is written."""
    session, initiating = _begun(platform, session_id)
    return _weighed(
        platform,
        session,
        initiating,
        command,
        budget,
        _judged(platform, session, command),
        recommended=command.recommended,
    )


def _begun(platform: Platform, session_id: str) -> tuple[Session, Event]:
    session = platform.session(session_id)
    initiating = continuing.initiating_event(platform, session)
    if initiating is None:
        raise NothingToContinue(session=session_id)
    return session, initiating


def _weighed(
    platform: Platform,
    session: Session,
    initiating: Event,
    command: Command,
    budget: int,
    judged: Sequence[Claim],
    notes: Sequence[str] = (),
    recommended: tuple[str, ...] | None = None,
) -> Draft:
    snapshot = continuing.load_snapshot(platform, session.id, command)
    asked = Request(command=command, key="draft", actor="user", budget=budget)
    settled = _settled(snapshot, initiating)
    decision = decide_continuation(asked, settled, platform.clock(), platform.ids, platform.counter)
    projection = decision.projection
    estimates = _estimates(snapshot, projection)
    left_out = tuple(e.source for e in estimates if not e.fits)
    lag = platform.store.index_lag()
    return Draft(
        session=session.id,
        title=command.title,
        reason=command.reason,
        handoff=command.handoff,
        sources=command.sources,
        recommended=tuple(s.address() for s in command.sources) if recommended is None else recommended,
        estimated_tokens=projection.tokens,
        budget=budget,
        counter=platform.counter.name,
        costs={c.section: c.tokens for c in projection.costs},
        estimates=estimates,
        left_out=left_out,
        claims=tuple(judged),
        warnings=(
            *_doubts(judged),
            *(
                f"{e.source} would not fit: it needs {e.tokens or 0:,} tokens."
                for e in estimates
                if not e.fits
            ),
            *notes,
            *(
                (f"The search index is {lag:,} events behind the log; a later draft may find more.",)
                if lag
                else ()
            ),
        ),
    )


def _settled(snapshot: Snapshot, initiating: Event) -> Snapshot:
    """Return a snapshot that can be continued: estimating asks what would be compiled, not whether it may happen now."""
    if isinstance(body := body_of(initiating), Message) and body.continued_from is not None:
        plain = msgspec.structs.replace(body, continued_from=None)
        initiating = msgspec.structs.replace(initiating, body=encode(plain))
    return msgspec.structs.replace(
        snapshot,
        initiating=initiating,
        open_calls=(),
        children=(),
        queued=(),
        running=None,
        successors=0,
        recent_continuations=0,
        parent=None,
    )


def _estimates(snapshot: Snapshot, projection: Projection) -> tuple[Estimate, ...]:
    """Return what each source would cost, from the account of the compiled projection."""
    spent: dict[int, int] = {}
    for part in projection.included:
        if part.source is not None:
            spent[part.source] = spent.get(part.source, 0) + part.tokens
    for content in projection.contents:
        if content.included:
            spent[content.source] = content.tokens
    omitted = {o.source: o for o in projection.omitted if o.source is not None}
    out = []
    for number, offer in enumerate(snapshot.offers):
        left = omitted.get(number)
        if left is None:
            out.append(Estimate(source=offer.source.address(), tokens=spent.get(number)))
        else:
            told = f"{left.cause.replace('_', ' ')}{': ' + left.note if left.note else ''}"
            out.append(
                Estimate(
                    source=offer.source.address(), tokens=left.tokens, fits=left.cause != "budget", note=told
                )
            )
    return tuple(out)


def _available(platform: Platform, session: Session, command: Command) -> tuple[Command, list[str]]:
    """Leave out recommended resources that cannot be read as they were; say which and why."""
    kept, notes = [], []
    for source in command.sources:
        offer = None if source.is_events else continuing.offer(platform, session, source)
        if offer is not None and offer.cause in GONE:
            why = f" ({offer.note})" if offer.note else ""
            notes.append(
                f"{source.address()} is not recommended: it is {offer.cause}{why}; {source.relevance}."
            )
        else:
            kept.append(source)
    return msgspec.structs.replace(command, sources=tuple(kept)), notes


def _judged(platform: Platform, session: Session, command: Command) -> tuple[Claim, ...]:
    """Look up every fact and decision of a handoff: what it rests on, and what replaces it."""
    ends = {stretch.session: stretch.to_seq for stretch in sessions.scope(platform, session)}
    stated = [(heading, text) for heading in HEADINGS for text in getattr(command.handoff, heading)]
    spans = [mark for _, text in stated for mark in claims.marked(text, session.id)]
    cited = [
        (offer.source.session, offer.source.from_seq, offer.source.to_seq)
        for source in command.sources
        if source.is_events and (offer := continuing.offer(platform, session, source)).events
    ]
    events = recommending.load(
        platform, [(s, first, min(last, first + 99)) for s, first, last in spans], ends
    )
    among = recommending.load(platform, [(s, a, b) for s, a, b in cited if s and a and b], ends)
    events.update(among)
    for event in list(events.values()):
        if event.kind == "tool_call":  # whether it was answered decides whether it is evidence
            events.update({(e.session_id, e.seq): e for e in recommending.whole(platform, event, ends)})
    out = []
    for heading, text in stated:
        claim = claims.judged(heading, text, session.id, events, tuple(among.values()))
        if (by := _replaced(platform, session, claim, events)) is not None:
            claim = msgspec.structs.replace(claim, superseded_by=by)
        out.append(claim)
    return tuple(out)


def _replaced(
    platform: Platform, session: Session, claim: Claim, events: dict[tuple[str, int], Event]
) -> str | None:
    """Return the later event that replaces what a claim says, seen from the newest event that it cites."""
    places = [(name, int(seq)) for name, _, seq in (address.partition(":") for address in claim.cites)]
    known = [events[place] for place in places if place in events]
    if not known:
        return None
    newest = max(known, key=lambda event: (event.session_id == session.id, event.seq))
    said = Message(role="user", text=claims.statement(claim.text))
    found = superseded.superseded(platform, [(newest, said)], seen_from=session.id).get(newest.id)
    return f"{found.session}:{found.seq}" if found else None


def _marked(handoff: Handoff, judged: Sequence[Claim], session_id: str) -> Handoff:
    """Mark what a later event replaces, so that whoever reads the handoff does not take it for the state of things."""
    marks = {
        (claim.heading, claim.text): claims.superseded(
            claim.text, claim.superseded_by.removeprefix(f"{session_id}:")
        )
        for claim in judged
        if claim.superseded_by is not None
    }
    changed: dict[str, Any] = {
        heading: tuple(marks.get((heading, text), text) for text in getattr(handoff, heading))
        for heading in HEADINGS
    }
    return msgspec.structs.replace(handoff, **changed)


def _doubts(judged: Sequence[Claim]) -> list[str]:
    """Return what a person should know about the claims of a handoff."""
    out = []
    for claim in judged:
        name = claim.heading.removesuffix("s").replace("_", " ").capitalize()
        if not claim.cites:
            out.append(f"{name} cites nothing: {continuing.shortened(claim.text, claims.SHOWN)}")
        if claim.superseded_by is not None:
            shown = continuing.shortened(claims.plain(claim.text), claims.SHOWN)
            out.append(f"{name} is superseded by {claim.superseded_by}: {shown}")
    doubtful = sum(1 for claim in judged if claim.cites and not claim.verified)
    if doubtful:
        out.append(
            f"{doubtful} of {len(judged)} facts and decisions are unverified: they rest on the agent's own words."
        )
    return out
