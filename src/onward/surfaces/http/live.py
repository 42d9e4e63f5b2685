"""Live: a session and an account's sessions as streams of server-sent events.

``GET /v1/sessions/{session}/events/stream`` gives every event after a cursor, once and in order, and those that come; text
while it is written; and the fact that the session went on elsewhere. ``GET /v1/feed`` says which sessions of the account
changed. A browser that is cut off comes again by itself and says where it stood (``Last-Event-ID``); nothing is lost or
repeated. ``hints`` is the same for pages, which fetch what they show: that there is something, not what.

``docs/live.md`` tells clients what they get; how it is done is in ``live_hub`` and the modules beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from onward.core.records import Token
from onward.errors import InvalidInput, ServerBusy, TooManyStreams
from onward.service.platform import Platform
from onward.surfaces.http.live_streaming import MEDIA, Stream
from onward.surfaces.http.routing import Ask, Route

if TYPE_CHECKING:
    from starlette.requests import Request

    from onward.surfaces.http.house import House

_LONGEST: Final = 19
"""Digits of the largest number that an event can have."""


class Following(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a stream of events begins."""

    after: int = 0
    """The cursor: the number of the last event that is known. A header ``Last-Event-ID`` goes first."""


class FollowingChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a feed begins."""

    after: str | None = None
    """A cursor, as an ``id`` of this feed gave it; without one, now. A header ``Last-Event-ID`` goes first."""


async def events(ask: Ask) -> Stream:
    """Stream the events of a session."""
    live, token = ask.house.live, _token(ask)
    after = cursor(ask.request, ask.query.after)
    return Stream(live, live.following(ask.platform, token, ask.path["session"], after))


async def feed(ask: Ask) -> Stream:
    """Stream which sessions of the account change."""
    live, token = ask.house.live, _token(ask)
    after = ask.request.headers.get("last-event-id") or ask.query.after
    return Stream(live, live.changes(ask.platform, token, after))


def hints(house: House, platform: Platform, token: Token, session: str, request: Request) -> Stream:
    """Return a stream that says what there is to be fetched of a session: for a page whose sign-in this token is.

    Raises InvalidInput for a cursor that is none.
    """
    given = request.query_params.get("after", "0")
    after = cursor(request, _number(given))
    return Stream(house.live, house.live.following(platform, token, session, after, hints=True))


def cursor(request: Request, after: int) -> int:
    """Return from where a reader goes on: what its browser remembers, else what it asked for. Raises InvalidInput."""
    remembered = request.headers.get("last-event-id")
    if remembered:
        return _number(remembered)
    if after < 0:
        raise InvalidInput(what=f"cursor {after}", why="events are numbered from 1; 0 is before the first")
    return after


def _number(given: str) -> int:
    if not (given.isascii() and given.isdecimal() and len(given) <= _LONGEST):
        raise InvalidInput(what=f"cursor {given[:40]!r}", why="it is the number of an event")
    return int(given)


def _token(ask: Ask) -> Token:
    assert ask.token is not None  # the routes have a scope
    return ask.token


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/sessions/{session}/events/stream",
        does="Stream the events after a cursor, and those that come, as server-sent events.",
        scope="read",
        handler=events,
        query=Following,
        answer=str,
        media=MEDIA,
        errors=(TooManyStreams, ServerBusy),
    ),
    Route(
        method="GET",
        path="/v1/feed",
        does="Stream which sessions change, as server-sent events.",
        scope="read",
        handler=feed,
        query=FollowingChanges,
        answer=str,
        media=MEDIA,
        errors=(TooManyStreams, ServerBusy),
    ),
)
