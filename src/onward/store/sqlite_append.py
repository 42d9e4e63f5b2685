"""Appending to the log inside one transaction: what many appends have in common is looked up and written once.

In a group commit, sixteen producers append one event each. Their events are sealed one by one, in order, on heads that are
held here; rows and heads reach SQLite together when ``flush`` is called: before anything else wants to see them, and before
the commit. An append that is refused has added nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from onward.core.codec import call_of
from onward.core.events import Event, NewEvent, seal
from onward.core.ids import pack_id
from onward.errors import SessionNotFound
from onward.store import rules
from onward.store import statements as sql
from onward.store.contract import Append
from onward.store.rows import bindable
from onward.store.sqlite_events import Stamps, stored_events

_PARAMETERS: Final = 500
_KEPT: Final = frozenset(("tool_call", "tool_result", "plan", "pins"))


class _Head:
    """The end of one session, as it will be when what is held here is written."""

    __slots__ = ("chain", "input_seq", "seq", "session", "updated_at")

    def __init__(self, session: int, seq: int, chain: bytes, updated_at: int, input_seq: int) -> None:
        self.session = session
        self.seq = seq
        self.chain = chain
        self.updated_at = updated_at
        self.input_seq = input_seq


class Appender:
    """The appends of one transaction at a time."""

    def __init__(self, connection: sqlite3.Connection, stamps: Stamps) -> None:
        self._db = connection
        self._stamps = stamps
        self.last_pos = 0
        """The end of the log, as the newest append left it."""
        self.appended = 0
        """Events written since this was last set to 0."""
        self.begin()

    def begin(self) -> None:
        """Forget everything: a transaction begins, and others may have written since the last one."""
        self._heads: dict[str, _Head] = {}
        self._new: dict[str, Event] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._kept: list[tuple[int, int, Event]] = []
        self._pos: int | None = None

    @property
    def held(self) -> int:
        """How many events wait for ``flush``."""
        return len(self._rows)

    def append(self, append: Append) -> list[Event]:
        """Seal what is new and return every event of an append as it is or will be stored. Raises SessionNotFound."""
        head = self._heads.get(append.session_id) or self._head(append.session_id)
        pos = self._pos or 0
        packed = [pack_id(event.id) for event in append.events]
        stored = self._stored(append.events, packed)
        events: list[Event] = []
        rows: list[tuple[Any, ...]] = []
        kept: list[tuple[int, int, Event]] = []
        seq, chain, updated_at, input_seq = head.seq, head.chain, head.updated_at, head.input_seq
        for new, id_ in zip(append.events, packed, strict=True):
            event = stored.get(new.id)
            if event is None:
                seq += 1
                pos += 1
                event = stored[new.id] = seal(new, append.session_id, seq, chain)
                chain = event.chain
                rows.append(self._row(pos, head.session, event, id_))
                if new.at > updated_at:
                    updated_at = new.at
                if rules.opens_input(new):
                    input_seq = seq
                elif new.kind in _KEPT:
                    kept.append((head.session, pos, event))
            events.append(event)
        if rows:
            self._heads[append.session_id] = head
            head.seq, head.chain, head.updated_at, head.input_seq = seq, chain, updated_at, input_seq
            self._rows += rows
            self._kept += kept
            self._pos = pos
        self._new.update(stored)
        return events

    def flush(self) -> None:
        """Write what is held."""
        rows = self._rows
        if not rows:
            return
        if len(rows) == 1:
            self._db.execute(sql.ADD_EVENT, rows[0])
        else:
            self._db.executemany(sql.ADD_EVENT, rows)
        for head in self._heads.values():
            moved = (head.seq, head.chain, head.updated_at, head.input_seq, head.session)
            self._db.execute(sql.MOVE_HEAD, moved)
        for session, pos, event in self._kept:
            self._keep(session, pos, event)
        self.last_pos = self._pos or 0
        self.appended += len(rows)
        self.begin()

    def _head(self, session_id: str) -> _Head:
        row = self._db.execute(sql.HEAD, (session_id,)).fetchone()
        if row is None:
            raise SessionNotFound(session=session_id)
        *head, last_pos = row
        if self._pos is None:
            self._pos = last_pos or 0
        return _Head(*head)

    def _stored(self, events: Sequence[NewEvent], packed: list[bytes]) -> dict[str, Event]:
        """Return those of these events that are in the log already: nearly always none, which the index of ids knows."""
        stored = (
            {event.id: self._new[event.id] for event in events if event.id in self._new} if self._new else {}
        )
        for start in range(0, len(packed), _PARAMETERS):
            some = packed[start : start + _PARAMETERS]
            if self._db.execute(sql.any_event(len(some)), some).fetchone():
                return stored | stored_events(self._db, self._stamps, [event.id for event in events])
        return stored

    def _row(self, pos: int, session: int, event: Event, id_: bytes) -> tuple[Any, ...]:
        run, source = event.run_id, event.source
        return (
            pos,
            session,
            event.seq,
            event.at,
            self._stamps.number(self._db, event),
            id_,
            event.chain,
            event.salt,
            None if run is None else pack_id(run),
            None if source.native_id is None else bindable(source.native_id),
            None if source.place is None else bindable(source.place),
            event.body,
        )

    def _keep(self, session: int, pos: int, event: Event) -> None:
        """Keep up to date what is known of open calls and of the newest plan and pins."""
        if event.kind in ("plan", "pins"):
            self._db.execute(sql.SET_STATE, (session, event.kind, pos))
            return
        call, _ = call_of(event.kind, event.body)
        if call and event.kind == "tool_call":
            self._db.execute(sql.OPEN_CALL, (session, bindable(call), event.id, event.seq))
        elif call:
            self._db.execute(sql.CLOSE_CALL, (session, bindable(call)))
