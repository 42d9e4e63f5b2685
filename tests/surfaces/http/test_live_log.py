"""The shared log and the channels: whatever happens in whatever order, each reader gets what it has not, once, in order."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.service.conversations import World
from tests.surfaces.http.streaming import Parser, site

from onward.store.memory import MemoryStore
from onward.surfaces.http.live_log import BLOCK, SharedLog


def frame(seq: int) -> bytes:
    """An event of a size that differs from its neighbours'."""
    return f'id: {seq}\nevent: event\ndata: {{"seq":{seq},"x":"{"x" * (seq % 7)}"}}\n\n'.encode()


def seqs(data: bytes) -> list[int]:
    return [sent.data["seq"] for sent in Parser().feed(data)]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Appends, readers that come at any cursor, readers that take a piece, and the log losing what it had."""
    step = st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3 * BLOCK)),
        st.tuples(st.just("join"), st.integers(0, 10_000)),
        st.tuples(st.just("take"), st.integers(0, 10_000)),
        st.tuples(st.just("forget"), st.just(0)),
    )
    return draw(st.lists(step, min_size=1, max_size=60))


@pytest.mark.requirement("L1")
@given(history=histories(), most=st.integers(0, 20_000))
def test_every_reader_gets_exactly_what_follows_its_cursor_whatever_is_kept(
    history: list[tuple[str, int]], most: int
) -> None:
    log, head = SharedLog(most), 0
    readers: list[list[Any]] = []  # cursor at the start, cursor now, what came

    def take(reader: list[Any]) -> None:
        _, cursor, got = reader
        if cursor == head:
            return
        found = log.after("s", cursor)
        if found is None:
            wanted = log.wanted("s", cursor)
            assert cursor // BLOCK * BLOCK <= wanted <= cursor
            upto = min(head, (cursor // BLOCK + 1) * BLOCK)
            log.add("s", wanted + 1, [frame(seq) for seq in range(wanted + 1, upto + 1)])
            found = b"".join(frame(seq) for seq in range(cursor + 1, upto + 1)), upto
        data, after = found
        assert after > cursor
        reader[1:] = [after, got + seqs(data)]

    for what, number in history:
        match what:
            case "append":
                log.add("s", head + 1, [frame(seq) for seq in range(head + 1, head + 1 + number)])
                head += number
            case "join":
                readers.append([at := number % (head + 1), at, []])
            case "take" if readers:
                take(readers[number % len(readers)])
            case "forget":
                log.forget("s")
                assert log.size == 0
        assert log.size <= most or len(log._blocks) == 1
    for reader in readers:
        while reader[1] < head:
            take(reader)
        assert reader[2] == list(range(reader[0] + 1, head + 1))


def test_sessions_do_not_mix_and_the_one_that_nobody_reads_goes_first() -> None:
    log = SharedLog(3 * sum(len(frame(seq)) for seq in range(BLOCK + 1, 2 * BLOCK + 1)))
    for session in ("a", "b"):
        log.add(session, 1, [frame(seq) for seq in range(1, BLOCK + 1)])
    assert log.after("a", 0) is not None
    for first in (1, BLOCK + 1):
        log.add("c", first, [frame(seq) for seq in range(first, first + BLOCK)])
    assert log.after("b", 0) is None
    for session in ("a", "c"):
        assert (found := log.after(session, 0)) is not None
        assert seqs(found[0]) == list(range(1, BLOCK + 1))


@settings(max_examples=25)
@given(data=st.data(), seed=st.integers(0, 1 << 30), cache=st.sampled_from([0, 20_000, 1 << 20]))
def test_readers_that_come_go_and_are_cut_off_while_others_write_get_every_event_once(
    data: st.DataObject, seed: int, cache: int
) -> None:
    steps = data.draw(
        st.lists(
            st.tuples(st.sampled_from(["say", "say elsewhere", "join", "leave", "cut"]), st.integers(0, 999)),
            max_size=30,
        )
    )
    chance = random.Random(seed)

    async def go() -> None:
        world = World(opened=MemoryStore)
        session = world.log.start("x").id
        async with site(world.platform, cache=cache) as live:
            # What is said through the server's platform is hinted at; what is said beside it must be looked for.
            near = World(opened=lambda: live.platform.store, clock=world.clock)
            near.ids = world.ids
            readers: list[tuple[int, Any]] = []
            for what, number in steps:
                match what:
                    case "say" | "say elsewhere":
                        for _ in range(number % 90 + 1):
                            (near if what == "say" else world).say(session, "x" * (number * 7 % 400))
                    case "join":
                        head = world.store.heads([session])[session]
                        start = number % (head + 1)
                        reader = live.follow(session, after=start)
                        readers.append((start, reader))
                    case "leave" if readers:
                        readers[number % len(readers)][1].leave()
                    case "cut" if readers:
                        reader = readers[number % len(readers)][1]
                        reader.cut_at = reader.taken + number * 3
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
            head = world.store.heads([session])[session]
            for start, reader in readers:
                while True:
                    got = reader.seqs
                    if (got[-1] if got else start) == head:
                        break
                    if reader.ended or reader._gone.is_set():
                        await reader.over()
                        if reader.seqs != got:
                            continue
                        # A reader that was cut off comes again and says where it stood.
                        before = reader
                        reader = live.follow(session, after=start, last=before.parser.last_id or None)
                        reader.parser.last_id, reader.sent = before.parser.last_id, before.sent
                        reader.parser._id = before.parser.last_id
                    last = got[-1] if got else start
                    await reader_moved(reader, last)
                assert reader.seqs == list(range(start + 1, head + 1))

    asyncio.run(go())


async def reader_moved(reader: Any, last: int) -> None:
    """Wait until a reader has got something after an event, or was cut off."""
    async with asyncio.timeout(30):
        while not (reader.ended or reader._gone.is_set() or (reader.seqs and reader.seqs[-1] > last)):
            reader._changed.clear()
            await reader._changed.wait()
