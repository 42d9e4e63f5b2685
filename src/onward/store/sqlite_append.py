"""Appending to the log inside one transaction: what many appends have in common is looked up and written once.

In a group commit, sixteen producers append one event each. Their events are sealed one by one, in order, on heads that are
held here; rows and heads reach SQLite together when ``flush`` is called: before anything else wants to see them, and before
the commit. An append that is refused has added nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from onward.core.codec import call_of
from onward.core.events import Event, seal
from onward.core.ids import pack_id
from onward.errors import SessionNotFound
from onward.store import rules
from onward.store import statements as sql
from onward.store.contract import Append
from onward.store.rows import bindable
from onward.store.sqlite_events import Stamps, stored_events

_VERSION: Final = "PRAGMA data_version"
_HEADS: Final = 1000
"""Sessions whose ends are remembered from one transaction to the next."""
_ROWS: Final = 64
"""Events in one statement, at most."""
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
        self._version = -1
        self._known: dict[str, _Head] = {}
        self._pos: int | None = None
        self._clear()

    def begin(self, *, careful: bool = False) -> None:
        """Forget everything: a transaction begins, and others may have written since the last one.

        Nearly every event is new, so no append asks whether its ids are in the log; the index of ids refuses one that is,
        with sqlite3.IntegrityError at ``flush``. Then the transaction is begun anew, ``careful``, and looks first.
        """
        self._careful = careful
        # Changes when another connection has committed, and only then: what was read or written before is still so.
        (version,) = self._db.execute(_VERSION).fetchone()
        if version != self._version or len(self._known) > _HEADS:
            self._version, self._known, self._pos = version, {}, None
        self._clear()

    def forget(self) -> None:
        """Drop what is known: the transaction was rolled back."""
        self._known, self._pos = {}, None
        self._clear()

    def _clear(self) -> None:
        self._moved: dict[int, _Head] = {}
        self._new: dict[str, Event] = {}
        self._rows: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        self._kept: list[tuple[int, int, Event]] = []
        self.held = 0
        """How many events wait for ``flush``."""

    def append(self, append: Append, packed: Sequence[bytes]) -> list[Event]:
        """Seal what is new and return every event of an append as it is or will be stored. Raises SessionNotFound.

        ``packed`` are the bytes behind the ids of its events.
        """
        session_id, news = append.session_id, append.events
        head = self._known.get(session_id) or self._head(session_id)
        stored, session = self._new, head.session
        if self._careful and news:
            stored |= stored_events(self._db, self._stamps, [new.id for new in news])
        pos, seq, last = self._pos or 0, head.seq, head.chain
        events: list[Event] = []
        for new, id_ in zip(news, packed, strict=True):
            event = stored.get(new.id)
            if event is None:
                seq += 1
                pos += 1
                event = stored[new.id] = seal(new, session_id, seq, last)
                last = event.chain
                self._hold(pos, session, event, id_)
                if new.at > head.updated_at:
                    head.updated_at = new.at
                if rules.opens_input(new):
                    head.input_seq = seq
                elif new.kind in _KEPT:
                    self._kept.append((session, pos, event))
            events.append(event)
        if seq != head.seq:
            self.held += seq - head.seq
            head.seq, head.chain, self._pos = seq, last, pos
            self._moved[session] = head
        return events

    def flush(self) -> None:
        """Write what is held."""
        if not self.held:
            return
        for more, rows in self._rows.items():
            start, left = 0, len(rows)
            while left:
                # Powers of two, so that few statements serve any number.
                count = min(_ROWS, 1 << left.bit_length() - 1)
                some = rows[start : start + count]
                self._db.execute(sql.add_events(count, *more), list(chain.from_iterable(some)))
                start, left = start + count, left - count
        heads = [
            (head.seq, bytearray(head.chain), head.updated_at, head.input_seq, head.session)
            for head in self._moved.values()
        ]
        self._db.executemany(sql.MOVE_HEAD, heads)
        for session, pos, event in self._kept:
            self._keep(session, pos, event)
        self.last_pos = self._pos or 0
        self.appended += self.held
        self._clear()

    def _head(self, session_id: str) -> _Head:
        row = self._db.execute(sql.HEAD, (session_id,)).fetchone()
        if row is None:
            raise SessionNotFound(session=session_id)
        *head, last_pos = row
        if self._pos is None:
            self._pos = last_pos or 0
        found = self._known[session_id] = _Head(*head)
        return found

    def _hold(self, pos: int, session: int, event: Event, id_: bytes) -> None:
        # A value that is no number, text or bytearray is first offered to every adapter there is; that costs more than
        # to write it.
        row: tuple[Any, ...] = (
            pos,
            session,
            event.seq,
            event.at,
            self._stamps.number(self._db, event),
            bytearray(id_),
            bytearray(event.chain),
            bytearray(event.salt),
            bytearray(event.body),
        )
        run, source = event.run_id, event.source
        more: tuple[str, ...] = ()
        if source.native_id is not None or source.place is not None:
            row += (bindable(source.native_id), bindable(source.place))
            more = ("native_id", "place")
        if run is not None:
            row += (bytearray(pack_id(run)),)
            more += ("run",)
        if (rows := self._rows.get(more)) is None:
            rows = self._rows[more] = []
        rows.append(row)

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
