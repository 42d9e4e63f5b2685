"""The raw baseline: SQLite through the standard library, as somebody would write it who needs no more than rows.

One table, one index to read a session in order, the write-ahead log, ``synchronous=FULL``, prepared statements (the
module caches them), ``BEGIN IMMEDIATE`` and ``COMMIT``. It encodes the same bodies as we do, and keeps no chain, no salt,
no head, no id of an event and no full text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onward.bench.payloads import body

_DDL: Final = """
CREATE TABLE IF NOT EXISTS events (
  id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL,
  UNIQUE (session_id, seq)
)
"""
_ADD: Final = "INSERT INTO events (session_id, seq, at, body) VALUES (?, ?, ?, ?)"


class RawLog:
    """Rows in a file."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL").fetchone()
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(_DDL)
        self._seq = 0

    def append(self, session: str, said: Sequence[str]) -> None:
        """Store messages in one durable commit."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        for text in said:
            self._seq += 1
            db.execute(_ADD, (session, self._seq, self._seq, body(text, self._seq)))
        db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()
