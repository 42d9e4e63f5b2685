"""What every store promises to those who follow: heads, drafts, and who was written to since a cursor."""

from __future__ import annotations

import pytest

from onward.core.records import Draft
from onward.errors import InvalidInput
from onward.store.contract import Batch, Tally
from onward.testing.store_cases import ACCOUNT, OTHER_ACCOUNT, World


class FollowingContract:
    """The part of the suite about following."""

    def test_heads_of_many_sessions_are_told_at_once(self, world: World) -> None:
        first, empty, other = world.session(), world.session(), world.session(account=OTHER_ACCOUNT)
        world.append(first, "one", "two")
        world.append(other, "three")
        missing = "ses_0000000000000000000000000Z"
        assert world.store.heads([first, empty, other, missing]) == {first: 2, empty: 0, other: 1}
        assert world.store.heads([]) == {}

    def test_drafts_are_those_of_the_sessions_that_were_named(self, world: World) -> None:
        sessions = [world.session() for _ in range(3)]
        drafts = [
            Draft(run_id=world.running(session, lease_until=9).id, session_id=session, text="…", updated_at=1)
            for session in sessions
        ]
        world.store.commit(Batch(drafts=tuple(drafts)))
        assert world.store.drafts(sessions[:2]) == drafts[:2]
        world.store.commit(Batch(drop_drafts=(drafts[0].run_id,)))
        assert world.store.drafts(sessions) == drafts[1:]
        assert world.store.drafts([]) == []

    def test_sessions_that_were_written_to_are_told_once_the_latest_last(self, world: World) -> None:
        first, second, other = world.session(), world.session(), world.session(account=OTHER_ACCOUNT)
        world.append(first, "before")
        _, cursor = world.store.touched(ACCOUNT)
        assert world.store.touched(ACCOUNT, since=cursor) == ([], cursor)
        for session in (first, other, second, first, other):
            world.append(session, "said")
        found, after = world.store.touched(ACCOUNT, since=cursor)
        assert found == [second, first]
        assert world.store.touched(OTHER_ACCOUNT, since=cursor) == ([other], after)
        assert world.store.touched(ACCOUNT, since=after) == ([], after)

    def test_a_cursor_moves_on_past_what_another_account_wrote(self, world: World) -> None:
        mine, other = world.session(), world.session(account=OTHER_ACCOUNT)
        _, cursor = world.store.touched(ACCOUNT)
        for number in range(5):
            world.append(other, str(number))
        world.append(mine, "last")
        seen: list[str] = []
        for _ in range(6):
            found, cursor = world.store.touched(ACCOUNT, since=cursor, limit=1)
            seen += found
        assert seen == [mine]

    @pytest.mark.requirement("A1")
    def test_what_an_account_has_is_counted_and_what_others_have_is_not(self, world: World) -> None:
        first, other = world.session(), world.session(account=OTHER_ACCOUNT)
        world.session()
        world.append(first, "one", "two")
        world.append(other, "three")
        world.running(first, lease_until=9)
        assert world.store.tally(ACCOUNT) == Tally(sessions=2, events=2, runs={"running": 1})
        assert world.store.tally(OTHER_ACCOUNT) == Tally(sessions=1, events=1, runs={})
        assert world.store.tally("acc_0000000000000000000000000Z") == Tally(sessions=0, events=0, runs={})

    @pytest.mark.parametrize("wrong", ["", "x", "-1", "1.5", "9" * 30, "10000", "٣"])
    def test_a_cursor_from_elsewhere_is_refused(self, world: World, wrong: str) -> None:
        world.append(world.session(), "one")
        with pytest.raises(InvalidInput, match="cursor"):
            world.store.touched(ACCOUNT, since=wrong)
