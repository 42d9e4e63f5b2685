"""A connection to a server: one question, asked until it is answered or patience has run out.

Every question that is asked here can be asked again, so a connection that breaks, a server that restarts and an answer that
is cut off are all the same: wait a little, ask again. An answer that says no is an answer, and becomes the error that the
server raised, by its code. The secret goes into one header and nowhere else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

import httpx2
import msgspec

from onward import errors
from onward.errors import OnwardError, ServerUnreachable
from onward.runner import wire

T = TypeVar("T")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
"""Seconds between two attempts: doubled from the first to the longest."""
ANSWER_SECONDS: Final = 30.0
"""An attempt that has no answer after so many seconds is given up, and made again."""
_PASSING: Final = frozenset((429, 502, 503, 504))
"""Statuses of a server that is busy or about to go, or of something in between that has lost it."""


class Nothing(msgspec.Struct, frozen=True, kw_only=True):
    """An answer without content."""


class _Fault(msgspec.Struct, frozen=True):
    code: str
    message: str
    details: dict[str, Any] = {}


class _Refusal(msgspec.Struct, frozen=True):
    error: _Fault


class Connection:
    """Asks one server. ``clock`` gives seconds that only grow; ``pause`` waits so many."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.clock = clock
        self.most: float | None = None
        """Seconds of patience that nobody gets more than; None for no such limit. Set when the runner is in a hurry."""
        self._pause = pause
        place = httpx2.URL(self.url)
        # A proxy is for what lies outside; it would see what a server of this machine is told.
        outside = place.host not in ("127.0.0.1", "localhost", "::1")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.AsyncClient(
            base_url=self.url, headers=headers, trust_env=outside, transport=transport
        )

    async def aclose(self) -> None:
        """Let go of what is open."""
        await self._client.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        content: msgspec.Struct | None,
        answer: type[T],
        *,
        patience: float,
        seconds: float = ANSWER_SECONDS,
    ) -> T:
        """Ask until there is an answer, for at most ``patience`` seconds.

        Raises what the server raised, and ServerUnreachable when there was none in time.
        """
        begun = self.clock()
        data = None if content is None else wire.write(content)
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._once(method, path, data, answer, seconds)
            except (httpx2.TransportError, _Passing) as lost:
                left = min(patience, self.most if self.most is not None else patience) - (
                    self.clock() - begun
                )
                if left <= 0:
                    why = str(lost) or type(lost).__name__
                    raise ServerUnreachable(url=self.url, why=why) from lost
            await self._pause(min(pause, left))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _once(self, method: str, path: str, data: bytes | None, answer: type[T], seconds: float) -> T:
        headers = {} if data is None else {"content-type": "application/json"}
        timeout = httpx2.Timeout(seconds, connect=min(seconds, 10.0))
        response = await self._client.request(method, path, content=data, headers=headers, timeout=timeout)
        if response.status_code in _PASSING:
            raise _Passing(f"it answered {response.status_code}")
        if response.status_code >= 400:
            raise refused(response.status_code, response.content)
        try:
            return wire.read(response.content, answer)
        except ValueError as unreadable:
            raise ServerUnreachable(url=self.url, why=f"its answer cannot be read: {unreadable}") from None


class _Passing(Exception):
    """What will pass, if one waits a little."""


def refused(status: int, content: bytes) -> OnwardError:
    """Return the error that the server raised, by its code; one that this version does not know keeps its words."""
    try:
        fault = wire.read(content, _Refusal).error
    except ValueError:
        return OnwardError(f"The server answered {status}, and nothing that can be read.", status=status)
    kind = {known.code: known for known in _all_errors(OnwardError)}.get(fault.code, OnwardError)
    return kind(fault.message, **{str(name): value for name, value in fault.details.items()})


def _all_errors(root: type[OnwardError]) -> Iterator[type[OnwardError]]:
    """Yield every error, those that share a code after the first of it left out by whoever makes a table."""
    for name in dir(errors):
        found = getattr(errors, name)
        if isinstance(found, type) and issubclass(found, root):
            yield found
