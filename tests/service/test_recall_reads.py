"""Exact reads: by id and by range with neighbours, along the lineage both ways, bounded and counted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.service.conversations import World, bodies
from tests.service.test_recall_search import continued, said

from onward.core.bodies import Recalled
from onward.errors import EventNotFound, InvalidInput, LimitExceeded, NotFound, SessionNotFound
from onward.service import recalling
from onward.store.memory import MemoryStore


def numbers(lines: recalling.Lines) -> list[int]:
    return [int(line[1 : line.index("]")]) for line in lines.lines]


def test_an_event_is_read_by_its_id_with_its_neighbours(world: World) -> None:
    session = said(world, *(f"number {n}" for n in range(2, 21)))
    event = world.events(session)[9]
    assert numbers(recalling.read_at(world.platform, event.id)) == [10]
    assert numbers(recalling.read_at(world.platform, event.id, before=2, after=3)) == [8, 9, 10, 11, 12, 13]
    assert numbers(recalling.read_at(world.platform, event.id, before=50, after=50)) == list(range(1, 21))


def test_an_address_is_a_session_a_number_or_a_range(world: World) -> None:
    session = said(world, *(f"number {n}" for n in range(2, 11)))
    read = recalling.read_at
    assert numbers(read(world.platform, session)) == list(range(1, 11))
    assert numbers(read(world.platform, f"{session}:4")) == [4]
    assert numbers(read(world.platform, f"{session}:4-6")) == [4, 5, 6]
    assert numbers(read(world.platform, f"{session}:4-6", before=1, after=1)) == [3, 4, 5, 6, 7]
    assert numbers(read(world.platform, f"{session}:9-99")) == [9, 10]


@pytest.mark.parametrize("address", ["x:one", "x:", "x:1-", "x:1-2-3", "x:-2", "x:1.5"])
def test_what_is_no_address_is_refused_with_what_one_looks_like(world: World, address: str) -> None:
    session = said(world, "hello")
    with pytest.raises(InvalidInput, match="ses_…:12-18"):
        recalling.read_at(world.platform, address.replace("x", session))


@pytest.mark.requirement("A1")
def test_an_event_of_another_account_is_not_there(world: World) -> None:
    event = world.events(said(world, "secret"))[-1]
    other = world.acting("acc_0000000000000000000000000B").platform
    with pytest.raises(EventNotFound):
        recalling.read_at(other, event.id)
    with pytest.raises(SessionNotFound):
        recalling.walk(other, event.session_id, "back")


@pytest.mark.parametrize("options", [{"before": 51}, {"after": 51}, {"before": -1}])
def test_neighbours_are_limited_with_the_limit_named(world: World, options: dict[str, int]) -> None:
    session = said(world, "hello")
    with pytest.raises(LimitExceeded, match="0 to 50"):
        recalling.read_at(world.platform, f"{session}:1", **options)


def test_an_answer_counts_what_it_left_out_and_what_it_cut(world: World) -> None:
    session = said(world, *("x" * 5000 for _ in range(99)))
    whole = recalling.read_at(world.platform, f"{session}:2-100", limit=200)
    shown = len(whole.lines)
    assert shown < 99
    assert sum(len(line.encode()) + 1 for line in whole.lines) <= recalling.ANSWER_BYTES
    assert (whole.left, whole.next) == (99 - shown, 2 + shown)
    assert whole.cut == shown * 1000
    assert "1,000 characters not shown" in whole.lines[0]
    some = recalling.read_at(world.platform, f"{session}:2-100", limit=10)
    assert (len(some.lines), some.left, some.next) == (10, 89, 12)


@settings(max_examples=25)
@given(
    first=st.integers(1, 30), span=st.integers(0, 30), limit=st.integers(1, 12), sizes=st.integers(1, 9000)
)
def test_reading_on_from_next_gives_every_event_once(first: int, span: int, limit: int, sizes: int) -> None:
    store = MemoryStore()
    world = World(opened=lambda: store)
    session = said(world, *("y" * sizes for _ in range(29)))
    last = min(first + span, 30)
    seen: list[int] = []
    at: int | None = first
    while at is not None:
        answer = recalling.read_lines(world.platform, session, at, first + span, limit=limit)
        seen += numbers(answer)
        assert answer.left == last - seen[-1]
        at = answer.next
    assert seen == list(range(first, last + 1))


def test_walking_goes_back_to_the_end_of_the_predecessor_and_forward_to_the_start_of_the_successor(
    world: World,
) -> None:
    first, second = said(world, "one", "two", "three"), said(world, "four", "five")
    continued(world, first, second)
    back = recalling.walk(world.platform, second, "back", limit=2)
    assert (back.session, numbers(back), back.continued_to) == (first, [3, 4], second)
    forward = recalling.walk(world.platform, first, "forward", limit=2)
    assert (forward.session, numbers(forward), forward.left, forward.continued_from) == (
        second,
        [1, 2],
        1,
        first,
    )
    with pytest.raises(NotFound, match="never came from another session"):
        recalling.walk(world.platform, first, "back")
    with pytest.raises(NotFound, match="never was continued"):
        recalling.walk(world.platform, second, "forward")
    with pytest.raises(InvalidInput, match="back and forward"):
        recalling.walk(world.platform, second, "up")  # type: ignore[arg-type]


def test_walking_back_from_a_branch_ends_at_the_point_and_from_a_child_at_its_parent(world: World) -> None:
    source = said(world, "one", "two", "three")
    branch = world.log.fork(source, 2).id
    assert numbers(recalling.walk(world.platform, branch, "back")) == [1, 2]
    child = world.log.start("Child", parent=source).id
    assert recalling.walk(world.platform, child, "back").session == source


@pytest.mark.requirement("A1")
def test_what_may_not_be_read_is_a_breadcrumb_with_its_id_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = said(world, "secret"), said(world, "four")
    continued(world, first, second)
    allowed = type(world.platform).may_read
    monkeypatch.setattr(
        type(world.platform), "may_read", lambda self, session: session != first and allowed(self, session)
    )
    back = recalling.walk(world.platform, second, "back", asked_by=second)
    assert (back.session, back.lines, back.available) == (first, (), False)
    assert bodies(world.events(second), Recalled) == []


def test_every_read_and_walk_is_recorded_where_it_was_asked(world: World) -> None:
    first, second = said(world, "one", "two"), said(world, "three")
    continued(world, first, second)
    recalling.read_at(world.platform, f"{first}:2", after=1, asked_by=second)
    recalling.walk(world.platform, second, "back", limit=1, asked_by=second)
    recorded = bodies(world.events(second), Recalled)
    assert [(r.how, r.returned) for r in recorded] == [
        ("read", (f"{first}:2-3",)),
        ("lineage", (f"{first}:3-3",)),
    ]
    assert bodies(world.events(first), Recalled) == []
