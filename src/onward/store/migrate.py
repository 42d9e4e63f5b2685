"""Migrations: numbered SQL files, each applied together with its record in one transaction.

A file in ``migrations/`` is never edited after a release; the next one changes what it made. Stored history is not
rewritten by them: bodies are bytes, and what they mean is decided when they are read.

The schema of a file is the newest number recorded in it. A newer one than this version knows is refused, untouched.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from functools import cache
from typing import Final

from onward.errors import StoreTooNew

FOLDER: Final = os.path.join(os.path.dirname(__file__), "migrations")

_RECORDS: Final = "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL)"
_CURRENT: Final = "SELECT max(version) FROM migrations"
_RECORD: Final = "INSERT INTO migrations (version, name) VALUES (?, ?)"


@cache
def known(folder: str = FOLDER) -> tuple[tuple[int, str], ...]:
    """Return the migrations in a folder as (number, file name), in order."""
    names = (name for name in sorted(os.listdir(folder)) if name.endswith(".sql") and name[4:5] == "_")
    return tuple((int(name[:4]), name) for name in names)


def newest() -> int:
    """Return the number of the newest schema that this version knows."""
    return known()[-1][0]


def current(connection: sqlite3.Connection) -> int:
    """Return the schema number of a database; 0 when nothing was ever applied."""
    try:
        (found,) = connection.execute(_CURRENT).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return 0
    return found or 0


def check_known(connection: sqlite3.Connection, path: str, folder: str = FOLDER) -> int:
    """Return the schema number of a database. Raises StoreTooNew when it is beyond the newest migration here."""
    found, newest = current(connection), known(folder)[-1][0]
    if found > newest:
        raise StoreTooNew(path=path, found=found, known=newest)
    return found


def migrate(
    connection: sqlite3.Connection, application_id: int, path: str, folder: str = FOLDER
) -> list[str]:
    """Apply what is missing and return the names of what was applied. The caller holds the write lock.

    Raises StoreTooNew. When a migration fails, it leaves nothing behind and those before it stay applied.
    """
    found = check_known(connection, path, folder)
    applied = []
    for version, name in known(folder):
        if version <= found:
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(f"PRAGMA application_id = {application_id}")
            connection.execute(_RECORDS)
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                script = file.read()
            for statement in statements(script):
                connection.execute(statement)
            connection.execute(_RECORD, (version, name))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        applied.append(name)
    return applied


def statements(script: str) -> Iterator[str]:
    """Yield the statements of a script one by one (``executescript`` would commit the transaction they belong to)."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip() and not all(
        line.lstrip().startswith("--") for line in pending.splitlines() if line.strip()
    ):
        raise ValueError(f"a migration ends in the middle of a statement: {pending!r}")
