"""Full text in SQLite: filled after the log, asked for the newest matches.

The index holds no text, no positions and no sizes (FTS5 contentless, ``detail=none``): it answers which events have these
words, newest first, and nothing else. Each row ends with two marks, its session and its account, which are words like any
other and therefore as fast as any other; they begin with a private-use character, which ``core.words`` takes out of texts.

``search_mark`` says how far the log was read. It moves in the same transaction as the rows, so a crash repeats nothing and
skips nothing. An index made by another version of ``core.words`` is built anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from onward.core import words
from onward.core.codec import searchable_text
from onward.store import rules
from onward.store.contract import Match, Matches

STEP: Final = 1000
"""Events read into the index in one transaction."""

_TOGETHER: Final = 4_000_000
"""Characters in one statement, give or take one document."""

_MARK: Final = "\ue000"

_READ_MARK: Final = "SELECT pos, words FROM search_mark"
_SET_MARK: Final = "UPDATE search_mark SET pos = ?, words = ?"
_LAST: Final = "SELECT coalesce(max(pos), 0) FROM events"
# A number, and a JSON array of the documents of the events from that number on; those without words are null. One statement
# for all of them: the interpreter is free for other threads all the while, and not taken back for each.
_ADD: Final = (
    "INSERT INTO search (rowid, said) SELECT ? + key, value FROM json_each(?) WHERE value IS NOT NULL"
)
_FORGET: Final = "INSERT INTO search (search, rowid, said) VALUES ('delete', ?, ?)"
_FORGET_ALL: Final = "INSERT INTO search (search) VALUES ('delete-all')"
_CHECK: Final = "INSERT INTO search (search) VALUES ('integrity-check')"

# Erased events have no salt; they enter the index as nothing.
_UNREAD: Final = """
SELECT e.pos, e.session, s.account_id, t.kind, e.body, e.salt
FROM events e JOIN sessions s ON s.no = e.session JOIN stamps t ON t.no = e.stamp
WHERE e.pos > ? ORDER BY e.pos LIMIT ?
"""

# The newest rows first, then where they are: never the other way round, which would look at every match.
_SEARCH: Final = """
SELECT s.id, e.seq
FROM (SELECT rowid AS pos FROM search WHERE search MATCH ? ORDER BY rowid DESC LIMIT ?) AS found
CROSS JOIN events e ON e.pos = found.pos CROSS JOIN sessions s ON s.no = e.session
ORDER BY found.pos DESC
"""

_OTHER_ACCOUNT: Final = """
SELECT EXISTS (SELECT 1 FROM sessions WHERE account_id < ?) OR EXISTS (SELECT 1 FROM sessions WHERE account_id > ?)
"""
_SESSION_NO: Final = "SELECT no FROM sessions WHERE id = ? AND account_id = ?"


def mark(connection: sqlite3.Connection) -> int:
    """Return the last event that was read into the index; 0 for an index that another version of the words made."""
    pos, version = connection.execute(_READ_MARK).fetchone()
    return pos if version == words.VERSION else 0


def lag(connection: sqlite3.Connection) -> int:
    """Return how many events the index is behind the log."""
    (last,) = connection.execute(_LAST).fetchone()
    return int(last) - mark(connection)


def read_on(connection: sqlite3.Connection, limit: int = STEP) -> tuple[int, int]:
    """Read the next events of the log into the index, inside the caller's transaction. Return how many, and the new mark."""
    pos, version = connection.execute(_READ_MARK).fetchone()
    if version != words.VERSION and pos:
        forget_all(connection)
        pos = 0
    unread = connection.execute(_UNREAD, (pos, limit)).fetchall()
    if not unread:
        return 0, pos
    for first, documents in _documents(unread):
        connection.execute(_ADD, (first, msgspec.json.encode(documents).decode()))
    pos = unread[-1][0]
    connection.execute(_SET_MARK, (pos, words.VERSION))
    return len(unread), pos


def forget(
    connection: sqlite3.Connection, pos: int, session: int, account: str, kind: str, body: bytes
) -> None:
    """Take the words of one event out of the index. A contentless index needs to be told which words those were."""
    if pos <= mark(connection):
        document = _document(session, account, kind, body)
        if document is not None:
            connection.execute(_FORGET, (pos, document))


def forget_all(connection: sqlite3.Connection) -> None:
    """Empty the index, so that ``read_on`` begins at the first event."""
    connection.execute(_FORGET_ALL)
    connection.execute(_SET_MARK, (0, words.VERSION))


def find(
    connection: sqlite3.Connection,
    terms: Sequence[str],
    account_id: str,
    sessions: Sequence[str] | None,
    limit: int,
    any_term: bool,
) -> Matches:
    """Return the newest matches in the index as it is; ``complete`` is about their number only."""
    expression = _expression(connection, rules.single_words(terms), account_id, sessions, any_term)
    if expression is None or limit <= 0:
        return Matches(found=(), complete=True)
    rows = connection.execute(_SEARCH, (expression, limit + 1)).fetchall()
    found = tuple(Match(session_id, seq) for session_id, seq in rows[:limit])
    return Matches(found=found, complete=len(rows) <= limit)


def faults(connection: sqlite3.Connection) -> Iterable[str]:
    """Yield what is wrong with the index itself, in words."""
    try:
        connection.execute(_CHECK)
    except sqlite3.DatabaseError as error:
        yield f"the full text is damaged ({error}); build it anew with reindex"
    (last,) = connection.execute(_LAST).fetchone()
    if mark(connection) > last:
        yield f"the full text says it has read {mark(connection)} events, but the log has {last}"


def _expression(
    connection: sqlite3.Connection,
    wanted: Sequence[str],
    account_id: str,
    sessions: Sequence[str] | None,
    any_term: bool,
) -> str | None:
    """Return the MATCH expression, or None when nothing can match."""
    if not wanted:
        return None
    said = (" OR " if any_term else " AND ").join(_quoted(word) for word in wanted)
    expression = f"({said})"
    if sessions is not None:
        found = (
            connection.execute(_SESSION_NO, (session, account_id)).fetchone()
            for session in dict.fromkeys(sessions)
        )
        marks = [f'"{_session_mark(row[0])}"' for row in found if row]
        if not marks:
            return None
        return f"{expression} AND ({' OR '.join(marks)})"
    if connection.execute(_OTHER_ACCOUNT, (account_id, account_id)).fetchone()[0]:
        expression += f' AND "{_account_mark(account_id)}"'
    return expression


def _quoted(word: str) -> str:
    """A word as FTS5 takes it. A word is letters and digits only (``core.words.cut``), so quotes are all that it needs."""
    return f'"{word}"{"*" if words.is_prefix(word) else ""}'


def _documents(
    unread: Iterable[tuple[int, int, str, str, bytes, bytes | None]],
) -> Iterator[tuple[int, list[str | None]]]:
    """Yield the documents of events that follow each other, with the number of the first; None for one without words."""
    first, size, documents = 0, 0, list[str | None]()
    for pos, session, account, kind, body, salt in unread:
        if documents and (size > _TOGETHER or pos != first + len(documents)):
            yield first, documents
            size, documents = 0, []
        first = first if documents else pos
        document = None if salt is None else _document(session, account, kind, body)
        size += len(document or "")
        documents.append(document)
    yield first, documents


def _document(session: int, account: str, kind: str, body: bytes) -> str | None:
    text = searchable_text(kind, body)
    return document(text, session, account) if text else None


def document(text: str, session: int, account: str) -> str:
    """Return what is indexed for a text: its words as ``core.words`` prepares them, and whose they are."""
    return f"{words.index_text(text)} {_session_mark(session)} {_account_mark(account)}"


def _session_mark(session: int) -> str:
    return f"{_MARK}s{session}"


@lru_cache(maxsize=64)
def _account_mark(account: str) -> str:
    return f"{_MARK}a{account.encode('utf-8', 'surrogatepass').hex()}"
