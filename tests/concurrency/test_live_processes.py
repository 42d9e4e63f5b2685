"""Streams over real connections: a network that breaks, a server that is killed, and a reader that takes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import uvicorn
from tests.concurrency.servers import KILL, PATIENCE, Site, bad_network
from tests.service.conversations import World
from tests.surfaces.http import streaming

import onward
from onward.core.bodies import Message
from onward.core.codec import encode
from onward.store.contract import Append, Batch
from onward.store.sqlite import SqliteStore

EVENTS = 61
NUMBER = re.compile(rb"^id: (\d+)\n", re.MULTILINE)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A store that is served by a process of its own."""
    opened = Site(tmp_path)
    try:
        yield opened
    finally:
        opened.close()


class Follower:
    """A browser, as far as streams go: it comes again whenever it is cut off, and says where it stood."""

    def __init__(self, site: Site, session: str) -> None:
        self._site, self._session = site, session
        self.parser = streaming.Parser()
        self.seqs: list[int] = []
        self.connections = 0

    def read(self, port: int, upto: int) -> bool:
        """Read on one connection; whether this event came before it broke."""
        self.connections += 1
        self.parser = streaming.Parser(last_id=self.parser.last_id, _id=self.parser.last_id)
        headers = {"authorization": f"Bearer {self._site.secret}"}
        if self.parser.last_id:
            headers["last-event-id"] = self.parser.last_id
        url = f"http://127.0.0.1:{port}/v1/sessions/{self._session}/events/stream"
        with (
            contextlib.suppress(httpx2.TransportError),
            httpx2.Client(trust_env=False, timeout=PATIENCE) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            assert response.status_code == 200
            for data in response.iter_raw():
                for sent in self.parser.feed(data):
                    if sent.name == "event":
                        self.seqs.append(sent.data["seq"])
                if self.seqs and self.seqs[-1] >= upto:
                    return True
        return False


@pytest.mark.requirement("L1")
def test_a_hundred_cuts_and_a_server_that_is_killed_lose_and_repeat_nothing(site: Site) -> None:
    server = site.serve()
    session = site.session(title="Followed")
    follower = Follower(site, session)
    said = 0
    with onward.open(site.store) as log:

        def say(count: int) -> int:
            nonlocal said
            events = []
            for _ in range(count):
                said += 1
                body = encode(Message(role="user", text=f"{said} " + "x" * (said * 97 % 900)))
                events.append(log.platform.event("message", body, "user"))
            log.platform.store.commit(Batch(appends=(Append(session_id=session, events=tuple(events)),)))
            return log.platform.session(session).head_seq

        kills = 0
        with bad_network(site.port, seed=5) as relay:
            while relay.cuts < 100:
                head = say(7)
                while not follower.read(relay.port, head):
                    pass
                if relay.cuts // 40 > kills:
                    kills += 1
                    server.tell(KILL)
                    server.wait()
                    server = site.serve()
        head = say(1)
        assert follower.read(site.port, head)
        assert kills == 2
        assert follower.connections > 100
        assert follower.seqs == list(range(1, head + 1))


def test_a_reader_that_takes_nothing_loses_its_connection_and_costs_no_memory(tmp_path: Path) -> None:
    world = World(opened=lambda: SqliteStore(tmp_path / "onward.db", synchronous="NORMAL"))
    session = world.log.start("x").id
    for _ in range(EVENTS - 1):
        world.say(session, "y" * 1_000_000)

    async def go() -> None:
        tuning = msgspec.structs.replace(streaming.QUICK, patience=0.2, cache=1)
        live, dropped = streaming.Site(world.platform, tuning), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            try:
                await live.app(scope, receive, send)
            finally:
                dropped.set()

        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        request = (
            f"GET /v1/sessions/{session}/events/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {live.secret}\r\n\r\n"
        )
        # Both are sent sixty megabytes; the first takes nothing, the second everything.
        slow, quick = [await asyncio.open_connection(*listener.getsockname()) for _ in range(2)]
        for _, writer in (slow, quick):
            writer.write(request.encode())
        seqs: list[int] = []
        before = b""
        async with asyncio.timeout(PATIENCE):
            while not seqs or seqs[-1] < EVENTS:
                came = await quick[0].read(1 << 20)
                assert came, "the stream of one who reads ended too"
                data = before[-20:] + came
                seqs += [int(found) for found in NUMBER.findall(data) if not seqs or int(found) > seqs[-1]]
                before = data
            await dropped.wait()
            assert live.house.live.subscribers == 1
            got = 0
            while data := await slow[0].read(1 << 20):
                got += len(data)
        assert seqs == list(range(1, EVENTS + 1))
        assert got < 20_000_000
        for _, writer in (slow, quick):
            writer.close()
        live.house.close()
        server.should_exit = True
        await serving

    asyncio.run(go())
    world.store.close()
