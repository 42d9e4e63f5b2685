"""Ranges: exactly the events that something cites, marked, with a few before and after them to read them in.

This is where every address of a source leads (``ses_…:12-18``). A range may hold a thousand events; it is shown a hundred
at a time, and nothing of it is left out in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from onward.errors import EventNotFound, InvalidInput
from onward.service.platform import Platform
from onward.surfaces.http.console import reading, words
from onward.surfaces.http.console.views import Entry
from onward.surfaces.http.console.visiting import Page, Shown, Visit
from onward.surfaces.http.console.window import names_of

PAGE: Final = 100
"""Events of a range on one page."""
AROUND: Final = 3
"""Events before and after the range that are shown with it."""

_SPAN: Final = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?")
_ADDRESS: Final = re.compile(r"(ses_[0-9A-Za-z]+):(\d{1,15})(?:-(\d{1,15}))?")


def href_of(address: str) -> str | None:
    """Return the page that shows an address of events; None for any other address."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return None
    return href(found[1], int(found[2]), int(found[3] or found[2]))


def label_of(address: str, session: str, names: Mapping[str, str]) -> str:
    """Return an address of events as it is said: which events, and of which session where that is another one."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return address
    first, last = int(found[2]), int(found[3] or found[2])
    told = f"Event {first:,}" if first == last else f"Events {first:,} to {last:,}"
    if found[1] == session:
        return told
    return f"{told} of “{words.cut(names[found[1]], 60)}”" if found[1] in names else address


def names_in(platform: Platform, addresses: Iterable[str]) -> dict[str, str]:
    """Return what the sessions are called that addresses name, of those that this account may read."""
    ids = {found[1] for address in addresses if (found := _ADDRESS.fullmatch(address))}
    known = names_of(platform, ids)
    return {name: title for name, title in known.items() if title is not None}


def href(session: str, first: int, last: int) -> str:
    """Return the page that shows a range of events."""
    return f"/sessions/{session}/range/{first}" + (f"-{last}" if last != first else "")


def show(visit: Visit) -> Shown:
    """Show a range of events."""
    platform = visit.platform
    session = platform.session(visit.path["session"])
    first, last = _span(visit.path["span"])
    if last > session.head_seq:
        raise EventNotFound(
            f"This session has events 1 to {session.head_seq:,}; {first}-{last} is outside.",
            event=f"{session.id}:{first}",
        )
    start = visit.number("from", first, least=1) or first
    start = min(max(start, first), last)
    end = min(last, start + PAGE - 1)
    before = _entries(platform, session.id, max(1, first - AROUND), first - 1) if start == first else []
    after = (
        _entries(platform, session.id, last + 1, min(session.head_seq, last + AROUND)) if end == last else []
    )
    told = f"Event {first:,}" if first == last else f"Events {first:,} to {last:,}"
    values = {
        "title": told,
        "session": session,
        "first": first,
        "last": last,
        "shown": (start, end),
        "before": before,
        "entries": _entries(platform, session.id, start, end),
        "after": after,
        "earlier": max(first, start - PAGE) if start > first else None,
        "later": end + 1 if end < last else None,
    }
    return Shown(template="range.html", values=values)


def _span(given: str) -> tuple[int, int]:
    found = _SPAN.fullmatch(given)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last:
        raise InvalidInput(
            what=f"the range {given[:40]!r}", why="it is a number, or two with a hyphen, forwards"
        )
    return first, last


def _entries(platform: Platform, session_id: str, first: int, last: int) -> list[Entry]:
    if last < first:
        return []
    events = platform.store.events(session_id, after=first - 1, upto=last, limit=last - first + 1)
    found = reading.read(events)
    return reading.entries(found, platform.clock(), names=names_of(platform, reading.mentioned(found)))


PAGES: Final = (
    Page(
        method="GET",
        path="/sessions/{session}/range/{span}",
        does="Show a range of a session's events.",
        scope="read",
        handler=show,
    ),
)
