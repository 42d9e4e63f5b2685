"""What a writer remembers from one commit to the next, and what it takes for granted, is never believed against the file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.errors import Conflict
from onward.store.contract import Append, Batch, HeadIs
from onward.store.rules import INDEX_LAG
from onward.store.sqlite import SqliteStore
from onward.testing.store_cases import World, first_fault

THREADS = 8
EACH = 60


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(SqliteStore(tmp_path / "store.db"))
    yield world
    world.store.close()


@pytest.fixture
def other(world: World, tmp_path: Path) -> Iterator[World]:
    """The same file, opened by somebody else."""
    other = World(SqliteStore(tmp_path / "store.db"), space=1)
    yield other
    other.store.close()


@pytest.mark.requirement("L1", "L6")
def test_writers_who_take_turns_in_one_session_go_on_from_each_other(world: World, other: World) -> None:
    session = world.session()
    seqs = [who.append(session, "one", "two")[-1].seq for _ in range(5) for who in (world, other, world)]
    assert seqs == list(range(2, 31, 2))
    assert first_fault(world.store, session) is None


@pytest.mark.requirement("L3")
def test_an_event_that_another_writer_stored_is_returned_with_new_ones_around_it(
    world: World, other: World
) -> None:
    session, elsewhere = world.session(), world.session()
    before, known, after = world.event("before"), world.event("known"), world.event("after")
    (stored,) = other.append(elsewhere, known)
    found = world.append(session, before, known, after)
    assert [event.seq for event in found if event.session_id == session] == [1, 2]
    assert found[1] == stored
    assert [event.id for event in world.store.events(session)] == [before.id, after.id]
    assert world.append(session, before, "new")[0] == found[0]
    assert first_fault(world.store, session) is None


@pytest.mark.requirement("L1")
def test_what_a_refused_batch_would_have_appended_leaves_no_gap(world: World) -> None:
    session = world.session()
    world.append(session, "first")
    lost = Append(session_id=session, events=(world.event("lost"),))
    missing = Append(session_id="ses_00000000000000000000000000", events=(world.event("lost, too"),))
    with pytest.raises(Exception, match="ses_00000000000000000000000000"):
        world.store.commit(Batch(appends=(lost, missing)))
    with pytest.raises(Conflict):
        world.store.commit(Batch(guards=(HeadIs(session, 7),), appends=(lost,)))
    assert world.append(session, "second")[0].seq == 2
    assert first_fault(world.store, session) is None


@pytest.mark.parametrize("count", [1, 2, 3, 63, 64, 65, 200])
@pytest.mark.requirement("L1", "L2")
def test_any_number_of_events_is_stored_whole_and_in_order(world: World, count: int) -> None:
    session = world.session()
    world.append(session, *(str(n) for n in range(count)))
    assert [event.seq for event in world.store.events(session, limit=1000)] == list(range(1, count + 1))
    assert first_fault(world.store, session) is None


def test_the_full_text_is_within_its_bound_once_a_crowd_of_writers_is_at_rest(world: World) -> None:
    sessions = [world.session() for _ in range(THREADS)]
    batches = [[world.event(f"word{n} said") for _ in range(EACH)] for n in range(THREADS)]
    start = threading.Barrier(THREADS)

    def write(number: int) -> None:
        start.wait(30)
        for event in batches[number]:
            world.append(sessions[number], event)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert THREADS * EACH > 2 * INDEX_LAG
    assert world.store.index_lag() <= INDEX_LAG
