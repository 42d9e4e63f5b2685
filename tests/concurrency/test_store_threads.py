"""Group commit: what queues while one writes is written together, and nobody suffers for another's refusal."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onward.core import ids
from onward.errors import EventNotFound, OnwardError, SessionNotFound, StoreClosed
from onward.store.contract import Append, Batch, Erase, HeadIs, NoOpenCalls
from onward.store.sqlite import SqliteStore
from onward.store.sqlite_writer import Writer
from onward.testing.store_cases import World, first_fault


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(SqliteStore(tmp_path / "store.db"))
    yield world
    world.store.close()


class _Watched(deque[Any]):
    """A queue that says when somebody has come."""

    def __init__(self) -> None:
        super().__init__()
        self.arrivals = threading.Semaphore(0)

    def append(self, item: Any) -> None:
        super().append(item)
        self.arrivals.release()


class Gathering:
    """Holds the writer in one job until as many callers have queued as a test wants in one group."""

    def __init__(self, store: SqliteStore, calls: list[Callable[[], Any]]) -> None:
        assert isinstance(store._writer, Writer)
        self._writer = store._writer
        self._calls = calls
        self.outcomes: list[Any] = [None] * len(calls)
        self.begun = 0

    def run(self) -> list[Any]:
        """Call everything at once, from threads of their own. Return results and errors, in order."""
        inside, go = threading.Event(), threading.Event()

        def job(_: Any) -> None:
            inside.set()
            assert go.wait(30)

        def call(n: int) -> None:
            try:
                self.outcomes[n] = self._calls[n]()
            except OnwardError as error:
                self.outcomes[n] = error

        holder = threading.Thread(target=self._writer.run, args=(job,))
        holder.start()
        assert inside.wait(30)
        self._writer._queue = queue = _Watched()
        threads = []
        for n in range(len(self._calls)):
            threads.append(threading.Thread(target=call, args=(n,)))
            threads[-1].start()
            assert queue.arrivals.acquire(timeout=30)
        db, statements = self._writer._db, []
        db.set_trace_callback(statements.append)
        go.set()
        for thread in [holder, *threads]:
            thread.join(60)
        with contextlib.suppress(sqlite3.ProgrammingError):  # one of the calls may have closed the store
            db.set_trace_callback(None)
        self.begun = sum(statement.startswith("BEGIN") for statement in statements)
        return self.outcomes


def test_what_queues_while_one_writes_is_committed_in_one_transaction(world: World) -> None:
    session = world.session()
    events = [world.event(str(n)) for n in range(12)]
    gathering = Gathering(world.store, [lambda e=event: world.append(session, e) for event in events])  # type: ignore[misc]
    outcomes = gathering.run()
    assert [done[0].seq for done in outcomes] == list(range(1, 13))
    assert gathering.begun == 1
    assert first_fault(world.store, session) is None


@pytest.mark.requirement("C2")
def test_a_batch_that_is_refused_before_it_wrote_is_refused_alone(world: World) -> None:
    session, missing = world.session(), world.ids.new(ids.SESSION)
    first, last = world.event("first"), world.event("last")
    guarded = Batch(
        guards=(HeadIs(session, 7),), appends=(Append(session_id=session, events=(world.event("no"),)),)
    )
    lost = world.event("lost")
    gathering = Gathering(
        world.store,
        [
            lambda: world.append(session, first),
            lambda: world.store.commit(guarded),
            lambda: world.append(missing, lost),
            lambda: world.append(session, last),
        ],
    )
    done = gathering.run()
    assert [outcome.code if isinstance(outcome, OnwardError) else outcome[0].seq for outcome in done] == [
        1,
        "conflict",
        "session_not_found",
        2,
    ]
    assert gathering.begun == 1


@pytest.mark.requirement("C2")
def test_a_batch_that_fails_after_it_wrote_leaves_nothing_and_spoils_nobody(world: World) -> None:
    session, other = world.session(), world.session()
    first, last = world.event("first"), world.event("last", kind="a kind seen first here")
    spoiled = Batch(
        appends=(Append(session_id=other, events=(world.event("gone", kind="another new kind"),)),),
        erasures=(Erase(event_id=world.ids.new(ids.EVENT), tombstone=b""),),
    )
    gathering = Gathering(
        world.store,
        [
            lambda: world.append(session, first),
            lambda: world.store.commit(spoiled),
            lambda: world.append(session, last),
        ],
    )
    done = gathering.run()
    assert isinstance(done[1], EventNotFound)
    assert [event.body for event in world.store.scan(session)] == [first.body, last.body]
    assert world.store.events(session)[1].kind == "a kind seen first here"
    assert world.store.events(other) == []
    assert gathering.begun == 4  # together, then each alone
    assert first_fault(world.store, session) is None


@pytest.mark.requirement("L3", "C2")
def test_batches_in_one_group_know_of_the_events_before_them(world: World) -> None:
    one, two = world.session(), world.session()
    repeated, call = world.event("repeated"), world.call("c")
    first, last = world.event("first"), world.event("last")
    missing = Append(session_id=world.ids.new(ids.SESSION), events=())
    spoiled = Batch(appends=(Append(session_id=two, events=(world.event("gone"),)), missing))
    gathering = Gathering(
        world.store,
        [
            lambda: world.append(one, first, repeated, call),
            lambda: world.append(two, repeated),
            lambda: world.store.commit(spoiled),
            lambda: world.append(one, repeated, last),
            lambda: world.store.commit(
                Batch(
                    guards=(HeadIs(one, 4), NoOpenCalls(one, ("c",))),
                    erasures=(Erase(event_id=first.id, tombstone=b""),),
                )
            ),
            lambda: world.append(one, world.result("c")),
        ],
    )
    done = gathering.run()
    assert [event.seq for event in done[0]] == [1, 2, 3]
    assert done[1] == (done[0][1],)
    assert isinstance(done[2], SessionNotFound)
    assert [event.seq for event in done[3]] == [2, 4]
    assert [event.seq for event in done[5]] == [5]
    assert world.texts(two) == []
    assert world.store.open_calls(one) == []
    assert world.store.events(one)[0].erased
    assert first_fault(world.store, one) is None


def test_a_value_that_no_database_takes_fails_its_own_batch_only(world: World) -> None:
    session = world.session()
    wrong: Any = world.new_session(title=object())
    good = world.event("good")

    def commit_wrong() -> Any:
        try:
            return world.store.commit(Batch(sessions=(wrong,)))
        except Exception as error:
            return type(error).__name__

    outcomes = Gathering(world.store, [lambda: world.append(session, good), commit_wrong]).run()
    assert outcomes[0][0].seq == 1
    assert isinstance(outcomes[1], str)
    assert world.store.session(wrong.id) is None


def test_closing_lets_those_finish_who_came_before_and_refuses_those_after(world: World) -> None:
    session = world.session()
    event, late = world.event("in time"), world.event("late")
    outcomes = Gathering(
        world.store,
        [lambda: world.append(session, event), world.store.close, lambda: world.append(session, late)],
    ).run()
    assert outcomes[0][0].seq == 1
    assert isinstance(outcomes[2], StoreClosed)


def test_readers_see_a_commit_as_soon_as_it_returned_and_never_half_of_it(world: World) -> None:
    session = world.session()
    stop, failures = threading.Event(), []

    def watch() -> None:
        while not stop.is_set():
            seen = [event.seq for event in world.store.events(session, limit=10_000)]
            if seen != list(range(1, len(seen) + 1)) or len(seen) % 5:
                failures.append(seen)

    readers = [threading.Thread(target=watch) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(40):
        world.append(session, *(f"{n}-{part}" for part in range(5)))
        assert len(world.store.events(session, limit=10_000)) == (n + 1) * 5
    stop.set()
    for reader in readers:
        reader.join(30)
    assert failures == []


def test_an_unknown_session_is_named_to_the_caller_who_asked_for_it(world: World) -> None:
    missing = [world.ids.new(ids.SESSION) for _ in range(4)]
    events = [world.event() for _ in missing]
    outcomes = Gathering(
        world.store,
        [lambda m=m, e=e: world.append(m, e) for m, e in zip(missing, events, strict=True)],  # type: ignore[misc]
    ).run()
    assert all(isinstance(outcome, SessionNotFound) for outcome in outcomes)
    assert [outcome.details["session"] for outcome in outcomes] == missing
