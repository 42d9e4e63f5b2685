"""Lineages over HTTP: what a session comes from and what came of it, and branching from an earlier point."""

from __future__ import annotations

from typing import Final

import msgspec

from onward.errors import EventNotFound
from onward.service import sessions
from onward.surfaces.http import bounds, shapes
from onward.surfaces.http.routing import Ask, Route

MOST_LINKS: Final = 1000
"""Links of one tree that are answered; ``complete`` says whether there may be more."""


class Forking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From where to branch."""

    seq: bounds.Seq | None = None
    """The last event that is shared; without it, the newest."""
    title: bounds.Title = ""


class LineageShape(shapes.Shape, frozen=True, kw_only=True):
    """Where a session comes from and what came of it."""

    session: str
    path: tuple[str, ...]
    """From the origin to the session, over continuations."""
    links: tuple[shapes.LinkShape, ...]
    sessions: dict[str, shapes.SessionShape | None]
    """Every session of the tree; null for one that may not be read."""
    complete: bool


def fork(ask: Ask) -> shapes.SessionShape:
    """Branch from an earlier point."""
    given: Forking = ask.body
    made = sessions.fork(ask.platform, ask.path["session"], given.seq, title=given.title, key=ask.key)
    return shapes.session(made, ask.platform)


def lineage(ask: Ask) -> LineageShape:
    """Return the tree around a session."""
    found = sessions.lineage(ask.platform, ask.path["session"])
    return LineageShape(
        session=found.session,
        path=found.path,
        links=tuple(shapes.link(link) for link in found.links),
        sessions={
            name: None if record is None else shapes.session(record, ask.platform)
            for name, record in found.sessions.items()
        },
        complete=len(found.links) < MOST_LINKS,
    )


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/sessions/{session}/forks",
        does="Branch from an earlier point: a new session that shares the log up to there.",
        scope="write",
        handler=fork,
        body=Forking,
        answer=shapes.SessionShape,
        status=201,
        errors=(EventNotFound,),
        keyed=True,
        leads={"sessions.say": "/id", "lineages.lineage": "/id"},
        example={"seq": 1, "title": "Another way"},
    ),
    Route(
        method="GET",
        path="/v1/sessions/{session}/lineage",
        does="Return the path from the origin to a session, and the tree around it.",
        scope="read",
        handler=lineage,
        answer=LineageShape,
        tag="weak",
    ),
)
