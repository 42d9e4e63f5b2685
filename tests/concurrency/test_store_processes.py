"""Several processes on one file: the order is total, nobody starves, and a process that is killed takes nothing with it.

Set ONWARD_KILLS to kill more writers than the suite does (200 takes a few minutes).
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.core.records import Session
from onward.errors import Conflict, LeaseLost, StoreBusy, StoreError
from onward.store.contract import Append, Batch
from onward.store.process_lock import ProcessLock
from onward.store.sqlite import SqliteStore
from onward.testing.store_cases import World, first_fault

KILLS = int(os.environ.get("ONWARD_KILLS", "20"))
SRC = Path(__file__).resolve().parents[2] / "src"

# A writer: waits for a line on its input, then appends until it is told to stop or has done its number. After every commit
# that returned it says so, so that the parent knows what had been promised when it killed it.
WRITER = """
import itertools, os, signal, sys
from onward.core.records import Session
from onward.store.contract import Append, Batch
from onward.store.sqlite import SqliteStore
from onward.testing.store_cases import World

path, session = sys.argv[1:3]
space, rounds, parts, steps = map(int, sys.argv[3:7])
world = World(SqliteStore(path), space=space)
if steps:  # die after this many steps of SQLite's machine, wherever in a commit that is
    db = world.store._writer._db
    db.set_progress_handler(lambda: os.kill(os.getpid(), signal.SIGKILL), steps)
print("ready", flush=True)
sys.stdin.readline()
for n in itertools.count() if rounds == 0 else range(rounds):
    new = world.new_session(title=f"{space}-{n}")
    events = tuple(world.event(f"{space}-{n}-{part}") for part in range(parts))
    if parts == 1:
        batch = Batch(appends=(Append(session_id=session, events=events),))
    else:
        batch = Batch(
            sessions=(new,),
            links=(world.new_link(session, new.id, "child", key=f"{space}-{n}"),),
            runs=(world.new_run(new.id),),
            appends=(
                Append(session_id=session, events=events),
                Append(session_id=new.id, events=(world.event("first"), world.call("open"))),
            ),
        )
    world.store.commit(batch)
    print(n, flush=True)
world.store.close()
"""


class Writers:
    """Processes that append to one file."""

    def __init__(self, path: Path, session: str) -> None:
        self.path, self.session = path, session
        self.started: list[subprocess.Popen[str]] = []

    def start(self, space: int, *, rounds: int = 0, parts: int = 1, steps: int = 0) -> subprocess.Popen[str]:
        """Start a writer and wait until it has opened the file. With ``steps``, it kills itself after so many."""
        arguments = [str(self.path), self.session, *map(str, (space, rounds, parts, steps))]
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SRC)},
        )
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def go(self, *processes: subprocess.Popen[str]) -> None:
        """Let writers begin."""
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    def promised(self, process: subprocess.Popen[str]) -> list[int]:
        """What a writer that has ended had been told was committed."""
        assert process.stdout is not None
        said = process.stdout.read()
        return [int(line) for line in said.splitlines(keepends=True) if line.endswith("\n")]

    def close(self) -> None:
        """End whatever still runs."""
        for process in self.started:
            process.kill()
            process.wait(30)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def world(path: Path) -> Iterator[World]:
    world = World(SqliteStore(path), space=1000)
    yield world
    world.store.close()


@pytest.fixture
def session(world: World) -> str:
    return world.session()


@pytest.fixture
def writers(path: Path, session: str) -> Iterator[Writers]:
    writers = Writers(path, session)
    yield writers
    writers.close()


@pytest.mark.requirement("L1", "L6")
@pytest.mark.timeout(240)
def test_processes_that_append_to_one_session_lose_nothing_and_share_no_number(
    world: World, session: str, writers: Writers
) -> None:
    count, rounds, parts = 6, 25, 3
    processes = [writers.start(space, rounds=rounds, parts=parts) for space in range(1, count + 1)]
    writers.go(*processes)
    for process in processes:
        assert process.wait(120) == 0
        assert writers.promised(process) == list(range(rounds))
    events = list(world.store.scan(session))
    assert [event.seq for event in events] == list(range(1, count * rounds * parts + 1))
    for start in range(0, len(events), parts):
        texts = [json.loads(event.body)["text"] for event in events[start : start + parts]]
        name = texts[0].rsplit("-", 1)[0]
        assert texts == [f"{name}-{part}" for part in range(parts)]
    assert first_fault(world.store, session) is None
    assert len(world.store.lineage(session, limit=10_000)) == count * rounds
    assert world.store.check() == []


@pytest.mark.requirement("L1")
def test_each_process_sees_what_another_committed(world: World, session: str, path: Path) -> None:
    other = World(SqliteStore(path), space=1)
    for n in range(3):
        for writer, reader in ((world, other), (other, world)):
            (event,) = writer.append(session, f"turn{n} of {writer.ids.salt().hex()}")
            assert reader.store.event(event.id) == event
            matches = reader.store.search([f"turn{n}"], account_id="acc_0000000000000000000000000A")
            assert (session, event.seq) in [(match.session_id, match.seq) for match in matches.found]
    other.store.close()


@pytest.mark.requirement("L1", "L2", "C2", "L6")
@pytest.mark.timeout(60 + 10 * KILLS)
@pytest.mark.parametrize("parts", [1, 3], ids=["single appends", "batches of many parts"])
def test_a_writer_killed_at_any_moment_leaves_whole_batches_only_and_no_lock(
    world: World, session: str, writers: Writers, parts: int
) -> None:
    chance = random.Random(parts)
    promised: dict[int, list[int]] = {}
    for space in range(1, max(1, KILLS // 2) + 1):
        # Every other one dies by itself in the middle of SQLite's work, the rest wherever the signal finds them.
        steps = chance.randint(1, 4000) if space % 2 else 0
        process = writers.start(space, parts=parts, steps=steps)
        writers.go(process)
        heard = []
        assert process.stdout is not None
        if not steps:
            for _ in range(chance.randint(1, 12)):
                heard.append(int(process.stdout.readline()))
            process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
        promised[space] = heard + writers.promised(process)
        world.append(session, f"parent-{space}")  # the lock is free, and the log goes on
    texts = [json.loads(event.body)["text"] for event in world.store.scan(session)]
    assert first_fault(world.store, session) is None
    for space, rounds in promised.items():
        mine = [text for text in texts if text.startswith(f"{space}-")]
        batches = [mine[start : start + parts] for start in range(0, len(mine), parts)]
        assert batches == [[f"{space}-{n}-{part}" for part in range(parts)] for n in range(len(batches))]
        # What was promised is there; at most one more, whose promise was not heard.
        assert rounds == list(range(len(rounds)))
        assert len(batches) - len(rounds) in (0, 1)
        if parts > 1:
            for n in range(len(batches) + 1):
                link = world.store.link_by_key(session, f"{space}-{n}")
                assert (link is not None) == (n < len(batches))
                if link is not None:
                    assert len(world.store.runs(link.to_session)) == 1
                    assert [call.call for call in world.store.open_calls(link.to_session)] == ["open"]
                    assert first_fault(world.store, link.to_session) is None
    assert world.store.check() == []


@pytest.mark.requirement("L6")
def test_a_fence_given_out_in_another_process_makes_the_older_one_stale(
    world: World, session: str, path: Path
) -> None:
    run = world.running(session)
    other = World(SqliteStore(path), space=1)
    other.change(run.id, state="interrupted")
    newer = other.running(session)
    assert newer.fence == run.fence + 1
    with pytest.raises(LeaseLost):
        world.append(session, "stale", run_id=run.id, fence=run.fence)
    with pytest.raises(Conflict):
        world.running(session)
    assert [event.seq for event in other.append(session, "held", run_id=newer.id, fence=newer.fence)] == [1]
    other.store.close()


def test_a_writer_gives_up_when_another_process_never_lets_go(
    world: World, session: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = ProcessLock(f"{path}.lock")
    assert holder.acquire(1)
    event = world.event("later")
    batch = Batch(appends=(Append(session_id=session, events=(event,)),))
    monkeypatch.setattr("onward.store.sqlite_writer.BUSY_SECONDS", 0.05)
    for _ in range(2):  # the second wait takes over the place in the queue that the first one left
        with pytest.raises(StoreBusy) as busy:
            world.store.commit(batch)
        assert str(path) in str(busy.value)
    assert world.store.events(session) == []
    monkeypatch.setattr("onward.store.sqlite_writer.BUSY_SECONDS", 30)
    threading.Timer(0.05, holder.release).start()
    assert world.store.commit(batch).events[0].seq == 1
    holder.close()


@pytest.mark.parametrize("held", ["by a writer of ours", "by another program"])
def test_everybody_who_waits_hears_at_once_that_another_process_does_not_let_go(
    world: World, session: str, path: Path, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    monkeypatch.setattr("onward.store.sqlite_writer.BUSY_SECONDS", 0.05)
    writer, many = world.store._writer, 8
    writer._db.execute("PRAGMA busy_timeout = 50")
    holder = ProcessLock(f"{path}.lock")
    other = sqlite3.connect(path, isolation_level=None)
    if held == "by a writer of ours":
        assert holder.acquire(1)
    else:
        other.execute("BEGIN IMMEDIATE")
    tried, acquire = 0, writer._process_lock.acquire

    def counted(seconds: float) -> bool:
        nonlocal tried
        tried += 1
        for _ in range(10_000):  # until all others wait behind this one
            if len(writer._queue) >= many - 1 or tried > 1:
                break
            threading.Event().wait(0.001)
        return acquire(seconds)

    monkeypatch.setattr(writer._process_lock, "acquire", counted)
    told: list[BaseException] = []

    def write(number: int) -> None:
        try:
            world.store.commit(batches[number])
        except StoreBusy as busy:
            told.append(busy)

    batches = [
        Batch(appends=(Append(session_id=session, events=(world.event(f"{n}"),)),)) for n in range(many)
    ]
    writers = [threading.Thread(target=write, args=(number,)) for number in range(many)]
    for one in writers:
        one.start()
    for one in writers:
        one.join(30)
    assert (len(told), tried) == (many, 1)
    assert len({id(error) for error in told}) == many
    holder.release()
    holder.close()
    other.close()
    assert world.store.events(session) == []
    monkeypatch.undo()
    writer._db.execute("PRAGMA busy_timeout = 10000")
    assert world.store.commit(batches[0]).events[0].seq == 1


def test_a_store_is_not_used_across_a_fork(world: World, session: str) -> None:
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is the point
        child = os.fork()
    if child == 0:  # pragma: no cover (another process)
        answers = []
        for call in (lambda: world.store.session(session), lambda: world.append(session, "from a fork")):
            try:
                call()
                answers.append("allowed")
            except StoreError as error:
                answers.append(error.code)
            except BaseException as error:
                answers.append(repr(error))
        os.write(write, json.dumps(answers).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert json.loads(os.read(read, 1000)) == ["store_error", "store_error"]
    os.close(read)
    os.close(write)
    assert world.append(session, "here")[0].seq == 1


def test_many_processes_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    made = tmp_path / "new.db"
    code = "import sys\nfrom onward.store.sqlite import SqliteStore\nsys.stdin.readline()\nSqliteStore(sys.argv[1]).close()"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(made)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SRC)},
        )
        for _ in range(6)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    failures = [process.communicate(timeout=60)[1] for process in processes]
    assert failures == [""] * len(processes)
    store = SqliteStore(made)
    assert store.check() == []
    store.commit(
        Batch(sessions=(Session(id="ses_00000000000000000000000001", account_id="a", created_at=1),))
    )
    store.close()


@pytest.mark.requirement("L1")
@pytest.mark.parametrize(
    "first", ["it read before it wrote", "a second store on the file", "one that is closed again"]
)
def test_a_process_that_goes_takes_nothing_from_one_that_stays(path: Path, first: str) -> None:
    made = World(SqliteStore(path), space=900)
    session = made.session()
    made.store.close()
    # SQLite's locks are the process's: whoever opens and closes the file beside SQLite lets go of them, and the next
    # process to leave would think itself the last one and take the write-ahead log away.
    world = World(SqliteStore(path), space=1000)
    others: list[SqliteStore] = []
    writers = Writers(path, session)
    try:
        assert world.store.events(session) == []
        world.append(session, "before")
        if first != "it read before it wrote":
            others.append(SqliteStore(path))
            others[0].events(session)
            if first == "one that is closed again":
                others[0].close()
        writer = writers.start(1, rounds=1)
        writers.go(writer)
        assert writer.wait(60) == 0
        world.append(session, "after")
        later = SqliteStore(path)
        writer = writers.start(2, rounds=1)
        writers.go(writer)
        assert writer.wait(60) == 0
        assert len(later.events(session)) == 4
        later.close()
    finally:
        writers.close()
        for other in others:
            other.close()
        world.store.close()
    again = SqliteStore(path)
    assert [event.seq for event in again.scan(session)] == [1, 2, 3, 4]
    assert list(again.check()) == []
    assert first_fault(again, session) is None
    again.close()
