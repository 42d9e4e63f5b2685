"""Views: what the templates need of events, as values. ``reading`` makes them from what the log holds.

One entry is one thing to look at: an event, or a tool call together with its result. They know
no markup: templates decide how a thing looks, these decide what there is to see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onward.core.bodies import Body
from onward.core.events import Event
from onward.surfaces.http.console.words import When

Read = tuple[Event, Body]
Names = Mapping[str, str | None]
"""Titles of sessions by id; None for one that may not be read, and none at all for one that nobody looked up."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The root of all views."""


class Text(View, frozen=True, kw_only=True):
    """A text, or as much of it as is shown."""

    shown: str
    missing: int = 0
    """Characters that are not shown."""


class Part(View, frozen=True, kw_only=True):
    """An image or a file."""

    href: str
    name: str
    about: str
    """Its type and its size."""
    picture: bool


class Other(View, frozen=True, kw_only=True):
    """Another session, as far as this account may see it."""

    id: str
    title: str
    href: str | None
    """None where it may not be read: then it is a breadcrumb."""


class Said(View, frozen=True, kw_only=True):
    """A message."""

    text: Text
    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()
    """That it was cut off, that it steered, that it is harness text."""
    aside: bool = False
    from_session: Other | None = None
    """Where it was said, of the message that a continuation took along."""
    from_seq: int = 0
    model: str | None = None


class Result(View, frozen=True, kw_only=True):
    """What became of a call."""

    seq: int
    status: str
    """In words."""
    tone: str
    text: Text | None
    """None where it stands elsewhere on the page."""
    parts: tuple[Part, ...] = ()
    closer: bool = False
    late: bool = False


class Call(View, frozen=True, kw_only=True):
    """A tool call with what became of it."""

    name: str
    summary: str
    input: Text
    results: tuple[Result, ...]
    status: str
    tone: str


class Answered(View, frozen=True, kw_only=True):
    """A result whose call is further up than this page reaches."""

    name: str
    call_seq: int | None
    result: Result


class Facts(View, frozen=True, kw_only=True):
    """A text with what is known about it: contexts, terminals, summaries, records."""

    title: str
    summary: str = ""
    text: Text | None = None
    rows: tuple[tuple[str, str], ...] = ()
    """Facts by name."""
    sections: tuple[tuple[str, Text], ...] = ()
    others: tuple[Other, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Words and where they lead: pages of the console."""
    markdown: bool = False


class Step(View, frozen=True, kw_only=True):
    """One line of a plan or of pins."""

    mark: str
    text: str
    about: str
    tone: str = ""


class Steps(View, frozen=True, kw_only=True):
    """A revision of the plan or the pins."""

    title: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()


class Line(View, frozen=True, kw_only=True):
    """Something that is told in one thin line."""

    text: str
    tone: str = ""
    about: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    other: Other | None = None
    change: str = ""
    """Of a session: what happened to it (``bodies.SessionChange.change``)."""
    link_id: str | None = None
    """Of a session: the link that it is about."""


class Entry(View, frozen=True, kw_only=True):
    """One thing to look at on a timeline."""

    session: str
    seq: int
    upto: int
    """The highest number that is folded in: an entry with a higher one takes the place of an earlier one."""
    id: str
    kind: str
    view: str
    """Which macro of ``events.html`` shows ``body``."""
    who: str
    tone: str
    """Whose words: user, agent, tool, system."""
    when: When | None
    run: str | None
    body: Any

    @property
    def href(self) -> str:
        """The page of the exact event."""
        return f"/sessions/{self.session}/events/{self.seq}"
