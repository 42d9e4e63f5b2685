"""Recall: reading exact earlier material, by address, by walking the lineage, by search.

What is returned is what the log holds; where it is shortened, the line says by how much. Search covers the predecessors by
default, because that is where the answer usually is. Every recall is an event of the session that asked, so that the
report can name what a projection had left out and somebody needed after all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from onward.core import words
from onward.core.bodies import Message, Recalled
from onward.core.codec import body_of
from onward.core.events import Event, iso
from onward.core.lines import said, who, whole
from onward.core.ranking import Candidate, counted, excerpt, rank
from onward.core.records import Run
from onward.errors import InvalidInput, LimitExceeded, ManifestNotFound
from onward.service import sessions
from onward.service.platform import Platform
from onward.store.contract import Append, Batch, Match

Scope = Literal["lineage", "workspace", "account"]
SCOPES: Final = ("lineage", "workspace", "account")

EVENT_CHARS: Final = 4000
"""Characters of one event in an answer."""
ANSWER_BYTES: Final = 256 * 1024
"""UTF-8 bytes of one answer."""
CANDIDATES: Final = 500
"""Matches that are ranked."""
HIT_CHARS: Final = 400
"""Characters of a hit's text in an answer of a search."""
CLOSE: Final = 4
"""Matches at most this far apart are read in one call: an event that nobody asked for costs less than another call."""

_NOT_MISSED: Final = ("duplicate", "not_dialogue")
"""Causes for which nothing was missing: it was in the projection anyway, or belongs to no exchange."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One event that a search found."""

    session: str
    seq: int
    event: str
    at: str
    who: str
    text: str
    score: float
    superseded_by: str | None = None
    """A later event that replaces what this one says, where that is known."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a search, best first."""

    hits: tuple[Hit, ...]
    complete: bool
    """False when the index lags behind the log, or there were more matches than are ranked."""


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of an exact read."""

    session: str
    lines: tuple[str, ...]
    next: int | None
    """The number to read on from."""
    continued_from: str | None
    continued_to: str | None


def read_lines(
    platform: Platform,
    session_id: str,
    first: int = 1,
    last: int | None = None,
    *,
    limit: int = sessions.READ_DEFAULT,
    asked_by: str | Run | None = None,
) -> Lines:
    """Return exact events as lines, bounded to 4,000 characters an event and 256 KiB an answer.

    A line that is shortened says how many characters are missing; an answer that is full says where to read on.
    ``asked_by`` is the session that asks, or the run whose agent does; the recall is recorded there. Raises LeaseLost when
    that run is no longer held.
    """
    page = sessions.read(platform, session_id, first, last, limit=limit)
    lines: list[str] = []
    size, following = 0, page.next
    for event in page.events:
        line = line_of(event, EVENT_CHARS)
        size += len(line.encode("utf-8", "surrogatepass")) + 1
        if lines and size > ANSWER_BYTES:
            following = event.seq
            break
        lines.append(line)
    shown = page.events[: len(lines)]
    if asked_by is not None and shown:
        address = f"{session_id}:{shown[0].seq}-{shown[-1].seq}"
        _remember(platform, asked_by, "read", address, [address])
    links = platform.store.links(session_id)
    before = [ln.from_session for ln in links if ln.type == "continuation" and ln.to_session == session_id]
    after = [ln.to_session for ln in links if ln.type == "continuation" and ln.from_session == session_id]
    return Lines(
        session=session_id,
        lines=tuple(lines),
        next=following,
        continued_from=before[0] if before else None,
        continued_to=after[-1] if after else None,
    )


def line_of(event: Event, limit: int) -> str:
    """Return the line of an event, its text cut to ``limit`` characters with an exact count of what is missing."""
    return whole(event, limit=limit)


def search(
    platform: Platform,
    query: str,
    *,
    session_id: str | None = None,
    scope: str | None = None,
    limit: int = 20,
    asked_by: str | Run | None = None,
) -> Found:
    """Search the log. The scope is the session's lineage when a session is given, else the whole account.

    A lineage is where a session comes from and what came of it (``sessions.reach``): of the source of a branch only what
    lies before the point. Compiled contexts are no hits, since they repeat events that are; nor is a successor's copy of the
    message that it was continued with, where the original is in view.
    """
    chosen = scope or ("lineage" if session_id else "account")
    if chosen not in SCOPES:
        raise InvalidInput(what=f"scope {chosen!r}", why=f"there are {', '.join(SCOPES)}")
    if not 1 <= limit <= 100:
        raise LimitExceeded(what="the number of hits", limit="1 to 100", found=limit)
    if chosen != "account" and session_id is None:
        raise InvalidInput(what=f"scope {chosen!r}", why="it needs a session to start from")
    terms = words.query_terms(query)
    if not terms:
        raise InvalidInput(what="the query", why="it has no words to look for")
    view, within = _within(platform, session_id, chosen)
    matches = platform.store.search(
        terms, account_id=platform.account_id, sessions=within, limit=CANDIDATES, any_term=False
    )
    complete = matches.complete
    if len(matches.found) < limit and len(terms) > 1:
        # Few events have every word: those that have some of them can still answer.
        some = platform.store.search(
            terms, account_id=platform.account_id, sessions=within, limit=CANDIDATES, any_term=True
        )
        known = {(m.session_id, m.seq) for m in matches.found}
        found = (*matches.found, *(m for m in some.found if (m.session_id, m.seq) not in known))
        complete = complete and some.complete
    else:
        found = matches.found
    within_reach = [
        match
        for match in found[:CANDIDATES]
        # What was said in the source after the branch was taken is not part of it.
        if chosen != "lineage" or match.session_id not in view or _reaches(view[match.session_id], match)
    ]
    events = _loaded(platform, within_reach)
    bodies = {place: body_of(event) for place, event in events.items()}
    originals = {event.id for event in events.values()}
    candidates = []
    for place, event in events.items():
        body = bodies[place]
        if isinstance(body, Message) and body.continued_from and body.continued_from.event in originals:
            continue  # a successor's copy of a message that is in view itself
        text = said(event, body)
        candidates.append(
            Candidate(
                session=event.session_id,
                seq=event.seq,
                at=event.at,
                kind=event.kind,
                words=counted(text, terms),
                length=len(text),
            )
        )
    hits = []
    for scored in rank(candidates, terms, {name: seen.distance for name, seen in view.items()})[:limit]:
        place = (scored.candidate.session, scored.candidate.seq)
        event, body = events[place], bodies[place]
        hits.append(
            Hit(
                session=event.session_id,
                seq=event.seq,
                event=event.id,
                at=iso(event.at),
                who=who(event, body),
                text=excerpt(said(event, body), terms, HIT_CHARS),
                score=scored.score,
            )
        )
    if asked_by is not None:
        _remember(platform, asked_by, "search", query, [f"{h.session}:{h.seq}" for h in hits])
    return Found(hits=tuple(hits), complete=complete)


def _reaches(seen: sessions.Reach, match: Match) -> bool:
    """Whether a match lies before the point at which a session in view was left."""
    return seen.upto is None or match.seq <= seen.upto


def _loaded(platform: Platform, matches: Sequence[Match]) -> dict[tuple[str, int], Event]:
    """Read the events of matches, those that lie close together in one call. The order is that of the matches."""
    wanted = dict.fromkeys((match.session_id, match.seq) for match in matches)
    found: dict[tuple[str, int], Event] = {}
    stretches: list[tuple[str, int, int]] = []
    for session, seq in sorted(wanted):
        if stretches and stretches[-1][0] == session and seq - stretches[-1][2] <= CLOSE:
            stretches[-1] = (session, stretches[-1][1], seq)
        else:
            stretches.append((session, seq, seq))
    for session, first, last in stretches:
        for event in platform.store.events(session, after=first - 1, upto=last, limit=last - first + 1):
            found[session, event.seq] = event
    return {place: found[place] for place in wanted if place in found}


def _within(
    platform: Platform, session_id: str | None, scope: str
) -> tuple[dict[str, sessions.Reach], Sequence[str] | None]:
    """Return the lineage of the session, and the sessions to search, or None for the whole account."""
    if session_id is None:
        return {}, None
    session = platform.session(session_id)
    view = sessions.reach(platform, session_id)
    if scope == "account":
        return view, None
    if scope == "workspace":
        here: list[str] = []
        cursor: str | None = None
        while session.workspace_id is not None:
            page, cursor = sessions.listed_in(platform, session.workspace_id, cursor)
            here += [s.id for s in page]
            if cursor is None:
                break
        return view, sorted({*here, session_id})
    return view, sorted(view, key=lambda name: (view[name].distance, name))


def _remember(platform: Platform, asked_by: str | Run, how: str, query: str, returned: list[str]) -> None:
    """Write a recall into the session that asked (the report is made from these)."""
    from onward.service import continuing  # late: a search from the command line has no use for it

    run = asked_by if isinstance(asked_by, Run) else None
    session_id = run.session_id if run is not None else str(asked_by)
    omitted: dict[str, None] = {}
    try:
        record = continuing.manifest(platform, session_id)
        for left_out in record.omitted:
            if left_out.cause not in _NOT_MISSED:
                omitted.update((both, None) for a in returned if (both := _shared(a, left_out.address)))
    except ManifestNotFound:
        pass  # a session that was not continued has omitted nothing
    recalled = Recalled(
        how=how,  # type: ignore[arg-type]
        query=query,
        returned=tuple(returned),
        had_omitted=tuple(omitted),
    )
    run_id, fence = (run.id, run.fence) if run is not None else (None, None)
    event = platform.event("recalled", recalled, "agent", run_id=run_id)
    append = Append(session_id=session_id, events=(event,), run_id=run_id, fence=fence)
    platform.store.commit(Batch(appends=(append,)))


def _shared(one: str, other: str) -> str | None:
    """Return the address of the events that two addresses of the form ``ses_…:12-18`` have in common."""
    first, second = _parsed(one), _parsed(other)
    if first is None or second is None or first[0] != second[0]:
        return None
    low, high = max(first[1], second[1]), min(first[2], second[2])
    if low > high:
        return None
    return f"{first[0]}:{low}" if low == high else f"{first[0]}:{low}-{high}"


def _parsed(address: str) -> tuple[str, int, int] | None:
    session, sep, span = address.partition(":")
    first, _, last = span.partition("-")
    if not sep or not first.isdigit() or not (last or first).isdigit():
        return None
    return session, int(first), int(last or first)


class RecallReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a session asked for after it began, and what of that its projection had left out."""

    session: str
    recalls: int
    of_omitted: int
    asked_again: dict[str, int]
    """Addresses that the projection had omitted, each with how often it was asked for."""
    compiler: str | None = None
    reason: str | None = None


def recall_report(platform: Platform, session_id: str) -> RecallReport:
    """Return the recall report of a session."""
    from onward.service import continuing

    platform.session(session_id)
    asked: dict[str, int] = {}
    recalls = of_omitted = 0
    after = 0
    while True:
        page = platform.store.events(session_id, after=after, limit=1000, kinds=("recalled",))
        for event in page:
            body = body_of(event)
            if isinstance(body, Recalled):
                recalls += 1
                of_omitted += bool(body.had_omitted)
                for address in body.had_omitted:
                    asked[address] = asked.get(address, 0) + 1
        if len(page) < 1000:
            break
        after = page[-1].seq
    compiler = reason = None
    try:
        record = continuing.manifest(platform, session_id)
        compiler, reason = record.compiler, record.reason
    except ManifestNotFound:
        pass
    return RecallReport(
        session=session_id,
        recalls=recalls,
        of_omitted=of_omitted,
        asked_again=dict(sorted(asked.items(), key=lambda kv: (-kv[1], kv[0]))),
        compiler=compiler,
        reason=reason,
    )
