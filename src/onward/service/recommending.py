"""Recommending, the reading part: what of a history is loaded, so that ``core.recommending`` can choose from it.

A session may hold a million events, and drafting or continuing it must not read them. What is read is bounded: the newest
events; the newest matches of the purpose's words, ranked; the newest matches of the words that decisions and constraints
are usually put in; and a few events around each, so that no call is cut from its result. All of it comes from the history
of the session itself, the sources of its branch included; what other sessions said is for recall.

What earlier successors of the session asked for again comes first: that a projection left it out was a mistake once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from onward.core import pooling, words
from onward.core.bodies import Message, Plan, Recalled, ToolCall, ToolResult
from onward.core.codec import body_of, call_of, searchable_text
from onward.core.events import Event
from onward.core.lines import said
from onward.core.manifest import Scope
from onward.core.projection import SILENT_KINDS
from onward.core.ranking import Candidate, counted, is_asking, rank
from onward.core.recommending import Material
from onward.core.records import Session
from onward.core.stemming import stem
from onward.service import sessions
from onward.service.platform import Platform
from onward.service.recounting import OFTEN, READ_WEIGHT

READ_BACK: Final = 400
"""How many of the newest events a draft looks at."""
TERMS: Final = 8
"""Words of a purpose that are looked up: the longest ones, which are rarely the common ones."""
NAMED: Final = 80
"""Newest matches of one word that are looked at."""
LOADED: Final = 60
"""Matches that are loaded and ranked."""
AROUND: Final = 8
"""Events to each side of a match that are loaded with it, for drafts."""
RELEVANT: Final = 12
"""Excerpts that are offered to a projection beside its recent exchanges."""
RESULT_WITHIN: Final = 40
"""Events between a call and its result that are looked through."""
CUES: Final = ("decided", "agreed", "decision", "must", "never", "always", "instead", "actually")
"""Words that decisions and constraints are usually put in."""
CUED: Final = 15
"""Newest matches of each that are loaded."""
SUCCESSORS: Final = 16
"""Sessions that are asked what they recalled."""
RECALLS: Final = 2000
"""Newest events of each that are looked through for recalls."""


def terms_of(text: str) -> list[str]:
    """Return the words of a text that are looked for, in their order; one of each stem."""
    terms = list({stem(term): term for term in reversed(words.query_terms(text))}.values())[::-1]
    longest = set(sorted(terms, key=lambda term: (-len(term), term))[:TERMS])
    return [term for term in terms if term in longest]


def ranked(platform: Platform, history: Sequence[Scope], text: str, limit: int) -> list[Event]:
    """Return the events of a history that answer a text best, best first. Bookkeeping and compiled contexts are left out.

    The same log gives the same answer. What it costs does not grow with the length of the history.
    """
    terms = terms_of(text)
    if not terms:
        return []
    ends = {stretch.session: stretch.to_seq for stretch in history}
    held: dict[pooling.Place, set[str]] = {}
    found: dict[str, list[pooling.Place]] = {}
    full = []
    for term in terms:
        matches = platform.store.search(
            (term,), account_id=platform.account_id, sessions=sorted(ends), limit=NAMED
        )
        found[term] = [(m.session_id, m.seq) for m in matches.found if m.seq <= ends.get(m.session_id, 0)]
        if len(matches.found) >= NAMED:
            full.append(term)
        for place in found[term]:
            held.setdefault(place, set()).add(term)
    weights = pooling.weights(found, full)
    order = sorted(held, key=lambda place: (place[1], place[0]), reverse=True)
    places = pooling.chosen({place: held[place] for place in order}, weights, LOADED)
    events = load(platform, ((session, seq, seq) for session, seq in places), ends)
    candidates = []
    for event in events.values():
        body = body_of(event)
        if event.kind in SILENT_KINDS or not searchable_text(event.kind, event.body):
            continue
        shown = said(event, body)
        candidates.append(
            Candidate(
                session=event.session_id,
                seq=event.seq,
                at=event.at,
                kind=event.kind,
                words=counted(shown, terms),
                length=len(shown),
                actor=event.actor,
                asks=isinstance(body, Message) and is_asking(shown),
            )
        )
    best = rank(candidates, terms, dict.fromkeys(ends, 0), weights)
    return [events[scored.candidate.session, scored.candidate.seq] for scored in best[:limit]]


def relevant(platform: Platform, history: Sequence[Scope], text: str) -> tuple[Event, ...]:
    """Return other excerpts worth having for a text, best first; a call is followed by its result (see ``projection``)."""
    ends = {stretch.session: stretch.to_seq for stretch in history}
    out: dict[str, Event] = {}
    for event in ranked(platform, history, text, RELEVANT):
        for piece in whole(platform, event, ends):
            out.setdefault(piece.id, piece)
    return tuple(out.values())


def whole(platform: Platform, event: Event, ends: dict[str, int]) -> tuple[Event, ...]:
    """Return an event, or the call and its result if it is one of them; nothing where the other one is not near."""
    call, _ = call_of(event.kind, event.body)
    if not call or event.kind not in ("tool_call", "tool_result"):
        return (event,)
    store, asked = platform.store, event.kind == "tool_call"
    if asked:
        last = min(event.seq + RESULT_WITHIN, ends[event.session_id])
        page = store.events(
            event.session_id, after=event.seq, upto=last, limit=RESULT_WITHIN, kinds=("tool_result",)
        )
    else:
        page = store.events(
            event.session_id,
            after=max(event.seq - RESULT_WITHIN, 1) - 1,
            upto=event.seq - 1,
            limit=RESULT_WITHIN,
            kinds=("tool_call",),
            newest_first=True,
        )
    other = next((e for e in page if call_of(e.kind, e.body)[0] == call), None)
    if other is None:
        return ()
    return (event, other) if asked else (other, event)


def load(
    platform: Platform, spans: Iterable[tuple[str, int, int]], ends: dict[str, int]
) -> dict[pooling.Place, Event]:
    """Read these stretches, those that meet or lie close together in one call."""
    joined: list[tuple[str, int, int]] = []
    for session, first, last in sorted(spans):
        first, last = max(first, 1), min(last, ends.get(session, 0))
        if first > last:
            continue
        if joined and joined[-1][0] == session and first - joined[-1][2] <= 4:
            joined[-1] = (session, joined[-1][1], max(last, joined[-1][2]))
        else:
            joined.append((session, first, last))
    out: dict[pooling.Place, Event] = {}
    for session, first, last in joined:
        for event in platform.store.events(session, after=first - 1, upto=last, limit=last - first + 1):
            out[session, event.seq] = event
    return out


def gather(
    platform: Platform, session: Session, purpose: str, initiating: Event, plan: Plan | None
) -> Material:
    """Return what a recommendation is made from."""
    history = sessions.scope(platform, session)
    ends = {stretch.session: stretch.to_seq for stretch in history}
    recent = sessions.newest(platform, history, READ_BACK)
    best = ranked(platform, history, purpose, LOADED)
    missed = asked_again(platform, session)
    spans = [(event.session_id, event.seq - AROUND, event.seq + AROUND) for event in best]
    spans += [(name, first - AROUND, last + AROUND) for _, name, first, last, _ in missed if name in ends]
    for cue in CUES:
        matches = platform.store.search(
            (cue,), account_id=platform.account_id, sessions=sorted(ends), limit=CUED
        )
        spans += [(m.session_id, m.seq, m.seq) for m in matches.found]
    own = {event.id for event in recent}
    place = {stretch.session: number for number, stretch in enumerate(history)}
    older = [event for event in load(platform, spans, ends).values() if event.id not in own]
    older = _with_partners(platform, older, ends, own)
    older.sort(key=lambda event: (place[event.session_id], event.seq))
    return Material(
        session=session.id,
        initiating=initiating,
        recent=tuple(recent),
        older=tuple(older),
        terms=tuple(terms_of(purpose)),
        ranked=tuple((event.session_id, event.seq) for event in best),
        missed=tuple(missed),
        plan=plan,
    )


def _with_partners(
    platform: Platform, events: list[Event], ends: dict[str, int], known: set[str]
) -> list[Event]:
    """Add the calls and results that belong to these events and were not loaded with them."""
    calls = {(e.session_id, b.call) for e in events if isinstance(b := body_of(e), ToolCall)}
    results = {(e.session_id, b.call) for e in events if isinstance(b := body_of(e), ToolResult)}
    out = {event.id: event for event in events}
    for event in events:
        call = (event.session_id, call_of(event.kind, event.body)[0])
        if (event.kind == "tool_call" and call not in results) or (
            event.kind == "tool_result" and call not in calls
        ):
            out.update({e.id: e for e in whole(platform, event, ends) if e.id not in known})
    return list(out.values())


def asked_again(platform: Platform, session: Session) -> list[tuple[str, str, int, int, int]]:
    """Return what the sessions of a lineage had to go back for, because the projection they began with had left it out.

    Each with its address, session, first and last number, and how often; most often first. One exact read counts, and so do
    two searches that found it. Asked are the session itself and the newest that came of a continuation, ``SUCCESSORS`` of
    them, about their newest events (``recounting.often_recalled`` asks about all events, and not what came of this one).
    """
    links = [link for link in platform.store.lineage(session.id) if link.type == "continuation"]
    links.sort(key=lambda link: (link.created_at, link.id), reverse=True)
    names = list(dict.fromkeys((session.id, *(link.to_session for link in links))))
    times: dict[str, int] = {}
    weights: dict[str, int] = {}
    for name in names[:SUCCESSORS]:
        if not platform.may_read(name):
            continue
        head = platform.session(name).head_seq
        page = platform.store.events(name, after=max(head - RECALLS, 0), limit=RECALLS, kinds=("recalled",))
        for event in page:
            body = body_of(event)
            if isinstance(body, Recalled):
                for address in dict.fromkeys(body.had_omitted):
                    times[address] = times.get(address, 0) + 1
                    counts = 1 if body.how == "search" else READ_WEIGHT
                    weights[address] = weights.get(address, 0) + counts
    out = []
    for address, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        name, _, span = address.partition(":")
        first, _, last = span.partition("-")
        if weight >= OFTEN and first.isdigit() and (last or first).isdigit() and platform.may_read(name):
            out.append((address, name, int(first), int(last or first), times[address]))
    return out
