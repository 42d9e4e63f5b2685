"""The application: the table of routes, made into something that answers.

For each request: who it is, what they may, what they sent, one handler, what came of it. A path that is in no route is
404, a method that is in none of its routes 405 with those that are; both in the shape of every other error.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from onward.core import ids as make
from onward.core.codec import encode
from onward.core.records import Token
from onward.errors import Forbidden, InvalidInput, OnwardError
from onward.runner import wire
from onward.runner.desk import in_thread
from onward.service import tokens
from onward.surfaces.http import failing, guarding
from onward.surfaces.http.house import House
from onward.surfaces.http.routing import Ask, Route
from onward.surfaces.http.table import ROUTES

RATE: Final = 300.0
"""Requests a second from one address."""
_JSON: Final = "application/json"


def application(
    house: House,
    *,
    names: Sequence[str] = (),
    rate: float = RATE,
    routes: Sequence[Route] = ROUTES,
) -> ASGIApp:
    """Return the server as an ASGI application. ``names`` are hosts that it answers to besides addresses and localhost."""
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    inner = Starlette(
        routes=[StarletteRoute(path, _Endpoint(house, methods)) for path, methods in by_path.items()],
    )
    inner.router.default = _no_route
    inner.router.redirect_slashes = False
    return guarding.Guard(
        inner,
        names=[name.lower() for name in names],
        rates=guarding.Rates(rate),
        new_id=lambda: house.platform.ids.new("req"),
    )


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:
    del receive
    told = f"There is nothing at {scope['path']}."
    await guarding.refuse(send, 404, failing.refusal(failing.NOT_A_ROUTE, told))


class _Endpoint:
    """The routes of one path."""

    def __init__(self, house: House, methods: dict[str, Route]) -> None:
        self._house, self._methods = house, methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        route = self._methods.get(request.method) or (
            self._methods.get("GET") if request.method == "HEAD" else None
        )
        if route is None:
            allowed = ", ".join(sorted(self._methods))
            told = f"{request.method} is not possible here; {allowed} is."
            await guarding.refuse(
                send,
                405,
                failing.refusal(failing.WRONG_METHOD, told, {"allowed": sorted(self._methods)}),
                headers=((b"allow", allowed.encode()),),
            )
            return
        try:
            response = await self._answer(request, route)
        except TooLarge as error:
            response = Response(error.body, 413, media_type=_JSON)
        except OnwardError as error:
            status, body = failing.of(error)
            response = Response(body, status, media_type=_JSON)
            if status == 401:
                response.headers["www-authenticate"] = "Bearer"
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _answer(self, request: Request, route: Route) -> Response:
        house = self._house
        token = await in_thread(_admitted, house, request, route)
        platform = house.platform_of(token.account_id) if token is not None else house.platform
        ask = Ask(
            platform=platform,
            token=token,
            path=dict(request.path_params),
            query=_query(request, route),
            body=await _body(request, route),
            house=house,
            request=request,
        )
        if inspect.iscoroutinefunction(route.handler):
            answer = await route.handler(ask)
        else:
            answer = await in_thread(route.handler, ask)
        return Response(encode(answer), route.status, media_type=_JSON)


def _admitted(house: House, request: Request, route: Route) -> Token | None:
    """Return the token of a request that may use a route. Raises Unauthorized, Forbidden."""
    if route.scope is None:
        return None
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    token = house.token(secret.strip() if kind.lower() == "bearer" else "")
    make.check_id(token.account_id, make.ACCOUNT)
    if not tokens.allows(token, route.scope):
        raise Forbidden(why=f"this token has no scope `{route.scope}`")
    return token


def _query(request: Request, route: Route) -> Any:
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
        raise InvalidInput(what="the query", why=str(error)) from None


async def _body(request: Request, route: Route) -> Any:
    """Return the body of a request as the route's type. Raises InvalidInput, TooLarge."""
    if route.body is None:
        return None
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > route.limit:
            raise TooLarge(route.limit)
    if request.headers.get("content-type", _JSON).partition(";")[0].strip().lower() != _JSON:
        # A form of another site can be sent without asking first; JSON cannot.
        raise InvalidInput(what="the body", why=f"it must be {_JSON}")
    try:
        return wire.read(bytes(data), route.body)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise InvalidInput(what="the body", why=str(error)) from None


class TooLarge(Exception):
    """A body is larger than its route takes."""

    def __init__(self, limit: int) -> None:
        told = f"The body may have at most {limit:,} bytes."
        super().__init__(told)
        self.body = failing.refusal(failing.TOO_LARGE, told, {"limit": limit})


def described(routes: Sequence[Route] = ROUTES) -> str:
    """Return the routes as a list for people, one a line."""
    return "\n".join(f"{r.method} {r.path} ({r.scope or 'open'}): {r.does}" for r in routes)
