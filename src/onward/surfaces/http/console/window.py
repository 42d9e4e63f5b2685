"""A window on a session: the events that one page shows, with what little is needed around them.

Never more than a hundred events, however long the session; what lies outside is reached by its number. The calls that
results on the page belong to, and the results that came of calls on it, are looked for within a few hundred events around.
"""

from __future__ import annotations

from typing import Final

import msgspec

from onward.core import bodies
from onward.core.records import Session
from onward.service.platform import Platform
from onward.surfaces.http.console import reading, transitions
from onward.surfaces.http.console.views import Entry, Names, Read

PAGE: Final = 100
"""Events that a page shows."""
AROUND: Final = 400
"""Events before and behind a page among which the other half of a tool call is looked for."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What a page shows of a session."""

    entries: tuple[Entry, ...]
    head: int
    """The number of the session's newest event."""
    first: int
    last: int
    """The numbers of the first and last event that are shown; 0 where none is."""
    earlier: int | None
    """Show what is before this number for the page before; None at the beginning."""
    later: int | None
    """Show what is after this number for the page behind; None at the end."""
    erased: tuple[int, ...] = ()
    """The numbers of events that the shown ones say were erased: a page that shows their words has to forget them."""


def window(
    platform: Platform,
    session: Session,
    *,
    before: int | None = None,
    after: int | None = None,
    at: int | None = None,
    least: int | None = None,
) -> Window:
    """Return the newest events, those before or after a number, or those around one.

    With ``after``, ``least`` is the lowest number that a page shows already: a result whose call is on that page is returned
    with its call, so that the one can take the place of the other.
    """
    store, name = platform.store, session.id
    if after is not None:
        events = store.events(name, after=after, limit=PAGE)
    elif at is not None:
        events = store.events(name, after=max(0, min(at, session.head_seq) - PAGE // 2 - 1), limit=PAGE)
    else:
        upto = None if before is None else max(0, before - 1)
        events = store.events(name, upto=upto, limit=PAGE, newest_first=True)[::-1]
    found = reading.read(events)
    if not found:
        edge = after if after is not None else 0
        return Window(entries=(), head=session.head_seq, first=0, last=edge, earlier=None, later=None)
    first, last = events[0].seq, events[-1].seq
    unanswered, uncalled = reading.outside(found)
    above = _calls_above(platform, name, first, uncalled)
    behind = _results_behind(platform, name, last, unanswered)
    if after is not None and least is not None:
        pulled = [one for one in above.values() if one[0].seq >= least]
        found = _with_calls(platform, name, pulled, found, after)
    waiting = frozenset(call.call for call in store.open_calls(name))
    shown = reading.entries(
        found,
        platform.clock(),
        names=names_of(platform, reading.mentioned(found)),
        before=above,
        behind=behind,
        waiting=waiting,
    )
    return Window(
        entries=tuple(transitions.with_cards(platform, session, shown)),
        head=max(session.head_seq, last),
        first=first,
        last=last,
        earlier=first if first > 1 else None,
        later=last if last < session.head_seq else None,
        erased=_erased(platform, name, found),
    )


def _erased(platform: Platform, name: str, found: list[Read]) -> tuple[int, ...]:
    gone = (
        platform.store.event(body.event)
        for _, body in found
        if isinstance(body, bodies.SessionChange) and body.change == "erased" and body.event
    )
    return tuple(event.seq for event in gone if event is not None and event.session_id == name)


def names_of(platform: Platform, ids: set[str]) -> Names:
    """Return what sessions are called; None for those that this account may not read (invariant A1)."""
    found = {name: platform.store.session(name) for name in sorted(ids)}
    return {
        name: None
        if session is None or session.account_id != platform.account_id
        else session.title or "Untitled"
        for name, session in found.items()
    }


def _calls_above(platform: Platform, name: str, first: int, wanted: set[str]) -> dict[str, Read]:
    if not wanted or first <= 1:
        return {}
    events = platform.store.events(
        name, after=max(0, first - 1 - AROUND), upto=first - 1, limit=AROUND, kinds=("tool_call",)
    )
    return {
        body.call: (event, body)
        for event, body in reading.read(events)  # of an id that repeats, the nearest
        if isinstance(body, bodies.ToolCall) and body.call in wanted
    }


def result_of(platform: Platform, name: str, call: Read) -> dict[str, Read]:
    """Return what came of one call, if it is near."""
    event, body = call
    wanted = {body.call} if isinstance(body, bodies.ToolCall) else set()
    return _results_behind(platform, name, event.seq, wanted)


def _results_behind(platform: Platform, name: str, last: int, wanted: set[str]) -> dict[str, Read]:
    if not wanted:
        return {}
    events = platform.store.events(name, after=last, upto=last + AROUND, limit=AROUND, kinds=("tool_result",))
    return {
        body.call: (event, body)
        for event, body in reversed(reading.read(events))
        if isinstance(body, bodies.ToolResult) and body.call in wanted
    }


def _with_calls(
    platform: Platform, name: str, pulled: list[Read], found: list[Read], after: int
) -> list[Read]:
    """Return what is new together with the calls that it answers, and the results that those had already."""
    if not pulled:
        return found
    calls = {body.call: event.seq for event, body in pulled if isinstance(body, bodies.ToolCall)}
    known = platform.store.events(
        name, after=min(calls.values()), upto=after, limit=AROUND, kinds=("tool_result",)
    )
    answered = [
        (event, body)
        for event, body in reading.read(known)
        if isinstance(body, bodies.ToolResult) and calls.get(body.call, event.seq) < event.seq
    ]
    return sorted([*pulled, *answered, *found], key=lambda one: one[0].seq)
