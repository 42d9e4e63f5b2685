"""Two stores are told the same things in any order: the memory store is the model, the SQLite store is under test.

After every step both must have answered alike, refusals included. The store under test is closed and opened again at any
moment, and it crashes: at a chosen step of a commit, everything that it had not committed is lost. Then the same batch is
tried again, which must give what it gives the model.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from onward.core import ids
from onward.core.records import Draft, EngineSession, Run
from onward.errors import OnwardError
from onward.store.contract import (
    Append,
    Batch,
    Committed,
    Erase,
    HeadIs,
    LinksAre,
    NoOpenCalls,
    NoRuns,
    RunChange,
    RunIs,
    SessionPatch,
    SessionQuery,
    Store,
)
from onward.store.memory import MemoryStore
from onward.store.sqlite import SqliteStore
from onward.testing.store_cases import ACCOUNT, OTHER_ACCOUNT, World, first_fault

STATES = ["queued", "running", "completed", "failed", "interrupted", "continued"]
READS = ["session", "links", "runs", "unfinished", "open_calls", "state", "engine_sessions", "lineage"]
WORDS = ["alpha", "beta", "gamma", "版本需求", "fooBar", "zürich"]


class Crash(Exception):
    """The process stopped here."""


class Stores(RuleBasedStateMachine):
    """The rules: what can be said to a store, and what both must answer."""

    sessions = Bundle("sessions")
    runs = Bundle("runs")
    events = Bundle("events")

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "store.db"
        self.model: Store = MemoryStore()
        self.tested = SqliteStore(self._path, synchronous="NORMAL")
        self.world = World(self.model)  # makes values; what it commits is never used
        self.known: list[str] = []

    def teardown(self) -> None:
        self.tested.close()
        self._folder.cleanup()

    def both(self, batch: Batch) -> Committed | None:
        """Commit to both. They must give the same, or refuse for the same reason."""
        answers: list[Any] = []
        for store in (self.model, self.tested):
            try:
                answers.append(store.commit(batch))
            except OnwardError as error:
                answers.append((error.code, str(error)))
        assert answers[0] == answers[1]
        return answers[0] if isinstance(answers[0], Committed) else None

    @initialize(target=sessions)
    def begin(self) -> str:
        return self._session(ACCOUNT, "")

    def _session(self, account: str, title: str) -> str:
        session = self.world.new_session(account=account, title=title)
        assert self.both(Batch(sessions=(session,)))
        self.known.append(session.id)
        return session.id

    @rule(target=sessions, account=st.sampled_from([ACCOUNT, OTHER_ACCOUNT]), title=st.text(max_size=5))
    def open_session(self, account: str, title: str) -> str:
        return self._session(account, title)

    @rule(
        target=events,
        session=sessions,
        texts=st.lists(st.sampled_from(WORDS), max_size=4),
        again=st.booleans(),
    )
    def say(self, session: str, texts: list[str], again: bool) -> Any:
        new = tuple(self.world.event(text) for text in texts)
        batch = Batch(appends=(Append(session_id=session, events=new),))
        done = self.both(batch)
        assert done is not None
        if again:
            assert self.both(batch) == done
        return multiple(*new)

    @rule(session=sessions, event=events)
    def repeat_elsewhere(self, session: str, event: Any) -> None:
        self.both(Batch(appends=(Append(session_id=session, events=(event, self.world.event("alpha"))),)))

    @rule(
        session=sessions,
        uses=st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), min_size=1, max_size=5),
    )
    def use_tools(self, session: str, uses: list[tuple[str, bool]]) -> None:
        events = tuple(self.world.result(name) if result else self.world.call(name) for name, result in uses)
        self.both(Batch(appends=(Append(session_id=session, events=events),)))

    @rule(session=sessions, kind=st.sampled_from(["plan", "pins"]))
    def revise(self, session: str, kind: str) -> None:
        event = self.world.event(kind=kind, actor="agent", body={"revision": 1})
        self.both(Batch(appends=(Append(session_id=session, events=(event,)),)))

    @rule(
        one=sessions,
        two=sessions,
        type_=st.sampled_from(["continuation", "child", "fork"]),
        key=st.sampled_from([None, "k", "l"]),
    )
    def link(self, one: str, two: str, type_: Any, key: str | None) -> None:
        self.both(Batch(links=(self.world.new_link(one, two, type_, key=key),)))

    @rule(
        target=sessions,
        old=sessions,
        key=st.sampled_from([None, "k", "l"]),
        head=st.integers(0, 6),
        count=st.integers(0, 2),
        guarded=st.booleans(),
    )
    def continue_session(self, old: str, key: str | None, head: int, count: int, guarded: bool) -> Any:
        new = self.world.new_session()
        guards = (
            HeadIs(old, head),
            LinksAre(old, "continuation", count),
            NoOpenCalls(old, ("a",)),
            NoRuns(old),
        )
        done = self.both(
            Batch(
                guards=guards if guarded else (),
                sessions=(new,),
                links=(self.world.new_link(old, new.id, key=key),),
                runs=(self.world.new_run(new.id),),
                appends=(
                    Append(
                        session_id=old, events=(self.world.event(kind="session", actor="system", body={}),)
                    ),
                    Append(session_id=new.id, events=(self.world.event("beta"), self.world.call("a"))),
                ),
            )
        )
        if done is None:
            return multiple()
        self.known.append(new.id)
        return new.id

    @rule(target=runs, session=sessions)
    def queue(self, session: str) -> Run:
        run = self.world.new_run(session, input=b"{}")
        assert self.both(Batch(runs=(run,)))
        return run

    @rule(
        run=runs,
        state=st.sampled_from([None, *STATES]),
        fence=st.sampled_from([None, 1, 2]),
        lease=st.integers(0, 50),
        guarded=st.booleans(),
    )
    def change_run(self, run: Run, state: Any, fence: int | None, lease: int, guarded: bool) -> None:
        guards = (RunIs(run.id, "running", None, lease),) if guarded else ()
        change = RunChange(run_id=run.id, state=state, fence=fence, owner="me", lease_until=lease)
        self.both(Batch(guards=guards, run_changes=(change,)))

    @rule(run=runs, session=sessions)
    def move_run(self, run: Run, session: str) -> None:
        self.both(Batch(run_changes=(RunChange(run_id=run.id, session_id=session, clear_input=True),)))

    @rule(run=runs, fence=st.integers(0, 3), settle=st.booleans())
    def speak_under_a_lease(self, run: Run, fence: int, settle: bool) -> None:
        held = self.model.run(run.id)
        assert held is not None
        hold = Append(
            session_id=held.session_id, events=(self.world.event("gamma"),), run_id=run.id, fence=fence
        )
        changes = (RunChange(run_id=run.id, state="completed", fence=fence),) if settle else ()
        self.both(Batch(appends=(hold,), run_changes=changes))

    @rule(run=runs, drop=st.booleans())
    def draft(self, run: Run, drop: bool) -> None:
        draft = Draft(run_id=run.id, session_id=run.session_id, text="…", updated_at=self.world.clock.now)
        self.both(Batch(drop_drafts=(run.id,)) if drop else Batch(drafts=(draft,)))

    @rule(session=sessions, engine=st.sampled_from("xy"), archived=st.none() | st.booleans())
    def touch_records(self, session: str, engine: str, archived: bool | None) -> None:
        known = EngineSession(session_id=session, engine=engine, native_id=self.world.ids.new(ids.FILE))
        patch = SessionPatch(session_id=session, title=engine, archived=archived)
        self.both(Batch(engine_sessions=(known,), session_patches=(patch,)))

    @rule(event=events)
    def erase(self, event: Any) -> None:
        self.both(Batch(erasures=(Erase(event_id=event.id, tombstone=b'{"reason":"asked"}'),)))

    @rule(
        sessions=st.lists(sessions, min_size=1, max_size=3), last=st.sampled_from(["event", "session", "run"])
    )
    def fail_at_the_end(self, sessions: list[str], last: str) -> None:
        appends = tuple(
            Append(session_id=session, events=(self.world.event("alpha"), self.world.call("b")))
            for session in sessions
        )
        missing = self.world.ids.new(ids.EVENT)
        spoiled = {
            "event": Batch(appends=appends, erasures=(Erase(event_id=missing, tombstone=b""),)),
            "session": Batch(appends=(*appends, Append(session_id="ses_x", events=()))),
            "run": Batch(appends=appends, run_changes=(RunChange(run_id="run_x"),)),
        }[last]
        assert self.both(spoiled) is None

    @rule(
        terms=st.lists(st.sampled_from([*WORDS, "foo", "需"]), min_size=1, max_size=2), any_term=st.booleans()
    )
    def search(self, terms: list[str], any_term: bool) -> None:
        for account in (ACCOUNT, OTHER_ACCOUNT):
            for sessions in (None, self.known[::2]):
                for limit in (3, 500):
                    options = {"sessions": sessions, "limit": limit, "any_term": any_term}
                    assert self.model.search(terms, account_id=account, **options) == self.tested.search(
                        terms, account_id=account, **options
                    )

    @rule()
    def reopen(self) -> None:
        self.tested.close()
        self.tested = SqliteStore(self._path, synchronous="NORMAL")

    @rule(
        session=sessions,
        run=st.none() | runs,
        at=st.sampled_from(
            ["BEGIN", "INSERT INTO sessions", "INSERT INTO links", "INSERT INTO events", "COMMIT"]
        ),
    )
    def crash_during_a_commit(self, session: str, run: Run | None, at: str) -> None:
        """The process stops just before this statement. What it wrote is gone; trying again works as if nothing was."""
        new = self.world.new_session()
        batch = Batch(
            sessions=(new,),
            links=(self.world.new_link(session, new.id),),
            appends=(
                Append(session_id=new.id, events=(self.world.event("alpha"), self.world.call("a"))),
                Append(session_id=session, events=(self.world.event("beta"),)),
            ),
            run_changes=(RunChange(run_id=run.id, owner="me"),) if run else (),
        )
        crash(self.tested, at, batch)
        self.tested = SqliteStore(self._path, synchronous="NORMAL")
        assert self.tested.session(new.id) is None
        assert self.tested.events(new.id) == []
        self.compare()
        if self.both(batch):
            self.known.append(new.id)

    @invariant()
    def compare(self) -> None:
        """Everything that can be read is the same."""
        for session in self.known:
            for read in READS:
                assert getattr(self.model, read)(session) == getattr(self.tested, read)(session), read
            assert list(self.model.scan(session)) == list(self.tested.scan(session))
            for run in self.model.runs(session):
                assert self.model.draft(run.id) == self.tested.draft(run.id)
        for state in ("queued", "running", "failed"):
            assert self.model.runs_in(state, lease_before=25) == self.tested.runs_in(state, lease_before=25)
        for account in (ACCOUNT, OTHER_ACCOUNT):
            query = SessionQuery(account_id=account, limit=3, include_children=False)
            assert self.model.sessions(query) == self.tested.sessions(query)

    @invariant()
    def chains_hold(self) -> None:
        """Every chain can be derived anew."""
        for session in self.known:
            assert first_fault(self.tested, session) is None


class _Dying:
    """A connection that raises just before one statement, and lets nothing through afterwards."""

    def __init__(self, connection: sqlite3.Connection, at: str) -> None:
        self._connection = connection
        self._at = at
        self._dead = False

    def __getattr__(self, name: str) -> Any:
        if self._dead:
            raise Crash
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        if self._dead or statement.lstrip().startswith(self._at):
            self._dead = True
            raise Crash
        return self._connection.execute(statement, *values)

    def executemany(self, statement: str, *values: Any) -> Any:
        if self._dead or statement.lstrip().startswith(self._at):
            self._dead = True
            raise Crash
        return self._connection.executemany(statement, *values)


def crash(store: SqliteStore, at: str, batch: Batch) -> None:
    """Commit through a connection that dies at a statement, then lose the process: locks and uncommitted work."""
    writer = store._writer
    assert writer is not None
    connection = writer._db
    dying: Any = _Dying(connection, at)
    writer._db = writer._batches._db = writer._batches.log._db = dying
    with pytest.raises(Crash):
        store.commit(batch)
    connection.close()  # as the kernel would: without a commit
    writer._process_lock.close()
    while store._readers:
        store._readers.pop().close()


TestStores = Stores.TestCase
TestStores = pytest.mark.requirement("L1", "L2", "L3", "L5", "L6", "C2", "C3", "C5")(TestStores)
TestStores.settings = settings(
    max_examples=max(10, settings.default.max_examples // 4), stateful_step_count=30, deadline=None
)
