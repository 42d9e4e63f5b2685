"""Following a session: reading its events by a cursor, and waiting for the next ones.

The cursor is the number of an event, so nothing can be lost or repeated: a reader that was away asks again from where it
stood. Waiting is looking again: other processes write into the same store, and a look at a session's head is one read of
one row. A hint that something was written costs latency when it is lost, never an event.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from onward.core.bodies import SessionChange
from onward.core.codec import body_of
from onward.core.events import Event
from onward.errors import InvalidInput, LimitExceeded
from onward.service.platform import Platform
from onward.store.contract import Store

PAGE: Final = 100
"""Events a page, unless asked otherwise."""
MOST: Final = 1000
"""Events a page at most."""
LONGEST_WAIT: Final = 60.0
"""Seconds that one call waits at most."""
LOOK_SECONDS: Final = 0.1
"""Seconds between two looks while waiting."""

Pause = Callable[[float], bool]
"""Waits so many seconds; True when the reader has gone and nobody needs the answer any more."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader gets, and where it goes on."""

    events: tuple[Event, ...]
    after: int
    """The cursor: pass it as ``after`` next time. Events that the filters left out are behind it too."""
    head: int
    """The number of the session's newest event at that moment."""


def latest(platform: Platform, session_id: str) -> int:
    """Return the number of a session's newest event; 0 when it has none."""
    return platform.session(session_id).head_seq


def read_on(
    platform: Platform,
    session_id: str,
    *,
    after: int = 0,
    limit: int = PAGE,
    kinds: Sequence[str] | None = None,
    run: str | None = None,
    wait: float = 0.0,
    pause: Pause | None = None,
) -> Stretch:
    """Return what follows ``after``, oldest first: at most ``limit`` events that pass the filters.

    With ``wait`` seconds and nothing to return yet, look again until something passes the filters or the time is over; an
    empty answer then moves the cursor past what did not. Raises SessionNotFound, InvalidInput, LimitExceeded.
    """
    if after < 0:
        raise InvalidInput(what=f"cursor {after}", why="events are numbered from 1; 0 is before the first")
    if not 1 <= limit <= MOST:
        raise LimitExceeded(what="a page of events", limit=f"1 to {MOST:,}", found=limit)
    if not 0 <= wait <= LONGEST_WAIT:
        raise LimitExceeded(what="the wait in seconds", limit=f"0 to {LONGEST_WAIT:g}", found=wait)
    pause = pause or threading.Event().wait
    until = time.monotonic() + wait
    while True:
        head = latest(platform, session_id)
        found, after = _passing(platform, session_id, after, head, limit, kinds, run)
        left = until - time.monotonic()
        if found or left <= 0 or pause(min(LOOK_SECONDS, left)):
            return Stretch(events=tuple(found), after=after, head=head)


def _passing(
    platform: Platform,
    session_id: str,
    after: int,
    head: int,
    limit: int,
    kinds: Sequence[str] | None,
    run: str | None,
) -> tuple[list[Event], int]:
    """Return events up to ``head`` that pass, and how far was read."""
    found: list[Event] = []
    while after < head:
        page = platform.store.events(session_id, after=after, upto=head, limit=PAGE, kinds=kinds)
        for event in page:
            after = event.seq
            if run is None or event.run_id == run:
                found.append(event)
                if len(found) == limit:
                    return found, after
        if len(page) < PAGE:
            after = head
    return found, after


def follow(
    platform: Platform,
    session_id: str,
    *,
    after: int = 0,
    kinds: Sequence[str] | None = None,
    run: str | None = None,
    pause: Pause | None = None,
) -> Iterator[Event]:
    """Yield events for ever as they come, each once and in order, until ``pause`` says that nobody listens."""
    gone = False
    listen = pause or threading.Event().wait

    def waiting(seconds: float) -> bool:
        nonlocal gone
        gone = listen(seconds)
        return gone

    while not gone:
        stretch = read_on(
            platform, session_id, after=after, kinds=kinds, run=run, wait=LONGEST_WAIT, pause=waiting
        )
        yield from stretch.events
        after = stretch.after


class Continued(msgspec.Struct, frozen=True, kw_only=True):
    """A session went on in another one."""

    seq: int
    """The event that says so."""
    successor: str
    link: str
    manifest: str | None
    title: str
    reason: str
    at: int
    """Microseconds since 1970."""


class News(msgspec.Struct, frozen=True, kw_only=True):
    """How a session stands that something happened in."""

    session: str
    title: str
    head: int
    """The number of its newest event."""
    run: str | None
    """Its newest run."""
    state: str | None
    """The state of that run."""
    archived: bool
    created_at: int
    updated_at: int


def continued(store: Store, event: Event) -> Continued | None:
    """Return what an event says about the continuation of its session; None for one that says nothing about it."""
    if event.kind != "session":
        return None
    body = body_of(event)
    if not isinstance(body, SessionChange) or body.change != "continued" or body.other is None:
        return None
    link = store.link(body.link) if body.link else None
    return Continued(
        seq=event.seq,
        successor=body.other,
        link=body.link or "",
        manifest=link.manifest_id if link is not None else None,
        title=body.title or "",
        reason=body.reason or "",
        at=event.at,
    )


def news(platform: Platform, *, since: str | None = None) -> tuple[list[News], str]:
    """Return the sessions of the account in which something happened after a cursor, and the next cursor.

    A session that was written to often stands there once, as it is now. Ask again while the cursor moves on; without one,
    what comes back is the cursor of this moment. Raises InvalidInput for a cursor of another log.
    """
    named, after = platform.store.touched(platform.account_id, since=since)
    found = []
    for session_id in named:
        session = platform.session(session_id)
        run = next(iter(platform.store.runs(session_id, limit=1)), None)
        found.append(
            News(
                session=session.id,
                title=session.title,
                head=session.head_seq,
                run=run.id if run else None,
                state=run.state if run else None,
                archived=session.archived,
                created_at=session.created_at,
                updated_at=session.updated_at or session.created_at,
            )
        )
    return found, after
