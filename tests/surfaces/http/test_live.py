"""Following over HTTP: a session's events as they come, drafts, continuations, the account's feed, and who is let in."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from tests.service.conversations import COMMAND, World, script
from tests.surfaces.http.streaming import OTHER, Reader, Site, site

from onward.core.codec import encode
from onward.core.records import Run
from onward.engines.script import Hang, Mutter
from onward.runner.executing import execute
from onward.service import running, tokens
from onward.store.memory import MemoryStore
from onward.store.sqlite import SqliteStore
from onward.surfaces.http import live as surface
from onward.surfaces.http import shapes
from onward.surfaces.http.live_hub import Tuning

Story = Callable[[Site, World], Coroutine[Any, Any, None]]


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """One store and everything around it."""
    if request.param == "memory":
        yield World(opened=MemoryStore)
        return
    made = World(opened=lambda: SqliteStore(tmp_path / "onward.db", synchronous="NORMAL"))
    yield made
    made.store.close()


def play(world: World, story: Story, **dials: Any) -> None:
    """Let a story happen at a server."""

    async def go() -> None:
        async with site(world.platform, **dials) as live:
            near = World(opened=lambda: live.platform.store, clock=world.clock)
            near.ids = world.ids
            await story(live, near)

    asyncio.run(go())


def shown(reader: Reader) -> str:
    """What a page makes of the drafts that it was sent."""
    text = ""
    for draft in reader.named("draft"):
        text = text[: draft["offset"]] + draft["text"]
    return text


def started(world: World, session: str) -> Run:
    """A run that is being executed."""
    run = running.submit(world.platform, session, "Go.", engine="script")
    return running.claim(world.platform, run.id, "runner", engine="script", lease=1e6)


@pytest.mark.requirement("L1")
def test_a_stream_gives_each_event_once_as_the_api_gives_it_and_goes_on(world: World) -> None:
    session = world.conversation(100)
    odd = world.platform.event("message", b'{\n "role": "user",\r\n "text": "a\\nb"\n}', "user")
    world.tell(session, odd, world.platform.event("unheard of", b"\xff not json\n\n", "system"))

    async def story(live: Site, near: World) -> None:
        reader = live.follow(session)
        head = near.store.heads([session])[session]
        await reader.until(lambda r: len(r.seqs) == head)
        near.say(session, "while it reads")
        await reader.until(lambda r: len(r.seqs) == head + 1)
        world.say(session, "by another process")
        await reader.until(lambda r: len(r.seqs) == head + 2)
        told = [msgspec.json.decode(encode(shapes.event(event))) for event in world.events(session)]
        assert [sent.data for sent in reader.sent] == told
        assert [sent.id for sent in reader.sent] == [str(event["seq"]) for event in told]
        assert reader.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert reader.headers["x-accel-buffering"] == "no"
        assert "content-length" not in reader.headers
        assert reader.parser.retry == 1000

    play(world, story)


@pytest.mark.requirement("L1")
def test_a_hundred_broken_connections_and_a_server_that_starts_again_lose_and_repeat_nothing(
    world: World,
) -> None:
    session, chance = world.conversation(3), random.Random(7)
    seen: list[int] = []
    last = ""

    async def cut(live: Site, near: World, times: int) -> None:
        nonlocal last
        for _ in range(times):
            for _ in range(chance.randrange(4)):
                chance.choice((near, world)).say(session, "x" * chance.randrange(2000))
            reader = live.follow(session, last=last or None)
            reader.parser.last_id = reader.parser._id = last
            reader.cut_at = chance.randrange(1, 6000)
            head = near.store.heads([session])[session]
            while not reader._gone.is_set() and (reader.seqs or [int(last or 0)])[-1] != head:
                reader._changed.clear()
                await asyncio.wait_for(reader._changed.wait(), 30)
            reader.leave()
            await reader.over()
            seen.extend(reader.seqs)
            last = reader.parser.last_id

    for _ in range(4):
        play(world, lambda live, near: cut(live, near, 25))

    async def finish(live: Site, near: World) -> None:
        reader = live.follow(session, last=last)
        head = near.store.heads([session])[session]
        if int(last) < head:
            await reader.until(lambda r: r.seqs and r.seqs[-1] == head)
        seen.extend(reader.seqs)
        assert seen == list(range(1, head + 1))

    play(world, finish)


def test_twenty_readers_get_the_same_and_the_store_is_read_for_one(world: World) -> None:
    session = world.conversation(150)

    async def story(live: Site, near: World) -> None:
        head = near.store.heads([session])[session]
        readers = [live.follow(session) for _ in range(20)]
        read = 0
        inner = near.store.events

        def counted(*args: Any, **how: Any) -> Any:
            nonlocal read
            found = inner(*args, **how)
            read += len(found)
            return found

        near.store.__dict__["events"] = counted
        for reader in readers:
            await reader.until(lambda r: len(r.seqs) == head)
        near.say(session, "for all of you")
        for reader in readers:
            await reader.until(lambda r: len(r.seqs) == head + 1)
            assert reader.seqs == list(range(1, head + 2))
        assert head <= read <= 2 * head

    play(world, story)


def test_a_reader_that_stands_still_is_dropped_and_goes_on_where_it_stood(world: World) -> None:
    session = world.conversation(3)

    async def story(live: Site, near: World) -> None:
        slow, quick = live.follow(session), live.follow(session)
        await slow.until(lambda r: len(r.seqs) == 8)
        slow.stand_still()
        near.say(session, "too much for one of them")
        await quick.until(lambda r: len(r.seqs) == 9)
        await slow.over()
        assert slow.task.exception() is None
        assert slow.seqs == list(range(1, 9))
        assert live.house.live.subscribers == 1
        near.say(session, "nobody waits for it")
        await quick.until(lambda r: len(r.seqs) == 10)
        again = live.follow(session, last=slow.parser.last_id)
        await again.until(lambda r: len(r.seqs) == 2)
        assert slow.seqs + again.seqs == quick.seqs

    play(world, story, patience=0.05)


def test_text_appears_as_it_is_written_and_ends_with_its_message(world: World) -> None:
    session = world.conversation(1)

    async def story(live: Site, near: World) -> None:
        run = started(near, session)
        head = near.store.heads([session])[session]
        reader = live.follow(session, after=head)
        said = ""
        # Every other piece is written by another process, which can give no hint.
        for number, piece in enumerate(("Leap ", "days ", "are “🌍” ", "hard.")):
            said += piece
            running.keep_draft((near, world)[number % 2].platform, run, said)
            await reader.until(lambda r, said=said: shown(r) == said)
        late = live.follow(session, after=head)
        await late.until(lambda r: r.named("draft"))
        assert late.named("draft") == [{"run": run.id, "offset": 0, "text": said}]
        message = near.platform.event(
            "message", encode({"role": "assistant", "text": said}), "agent", run_id=run.id
        )
        running.record(near.platform, run, (message,), drop_draft=True)
        for each in (reader, late):
            await each.until(lambda r: r.named("draft-end"))
            names = [sent.name for sent in each.sent]
            assert names[-2:] == ["event", "draft-end"]
            assert each.named("event")[-1]["body"]["text"] == said
        at = 0
        for draft in reader.named("draft"):
            assert draft["offset"] == at
            at += len(draft["text"])

    play(world, story)


def test_a_draft_that_is_begun_anew_replaces_what_was_shown(world: World) -> None:
    session = world.conversation(1)

    async def story(live: Site, near: World) -> None:
        run = started(near, session)
        reader = live.follow(session, after=near.store.heads([session])[session])
        for text in ("One thing", "Another thing", "Another thing."):
            running.keep_draft(near.platform, run, text)
            await reader.until(lambda r, text=text: shown(r) == text)
        running.cancel(near.platform, run.id)
        await reader.until(lambda r: r.named("draft-end"))
        assert reader.named("event")[-1]["kind"] == "run"

    play(world, story)


def test_half_a_sentence_of_a_run_is_seen_and_stays_when_the_run_is_stopped(world: World) -> None:
    session = world.conversation(1)

    async def story(live: Site, near: World) -> None:
        run = running.submit(near.platform, session, "Go.", engine="script")
        reader = live.follow(session, after=near.store.heads([session])[session])
        engine = script(Mutter(text="The parser counts leap days from"), Hang())
        working = asyncio.create_task(execute(near.platform, run.id, engine))
        await reader.until(lambda r: shown(r) == "The parser counts leap days from")
        working.cancel()
        await reader.until(lambda r: r.named("draft-end") == [{"run": run.id}])
        (message,) = [
            e["body"] for e in reader.named("event") if e["actor"] == "agent" and "text" in e["body"]
        ]
        assert (message["text"], message["interrupted"]) == (shown(reader), True)
        await asyncio.wait((working,))

    play(world, story)


def test_a_session_that_is_continued_says_where_it_went_on(world: World) -> None:
    session = world.conversation(2)

    async def story(live: Site, near: World) -> None:
        head = near.store.heads([session])[session]
        reader = live.follow(session, after=head)
        made = near.log.continue_session(session, COMMAND, engine="script")
        await reader.until(lambda r: r.named("session-continued"))
        (told,) = reader.named("session-continued")
        assert told["successor"] == made.successor
        assert told["link"] == made.link
        assert told["manifest"] == made.manifest
        assert (told["title"], told["reason"]) == (COMMAND["title"], COMMAND["reason"])
        await reader.until(lambda r: r.seqs and r.seqs[-1] == told["seq"])
        again = live.follow(session, after=told["seq"])
        await again.until(lambda r: r.parser.retry)
        assert again.named("session-continued") == []

    play(world, story)


def test_a_page_is_told_that_there_is_something_and_not_what(world: World) -> None:
    session = world.conversation(2)

    async def story(live: Site, near: World) -> None:
        head = near.store.heads([session])[session]
        page = Page(live, session, after=head - 2)
        reader = page.reader
        await reader.until(lambda r: r.named("upto"))
        assert reader.named("upto") == [{"seq": head}]
        run = started(near, session)
        await reader.until(lambda r: r.named("state"))
        running.keep_draft(near.platform, run, "I think")
        await reader.until(lambda r: r.named("draft"))
        running.settle(near.platform, run, "completed", engine="script")
        await reader.until(lambda r: r.named("draft-end"))
        assert [told["state"] for told in reader.named("state")][-2:] == ["running", "completed"]
        assert [s.name for s in reader.sent][-2:] == ["upto", "draft-end"]
        made = near.log.continue_session(session, COMMAND, engine="script")
        await reader.until(lambda r: r.named("session-continued"))
        assert reader.named("session-continued")[0]["successor"] == made.successor
        # One who was away while it happened is told as well.
        other = Page(live, session, after=head).reader
        await other.until(lambda r: r.named("session-continued"))
        assert other.named("event") == []

    play(world, story)


class Page:
    """A page of the console, as far as a stream sees it."""

    def __init__(self, live: Site, session: str, *, after: int) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            request = Request(scope, receive)
            answer = surface.hints(live.house, live.platform, live.token, session, request)
            await answer(scope, receive, send)

        inner, live.app = live.app, app
        self.reader = live.read(f"/sessions/{session}/live?after={after}")
        live.app = inner


def test_the_feed_says_which_sessions_changed_and_goes_on_after_a_restart(world: World) -> None:
    first, second = world.log.start("First").id, world.log.start("Second").id
    cursor = ""

    async def before(live: Site, near: World) -> None:
        nonlocal cursor
        reader = live.read("/v1/feed")
        await reader.until(lambda r: r.parser.last_id)
        assert reader.sent == []
        near.say(first, "here")
        await reader.until(lambda r: r.sent)
        world.say(second, "by another process")
        await reader.until(lambda r: r.sent[-1].data["session"] == second)
        assert [s.name for s in reader.sent] == ["session"] * len(reader.sent)
        told = reader.sent[-1].data
        assert (told["title"], told["head"], told["state"]) == ("Second", 2, None)
        run = started(near, first)
        await reader.until(lambda r: r.sent[-1].data["state"] == "running")
        assert reader.sent[-1].data["run"] == run.id
        await reader.until(lambda r: r.parser._id == r.parser.last_id)
        cursor = reader.parser.last_id

    async def after(live: Site, near: World) -> None:
        reader = live.read("/v1/feed", last=cursor)
        await reader.until(lambda r: len(r.sent) >= 2)
        assert {sent.data["session"] for sent in reader.sent} == {second, third}
        assert live.account(OTHER)[0].account_id == OTHER

    play(world, before)
    third = world.log.start("Third").id
    world.say(second, "while nobody was there")
    play(world, after)


@pytest.mark.requirement("A1")
def test_a_feed_has_nothing_of_another_account(world: World) -> None:
    async def story(live: Site, near: World) -> None:
        platform, secret = live.account(OTHER)
        theirs = live.read("/v1/feed", secret=secret)
        await theirs.until(lambda r: r.parser.last_id)
        near.say(near.log.start("Mine").id, "not for them")
        begun = near.acting(OTHER).start("Theirs")
        await theirs.until(lambda r: r.sent)
        assert {sent.data["session"] for sent in theirs.sent} == {begun.id}
        assert platform.may_read(begun.id)

    play(world, story)


@pytest.mark.requirement("A1")
def test_another_account_finds_no_such_session(world: World) -> None:
    session = world.conversation(1)

    async def story(live: Site, near: World) -> None:
        reader = live.follow(session, secret=live.account(OTHER)[1])
        await reader.over()
        assert reader.status == 404
        assert json.loads(reader.refused)["error"]["code"] == "session_not_found"

    play(world, story)


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("how", ["revoked here", "revoked elsewhere", "expired"])
def test_a_stream_ends_when_its_token_does(world: World, how: str) -> None:
    session = world.conversation(1)

    async def story(live: Site, near: World) -> None:
        token, secret = tokens.create(world.platform, "short", ["read"], lifetime=3600)
        reader, feed = live.follow(session, secret=secret), live.read("/v1/feed", secret=secret)
        stays = live.follow(session)
        for each in (reader, feed, stays):
            await each.until(lambda r: r.parser.last_id)
        match how:
            case "revoked here":
                tokens.revoke(near.platform, token.id)
            case "revoked elsewhere":
                tokens.revoke(world.platform, token.id)
            case _:
                world.clock.tick(4000)
        for each in (reader, feed):
            await each.over()
            assert [s["code"] for s in each.named("end")] == ["unauthorized"]
        near.say(session, "not for everybody")
        await stays.until(lambda r: r.named("event")[-1]["body"].get("text") == "not for everybody")
        again = live.follow(session, secret=secret)
        await again.over()
        assert again.status == 401

    # Revoked here, it ends at once: the next question would come in an hour.
    play(world, story, recheck=3600 if how == "revoked here" else 0.01)


@pytest.mark.requirement("L5")
def test_what_was_erased_is_sent_to_nobody_any_more(world: World) -> None:
    session = world.conversation(3)
    secret = world.say(session, "my password is hunter2")

    async def story(live: Site, near: World) -> None:
        first = live.follow(session)
        await first.until(lambda r: r.seqs and r.seqs[-1] == secret.seq)
        assert b"hunter2" in b"".join(bytes(b.data) for b in live.house.live._log._blocks.values())
        near.log.erase(secret.id, reason="leaked")
        await first.until(lambda r: r.seqs[-1] > secret.seq)
        second = live.follow(session)
        await second.until(lambda r: r.seqs and r.seqs[-1] == first.seqs[-1])
        assert second.named("event")[secret.seq - 1]["body"] == {"erased": True, "reason": "leaked"}
        assert b"hunter2" not in b"".join(bytes(b.data) for b in live.house.live._log._blocks.values())

    play(world, story)


def test_there_are_only_so_many_streams_of_an_account_and_of_a_server(world: World) -> None:
    session = world.conversation(1)

    async def story(live: Site, near: World) -> None:
        readers = [live.follow(session) for _ in range(2)]
        for reader in readers:
            await reader.until(lambda r: r.seqs)
        third = live.follow(session)
        await third.over()
        assert (third.status, json.loads(third.refused)["error"]["code"]) == (429, "too_many_streams")
        secret = live.account(OTHER)[1]
        theirs = live.read("/v1/feed", secret=secret)
        await theirs.until(lambda r: r.parser.last_id)
        fourth = live.read("/v1/feed", secret=secret)
        await fourth.over()
        assert (fourth.status, json.loads(fourth.refused)["error"]["code"]) == (503, "server_busy")
        readers[0].leave()
        theirs.leave()
        await readers[0].over()
        await theirs.over()
        again = live.follow(session)
        await again.until(lambda r: r.seqs)

    play(world, story, per_account=2, in_all=3)


@pytest.mark.parametrize(
    ("cursor", "last"), [("-1", None), ("x", None), ("99", None), ("0", "x"), ("0", "99"), ("0", "1" * 30)]
)
def test_a_cursor_that_is_none_is_refused_in_words(world: World, cursor: str, last: str | None) -> None:
    session = world.conversation(1)

    async def story(live: Site, near: World) -> None:
        reader = live.read(f"/v1/sessions/{session}/events/stream?after={cursor}", last=last)
        await reader.over()
        assert (reader.status, json.loads(reader.refused)["error"]["code"]) == (400, "invalid_input")
        feed = live.read("/v1/feed", last="no cursor")
        await feed.over()
        assert (feed.status, json.loads(feed.refused)["error"]["code"]) == (400, "invalid_input")

    play(world, story)


def test_a_silent_stream_has_a_heartbeat(world: World) -> None:
    session = world.conversation(1)

    async def story(live: Site, near: World) -> None:
        reader = live.follow(session)
        await reader.until(lambda r: r.parser.comments >= 3)
        assert reader.seqs == list(range(1, near.store.heads([session])[session] + 1))

    play(world, story, heartbeat=0.01)


def test_streams_end_when_the_server_is_about_to_go(world: World) -> None:
    session = world.conversation(1)

    async def story(live: Site, near: World) -> None:
        readers = [live.follow(session), live.read("/v1/feed")]
        for reader in readers:
            await reader.until(lambda r: r.parser.last_id)
        live.house.close()
        for reader in readers:
            await reader.over()
            assert reader.task.exception() is None

    play(world, story)


def test_a_large_event_goes_out_in_pieces_and_comes_whole(world: World) -> None:
    session = world.log.start("x").id
    text = "🌍" * 200_000
    world.say(session, text)

    async def story(live: Site, near: World) -> None:
        readers = [live.follow(session) for _ in range(3)]
        for reader in readers:
            await reader.until(lambda r: len(r.seqs) == 2)
            assert reader.named("event")[1]["body"]["text"] == text

    play(world, story, cache=1000)


def test_dials_are_seconds_and_counts_that_make_sense() -> None:
    usual = Tuning()
    assert usual.look <= 0.2
    assert usual.heartbeat <= 15
    assert usual.in_all >= usual.per_account >= 1000
