"""Following: nothing lost, nothing repeated, whatever the page and the filters; and waiting ends when something comes."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.conversations import World

from onward.errors import InvalidInput, LimitExceeded, SessionNotFound
from onward.service import following
from onward.store.memory import MemoryStore


def test_a_page_goes_on_where_the_last_one_ended(world: World) -> None:
    session = world.conversation(30)
    seqs, after = [], 0
    while True:
        page = following.read_on(world.platform, session, after=after, limit=7)
        if not page.events:
            break
        seqs += [event.seq for event in page.events]
        after = page.after
    assert seqs == list(range(1, following.latest(world.platform, session) + 1))


@given(
    spoken=st.lists(st.sampled_from(["user", "agent", "call"]), max_size=250),
    limit=st.integers(1, 130),
    filtered=st.booleans(),
)
def test_pages_with_a_filter_give_exactly_what_passes_it(
    spoken: list[str], limit: int, filtered: bool
) -> None:
    world = World(opened=MemoryStore)
    session = world.log.start("x").id
    for number, who in enumerate(spoken):
        if who == "call":
            world.call(session, call=f"c{number}")
        else:
            world.say(session, str(number), actor=who)
    kinds = ("tool_call",) if filtered else None
    wanted = [e.seq for e in world.events(session) if kinds is None or e.kind in kinds]
    got, after = [], 0
    while page := following.read_on(world.platform, session, after=after, limit=limit, kinds=kinds).events:
        got += [event.seq for event in page]
        after = page[-1].seq
    assert got == wanted


def test_the_events_of_one_run_can_be_followed(world: World) -> None:
    session = world.log.start("x", engine="script").id
    first = world.log.run(session, "one", engine="script")
    second = world.log.run(session, "two", engine="script")
    found = following.read_on(world.platform, session, run=second.run)
    assert {event.run_id for event in found.events} == {second.run}
    assert found.events
    assert first.run != second.run


def test_waiting_ends_as_soon_as_something_passes_the_filter(world: World) -> None:
    session = world.conversation()
    head = following.latest(world.platform, session)
    looks = 0

    def pause(_seconds: float) -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            world.say(session, "not a call")
        if looks == 2:
            world.call(session)
        return looks > 5

    found = following.read_on(
        world.platform, session, after=head, kinds=("tool_call",), wait=30.0, pause=pause
    )
    assert [event.kind for event in found.events] == ["tool_call"]
    assert looks == 2


def test_an_empty_answer_moves_the_cursor_past_what_did_not_pass(world: World) -> None:
    session = world.conversation()
    found = following.read_on(world.platform, session, kinds=("approval",))
    assert found.events == ()
    assert found.after == found.head == following.latest(world.platform, session)


def test_following_yields_each_event_once_until_nobody_listens(world: World) -> None:
    session = world.conversation()
    rounds = 0

    def pause(_seconds: float) -> bool:
        nonlocal rounds
        rounds += 1
        if rounds <= 3:
            world.say(session, f"round {rounds}")
        return rounds > 3

    seqs = [event.seq for event in following.follow(world.platform, session, pause=pause)]
    assert seqs == list(range(1, following.latest(world.platform, session) + 1))


def test_a_reader_is_woken_by_another_thread(world: World) -> None:
    session = world.conversation()
    head = following.latest(world.platform, session)
    got: list[int] = []
    listening = threading.Event()

    def pause(seconds: float) -> bool:
        listening.set()
        return threading.Event().wait(seconds)

    def read() -> None:
        page = following.read_on(world.platform, session, after=head, wait=30.0, pause=pause)
        got.extend(event.seq for event in page.events)

    reader = threading.Thread(target=read)
    reader.start()
    assert listening.wait(10)
    world.say(session, "here")
    reader.join(10)
    assert got == [head + 1]


def test_what_cannot_be_is_refused(world: World) -> None:
    session = world.conversation()
    with pytest.raises(InvalidInput):
        following.read_on(world.platform, session, after=-1)
    with pytest.raises(LimitExceeded):
        following.read_on(world.platform, session, limit=0)
    with pytest.raises(LimitExceeded):
        following.read_on(world.platform, session, limit=1001)
    with pytest.raises(LimitExceeded):
        following.read_on(world.platform, session, wait=61.0)
    with pytest.raises(SessionNotFound):
        following.read_on(world.acting("acc_other").platform, session)
