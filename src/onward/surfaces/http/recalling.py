"""Recall over HTTP: exact earlier material by address, by walking a lineage, by search; and what was recalled.

Reading leaves no trace. A session that wants its recall written down asks for itself, with ``POST …/recalls``: then its
report can say what its projection had left out.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from onward.errors import EventNotFound, InvalidInput, NotFound, SessionNotFound
from onward.service import recalling, recounting
from onward.surfaces.http import bounds, shapes
from onward.surfaces.http.routing import Ask, Route

MOST_ADDRESSES: Final = 200


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to read."""

    address: bounds.Address
    """``evt_…``, ``ses_…``, ``ses_…:12`` or ``ses_…:12-18``."""
    before: bounds.UpTo50 = 0
    """Events before it."""
    after: bounds.UpTo50 = 0
    """Events after it."""
    limit: bounds.To1000 = 200


class Walking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to walk."""

    direction: Literal["back", "forward"] = "back"
    limit: bounds.To1000 = 200


class Searching(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to search for."""

    query: bounds.Words
    session: bounds.Id | None = None
    scope: Literal["lineage", "workspace", "account"] | None = None
    """``lineage`` where a session is given, else ``account``."""
    limit: bounds.To100 = 20


class Recalling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recall for a session, which is written down there. Exactly one of the three."""

    read: Reading | None = None
    walk: Walking | None = None
    search: SearchingHere | None = None


class SearchingHere(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to search for, seen from this session."""

    query: bounds.Words
    scope: Literal["lineage", "workspace", "account"] = "lineage"
    limit: bounds.To100 = 20


class RecallShape(shapes.Shape, frozen=True, kw_only=True):
    """What came of a recall."""

    lines: recalling.Lines | None = None
    found: recalling.Found | None = None


class ReportShape(shapes.Shape, frozen=True, kw_only=True):
    """What a session recalled, and what of that its projection had left out."""

    session: str
    recalls: int
    of_omitted: int
    asked_again: dict[str, int]
    """Addresses that had been left out, with how often each was asked for: the 200 most often asked."""
    addresses: int
    """How many such addresses there are."""
    compiler: str | None
    reason: str | None


class RatesShape(shapes.Shape, frozen=True, kw_only=True):
    """How often continuations had to go back, by compiler version and reason."""

    rates: tuple[recounting.RecallRate, ...]


def read(ask: Ask) -> recalling.Lines:
    """Read by address."""
    return _read(ask, ask.query, None)


def _read(ask: Ask, given: Reading, asked_by: str | None) -> recalling.Lines:
    return recalling.read_at(
        ask.platform,
        given.address,
        before=given.before,
        after=given.after,
        limit=given.limit,
        asked_by=asked_by,
    )


def walk(ask: Ask) -> recalling.Lines:
    """Read on the other side of a link."""
    given: Walking = ask.query
    return recalling.walk(ask.platform, ask.path["session"], given.direction, limit=given.limit)


def search(ask: Ask) -> recalling.Found:
    """Search the log."""
    given: Searching = ask.query
    return recalling.search(
        ask.platform, given.query, session_id=given.session, scope=given.scope, limit=given.limit
    )


def recall(ask: Ask) -> RecallShape:
    """Recall for a session."""
    given: Recalling = ask.body
    platform, name = ask.platform, ask.path["session"]
    platform.session(name)
    if sum(one is not None for one in (given.read, given.walk, given.search)) != 1:
        raise InvalidInput(what="the body", why="it has one of read, walk and search")
    if given.read is not None:
        return RecallShape(lines=_read(ask, given.read, name))
    if given.walk is not None:
        there = recalling.walk(platform, name, given.walk.direction, limit=given.walk.limit, asked_by=name)
        return RecallShape(lines=there)
    wanted = given.search
    assert wanted is not None
    found = recalling.search(
        platform, wanted.query, session_id=name, scope=wanted.scope, limit=wanted.limit, asked_by=name
    )
    return RecallShape(found=found)


def report(ask: Ask) -> ReportShape:
    """Return the recall report of a session."""
    found = recalling.recall_report(ask.platform, ask.path["session"])
    return ReportShape(
        session=found.session,
        recalls=found.recalls,
        of_omitted=found.of_omitted,
        asked_again=dict(list(found.asked_again.items())[:MOST_ADDRESSES]),
        addresses=len(found.asked_again),
        compiler=found.compiler,
        reason=found.reason,
    )


def rates(ask: Ask) -> RatesShape:
    """Return the rates of the account."""
    return RatesShape(rates=recalling.recall_rates(ask.platform))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/recall",
        does="Read exact events by their address, as lines: at most 4,000 characters each and 256 KiB in all.",
        scope="read",
        handler=read,
        query=Reading,
        answer=recalling.Lines,
        errors=(EventNotFound, SessionNotFound),
    ),
    Route(
        method="GET",
        path="/v1/search",
        does="Search the log, best first; a hit says when a later event supersedes it.",
        scope="read",
        handler=search,
        query=Searching,
        answer=recalling.Found,
        errors=(SessionNotFound,),
    ),
    Route(
        method="GET",
        path="/v1/sessions/{session}/walk",
        does="Read on the other side of a link: where a session comes from, or what it went on in.",
        scope="read",
        handler=walk,
        query=Walking,
        answer=recalling.Lines,
        errors=(NotFound, EventNotFound),
    ),
    Route(
        method="POST",
        path="/v1/sessions/{session}/recalls",
        does="Read, walk or search for a session, and write the recall down there.",
        scope="write",
        handler=recall,
        body=Recalling,
        answer=RecallShape,
        errors=(NotFound, EventNotFound),
        example={"search": {"query": "parser"}},
    ),
    Route(
        method="GET",
        path="/v1/sessions/{session}/recalls",
        does="Return what a session recalled, and what of that its projection had left out.",
        scope="read",
        handler=report,
        answer=ReportShape,
    ),
    Route(
        method="GET",
        path="/v1/recalls/rates",
        does="Return how often continuations had to go back for what was left out, by compiler version and reason.",
        scope="read",
        handler=rates,
        answer=RatesShape,
    ),
)
