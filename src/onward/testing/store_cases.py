"""What the store suites work with: a world of fixed time and counted ids, and the shortest way to say each batch.

Everything here builds values and commits them; nothing asserts.
"""

from __future__ import annotations

import itertools
from typing import Any

from onward.core import ids
from onward.core.codec import encode
from onward.core.digests import GENESIS
from onward.core.events import ONWARD, Event, NewEvent, Source, fault_in
from onward.core.records import Link, LinkType, Run, Session
from onward.store.contract import Append, Batch, RunChange, Store
from onward.testing.clock import FakeClock, FakeIds

ACCOUNT = "acc_0000000000000000000000000A"
OTHER_ACCOUNT = "acc_0000000000000000000000000B"


class World:
    """A store, a clock that ticks with every event, and ids that count."""

    def __init__(self, store: Store, *, space: int = 0) -> None:
        self.store = store
        self.clock = FakeClock()
        self.ids = FakeIds(self.clock, space=space)
        self._calls = itertools.count(1)

    # -- values -------------------------------------------------------------------------------------------------------

    def event(
        self,
        text: str = "hello",
        *,
        kind: str = "message",
        actor: str = "user",
        body: bytes | dict[str, Any] | None = None,
        source: Source = ONWARD,
        run_id: str | None = None,
        at: int | None = None,
    ) -> NewEvent:
        """An event that was never stored."""
        if body is None:
            body = {"role": "user", "text": text}
        return NewEvent(
            id=self.ids.new(ids.EVENT),
            at=self.clock.tick(0.001) if at is None else at,
            kind=kind,
            actor=actor,
            body=body if isinstance(body, bytes) else encode(body),
            salt=self.ids.salt(),
            source=source,
            run_id=run_id,
        )

    def call(self, name: str) -> NewEvent:
        """A tool call under this call id."""
        return self.event(kind="tool_call", actor="agent", body={"call": name, "name": "ls", "input": {}})

    def result(self, name: str) -> NewEvent:
        """The result of a tool call."""
        return self.event(kind="tool_result", actor="tool", body={"call": name, "output": "done"})

    def new_session(self, *, account: str = ACCOUNT, **fields: Any) -> Session:
        """A session that was never stored."""
        return Session(
            id=self.ids.new(ids.SESSION), account_id=account, created_at=self.clock.tick(), **fields
        )

    def new_link(
        self, from_session: str, to_session: str, type_: LinkType = "continuation", **fields: Any
    ) -> Link:
        """A link that was never stored."""
        return Link(
            id=self.ids.new(ids.LINK),
            type=type_,
            from_session=from_session,
            to_session=to_session,
            created_at=self.clock.tick(),
            **fields,
        )

    def new_run(self, session_id: str, **fields: Any) -> Run:
        """A run that was never stored."""
        return Run(
            id=self.ids.new(ids.RUN),
            session_id=session_id,
            created_at=self.clock.tick(),
            engine="script",
            **fields,
        )

    # -- what is stored -----------------------------------------------------------------------------------------------

    def session(self, **fields: Any) -> str:
        """Store a session and return its id."""
        session = self.new_session(**fields)
        self.store.commit(Batch(sessions=(session,)))
        return session.id

    def append(self, session_id: str, *events: NewEvent | str, **hold: Any) -> tuple[Event, ...]:
        """Append events, or messages with these texts, and return what is stored."""
        new = tuple(self.event(event) if isinstance(event, str) else event for event in events)
        return self.store.commit(Batch(appends=(Append(session_id=session_id, events=new, **hold),))).events

    def link(
        self, from_session: str, to_session: str, type_: LinkType = "continuation", **fields: Any
    ) -> Link:
        """Store a link and return it."""
        link = self.new_link(from_session, to_session, type_, **fields)
        self.store.commit(Batch(links=(link,)))
        return link

    def run(self, session_id: str, **fields: Any) -> Run:
        """Store a queued run and return it."""
        run = self.new_run(session_id, **fields)
        self.store.commit(Batch(runs=(run,)))
        return run

    def running(self, session_id: str, **fields: Any) -> Run:
        """Store a run, start it and return it."""
        run = self.run(session_id)
        return self.change(run.id, state="running", owner="runner", **fields)

    def change(self, run_id: str, **fields: Any) -> Run:
        """Change a run and return it."""
        return self.store.commit(Batch(run_changes=(RunChange(run_id=run_id, **fields),))).runs[0]

    def texts(self, session_id: str) -> list[bytes]:
        """Every body of a session, in order."""
        return [event.body for event in self.store.scan(session_id)]


def first_fault(store: Store, session_id: str) -> str | None:
    """Re-derive every event of a session. Return the first fault in words, or None (invariants L1 and L2)."""
    chain, seq = GENESIS, 0
    for event in store.scan(session_id):
        seq += 1
        fault = fault_in(event, seq, chain)
        if fault:
            return f"event {seq}: {fault}"
        chain = event.chain
    session = store.session(session_id)
    if session is None or (session.head_seq, session.head_chain) != (seq, chain):
        return f"the session's head is not that of its last event, {seq}"
    return None
