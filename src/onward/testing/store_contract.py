"""The suite that every store passes. Inherit ``StoreContract``, say how to make a store, and pytest runs it all.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            store = MyStore(tmp_path / "my.db")
            yield store
            store.close()

A store that outlives its object also gives ``reopen``. The tests carry the ids of the invariants they hold a store to
(``@pytest.mark.requirement("L1")``); register that marker, or use ``--strict-markers`` without it and see it refused.

Nothing here knows how any store works: what is special to one (files, processes, full disks) is tested beside that store.
"""

from __future__ import annotations

import pytest

from onward.errors import StoreClosed
from onward.store.contract import Append, Batch, Store
from onward.testing.store_cases import ACCOUNT, World, first_fault
from onward.testing.store_following_contract import FollowingContract
from onward.testing.store_log_contract import LogContract
from onward.testing.store_machines_contract import MachinesContract
from onward.testing.store_native_contract import NativeRowsContract
from onward.testing.store_records_contract import RecordsContract
from onward.testing.store_search_contract import SearchContract


class StoreContract(
    LogContract, FollowingContract, RecordsContract, MachinesContract, NativeRowsContract, SearchContract
):
    """All that ``onward.store.contract`` promises. Provide the fixture ``store``: an empty store, closed afterwards."""

    @pytest.fixture
    def world(self, store: Store) -> World:
        """The store with a clock and ids that count."""
        return World(store)

    def reopen(self, store: Store) -> Store | None:  # noqa: ARG002 (for those who override it)
        """Close a store and open what it kept; None for one that keeps nothing."""
        return None

    @pytest.mark.requirement("L1", "L2")
    def test_what_was_committed_is_there_after_reopening(self, world: World) -> None:
        session, other = world.session(title="kept"), world.session()
        events = world.append(session, "one word", world.call("open"), "two")
        link = world.link(session, other, "fork")
        run = world.running(session, lease_until=5)
        again = self.reopen(world.store)
        if again is None:
            pytest.skip("this store keeps nothing when it is closed")
        assert tuple(again.events(session)) == events
        assert again.links(session) == [link]
        assert again.run(run.id) == run
        assert [call.call for call in again.open_calls(session)] == ["open"]
        assert [match.seq for match in again.search(["word"], account_id=ACCOUNT).found] == [1]
        world.store = again
        assert world.append(session, "three")[0].seq == 4
        assert first_fault(again, session) is None
        assert again.check() == []

    def test_a_store_says_where_it_is(self, store: Store) -> None:
        assert "://" in store.url

    def test_a_store_that_was_checked_is_sound(self, world: World) -> None:
        world.append(world.session(), "text")
        assert world.store.check() == []

    def test_a_closed_store_refuses_and_may_be_closed_again(self, world: World) -> None:
        session = world.session()
        event = world.event()
        world.store.close()
        world.store.close()
        with pytest.raises(StoreClosed):
            world.store.session(session)
        with pytest.raises(StoreClosed):
            world.store.commit(Batch(appends=(Append(session_id=session, events=(event,)),)))
        with pytest.raises(StoreClosed):
            world.store.search(["word"], account_id=ACCOUNT)
