"""Sessions over HTTP: opening, listing, reading by cursor, and putting a message before the agent."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from onward.errors import LimitExceeded
from onward.runner.desk import in_thread
from onward.runner.serving import either, listening
from onward.service import following, machines, running, sessions, workspaces
from onward.surfaces.http import shapes
from onward.surfaces.http.routing import Ask, Route

LONGEST_WAIT: Final = 25.0
"""Seconds that a request for events waits for some."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two looks for what another process wrote."""


class Opening(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session to open."""

    title: str = ""
    engine: str | None = None
    workspace: str | None = None
    """A folder, or the id of a workspace."""
    machine: str | None = None
    """The machine that has the folder, by name or id; without one, that of the store."""


class Listing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions to list."""

    query: str | None = None
    children: bool = False
    limit: int = 50
    cursor: str | None = None


class SessionsShape(shapes.Shape, frozen=True, kw_only=True):
    """A page of sessions."""

    sessions: tuple[shapes.SessionShape, ...]
    next: str | None


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events to read."""

    after: int = 0
    """The cursor: the number of the last event that is known."""
    limit: int = following.PAGE
    kinds: str | None = None
    """Kinds, separated by commas; all without it."""
    run: str | None = None
    wait: float = 0.0
    """Seconds to wait for an event when there is none yet, at most 25."""


class EventsShape(shapes.Shape, frozen=True, kw_only=True):
    """A stretch of a session."""

    session: str
    events: tuple[shapes.EventShape, ...]
    after: int
    """The cursor to go on with."""
    head: int
    """The number of the session's newest event."""


class Saying(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message for the session's agent."""

    text: str
    engine: str | None = None
    options: dict[str, Any] = {}


def start(ask: Ask) -> shapes.SessionShape:
    """Open a session."""
    given: Opening = ask.body
    platform = ask.platform
    machine = machines.get(platform, given.machine) if given.machine else None
    folder = given.workspace
    if folder is not None and folder.startswith("wsp_"):
        known = workspaces.get(platform, folder)
        folder, machine = known.path, workspaces.machine_of(platform, known)
    made = sessions.start(platform, given.title, workspace=folder, machine=machine, engine=given.engine)
    return shapes.session(made, platform)


def listed(ask: Ask) -> SessionsShape:
    """List sessions."""
    given: Listing = ask.query
    found, cursor = sessions.listed(
        ask.platform, text=given.query, children=given.children, limit=given.limit, cursor=given.cursor
    )
    return SessionsShape(sessions=tuple(shapes.session(s, ask.platform) for s in found), next=cursor)


def show(ask: Ask) -> shapes.SessionShape:
    """Return one session."""
    return shapes.session(ask.platform.session(ask.path["session"]), ask.platform)


async def events(ask: Ask) -> EventsShape:
    """Return what follows a cursor; with ``wait``, wait for something to."""
    given: Reading = ask.query
    if not 0 <= given.wait <= LONGEST_WAIT:
        raise LimitExceeded(what="the wait in seconds", limit=f"0 to {LONGEST_WAIT:g}", found=given.wait)
    name = ask.path["session"]
    kinds = tuple(filter(None, given.kinds.split(","))) if given.kinds is not None else None
    until = time.monotonic() + given.wait
    after = given.after
    with listening(ask.house.hints, lambda hint: name in hint.sessions) as told:
        while True:
            told.clear()
            found = await in_thread(
                following.read_on,
                ask.platform,
                name,
                after=after,
                limit=given.limit,
                kinds=kinds,
                run=given.run,
            )
            after, left = found.after, until - time.monotonic()
            over = left <= 0 or ask.house.closing.is_set() or await ask.request.is_disconnected()
            if found.events or over:
                shown = tuple(shapes.event(event) for event in found.events)
                return EventsShape(session=name, events=shown, after=found.after, head=found.head)
            await either(told, ask.house.closing, seconds=min(left, LOOK_SECONDS))


def say(ask: Ask) -> shapes.RunShape:
    """Put a message before the session's agent."""
    given: Saying = ask.body
    name = ask.path["session"]
    run = running.submit(ask.platform, name, given.text, engine=given.engine, options=given.options)
    return shapes.run(run, ask.platform)


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/sessions",
        does="Open a session.",
        scope="write",
        handler=start,
        body=Opening,
        answer=shapes.SessionShape,
        status=201,
    ),
    Route(
        method="GET",
        path="/v1/sessions",
        does="List sessions, newest activity first.",
        scope="read",
        handler=listed,
        query=Listing,
        answer=SessionsShape,
    ),
    Route(
        method="GET",
        path="/v1/sessions/{session}",
        does="Return a session.",
        scope="read",
        handler=show,
        answer=shapes.SessionShape,
    ),
    Route(
        method="GET",
        path="/v1/sessions/{session}/events",
        does="Read the events after a cursor, and wait for the next ones.",
        scope="read",
        handler=events,
        query=Reading,
        answer=EventsShape,
    ),
    Route(
        method="POST",
        path="/v1/sessions/{session}/messages",
        does="Put a message before the session's agent; it waits in order until a machine takes it.",
        scope="write",
        handler=say,
        body=Saying,
        answer=shapes.RunShape,
        status=202,
    ),
)
