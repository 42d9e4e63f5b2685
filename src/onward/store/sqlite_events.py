"""Events as SQLite keeps them: the few combinations of kind and source by number, and rows back to events.

Reading needs this and nothing of what writes, so that a program which only reads loads only this.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from onward.core.digests import body_digest
from onward.core.events import Event, Source
from onward.core.ids import pack_id, unpack_id
from onward.store import statements as sql
from onward.store.rows import bindable, readable

_PARAMETERS: Final = 500
"""Ids in one statement."""

Stamp = tuple[str, str, str, str | None]


class Stamps:
    """The few combinations of kind, actor, producer and engine, by number and by value. Rows are only ever added."""

    def __init__(self) -> None:
        self._numbers: dict[Stamp, int] = {}
        self._sources: dict[int, tuple[str, str, Source]] = {}

    def number(self, connection: sqlite3.Connection, event: Event) -> int:
        """Return the number of an event's stamp, adding a row the first time."""
        source = event.source
        stamp = (event.kind, event.actor, source.producer, source.engine)
        number = self._numbers.get(stamp)
        if number is None:
            self.load(connection)
            number = self._numbers.get(stamp)
        if number is None:
            number = connection.execute(sql.ADD_STAMP, tuple(map(bindable, stamp))).lastrowid
            assert number is not None
            self._add(number, stamp)
        return number

    def of(self, connection: sqlite3.Connection, number: int) -> tuple[str, str, Source]:
        """Return kind, actor and the bare source behind a number."""
        known = self._sources.get(number) or self.load(connection).get(number)
        # A damaged number leads nowhere. What stands in its place matches no chain, so verifying names the event.
        return known or (f"damaged (stamp {number})", "system", Source(producer="unknown"))

    def of_kinds(self, connection: sqlite3.Connection, kinds: Sequence[str]) -> list[int]:
        """Return the numbers of all stamps with one of these kinds."""
        return [number for number, (kind, _, _) in list(self.load(connection).items()) if kind in kinds]

    def load(self, connection: sqlite3.Connection) -> dict[int, tuple[str, str, Source]]:
        """Read every row and return what is behind each number. Readers and the writer share what is known here."""
        sources = self._sources
        for number, *stamp in connection.execute(sql.STAMPS):
            kind, actor, producer, engine = map(readable, stamp)
            sources[number] = self._add(number, (kind, actor, producer, engine))
        return sources

    def forget(self) -> None:
        """Drop what is known: a rollback may have taken rows back."""
        self._numbers = {}
        self._sources = {}

    def _add(self, number: int, stamp: Stamp) -> tuple[str, str, Source]:
        kind, actor, producer, engine = stamp
        self._numbers[stamp] = number
        found = self._sources[number] = (kind, actor, Source(producer=producer, engine=engine))
        return found


def event_of(connection: sqlite3.Connection, stamps: Stamps, session_id: str, row: tuple[Any, ...]) -> Event:
    """Return the event of a row of ``statements.EVENTS``."""
    seq, at, stamp, id_, chain, salt, digest, run, native_id, place, body = row
    kind, actor, source = stamps.of(connection, stamp)
    if native_id is not None or place is not None:
        source = Source(
            producer=source.producer,
            engine=source.engine,
            native_id=readable(native_id),
            place=readable(place),
        )
    if not isinstance(body, bytes):
        # Edited by hand: text where bytes were. It is shown, and its chain fails.
        body = str(body).encode("utf-8", "surrogateescape")
    # An erased event is one that kept its digest. A row that lost its salt in any other way fails its chain.
    return Event(
        id=unpack_id("evt", id_),
        session_id=session_id,
        seq=seq,
        at=at,
        kind=kind,
        actor=actor,
        run_id=None if run is None else unpack_id("run", run),
        source=source,
        body=body,
        salt=b"" if salt is None else salt,
        digest=digest or body_digest(salt or b"", body),
        chain=chain,
    )


def stored_events(
    connection: sqlite3.Connection, stamps: Stamps, event_ids: Sequence[str]
) -> dict[str, Event]:
    """Return those of these events that are in the log, by id."""
    found: dict[str, Event] = {}
    for start in range(0, len(event_ids), _PARAMETERS):
        packed = [pack_id(event_id) for event_id in event_ids[start : start + _PARAMETERS]]
        for session_id, *row in connection.execute(sql.events_by_id(len(packed)), packed):
            event = event_of(connection, stamps, session_id, tuple(row))
            found[event.id] = event
    return found
