"""Briefing: which rows of the log an engine is told of, and the timeline that sessions of one workspace share.

A conversation is briefed from its own rows: what was said, what the terminal showed, commands, outcomes, summaries, and tool
calls in a line each. One that has none yet is briefed from the timeline of its workspace, so that whoever comes back to a
place need not know which session the work was in. A successor is briefed by its projection, word for word, followed by
what happened since. The message that the engine is about to be asked is never among the rows.

Every read is bounded, whatever the length of the log: the newest rows of a session are among its newest few hundred events
of those kinds, and of a workspace only sessions that were active late enough are looked at. Only sessions of the acting
account are (invariant A1).

A brief that cannot be composed is a missing memory, not a missing conversation: ``brief_for`` guards the whole of it and
says what went wrong (invariant O4). A clean slate never comes here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from onward.core.bodies import BriefContext, Message, ProjectionContext
from onward.core.brief import KINDS, ROWS, Bounds, Brief, Row, compose_brief, joined, row_of
from onward.core.codec import body_of
from onward.core.events import Event
from onward.core.manifest import Scope
from onward.core.records import Session
from onward.errors import InvalidInput, LimitExceeded
from onward.service import sessions, workspaces
from onward.service.platform import Platform
from onward.store.contract import SessionQuery

PAGE: Final = 200
PAGES: Final = 5
"""Pages of one session that are read at most for one brief: events of these kinds nearly all give a row."""
BEGINNING: Final = 200
"""Events among which what a conversation begins with is looked for. Nothing was said before it, so it is among the first."""
SESSIONS: Final = 200
"""Sessions of a workspace that are looked at, newest activity first."""
TIMELINE: Final = 40
TIMELINE_MOST: Final = 200
"""Rows of one read of a timeline: unless asked otherwise, and at most."""

SeedScope = Literal["session", "workspace", "projection"]


class Composed(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine without a memory is told, or why there is nothing."""

    brief: Brief = Brief()
    scope: SeedScope | None = None
    """What it was made from: the conversation itself, its workspace, or the projection that it began with."""
    text: str = ""
    """All of it: the brief, and before it the projection word for word."""
    fault: str = ""
    """Why none could be composed, if that failed."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a workspace's timeline, oldest first."""

    rows: tuple[Row, ...] = ()
    more: bool = False
    """There are more rows in the direction that was read: newer ones after ``since``, else older ones."""


def brief_for(
    platform: Platform,
    session_id: str,
    asked: Event | None,
    *,
    window: float | None,
    bounds: Bounds | None = None,
    tools: bool = False,
) -> Composed:
    """Return the brief for a turn that answers ``asked``, or with None of all that there is.

    Never raises for anything that is read or composed (O4).

    ``window`` is in seconds and bounds how far back the timeline of a workspace is told. A conversation's own rows are told
    whatever their age, each with it: whoever goes on in it has chosen it.
    """
    try:
        return _brief(platform, session_id, asked, window, bounds, tools)
    except Exception as error:  # noqa: BLE001 - whatever it is, the conversation opens without it, and says so
        return Composed(fault=f"{type(error).__name__}: {error}")


def _brief(
    platform: Platform,
    session_id: str,
    asked: Event | None,
    window: float | None,
    bounds: Bounds | None,
    tools: bool,
) -> Composed:
    now = platform.clock()
    session = platform.session(session_id)
    stretches = sessions.scope(platform, session)
    begun = begun_with(platform, stretches)
    projection = begun if begun is not None and isinstance(body_of(begun), ProjectionContext) else None
    rows, more = _own(platform, stretches, asked)
    if projection is not None:
        # What the projection holds is behind it; what follows in this conversation is after it.
        brief = compose_brief(rows, now=now, about=_about(session), bounds=bounds, more=more, tools=tools)
        return Composed(brief=brief, scope="projection", text=joined(_text(projection), brief))
    if rows:
        brief = compose_brief(rows, now=now, about=_about(session), bounds=bounds, more=more, tools=tools)
        return Composed(brief=brief, scope="session" if brief.rows else None, text=brief.text)
    place = platform.store.workspace_by_id(session.workspace_id) if session.workspace_id else None
    if place is None:
        return Composed()
    found = _timeline(platform, place.id, limit=TIMELINE_MOST, but=session_id)
    brief = compose_brief(
        found.rows, now=now, window=window, about=place.path, bounds=bounds, more=found.more, tools=tools
    )
    return Composed(brief=brief, scope="workspace" if brief.rows else None, text=brief.text)


def begun_with(platform: Platform, stretches: Sequence[Scope]) -> Event | None:
    """Return what a history begins with, if anything does: a projection, or the brief of the workspace it began in.

    Both stand before everything that was said since, in every later turn, byte for byte (invariant T2).
    """
    first = stretches[0]
    upto = min(first.to_seq, BEGINNING)
    for event in platform.store.events(first.session, upto=upto, limit=4, kinds=("context",)):
        body = body_of(event)
        if isinstance(body, ProjectionContext) or (
            isinstance(body, BriefContext) and body.scope == "workspace"
        ):
            return event
    return None


def _text(event: Event) -> str:
    body = body_of(event)
    return body.text if isinstance(body, ProjectionContext | BriefContext) else ""


def _about(session: Session) -> str:
    return f"“{session.title}”" if session.title else "this work"


def _own(platform: Platform, stretches: Sequence[Scope], asked: Event | None) -> tuple[list[Row], bool]:
    """Return the newest rows of a conversation, oldest first, and whether there are more.

    Without the message that is asked now. The one that a continuation carried over is a row in every later turn: it stands
    beside the projection, not in it.
    """
    out: list[Row] = []
    more, left = False, ROWS
    for stretch in reversed(stretches):
        for event in _backwards(platform, stretch.session, stretch.to_seq):
            if asked is not None and event.id == asked.id:
                continue
            row = row_of(event)
            if row is None:
                continue
            left -= row.counts
            if left < 0:
                more = True
                break
            out.append(row)
        if more:
            break
    out.reverse()
    return out, more


def _carried(event: Event) -> bool:
    body = body_of(event)
    return isinstance(body, Message) and body.continued_from is not None


def _backwards(platform: Platform, session_id: str, upto: int | None) -> Iterator[Event]:
    """Yield the newest events of a session that can give rows, newest first, a bounded number of them."""
    for _ in range(PAGES):
        page = platform.store.events(session_id, upto=upto, limit=PAGE, kinds=KINDS, newest_first=True)
        yield from page
        if len(page) < PAGE:
            return
        upto = page[-1].seq - 1


def _forwards(platform: Platform, session_id: str, after: int) -> Iterator[Event]:
    """Yield events of a session that can give rows, oldest first, a bounded number of them."""
    for _ in range(PAGES):
        page = platform.store.events(session_id, after=after, limit=PAGE, kinds=KINDS)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].seq


def timeline(
    platform: Platform,
    workspace: str,
    *,
    since: int | None = None,
    before: int | None = None,
    limit: int = TIMELINE,
    children: bool = False,
) -> Timeline:
    """Return what was said and done in a workspace, over all its sessions, oldest first.

    ``workspace`` is its id or its folder. ``since`` and ``before`` are times in microseconds, both exclusive, and only one
    of them can be given: ``since`` reads forwards from there (0: from the start), ``before`` backwards, neither gives the
    newest page. A page is not ended between rows of the same microsecond, so it may be a little longer than ``limit``.
    Without ``children``, delegated sessions are left out. Raises InvalidInput, LimitExceeded, WorkspaceNotFound.
    """
    if since is not None and before is not None:
        raise InvalidInput(what="since and before", why="a timeline is read in one direction at a time")
    if not 1 <= limit <= TIMELINE_MOST:
        raise LimitExceeded(
            what="the number of rows of a timeline", limit=f"1 to {TIMELINE_MOST:,}", found=limit
        )
    place = workspaces.get(platform, workspace)
    return _timeline(platform, place.id, since=since, before=before, limit=limit, children=children)


def _timeline(
    platform: Platform,
    workspace_id: str,
    *,
    since: int | None = None,
    before: int | None = None,
    limit: int,
    but: str | None = None,
    children: bool = False,
) -> Timeline:
    """Merge the sessions of a workspace by time; within one, events keep their order."""
    found: list[Row] = []
    forwards = since is not None
    for session in _active(platform, workspace_id, children):
        if session.id == but or (since is not None and session.updated_at <= since):
            continue
        if not forwards and len(found) > limit and session.updated_at < _nth_newest(found, limit + 1):
            break  # sessions come newest activity first: none that follows can have a newer row
        found += _rows(platform, session, since=since, before=before, limit=limit + 1)
    found.sort(key=_order)
    if forwards:
        kept = _whole(found, limit)
        return Timeline(rows=tuple(kept), more=len(kept) < len(found))
    kept = _whole(found[::-1], limit)[::-1]
    return Timeline(rows=tuple(kept), more=len(kept) < len(found))


def _order(row: Row) -> tuple[int, str, int]:
    return row.at, row.session, row.seq


def _nth_newest(rows: list[Row], count: int) -> int:
    return sorted(row.at for row in rows)[-count]


def _whole(rows: Sequence[Row], limit: int) -> list[Row]:
    """Return the first rows, not ending between two of the same time."""
    end = min(limit, len(rows))
    while end and end < len(rows) and rows[end].at == rows[end - 1].at:
        end += 1
    return list(rows[:end])


def _active(platform: Platform, workspace_id: str, children: bool) -> Iterator[Session]:
    """Yield the sessions of a workspace, newest activity first, archived ones included: they are part of its record."""
    page, _ = platform.store.sessions(
        SessionQuery(
            account_id=platform.account_id,
            workspace_id=workspace_id,
            include_archived=True,
            include_children=children,
            limit=SESSIONS,
        )
    )
    yield from page


def _rows(
    platform: Platform, session: Session, *, since: int | None, before: int | None, limit: int
) -> list[Row]:
    """Return the rows of one session that a page may need, and all those of the same moment as the last of them.

    A message that a continuation carried over is told once, where it was said.
    """
    out: list[Row] = []
    if since is not None:
        events = _forwards(platform, session.id, _first_after(platform, session, since) - 1)
    else:
        upto = session.head_seq if before is None else _first_after(platform, session, before - 1) - 1
        events = _backwards(platform, session.id, upto)
    for event in events:
        if (since is not None and event.at <= since) or (before is not None and event.at >= before):
            continue
        if len(out) >= limit and event.at != out[-1].at:
            break
        if not _carried(event) and (row := row_of(event)) is not None:
            out.append(row)
    return out


def _first_after(platform: Platform, session: Session, at: int) -> int:
    """Return the number of the first event of a session that is later than a time, by halving.

    Within a session times go up, save where a clock was set back: there a page may begin a little off.
    """
    low, high = 1, session.head_seq + 1
    while low < high:
        middle = (low + high) // 2
        page = platform.store.events(session.id, after=middle - 1, upto=middle, limit=1)
        if page and page[0].at <= at:
            low = middle + 1
        else:
            high = middle
    return low
