"""Readers of streams: the format as the HTML standard has it, and a reader that is inside the process of its server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from onward.core.ids import LOCAL_ACCOUNT
from onward.service import tokens
from onward.service.platform import Platform
from onward.surfaces.http.app import application
from onward.surfaces.http.house import House
from onward.surfaces.http.live_hub import Live, Tuning

PATIENCE: Final = 30.0
QUICK: Final = Tuning(look=0.01, tend=0.01, feed=0.001)
"""Dials for tests: nobody waits long for anything."""


@dataclass
class Sent:
    """One server-sent event."""

    name: str
    data: Any
    id: str


@dataclass
class Parser:
    """Reads the format; what is not finished with an empty line never happened."""

    last_id: str = ""
    retry: int | None = None
    comments: int = 0
    _rest: bytes = b""
    _name: str = ""
    _data: list[str] = field(default_factory=list)
    _id: str = ""

    def feed(self, data: bytes) -> list[Sent]:
        found = []
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            name, _, value = line.decode().partition(":")
            value = value.removeprefix(" ")
            match name:
                case "" if line:
                    self.comments += 1
                case "":
                    self.last_id = self._id
                    if self._data:
                        found.append(Sent(self._name, json.loads("\n".join(self._data)), self.last_id))
                    self._name, self._data = "", []
                case "id":
                    self._id = value
                case "event":
                    self._name = value
                case "data":
                    self._data.append(value)
                case "retry":
                    self.retry = int(value)
                case _:
                    raise AssertionError(f"no field {name!r}")
        return found


class Reader:
    """One request to a stream, answered within this process."""

    def __init__(self, site: Site, path: str, headers: dict[str, str]) -> None:
        self.parser = Parser()
        self.sent: list[Sent] = []
        self.status = 0
        self.headers: dict[str, str] = {}
        self.refused = b""
        self.ended = False
        self.taken = 0
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._may_take = asyncio.Event()
        self._may_take.set()
        self._asked = False
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "scheme": "http",
            "http_version": "1.1",
        }
        self.cut_at: int | None = None
        """After so many bytes the connection breaks."""
        self.task = asyncio.ensure_future(self._run(site.app, scope))

    async def _run(self, app: Any, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self.ended = True
            self._changed.set()

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        await self._may_take.wait()
        if self._gone.is_set():
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif self.status == 200:
            data = message["body"]
            if self.cut_at is not None and self.taken + len(data) >= self.cut_at:
                data = data[: self.cut_at - self.taken]
                self._gone.set()
            self.taken += len(data)
            self.sent += self.parser.feed(data)
        else:
            self.refused += message["body"]
        self._changed.set()

    def stand_still(self) -> None:
        """Take nothing any more."""
        self._may_take.clear()

    def leave(self) -> None:
        """Go away."""
        self._gone.set()
        self._may_take.set()

    async def until(self, happened: Callable[[Reader], Any]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(PATIENCE):
            while not happened(self):
                assert not self.ended, f"the stream ended: {self.status} {self.refused!r}"
                self._changed.clear()
                await self._changed.wait()

    async def over(self) -> None:
        """Wait until the stream has ended."""
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait((self.task,))

    @property
    def seqs(self) -> list[int]:
        """The numbers of the events that came."""
        return [sent.data["seq"] for sent in self.sent if sent.name == "event"]

    def named(self, name: str) -> list[Any]:
        """The data of what came under a name."""
        return [sent.data for sent in self.sent if sent.name == name]


class Site:
    """A server within this process, and those who read at it."""

    def __init__(self, platform: Platform, tuning: Tuning = QUICK) -> None:
        self.house = House(platform)
        self.house.live = Live(
            self.house.platform, self.house.hints, self.house.closing, self.house.holds, tuning
        )
        self.platform = self.house.platform
        self.token, self.secret = tokens.create(platform, "test", ["admin"])
        self.app = application(self.house, rate=0)
        self.readers: list[Reader] = []

    def read(self, path: str, *, secret: str | None = None, last: str | int | None = None) -> Reader:
        """Open a stream."""
        headers = {"host": "127.0.0.1", "authorization": f"Bearer {secret or self.secret}"}
        if last is not None:
            headers["last-event-id"] = str(last)
        reader = Reader(self, path, headers)
        self.readers.append(reader)
        return reader

    def follow(self, session: str, *, after: int = 0, **how: Any) -> Reader:
        """Open the stream of a session."""
        return self.read(f"/v1/sessions/{session}/events/stream?after={after}", **how)

    def account(self, account_id: str) -> tuple[Platform, str]:
        """Another account and a secret for it."""
        platform = self.house.platform_of(account_id)
        return platform, tokens.create(platform, "other", ["admin"])[1]

    async def close(self) -> None:
        """Let everybody go; nothing of the streams may be left."""
        for reader in self.readers:
            reader.leave()
        for reader in self.readers:
            await reader.over()
            assert reader.task.exception() is None
        assert self.house.live.subscribers == 0
        assert self.house.live.cached == 0


@contextlib.asynccontextmanager
async def site(platform: Platform, **dials: Any) -> AsyncIterator[Site]:
    """A server for a while."""
    opened = Site(platform, msgspec.structs.replace(QUICK, **dials))
    try:
        yield opened
    except BaseException:
        for reader in opened.readers:
            reader.task.cancel()
        raise
    await opened.close()


OTHER: Final = "acc_0000000000000000000000000B"
assert OTHER != LOCAL_ACCOUNT
