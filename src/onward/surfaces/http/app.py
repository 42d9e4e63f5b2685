"""The application: the table of routes, made into something that answers.

For each request: who it is, what they may, what they sent (``receiving``), one handler, what came of it (``replying``). A
path that is in no route is 404, a method that is in none of its routes 405 with those that are; both in the shape of every
other error.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from onward.core.records import Token
from onward.errors import OnwardError
from onward.runner.desk import in_thread
from onward.surfaces.http import console, failing, guarding, receiving, replying
from onward.surfaces.http.house import House
from onward.surfaces.http.live_streaming import MEDIA as STREAM
from onward.surfaces.http.routing import JSON, Ask, Route
from onward.surfaces.http.table import ROUTES

RATE: Final = 300.0
"""Requests a second from one address."""


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
    # The router alone: what an application adds would answer a fault in a shape of its own.
    inner = Router(
        routes=[
            *(StarletteRoute(path, _Endpoint(house, methods)) for path, methods in by_path.items()),
            *console.routes(house),
        ],
        default=console.or_else(_no_route),
        redirect_slashes=False,
    )
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
        heads = ("HEAD",) if "GET" in methods else ()
        self._allowed = sorted((*methods, *heads, "OPTIONS"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "OPTIONS":
            await Response(status_code=204, headers={"allow": ", ".join(self._allowed)})(scope, receive, send)
            return
        head = request.method == "HEAD"
        route = self._methods.get("GET" if head else request.method)
        if route is None:
            told = f"{request.method} is not possible here; {', '.join(self._allowed)} is."
            await guarding.refuse(
                send,
                405,
                failing.refusal(failing.WRONG_METHOD, told, {"allowed": self._allowed}),
                headers=((b"allow", ", ".join(self._allowed).encode()),),
            )
            return
        if head:
            send = replying.headers_only(send)
        begun, status = time.perf_counter(), 500
        try:
            response = await self._response(request, route)
            status = response.status_code
            await response(scope, receive, send)
        except ClientDisconnect:
            return
        finally:
            if route.media != STREAM:  # a stream takes as long as somebody listens
                self._house.meters.took(route.name, status, time.perf_counter() - begun)

    async def _response(self, request: Request, route: Route) -> Response:
        try:
            return await self._answer(request, route)
        except (receiving.TooLarge, receiving.WrongMedia) as error:
            status, body = error.status, error.body
        except OnwardError as error:
            status, body = failing.of(error)
        response = Response(body, status, headers={"cache-control": "no-store"}, media_type=JSON)
        if status == 401:
            response.headers["www-authenticate"] = "Bearer"
        return response

    async def _answer(self, request: Request, route: Route) -> Response:
        waits = inspect.iscoroutinefunction(route.handler)
        if not waits and route.body is None and not receiving.has_body(request):
            # Nothing has to be waited for, so all of it is done in one go.
            if route.method == "GET":
                return await self._house.reading(self._at_once, request, route)
            return await in_thread(self._at_once, request, route)
        token = await self._house.reading(receiving.admitted, self._house, request, route)
        ask = self._ask(request, route, token)
        if request.method == "HEAD" and route.media == STREAM:
            if "session" in ask.path:
                await in_thread(ask.platform.session, ask.path["session"])
            return Response(media_type=STREAM)
        ask = msgspec.structs.replace(ask, body=await receiving.body(request, route))
        if not waits:
            return await in_thread(self._handled, request, route, ask)
        answer = await route.handler(ask)
        if isinstance(answer, Response):
            return replying.response(request, route, answer)
        return await in_thread(replying.response, request, route, answer)

    def _at_once(self, request: Request, route: Route) -> Response:
        token = receiving.admitted(self._house, request, route)
        return self._handled(request, route, self._ask(request, route, token))

    def _handled(self, request: Request, route: Route, ask: Ask) -> Response:
        return replying.response(request, route, route.handler(ask))

    def _ask(self, request: Request, route: Route, token: Token | None) -> Ask:
        house = self._house
        return Ask(
            platform=house.platform_of(token.account_id) if token is not None else house.platform,
            token=token,
            path=receiving.path(request),
            query=receiving.query(request, route),
            body=None,
            house=house,
            request=request,
            key=receiving.key(request, route),
        )


def described(routes: Sequence[Route] = ROUTES) -> str:
    """Return the routes as a list for people, one a line."""
    return "\n".join(f"{r.method} {r.path} ({r.scope or 'open'}): {r.does}" for r in routes)
