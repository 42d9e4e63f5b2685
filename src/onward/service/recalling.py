"""Recall: reading exact earlier material, by address, by walking the lineage, by search.

What is returned is what the log holds; where it is shortened, the line says by how much, and the answer counts what it left
out. Search covers the predecessors by default, because that is where the answer usually is. Every recall is an event of the
session that asked, so that the report (``recounting.py``) can name what a projection had left out and somebody needed after
all.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from onward.core.events import Event
from onward.core.lines import said, whole
from onward.core.records import Link, Run
from onward.errors import EventNotFound, InvalidInput, LimitExceeded, NotFound
from onward.service import sessions
from onward.service.platform import Platform
from onward.service.recounting import RecallReport, recall_rates, recall_report, remember
from onward.service.searching import SCOPES, Found, Hit, Scope, find

__all__ = [
    "SCOPES",
    "Found",
    "Hit",
    "Lines",
    "RecallReport",
    "Scope",
    "line_of",
    "read_at",
    "read_lines",
    "recall_rates",
    "recall_report",
    "search",
    "walk",
]

EVENT_CHARS: Final = 4000
"""Characters of one event in an answer."""
ANSWER_BYTES: Final = 256 * 1024
"""UTF-8 bytes of one answer."""
MOST_NEIGHBOURS: Final = 50
"""Events before and after an address that a read returns at most, each."""

Direction = Literal["back", "forward"]


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of an exact read."""

    session: str
    lines: tuple[str, ...]
    next: int | None
    """The number to read on from."""
    continued_from: str | None
    continued_to: str | None
    left: int = 0
    """Events that were asked for and are not in this answer; ``next`` is the first of them."""
    cut: int = 0
    """Characters that are missing from the lines; each line says how many of them are its own."""
    available: bool = True
    """False for a session of the lineage that this account may not read: only its id is known."""


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
    return _read(platform, session_id, first, last, limit, asked_by, "read")


def read_at(
    platform: Platform,
    address: str,
    *,
    before: int = 0,
    after: int = 0,
    limit: int = sessions.READ_DEFAULT,
    asked_by: str | Run | None = None,
) -> Lines:
    """Return the events at an address with their neighbours: ``evt_…``, ``ses_…``, ``ses_…:12`` or ``ses_…:12-18``.

    ``before`` and ``after`` count events of the same session, at most 50 each; they end where the session does. Bounds and
    recording are those of ``read_lines``. Raises EventNotFound, SessionNotFound, InvalidInput for what is no address.
    """
    for what, found in (("before", before), ("after", after)):
        if not 0 <= found <= MOST_NEIGHBOURS:
            raise LimitExceeded(what=f"`{what}`", limit=f"0 to {MOST_NEIGHBOURS}", found=found)
    session_id, first, last = _placed(platform, address)
    first = max(1, first - before)
    return _read(platform, session_id, first, None if last is None else last + after, limit, asked_by, "read")


def walk(
    platform: Platform,
    session_id: str,
    direction: Direction,
    *,
    limit: int = sessions.READ_DEFAULT,
    asked_by: str | Run | None = None,
) -> Lines:
    """Return the events on the other side of a link: where a session comes from, or what it went on in.

    ``back`` gives the newest events of the predecessor, of the parent of a delegated child, or of the source of a branch
    before the point; ``forward`` the first events of the newest successor. A session that may not be read is a
    breadcrumb: its id, and ``available`` false. Raises NotFound at the end of the line.
    """
    platform.session(session_id)
    if direction not in ("back", "forward"):
        raise InvalidInput(what=f"direction {direction!r}", why="there are back and forward")
    if not 1 <= limit <= sessions.READ_MAX:
        raise LimitExceeded(
            what="the number of events in one read", limit=f"1 to {sessions.READ_MAX}", found=limit
        )
    link = _step(platform, session_id, direction)
    if link is None:
        side = "came from another session" if direction == "back" else "was continued"
        raise NotFound(f"Session {session_id} is the end of the line: it never {side}.", session=session_id)
    other = link.from_session if direction == "back" else link.to_session
    if not platform.may_read(other):
        return Lines(
            session=other, lines=(), next=None, continued_from=None, continued_to=None, available=False
        )
    if direction == "forward":
        return _read(platform, other, 1, None, limit, asked_by, "lineage")
    end = platform.session(other).head_seq
    if link.type == "fork" and link.seq is not None:
        end = min(end, link.seq)
    return _read(platform, other, max(1, end - limit + 1), end, limit, asked_by, "lineage")


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
    message that it was continued with, where the original is in view. With ``asked_by``, the session or the run that
    asks, the recall is recorded there.
    """
    found = find(platform, query, session_id=session_id, scope=scope, limit=limit)
    if asked_by is not None:
        remember(platform, asked_by, "search", query, [f"{hit.session}:{hit.seq}" for hit in found.hits])
    return found


def line_of(event: Event, limit: int) -> str:
    """Return the line of an event, its text cut to ``limit`` characters with an exact count of what is missing."""
    return whole(event, limit=limit)


def _read(
    platform: Platform,
    session_id: str,
    first: int,
    last: int | None,
    limit: int,
    asked_by: str | Run | None,
    how: Literal["read", "lineage"],
) -> Lines:
    page = sessions.read(platform, session_id, first, last, limit=limit)
    lines: list[str] = []
    size, following, cut = 0, page.next, 0
    for event in page.events:
        line = line_of(event, EVENT_CHARS)
        size += len(line.encode("utf-8", "surrogatepass")) + 1
        if lines and size > ANSWER_BYTES:
            following = event.seq
            break
        lines.append(line)
        cut += max(0, len(said(event)) - EVENT_CHARS)
    shown = page.events[: len(lines)]
    if asked_by is not None and shown:
        address = f"{session_id}:{shown[0].seq}-{shown[-1].seq}"
        remember(platform, asked_by, how, address, [address])
    links = [ln for ln in platform.store.links(session_id) if ln.type == "continuation"]
    before = [ln.from_session for ln in links if ln.to_session == session_id]
    after = [ln.to_session for ln in links if ln.from_session == session_id]
    end = page.session.head_seq if last is None else min(last, page.session.head_seq)
    return Lines(
        session=session_id,
        lines=tuple(lines),
        next=following,
        continued_from=before[0] if before else None,
        continued_to=after[-1] if after else None,
        left=0 if following is None else max(0, end - following + 1),
        cut=cut,
    )


def _placed(platform: Platform, address: str) -> tuple[str, int, int | None]:
    """Return the session and the range of an address."""
    if address.startswith("evt_"):
        event = platform.store.event(address)
        if event is None or not platform.may_read(event.session_id):
            raise EventNotFound(event=address)
        return event.session_id, event.seq, event.seq
    session, colon, span = address.partition(":")
    if not colon:
        return session, 1, None
    first, dash, last = span.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise InvalidInput(what=f"the address {address!r}", why="it is evt_…, ses_…, ses_…:12 or ses_…:12-18")
    return session, int(first), int(last) if dash else int(first)


def _step(platform: Platform, session_id: str, direction: Direction) -> Link | None:
    links = platform.store.links(session_id)
    if direction == "back":
        return next((ln for ln in links if ln.to_session == session_id), None)
    after = [ln for ln in links if ln.from_session == session_id and ln.type == "continuation"]
    return after[-1] if after else None
