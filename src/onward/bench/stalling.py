"""Goal 11: how long the event loop of a server is held up at most while it does everything that it does.

The server (``onward.surfaces.http.ticking``) has a tick in its loop. Meanwhile the script engine executes runs in it, one
client asks for pages of a thousand events, fifty readers follow, two of them the session that is long, and another process
appends. Beside it stands the same tick in a process that does nothing, at the same time: what the machine makes of it. Where
the system tells how long the loop's thread waited for a core (Linux), that is taken off both; it says how much else the
machine had to do.
"""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from onward.bench.measure import Figure, absolute
from onward.bench.setting import Setting, open_at
from onward.bench.streaming import Served, process, say, served, stream_of
from onward.bench.streaming_readers import PATIENCE
from onward.errors import OnwardError

LONGEST_MS: Final = 5.0
GAP_SECONDS: Final = 0.05
"""Between the end of one request of a client and its next."""
_IDLE: Final = """
import asyncio, sys
from onward.surfaces.http.ticking import Ticker, answering, tell
async def go():
    answering(Ticker())
    tell({})
    await asyncio.Event().wait()
asyncio.run(go())
"""
"""A process that only ticks."""


def stalls(setting: Setting) -> Iterator[Figure]:
    """Measure the longest stall while the server is busy with everything at once."""
    seconds = {"full": 4.0, "quick": 2.0, "tiny": 0.2}[setting.scale]
    followers = setting.size(50, 50, 3)
    with setting.place() as folder, open_at(folder / "store.db") as log:
        long = log.start("Long").id
        say(log, long, setting.size(5_000, 2_000, 40), setting)
        talking = [log.start(f"Talk {n}", engine="script").id for n in range(2)]
        with (
            process("-m", "onward.surfaces.http.ticking", f"sqlite:///{folder / 'store.db'}") as (ours, line),
            process("-c", _IDLE) as (idle, _),
        ):
            server = served(line)
            with (
                _at_once(
                    lambda: _ask(server, "GET", f"/v1/sessions/{long}/events?limit=1000"),
                    *(_talker(server, session) for session in talking),
                    lambda: say(log, long, 5, setting),
                ) as counts,
                _followers(server, [long, *talking], followers) as came,
            ):
                time.sleep(seconds / 2)  # what is used for the first time is imported
                pairs = []
                for _ in range(setting.size(7, 5, 1)):
                    for each in (ours, idle):
                        _late(each)
                    time.sleep(seconds)
                    pairs.append((_late(ours), _late(idle)))
        ticks = sum(a["ticks"] for a, _ in pairs)
        over = sum(a["over"] for a, _ in pairs)
        in_all = max(a["longest_in_all_ms"] for a, _ in pairs)
        yield absolute(
            11,
            "longest stall of a server's event loop under everything at once",
            values=[a["longest_ms"] for a, _ in pairs],
            target=LONGEST_MS,
            bound="<=",
            unit="ms",
            baseline=[b["longest_ms"] for _, b in pairs],
            note=f"{counts[0]} long pages, {sum(counts[1:-1])} messages, {counts[-1] * 5} appends, {came[0] / 1e6:.0f} MB "
            f"followed; {over} of {ticks:,} ticks over 1 ms; {in_all:.3g} ms with waiting for a core",
        )


def _late(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return how late a process's ticks were since the last time."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    found: dict[str, Any] = msgspec.json.decode(process.stdout.readline())
    return found


def _talker(server: Served, session: str) -> Callable[[], None]:
    """Return what has an agent say something."""
    text = "[[think about it]] [[say " + "Leap days are counted from the year 4 on. " * 40 + "]]"
    return lambda: _ask(server, "POST", f"/v1/sessions/{session}/messages", {"text": text})


def _ask(server: Served, method: str, path: str, body: Any = None) -> None:
    """Send a request, read its answer, and be fair to the others."""
    connection = http.client.HTTPConnection(*server.address, timeout=PATIENCE)
    data = None if body is None else msgspec.json.encode(body)
    connection.request(method, path, data, {**server.headers, "Content-Type": "application/json"})
    answer = connection.getresponse()
    told = answer.read()
    connection.close()
    if answer.status >= 400:
        raise OnwardError(f"{method} {path} was answered with {answer.status}: {told[:200]!r}")


@contextlib.contextmanager
def _at_once(*work: Callable[[], object]) -> Iterator[list[int]]:
    """Do all of this again and again, a little apart; count how often each was done."""
    counts, over = [0] * len(work), threading.Event()
    faults: list[BaseException] = []

    def go(number: int) -> None:
        try:
            while not over.wait(GAP_SECONDS):
                work[number]()
                counts[number] += 1
        except (OSError, OnwardError, http.client.HTTPException) as fault:
            faults.append(fault)

    threads = [threading.Thread(target=go, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
    if faults:
        raise faults[0]


@contextlib.contextmanager
def _followers(server: Served, sessions: list[str], count: int) -> Iterator[list[int]]:
    """Follow sessions with so many readers, and count the bytes that come."""
    import selectors
    import socket

    came, over = [0], threading.Event()
    connections = [socket.create_connection(server.address) for _ in range(count)]
    with selectors.DefaultSelector() as selector:
        for number, connection in enumerate(connections):
            lines = [f"GET {stream_of(sessions[number % len(sessions)])} HTTP/1.1", "Host: 127.0.0.1"]
            lines += [f"{name}: {value}" for name, value in server.headers.items()]
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            selector.register(connection, selectors.EVENT_READ)

        def read() -> None:
            while not over.is_set():
                for key, _ in selector.select(0.1):
                    came[0] += len(key.fileobj.recv(1 << 18))  # type: ignore[union-attr]  # they are sockets

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield came
        finally:
            over.set()
            reader.join(PATIENCE)
            for connection in connections:
                connection.close()
