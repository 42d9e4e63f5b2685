"""Sessions over HTTP: opening, listing, reading by cursor, and putting a message before the agent."""

from __future__ import annotations

import time
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from onward import errors
from onward.runner import wire
from onward.runner.desk import in_thread
from onward.runner.serving import either, listening
from onward.service import following, machines, opening, running, sessions, workspaces
from onward.service.platform import Platform
from onward.surfaces.http import bounds, referencing, shapes
from onward.surfaces.http.routing import JSON, Ask, Route

PAGE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of bodies in one answer; a page ends where the next event would go beyond that, but never before its first."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two looks for what another process wrote."""


class Opening(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session to open."""

    title: bounds.Title = ""
    engine: bounds.Name | None = None
    workspace: bounds.Folder | None = None
    """A folder, or the id of a workspace."""
    machine: bounds.Name | None = None
    """The machine that has the folder, by name or id; without one, that of the store."""


class Listing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions to list."""

    query: bounds.Words | None = None
    """Part of the title or the id."""
    workspace: bounds.Folder | None = None
    """Only those about this folder: the id of a workspace, or a path."""
    children: bool = False
    """Delegated sessions too."""
    archived: bool = False
    """Those that were put away too."""
    limit: bounds.To200 = 50
    cursor: bounds.Cursor | None = None


class SessionsShape(shapes.Shape, frozen=True, kw_only=True):
    """A page of sessions."""

    sessions: tuple[shapes.SessionShape, ...]
    next: str | None


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events to read."""

    after: bounds.After = 0
    """The cursor: the number of the last event that is known."""
    limit: bounds.To1000 = following.PAGE
    kinds: Annotated[str, Meta(max_length=400)] | None = None
    """Kinds, separated by commas; all without it."""
    run: bounds.Id | None = None
    """Only those of this run."""
    wait: bounds.Wait = 0.0
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

    text: bounds.Text
    engine: bounds.Name | None = None
    """The engine that answers; without it, that of the session."""
    options: bounds.Options = {}
    """Dials of the run."""
    references: referencing.Named = ()
    """Other sessions whose snapshots go along; those that the text mentions do so anyway."""


class Naming(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another title."""

    title: bounds.Title


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
        ask.platform,
        text=given.query,
        workspace=given.workspace,
        children=given.children,
        archived=given.archived,
        limit=given.limit,
        cursor=given.cursor,
    )
    return SessionsShape(sessions=tuple(shapes.session(s, ask.platform) for s in found), next=cursor)


def show(ask: Ask) -> shapes.SessionShape:
    """Return one session."""
    return shapes.session(ask.platform.session(ask.path["session"]), ask.platform)


async def events(ask: Ask) -> Response:
    """Return what follows a cursor; with ``wait``, wait for something to."""
    given: Reading = ask.query
    name = ask.path["session"]
    kinds = tuple(filter(None, given.kinds.split(","))) if given.kinds is not None else None
    until = time.monotonic() + given.wait
    after = given.after
    with listening(ask.house.hints, lambda hint: name in hint.sessions) as told:
        while True:
            told.clear()
            found, written = await in_thread(_page, ask.platform, name, after, given, kinds)
            after, left = found.after, until - time.monotonic()
            over = left <= 0 or ask.house.closing.is_set() or await ask.request.is_disconnected()
            if found.events or over:
                return Response(written, media_type=JSON)
            await either(told, ask.house.closing, seconds=min(left, LOOK_SECONDS))


def _page(
    platform: Platform, name: str, after: int, given: Reading, kinds: tuple[str, ...] | None
) -> tuple[EventsShape, bytes]:
    """Read a page, bounded in events and in bytes, and write it, all in one go: it is called in a worker thread.

    A hundred are read at a time, so that a thousand long ones are never in memory together.
    """
    shown: list[shapes.EventShape] = []
    size, full = 0, False
    while True:
        most = min(following.PAGE, given.limit - len(shown))
        found = following.read_on(platform, name, after=after, limit=most, kinds=kinds, run=given.run)
        for event in found.events:
            size += len(event.body)
            full = bool(shown) and size > PAGE_BYTES
            if full:
                break
            shown.append(shapes.event(event))
        after = shown[-1].seq if full else found.after
        if full or len(found.events) < most or len(shown) == given.limit:
            break
    page = EventsShape(session=name, events=tuple(shown), after=after, head=found.head)
    return page, wire.write(page)


def rename(ask: Ask) -> shapes.SessionShape:
    """Give a session another title."""
    given: Naming = ask.body
    return shapes.session(sessions.rename(ask.platform, ask.path["session"], given.title), ask.platform)


def archive(ask: Ask) -> shapes.SessionShape:
    """Put a session away."""
    return shapes.session(sessions.archive(ask.platform, ask.path["session"]), ask.platform)


def say(ask: Ask) -> shapes.RunShape:
    """Put a message before the session's agent."""
    given: Saying = ask.body
    name = ask.path["session"]
    opening.parse_options(given.options)
    run = running.submit(
        ask.platform,
        name,
        given.text,
        engine=given.engine,
        options=given.options,
        references=given.references,
        key=ask.key,
    )
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
        errors=(errors.WorkspaceNotFound, errors.MachineNotFound, errors.Conflict),
        leads={
            "sessions.say": "/id",
            "sessions.events": "/id",
            "states.plan": "/id",
            "sessions.archive": "/id",
        },
        example={"title": "Fix the parser", "workspace": "/home/me/parser"},
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
        tag="weak",
    ),
    Route(
        method="POST",
        path="/v1/sessions/{session}/rename",
        does="Give a session another title.",
        scope="write",
        handler=rename,
        body=Naming,
        answer=shapes.SessionShape,
        example={"title": "Fix the parser, at last"},
    ),
    Route(
        method="POST",
        path="/v1/sessions/{session}/archive",
        does="Put a session away: it stays readable and takes no new messages.",
        scope="write",
        handler=archive,
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
        errors=(
            errors.SessionContinued,
            errors.SessionArchived,
            *referencing.REFUSED,
            errors.Conflict,
        ),
        keyed=True,
        leads={
            "runs.show": "/id",
            "runs.cancel": "/id",
            "sessions.events": "/session",
            "continuing.make": "/session",
            "drafting.draft": "/session",
            "lineages.fork": "/session",
        },
        example={"text": "What fails?"},
    ),
)
