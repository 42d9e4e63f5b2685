"""Goal 7: how fast events reach those who follow, against servers that have nothing else to do.

Both sides are processes on loopback under the same HTTP server, and the same readers check that every event comes once and
in order. The baseline has its bytes in memory, and so have we of a session that somebody follows: that is what is compared,
for one reader and for fifty, with a loop that sends event by event. What the first reader of a session waits for, whose
events are read from the store and encoded, stands beside it. A thousand readers who fall behind at once are compared with a
queue for each of them; and a thousand who follow live, while another process writes, are counted: what came over what was
due, with the memory that each of them costs.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from onward.bench import streaming_raw
from onward.bench.measure import Figure, absolute, compared, in_turns
from onward.bench.payloads import event, texts
from onward.bench.setting import Setting, open_at
from onward.bench.starting import SCRIPT
from onward.bench.streaming_readers import Readers
from onward.errors import OnwardError
from onward.library import Onward
from onward.store.contract import Append, Batch

MANY: Final = 1_000
_GROUP: Final = 50


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is up."""

    address: tuple[str, int]
    headers: Mapping[str, str]
    pid: int


@contextlib.contextmanager
def process(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a server for a while; give the line with which it says that it is up."""
    started = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    try:
        first = started.stdout.readline()
        if not first:
            raise OnwardError("a server that was to be measured ended at once")
        yield started, first
    finally:
        started.kill()
        started.communicate()


@contextlib.contextmanager
def ours(store: Path) -> Iterator[Served]:
    """Serve a store as everybody does."""
    options = ("--port", "0", "--no-runner", "--rate", "0")
    with process("-c", SCRIPT, "--store", f"sqlite:///{store}", "--json", "serve", *options) as (_, line):
        yield served(line)


def served(line: str) -> Served:
    """Return where a server is that said so in JSON."""
    told = msgspec.json.decode(line, type=dict[str, Any])
    port = int(told["url"].rpartition(":")[2].partition("/")[0])
    headers = {"Authorization": f"Bearer {told['token']}"}
    return Served(address=("127.0.0.1", port), headers=headers, pid=told["pid"])


@contextlib.contextmanager
def raw(file: Path) -> Iterator[Served]:
    """Serve the events of a file without anything."""
    with process("-m", "onward.bench.streaming_raw", str(file)) as (started, line):
        yield Served(address=("127.0.0.1", int(line)), headers={}, pid=started.pid)


def say(log: Onward, session: str, count: int, setting: Setting) -> None:
    """Append messages."""
    said = texts(setting.prose, count)
    for first in range(0, count, _GROUP):
        events = tuple(event(log.platform, text, n) for n, text in enumerate(said[first : first + _GROUP]))
        log.platform.store.commit(Batch(appends=(Append(session_id=session, events=events),)))


def stream_of(session: str, *, after: int = 0) -> str:
    """Return the path of a session's stream."""
    return f"/v1/sessions/{session}/events/stream?after={after}"


def streams(setting: Setting) -> Iterator[Figure]:
    """Measure one reader, fifty, a thousand who catch up and a thousand who follow."""
    with setting.place() as folder, open_at(folder / "store.db") as log:
        session = log.start("Long").id
        say(log, session, setting.size(5_000, 2_000, 40), setting)
        with ours(folder / "store.db") as server:
            head = log.platform.store.heads([session])[session]
            file = folder / "frames"
            file.write_bytes(_frames(server, session, head))
            with raw(file) as bare:
                yield _rates(setting, server, bare, 1, session, head, followed=False)
                with _reading(server, session, head):
                    for readers in (1, setting.size(50, 50, 3)):
                        yield _rates(setting, server, bare, readers, session, head, followed=True)
            yield _catching_up(setting, server, log, folder / "burst")
        yield from _following(setting, folder / "store.db", log)


def _frames(server: Served, session: str, head: int) -> bytes:
    """Return the events of a session as they are sent."""
    url = f"http://{server.address[0]}:{server.address[1]}{stream_of(session)}"
    found = b""
    with urllib.request.urlopen(urllib.request.Request(url, headers=dict(server.headers))) as answer:
        while not (found.endswith(b"\n\n") and b"id: %d\n" % head in found):
            found += answer.read1(1 << 20)
    return found[found.index(b"id: ") :]


def _rates(
    setting: Setting, server: Served, bare: Served, readers: int, session: str, head: int, *, followed: bool
) -> Figure:
    pairs = in_turns(
        lambda: _rate(server, readers, stream_of(session), head),
        lambda: _rate(bare, readers, "/loop", head),
        setting.size(9, 3, 1),
    )
    who = "one reader" if readers == 1 else f"{readers} readers at once"
    return compared(
        7,
        f"{head:,} events over SSE to {who}{'' if followed else ', the first of all'}, against a raw loop",
        ours=[a for a, _ in pairs],
        baseline=[b for _, b in pairs],
        target=0.8 if followed else None,
        bound=">=",
        unit="events/s",
        note="" if followed else "they are read and encoded for it",
    )


@contextlib.contextmanager
def _reading(server: Served, session: str, head: int) -> Iterator[None]:
    """Let somebody follow a session meanwhile."""
    reader = Readers(server.address, 1)
    try:
        reader.ask(stream_of(session), server.headers)
        reader.read(head)
        yield
    finally:
        reader.close()


def _catching_up(setting: Setting, server: Served, log: Onward, file: Path) -> Figure:
    """Let a thousand fall behind by the same events at once."""
    readers, behind = setting.size(MANY, MANY, 5), setting.size(200, 100, 10)
    session = log.start("Burst").id
    say(log, session, behind, setting)
    head = log.platform.store.heads([session])[session]
    file.write_bytes(_frames(server, session, head))
    count = len(list(streaming_raw.read(file)))

    def here() -> float:
        begin = log.platform.store.heads([session])[session]

        def burst() -> None:
            said = texts(setting.prose, count)
            events = tuple(event(log.platform, text, n) for n, text in enumerate(said))
            log.platform.store.commit(Batch(appends=(Append(session_id=session, events=events),)))

        return _burst(server, readers, stream_of(session, after=begin), begin, begin + count, burst)

    with raw(file) as bare:
        pairs = in_turns(
            here,
            lambda: _burst(bare, readers, "/queue", 0, count, lambda: _get(bare, "/go")),
            setting.size(5, 2, 1),
        )
    return compared(
        7,
        f"{readers:,} readers catch up with {count} events, against a queue each",
        ours=[a for a, _ in pairs],
        baseline=[b for _, b in pairs],
        target=4.0,
        bound=">=",
        unit="events/s",
        note="from the first byte that any of them gets to the last",
    )


def _burst(
    server: Served, count: int, path: str, after: int, upto: int, burst: Callable[[], object]
) -> float:
    """Return how many events a second reach those who are there already."""
    readers = Readers(server.address, count)
    try:
        readers.ask(path, server.headers, after=after)
        readers.begun()
        burst()
        over = readers.read(upto)
        return count * (upto - after) / (over - readers.first)
    finally:
        readers.close()


def _get(server: Served, path: str) -> None:
    """Send a request and wait for its answer."""
    with urllib.request.urlopen(f"http://{server.address[0]}:{server.address[1]}{path}") as answer:
        answer.read()


def _rate(server: Served, count: int, path: str, head: int) -> float:
    """Return how many events a second reach all readers."""
    readers = Readers(server.address, count)
    try:
        begun = time.perf_counter()
        readers.ask(path, server.headers)
        return count * head / (readers.read(head) - begun)
    finally:
        readers.close()


def _following(setting: Setting, store: Path, log: Onward) -> Iterator[Figure]:
    """Let a thousand follow while this process writes to the store that another one serves."""
    import psutil

    count, rounds = setting.size(MANY, MANY, 5), setting.size(40, 15, 2)
    session = log.start("Live").id
    say(log, session, 1, setting)
    head = log.platform.store.heads([session])[session]
    with ours(store) as server:
        warm = Readers(server.address, 1)
        warm.ask(stream_of(session), server.headers)
        warm.read(head)
        before = psutil.Process(server.pid).memory_info().rss
        readers = Readers(server.address, count)
        try:
            readers.ask(stream_of(session, after=head), server.headers, after=head)
            readers.begun()
            waits = []
            for _ in range(rounds):
                say(log, session, 5, setting)
                head += 5
                begun = time.perf_counter()
                waits.append(readers.read(head) - begun)
            memory = (psutil.Process(server.pid).memory_info().rss - before) / count / 1e3
            due = count * 5 * rounds
            yield absolute(
                7,
                f"{count:,} readers follow live: events that came, once and in order, over those that were due",
                values=[readers.delivered / due],
                target=1.0,
                bound=">=",
                unit="",
                note=f"{due:,} due; five are with the last reader {max(waits) * 1000:.0f} ms after their commit at most",
            )
            yield absolute(
                7,
                f"memory that each of {count:,} readers costs the server",
                values=[memory],
                target=None,
                bound="<=",
                unit="kB",
            )
        finally:
            readers.close()
            warm.close()
