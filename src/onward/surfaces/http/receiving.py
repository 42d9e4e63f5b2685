"""Receiving: what a request says, read and checked against its route, before any handler sees it.

In this order: whose token it is and what that allows, the ids in the path, the query, the key, and last the body, so that
nobody without a token makes the server read one. What exceeds a bound of a type is ``limit_exceeded``, everything else that
a type does not take ``invalid_input``, both with the place. A text that cannot be an id is one of nothing: not found, in
the same words as an id of somebody else's (invariant A1).
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from starlette.requests import Request

from onward.core import ids as make
from onward.core.continuing_command import MAX_KEY
from onward.core.records import Token
from onward.errors import Forbidden, InvalidId, InvalidInput, LimitExceeded
from onward.runner import wire
from onward.service import tokens
from onward.surfaces.http import failing
from onward.surfaces.http.house import House
from onward.surfaces.http.routing import JSON, PARAMETERS, Route

KEY: Final = "idempotency-key"
_BOUND: Final = re.compile(r"Expected `\w+` (?:of length )?(?P<limit>[<>]=? \S+)(?: - at .*)?")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}\Z")
_NOTHING: Final = 64
"""Bytes that are read of a body where none is taken: enough for an empty object."""


class TooLarge(Exception):
    """A body is larger than its route takes."""

    status: Final = 413

    def __init__(self, limit: int) -> None:
        told = f"The body may have at most {limit:,} bytes."
        super().__init__(told)
        self.body = failing.refusal(failing.TOO_LARGE, told, {"limit": limit})


class WrongMedia(Exception):
    """A body is not what its route takes."""

    status: Final = 415

    def __init__(self, found: str) -> None:
        told = (
            f"The body must be {JSON}, and say so in its Content-Type; this one says {found or 'nothing'!r}."
        )
        super().__init__(told)
        self.body = failing.refusal(failing.WRONG_MEDIA, told, {"wanted": JSON, "found": found})


def admitted(house: House, request: Request, route: Route) -> Token | None:
    """Return the token of a request that may use a route; None where none is needed. Raises Unauthorized, Forbidden."""
    if route.scope is None:
        return None
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    token = house.token(secret.strip() if kind.lower() == "bearer" else "")
    make.check_id(token.account_id, make.ACCOUNT)
    if not tokens.allows(token, route.scope):
        raise Forbidden(why=f"this token has no scope `{route.scope}`")
    return token


def path(request: Request) -> dict[str, str]:
    """Return what the placeholders of a path stand for. Raises the NotFound of one that can be nothing's name."""
    found: dict[str, str] = dict(request.path_params)
    for name, value in found.items():
        known = PARAMETERS[name]
        if known.prefixes and not any(_is_id(value, prefix) for prefix in known.prefixes):
            raise known.missing(**{known.named: value})
        if name == "digest" and not _DIGEST.match(value):
            raise known.missing(what="the content", value=value)
    return found


def _is_id(value: str, prefix: str) -> bool:
    try:
        make.check_id(value, prefix)
    except InvalidId:
        return False
    return True


def query(request: Request, route: Route) -> Any:
    """Return the query of a request as the route's type. Raises InvalidInput."""
    if route.query is None:
        if request.query_params:
            raise InvalidInput(what=f"query {', '.join(request.query_params)}", why="none is taken here")
        return None
    given = request.query_params.multi_items()
    if len({name for name, _ in given}) != len(given):
        raise InvalidInput(what="the query", why="a name stands in it twice")
    try:
        return msgspec.convert(dict(given), route.query, strict=False)
    except msgspec.ValidationError as error:
        raise _refused("the query", error) from None


def key(request: Request, route: Route) -> str | None:
    """Return the key under which a request is done once, if it has one. Raises LimitExceeded."""
    if not route.keyed or (given := request.headers.get(KEY)) is None:
        return None
    if not 1 <= len(given) <= MAX_KEY:
        raise LimitExceeded(what="an idempotency key", limit=f"1 to {MAX_KEY} characters", found=len(given))
    return given


def has_body(request: Request) -> bool:
    """Whether a request announces a body."""
    headers = request.headers
    return headers.get("content-length", "0").strip() != "0" or "transfer-encoding" in headers


async def body(request: Request, route: Route) -> Any:
    """Return the body of a request as the route's type. Raises InvalidInput, TooLarge, WrongMedia."""
    if route.body is None:
        if has_body(request) and await _says_something(request):
            raise InvalidInput(what="the body", why="none is taken here")
        return None
    if route.optional and not has_body(request):
        return msgspec.convert({}, route.body)
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > route.limit:
        raise TooLarge(route.limit)
    media = request.headers.get("content-type", "")
    if media.partition(";")[0].strip().lower() != JSON:
        # A form of another site can be sent without asking first; JSON cannot.
        raise WrongMedia(media)
    data = await _data(request, route.limit)
    try:
        return wire.read(data, route.body)
    except msgspec.ValidationError as error:
        raise _refused("the body", error) from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(what="the body", why=str(error)) from None


async def _says_something(request: Request) -> bool:
    try:
        return (await _data(request, _NOTHING)).strip() not in (b"", b"{}")
    except TooLarge:
        return True


async def _data(request: Request, limit: int) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise TooLarge(limit)
    return bytes(data)


def _refused(what: str, error: msgspec.ValidationError) -> InvalidInput:
    told = str(error)
    if bound := _BOUND.fullmatch(told):
        return LimitExceeded(f"{what} is not valid: {told}.".capitalize(), what=what, limit=bound["limit"])
    return InvalidInput(what=what, why=told)
