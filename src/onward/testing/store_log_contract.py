"""What every store promises about the log: order, bytes, digests, atomicity, erasure (invariants L1 to L6, C2)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import msgspec
import pytest

from onward.core import digests, ids
from onward.core.events import Event, NewEvent, Source, seal
from onward.core.records import Draft, Session
from onward.errors import Conflict, EventNotFound, InvalidId, InvalidInput, OnwardError, SessionNotFound
from onward.store.contract import (
    Append,
    Batch,
    Erase,
    HeadIs,
    LinksAre,
    NoDraft,
    NoOpenCalls,
    NoRuns,
    RunIs,
    Store,
)
from onward.testing.store_cases import ACCOUNT, World, first_fault

_AWKWARD = (
    b"",
    b"{}",
    b"\x00\xff not JSON, not UTF-8 \xc3\x28",
    b'{"text":"\\ud800 lone"}',
    '{"text":"ünï \U0001f600 版本"}'.encode(),
    b'{"text":"' + b"x" * 300_000 + b'"}',
)


class LogContract:
    """The part of the suite about events."""

    @pytest.mark.requirement("L1")
    def test_events_are_numbered_from_one_in_the_order_they_were_given(self, world: World) -> None:
        first, second = world.session(), world.session()
        world.append(first, "a", "b")
        world.append(second, "c")
        world.append(first, world.event("earlier by the clock", at=1))
        assert [event.seq for event in world.store.events(first)] == [1, 2, 3]
        assert [event.seq for event in world.store.events(second)] == [1]
        assert world.texts(first)[-1] == b'{"role":"user","text":"earlier by the clock"}'

    @pytest.mark.requirement("L1", "L6")
    def test_threads_that_append_to_one_session_never_share_a_number_or_interleave_in_an_append(
        self, world: World
    ) -> None:
        session, writers, rounds = world.session(), 8, 12
        barrier = threading.Barrier(writers)
        failures: list[BaseException] = []

        def write(space: int) -> None:
            own = World(world.store, space=space + 1)
            try:
                barrier.wait(30)
                for _ in range(rounds):
                    own.append(session, f"{space}-1", f"{space}-2", f"{space}-3")
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=write, args=(space,)) for space in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        events = list(world.store.scan(session))
        assert [event.seq for event in events] == list(range(1, writers * rounds * 3 + 1))
        for start in range(0, len(events), 3):
            texts = [msgspec.json.decode(event.body)["text"] for event in events[start : start + 3]]
            writer = texts[0].split("-")[0]
            assert texts == [f"{writer}-1", f"{writer}-2", f"{writer}-3"]
        assert first_fault(world.store, session) is None

    @pytest.mark.requirement("L2")
    @pytest.mark.parametrize("body", _AWKWARD, ids=lambda body: f"{len(body)} bytes {body[:12]!r}")
    def test_a_body_comes_back_as_the_bytes_that_were_given(self, world: World, body: bytes) -> None:
        session = world.session()
        (stored,) = world.append(session, world.event(body=body))
        assert stored.body == body
        assert world.store.events(session) == [stored]
        assert world.store.event(stored.id) == stored
        assert list(world.store.scan(session)) == [stored]

    @pytest.mark.requirement("L2")
    def test_digest_and_chain_are_those_that_anyone_derives(self, world: World) -> None:
        session = world.session()
        new = [world.event(str(n), run_id=world.ids.new(ids.RUN) if n % 2 else None) for n in range(5)]
        chain = digests.GENESIS
        for seq, (given, stored) in enumerate(zip(new, world.append(session, *new), strict=True), 1):
            assert stored == seal(given, session, seq, chain)
            chain = stored.chain
        found = world.store.session(session)
        assert found is not None
        assert (found.head_seq, found.head_chain) == (5, chain)
        assert first_fault(world.store, session) is None

    @pytest.mark.requirement("L2", "L4")
    def test_envelopes_come_back_whole_whatever_is_in_them(self, world: World) -> None:
        session = world.session()
        sources = (
            Source(producer="person"),
            Source(producer="engine", engine="codex"),
            Source(producer="import", engine="claude-code", native_id="abc", place="0:1@0+17"),
            Source(producer="import", engine="claude-code", native_id="Ünï ☃"),
            Source(producer="", engine=""),
        )
        kinds = ("message", "raw", "a kind from the future", "Ünï ☃")
        new = [
            world.event(kind=kind, actor="someone", source=source)
            for kind, source in itertools.product(kinds, sources)
        ]
        stored = world.append(session, *new)
        assert world.store.events(session) == list(stored)
        assert [(event.kind, event.source) for event in stored] == [
            (event.kind, event.source) for event in new
        ]
        assert first_fault(world.store, session) is None

    @pytest.mark.requirement("L2")
    def test_a_native_id_with_a_lone_surrogate_does_not_break_the_chain(self, world: World) -> None:
        session = world.session()
        world.append(
            session, world.event(source=Source(producer="import", engine="x", native_id="\ud800")), "next"
        )
        assert first_fault(world.store, session) is None

    @pytest.mark.requirement("L3")
    def test_an_event_whose_id_is_stored_is_returned_and_not_stored_again(self, world: World) -> None:
        session, other = world.session(), world.session()
        new = world.event("once")
        (stored,) = world.append(session, new)
        changed = msgspec.structs.replace(new, body=b'{"text":"a different body"}')
        assert world.append(session, new) == (stored,)
        assert world.append(session, changed) == (stored,)
        assert world.append(other, new) == (stored,)
        assert world.texts(session) == [new.body]
        assert world.texts(other) == []
        assert first_fault(world.store, session) is None

    @pytest.mark.requirement("L3")
    def test_new_and_repeated_events_may_share_an_append(self, world: World) -> None:
        session = world.session()
        one, two, three = (world.event(text) for text in "123")
        world.append(session, one)
        stored = world.append(session, one, two, two, three, one)
        assert [event.seq for event in stored] == [1, 2, 2, 3, 1]
        assert [event.seq for event in world.store.events(session)] == [1, 2, 3]

    def test_reading_a_range_is_bounded_on_both_sides(self, world: World) -> None:
        session = world.session()
        world.append(session, *(str(n) for n in range(1, 11)))

        def seqs(**bounds: object) -> list[int]:
            return [event.seq for event in world.store.events(session, **bounds)]  # type: ignore[arg-type]

        assert seqs(after=3, upto=6) == [4, 5, 6]
        assert seqs(after=3, limit=2) == [4, 5]
        assert seqs(newest_first=True, limit=3) == [10, 9, 8]
        assert seqs(newest_first=True, upto=7, limit=2) == [7, 6]
        assert seqs(after=5, newest_first=True, limit=100) == [10, 9, 8, 7, 6]
        assert seqs(after=10) == []
        assert seqs(limit=0) == []
        assert [event.seq for event in world.store.scan(session, after=8)] == [9, 10]

    def test_reading_can_be_narrowed_to_kinds(self, world: World) -> None:
        session = world.session()
        world.append(session, "1", world.call("c1"), "3", world.result("c1"), "5")
        store = world.store
        assert [event.seq for event in store.events(session, kinds=["message"])] == [1, 3, 5]
        assert [
            event.seq for event in store.events(session, kinds=["message"], limit=1, newest_first=True)
        ] == [5]
        assert [event.seq for event in store.events(session, kinds=["tool_call", "tool_result"])] == [2, 4]
        assert store.events(session, kinds=["no such kind"]) == []
        assert store.events(session, kinds=[]) == []

    def test_events_are_read_at_their_places_across_sessions(self, world: World) -> None:
        one, two = sorted((world.session(), world.session()))
        first, second = world.append(one, "a", "b", "c"), world.append(two, "d", "e")
        places = [(two, 2), (one, 3), (one, 1), (one, 3), (one, 9), ("ses_x", 1)]
        assert world.store.events_at(places) == [first[0], first[2], second[1]]
        assert world.store.events_at([]) == []

    def test_what_was_never_stored_reads_as_nothing(self, world: World) -> None:
        missing = world.ids.new(ids.SESSION)
        assert world.store.session(missing) is None
        assert world.store.events(missing) == []
        assert list(world.store.scan(missing)) == []
        assert world.store.state(missing) == {}
        assert world.store.open_calls(missing) == []
        assert world.store.event(world.ids.new(ids.EVENT)) is None
        assert world.store.event("no id at all") is None

    def test_a_scan_shows_one_moment(self, world: World) -> None:
        session = world.session()
        world.append(session, *(str(n) for n in range(600)))
        scan = world.store.scan(session)
        seen = [next(scan)]
        world.append(session, "later")
        seen += scan
        assert [event.seq for event in seen] == list(range(1, 601))

    def test_a_scan_that_is_left_midway_leaves_the_store_usable(self, world: World) -> None:
        session = world.session()
        world.append(session, *(str(n) for n in range(600)))
        for _ in range(20):
            assert next(world.store.scan(session)).seq == 1
        assert world.append(session, "after")[0].seq == 601

    # -- what the store keeps by itself -------------------------------------------------------------------------------

    def test_the_session_knows_its_newest_time_and_who_spoke_last(self, world: World) -> None:
        session = world.session()
        world.append(session, world.event("a", at=5_000), world.event("b", at=3_000, actor="trigger"))
        world.append(session, world.event("c", at=4_000, actor="agent"), world.event(kind="raw", at=1))
        found = world.store.session(session)
        assert found is not None
        assert (found.updated_at, found.input_seq, found.head_seq) == (5_000, 2, 4)

    def test_a_new_session_starts_at_the_beginning_whatever_it_says(self, world: World) -> None:
        claims = world.new_session(
            title="T", head_seq=9, head_chain=b"x" * 32, updated_at=8, input_seq=7, fence=6
        )
        world.store.commit(Batch(sessions=(claims,)))
        found = world.store.session(claims.id)
        assert found is not None
        assert (found.head_seq, found.head_chain, found.updated_at) == (0, digests.GENESIS, 0)
        assert (found.input_seq, found.fence, found.title) == (0, 0, "T")

    @pytest.mark.requirement("C6")
    def test_tool_calls_are_open_until_their_first_result(self, world: World) -> None:
        session = world.session()
        opened = world.append(session, world.call("a"), world.call("b"), world.call("c"))
        world.append(session, world.result("b"), world.result("never called"))
        found = world.store.open_calls(session)
        assert [(call.call, call.event_id, call.seq) for call in found] == [
            ("a", opened[0].id, 1),
            ("c", opened[2].id, 3),
        ]
        world.append(session, world.result("a"), world.result("c"), world.result("c"))
        assert world.store.open_calls(session) == []

    @pytest.mark.requirement("P6")
    def test_state_is_the_newest_plan_and_pins(self, world: World) -> None:
        session = world.session()
        assert world.store.state(session) == {}
        plan = [world.event(kind="plan", actor="agent", body={"revision": n, "steps": []}) for n in (1, 2)]
        pins = world.event(kind="pins", actor="agent", body={"revision": 1, "pins": []})
        stored = world.append(session, plan[0], pins, "between", plan[1])
        assert world.store.state(session) == {"plan": stored[3], "pins": stored[1]}

    # -- all or nothing -----------------------------------------------------------------------------------------------

    @pytest.mark.requirement("C2")
    def test_a_refused_batch_leaves_nothing_behind(self, world: World) -> None:
        store = world.store
        old, other = world.session(title="before"), world.session()
        world.append(old, "kept")
        run = world.running(old)
        before = _everything(store, old, other)
        new = world.new_session()
        started = world.new_run(new.id)
        spoiled = Batch(
            sessions=(new,),
            links=(world.new_link(old, new.id, key="k"),),
            blobs=((digests.content_digest(b"blob"), b"blob"),),
            runs=(started,),
            appends=(
                Append(session_id=new.id, events=(world.event("a"), world.event("b"))),
                Append(session_id=old, events=(world.event("c"), world.call("open"))),
            ),
            drafts=(Draft(run_id=run.id, session_id=old, text="…", updated_at=1),),
            erasures=(Erase(event_id=world.ids.new(ids.EVENT), tombstone=b"{}"),),  # the last element fails
        )
        with pytest.raises(EventNotFound):
            store.commit(spoiled)
        assert _everything(store, old, other) == before
        assert store.session(new.id) is None
        assert store.run(started.id) is None
        assert store.link_by_key(old, "k") is None
        assert store.blob(digests.content_digest(b"blob")) is None
        assert store.draft(run.id) is None
        assert first_fault(store, old) is None

    @pytest.mark.requirement("C2")
    def test_an_append_that_is_refused_takes_the_appends_before_it_along(self, world: World) -> None:
        one, two = world.session(), world.session()
        world.append(one, "kept")
        appends = [Append(session_id=session, events=(world.event("no"),)) for session in (one, two, "ses_x")]
        with pytest.raises(SessionNotFound):
            world.store.commit(Batch(appends=tuple(appends)))
        assert (len(world.texts(one)), len(world.texts(two))) == (1, 0)
        done = world.store.commit(Batch(appends=tuple(appends[:2])))
        assert [(event.session_id, event.seq) for event in done.events] == [(one, 2), (two, 1)]

    @pytest.mark.requirement("C2")
    def test_parts_of_one_batch_may_name_each_other(self, world: World) -> None:
        old, new = world.session(), world.new_session()
        run = world.new_run(new.id)
        link = world.new_link(old, new.id)
        done = world.store.commit(
            Batch(
                sessions=(new,),
                links=(link,),
                runs=(run,),
                appends=(Append(session_id=new.id, events=(world.event("first"),)),),
                drafts=(Draft(run_id=run.id, session_id=new.id, text="…", updated_at=1),),
            )
        )
        assert [event.seq for event in done.events] == [1]
        assert world.store.links(new.id) == [link]
        assert world.store.runs(new.id) == [run]

    @pytest.mark.parametrize(
        "guard",
        [
            lambda session, _: HeadIs(session, 7),
            lambda session, _: LinksAre(session, "continuation", 1),
            lambda _, run: RunIs(run, "queued"),
            lambda _, run: RunIs(run, "running", 99),
            lambda _, run: RunIs(run, "running", None, 10),
            lambda session, _: NoOpenCalls(session),
            lambda session, _: NoOpenCalls(session, ("another",)),
            lambda session, _: NoRuns(session),
            lambda session, _: NoRuns(session, ("another",)),
            lambda _, run: NoDraft(run),
        ],
        ids=[
            "head",
            "links",
            "run state",
            "run fence",
            "lease renewed",
            "open calls",
            "other open calls",
            "runs",
            "other runs",
            "draft",
        ],
    )
    def test_a_guard_that_does_not_hold_refuses_the_batch(
        self, world: World, guard: Callable[[str, str], HeadIs]
    ) -> None:
        session = world.session()
        world.append(session, world.call("open"))
        run = world.running(session, lease_until=100)
        draft = Draft(run_id=run.id, session_id=session, text="…", updated_at=1)
        world.store.commit(Batch(drafts=(draft,)))
        events = (world.event(),)
        with pytest.raises(Conflict):
            world.store.commit(
                Batch(guards=(guard(session, run.id),), appends=(Append(session_id=session, events=events),))
            )
        assert len(world.texts(session)) == 1

    def test_guards_that_hold_let_the_batch_through(self, world: World) -> None:
        session, other = world.session(), world.session()
        world.link(session, other, "child")
        world.append(session, world.call("open"))
        run = world.running(session, lease_until=100)
        guards = (
            HeadIs(session, 1),
            LinksAre(session, "child", 1),
            LinksAre(session, "continuation", 0),
            RunIs(run.id, "running"),
            RunIs(run.id, "running", run.fence),
            RunIs(run.id, "running", None, 101),
            NoOpenCalls(session, ("open", "and more")),
            NoOpenCalls(other),
            NoRuns(session, (run.id, "and more")),
            NoRuns(other),
            NoDraft(run.id),
        )
        world.store.commit(
            Batch(guards=guards, appends=(Append(session_id=session, events=(world.event(),)),))
        )
        assert len(world.texts(session)) == 2

    @pytest.mark.requirement("L1")
    def test_only_one_of_many_writers_passes_the_same_guard(self, world: World) -> None:
        session, writers = world.session(), 8
        barrier = threading.Barrier(writers)
        won: list[str] = []
        refused: list[OnwardError] = []

        def write(space: int) -> None:
            own = World(world.store, space=space + 1)
            events = (own.event(str(space)),)
            batch = Batch(guards=(HeadIs(session, 0),), appends=(Append(session_id=session, events=events),))
            barrier.wait(30)
            try:
                own.store.commit(batch)
                won.append(str(space))
            except Conflict as conflict:
                refused.append(conflict)

        threads = [threading.Thread(target=write, args=(space,)) for space in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert (len(won), len(refused)) == (1, writers - 1)
        assert [msgspec.json.decode(body)["text"] for body in world.texts(session)] == won

    def test_an_append_to_no_session_is_refused_by_name(self, world: World) -> None:
        missing = world.ids.new(ids.SESSION)
        with pytest.raises(SessionNotFound) as refused:
            world.append(missing, "lost")
        assert missing in str(refused.value)

    @pytest.mark.parametrize(
        "wrong", ["evt_short", "ses_00000000000000000000000001", "evt_0000000000000000000000000U", ""]
    )
    def test_an_event_id_that_is_none_is_refused(self, world: World, wrong: str) -> None:
        session = world.session()
        with pytest.raises(InvalidId):
            world.append(session, "fine", msgspec.structs.replace(world.event(), id=wrong))
        assert world.texts(session) == []

    def test_an_event_without_salt_is_refused_because_it_would_read_as_erased(self, world: World) -> None:
        session = world.session()
        with pytest.raises(InvalidInput):
            world.append(session, msgspec.structs.replace(world.event(), salt=b""))
        assert world.texts(session) == []

    @pytest.mark.parametrize("at", [2**63, -(2**63) - 1, 10**30])
    def test_an_event_whose_time_fits_into_no_column_is_refused(self, world: World, at: int) -> None:
        session = world.session()
        with pytest.raises(InvalidInput):
            world.append(session, "fine", msgspec.structs.replace(world.event(), at=at))
        assert world.texts(session) == []

    def test_a_session_that_exists_is_not_made_again(self, world: World) -> None:
        session = world.session(title="first")
        again = Session(id=session, account_id=ACCOUNT, created_at=1, title="second")
        with pytest.raises(Conflict):
            world.store.commit(Batch(sessions=(again,)))
        found = world.store.session(session)
        assert found is not None
        assert found.title == "first"

    # -- erasing ------------------------------------------------------------------------------------------------------

    @pytest.mark.requirement("L5")
    def test_an_erased_body_is_gone_and_the_chain_still_verifies(self, world: World) -> None:
        session = world.session()
        secret = world.append(session, "before", "xyzzy1234 the key", "after")[1]
        said = world.event(kind="session", actor="user", body={"change": "erased", "event": secret.id})
        world.store.commit(
            Batch(
                erasures=(Erase(event_id=secret.id, tombstone=b'{"reason":"key"}'),),
                appends=(Append(session_id=session, events=(said,)),),
            )
        )
        found = world.store.event(secret.id)
        assert found is not None
        assert found.erased
        assert (found.body, found.salt, found.digest) == (b'{"reason":"key"}', b"", secret.digest)
        assert (found.chain, found.seq) == (secret.chain, 2)
        assert world.store.events(session, after=1, upto=2) == [found]
        assert first_fault(world.store, session) is None
        assert world.store.search(["xyzzy1234"], account_id=ACCOUNT).found == ()
        assert len(world.store.search(["before"], account_id=ACCOUNT).found) == 1

    @pytest.mark.requirement("L5")
    @pytest.mark.parametrize("indexed", [False, True], ids=["before it was indexed", "after it was indexed"])
    def test_erased_words_leave_the_index(self, world: World, indexed: bool) -> None:
        session = world.session()
        secret = world.append(session, "parseSecretThing 版本需求 xyzzy1234")[0]
        if indexed:
            assert len(world.store.search(["xyzzy1234"], account_id=ACCOUNT).found) == 1
        world.store.commit(Batch(erasures=(Erase(event_id=secret.id, tombstone=b"{}"),)))
        world.append(session, "later")
        for word in ("xyzzy1234", "secret", "版本", "parsesecretthing"):
            assert world.store.search([word], account_id=ACCOUNT).found == ()
        world.store.reindex()
        assert world.store.search(["xyzzy1234"], account_id=ACCOUNT).found == ()

    @pytest.mark.requirement("L5")
    def test_erasing_twice_keeps_the_first_tombstone(self, world: World) -> None:
        session = world.session()
        (event,) = world.append(session, "gone")
        for tombstone in (b'{"reason":"one"}', b'{"reason":"two"}'):
            world.store.commit(Batch(erasures=(Erase(event_id=event.id, tombstone=tombstone),)))
        found = world.store.event(event.id)
        assert found is not None
        assert (found.body, found.digest) == (b'{"reason":"one"}', event.digest)

    @pytest.mark.requirement("L3", "L5")
    def test_appending_an_erased_event_again_does_not_bring_its_body_back(self, world: World) -> None:
        session = world.session()
        new: NewEvent = world.event("gone")
        world.append(session, new)
        world.store.commit(Batch(erasures=(Erase(event_id=new.id, tombstone=b"{}"),)))
        (again,) = world.append(session, new)
        assert again.erased
        assert again.body == b"{}"


def _everything(store: Store, *sessions: str) -> list[object]:
    """All that a refused batch could have changed about some sessions."""
    return [
        (
            store.session(session),
            _events(store, session),
            store.links(session),
            store.runs(session),
            store.open_calls(session),
            store.state(session),
            store.engine_sessions(session),
        )
        for session in sessions
    ]


def _events(store: Store, session: str) -> list[Event]:
    return list(store.scan(session))
