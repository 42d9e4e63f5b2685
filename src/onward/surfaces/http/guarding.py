"""Guarding: what a request must be before anything looks at it.

A server on a person's machine is reachable from every page that their browser shows, so where a request claims to go
(Host) and where it comes from (Origin, Sec-Fetch-Site) is checked, whatever token it carries. Names that anybody could
make point here are refused; addresses, localhost and the names that the server was told are its own. Bodies and rates
have limits. Every request has an id, which its answer and the log carry; the log has no query, no header and no body, so
no secret.

Plain ASGI, because it stands around streams too.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onward.errors import Forbidden, OnwardError, ServerBusy, TooManyRequests, TooManyStreams
from onward.surfaces.http import failing

LOG: Final = logging.getLogger("onward.http")
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_KNOWN: Final = 10_000
"""Callers whose rate is remembered; beyond that, those that were quiet longest are forgotten."""


def is_own_name(host: str, names: Collection[str]) -> bool:
    """Whether a Host header names this server: an address, localhost, or one of its names."""
    name = host.rsplit(":", 1)[0] if re.search(r":\d*\Z", host) else host
    name = name.strip("[]").rstrip(".").lower()
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Rates:
    """How often each caller may ask: ``rate`` requests a second, twice as many at once. 0 is no limit."""

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> float:
        """Count a request. Return 0, or the seconds to wait before the next would be taken."""
        if not self.rate:
            return 0.0
        now, most = self._clock(), self.rate * 2
        left, at = self._left.pop(caller, (most, now))
        left = min(most, left + (now - at) * self.rate)
        allowed = left >= 1
        self._left[caller] = (left - 1 if allowed else left, now)
        while len(self._left) > _KNOWN:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self.rate


class Guard:
    """The application with everything around it that holds for every request."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        names: Collection[str] = (),
        rates: Rates,
        new_id: Callable[[], str],
    ) -> None:
        self._app, self._names, self._rates, self._new_id = app, frozenset(names), rates, new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        asked = headers.get("x-request-id", "")
        request_id = asked if _ID.match(asked) else self._new_id()
        scope.setdefault("state", {})["request_id"] = request_id
        begun, status = time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = (
                    (b"x-request-id", request_id.encode()),
                    (b"x-content-type-options", b"nosniff"),
                    (b"referrer-policy", b"no-referrer"),
                    (b"cross-origin-resource-policy", b"same-origin"),
                )
                given = list(message.get("headers", ()))
                said = {name for name, _ in given}
                message["headers"] = given + [header for header in own if header[0] not in said]
            await send(message)

        try:
            try:
                self._check(scope, headers)
                await self._app(scope, receive, answer)
            except OnwardError as error:
                if status:
                    raise
                await refuse(answer, *failing.of(error), headers=_retry(error))
        except Exception:
            # What it was stands in the log, under the id that the caller gets to see.
            LOG.exception("%s %r failed (%s)", scope["method"], scope["path"], request_id)
            if not status:
                told = f"This is a fault in Onward. The server's log has it as {request_id}."
                await refuse(answer, 500, failing.refusal(failing.INTERNAL, told, {"request": request_id}))
        finally:
            took = (time.perf_counter() - begun) * 1e3
            LOG.info("%s %r %s %.0f ms (%s)", scope["method"], scope["path"], status, took, request_id)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if not is_own_name(host, self._names):
            raise Forbidden(why=f"{host!r} is no name of this server; `onward serve --host-name` adds one")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise Forbidden(why=f"a page of {origin} may not use this server")
        site = headers.get("sec-fetch-site", "none")
        navigates = scope["method"] in _SAFE and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("none", "same-origin") and (not navigates or scope["path"].startswith("/v1/")):
            raise Forbidden(why="a page of another site may not use this server")
        client = scope.get("client")
        if wait := self._rates.take(client[0] if client else ""):
            raise TooManyRequests(limit=f"{self._rates.rate:g}", seconds=f"{wait:.1f}")


def _retry(error: OnwardError) -> tuple[tuple[bytes, bytes], ...]:
    later = isinstance(error, TooManyRequests | TooManyStreams | ServerBusy)
    return ((b"retry-after", b"1"),) if later else ()


async def refuse(
    send: Send, status: int, body: bytes, *, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send an error."""
    own = ((b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})
