"""Connections to a SQLite file: what is asked of them, how a file is recognised, and what their errors mean.

A file that is not ours is never written to: it is looked at through a read-only connection first. An error of SQLite reaches
a caller as one of ``onward.errors``, with the path and the reason in it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from typing import Final
from urllib.parse import quote

from onward.errors import (
    Conflict,
    NotAStore,
    OnwardError,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreReadOnly,
)
from onward.store.migrate import check_known
from onward.store.rules import matches_folded

APPLICATION_ID: Final = 0x4F6E7764
"""``Onwd``: what `file` and SQLite's header say this database is."""

BUSY_SECONDS: Final = 10.0
"""How long a writer waits for its turn among processes before StoreBusy."""

_SMALLEST: Final = 512
"""Bytes of the smallest database there is: one page of the smallest size."""

_LITTLE: Final = 1 << 16


def connect(path: str, *, mode: str = "rw", immutable: bool = False) -> sqlite3.Connection:
    """Open a connection in autocommit mode that any one thread at a time may use. Modes are SQLite's: ro, rw, rwc."""
    uri = f"file:{quote(os.path.abspath(path))}?mode={mode}{'&immutable=1' if immutable else ''}"
    connection = sqlite3.connect(
        uri,
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_SECONDS,
        cached_statements=256,
    )
    connection.create_function("matches_folded", 2, matches_folded, deterministic=True)
    return connection


def connect_reader(path: str, *, sealed: bool) -> sqlite3.Connection:
    """Open a connection that cannot write. ``sealed`` says that the file or its folder cannot be written at all.

    A write-ahead log needs a shared-memory file beside it. Where none can be made and no log is left, the file is read as
    immutable, which it is then.
    """
    connection = connect(path, mode="ro" if sealed else "rw")
    connection.execute("PRAGMA query_only = 1")
    if sealed:
        try:
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
        except sqlite3.OperationalError:
            connection.close()
            with contextlib.suppress(FileNotFoundError):
                if os.stat(f"{path}-wal").st_size:
                    raise
            connection = connect(path, mode="ro", immutable=True)
    return connection


def is_sealed(path: str) -> bool:
    """Whether a file cannot be written, by its own mode or because its folder takes no log beside it."""
    folder = os.path.dirname(os.path.abspath(path))
    return os.path.exists(path) and not (os.access(path, os.W_OK) and os.access(folder, os.W_OK))


def recognise(path: str, *, sealed: bool) -> int:
    """Return the schema number of the store at this path; 0 for an absent or empty file, which is none yet.

    Raises NotAStore for anything else that is there, and StoreTooNew for a store of a newer Onward. Writes nothing.
    """
    # Only SQLite opens it, not we: closing a file lets go of every lock that this process holds on it (POSIX), those of
    # another store on the same file among them, and the next process to close the store would take its log away.
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreError(why=f"{path} cannot be read: {error.strerror}") from None
    if stat.S_ISDIR(status.st_mode):
        raise NotAStore(path=path, why="it is a folder")
    if not os.access(path, os.R_OK):
        raise StoreError(why=f"{path} cannot be read: {os.strerror(errno.EACCES)}")
    if not status.st_size:
        return 0
    if status.st_size < _SMALLEST:
        raise NotAStore(path=path, why="it is too short to be a SQLite database")
    try:
        with contextlib.closing(connect_reader(path, sealed=sealed)) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if application != APPLICATION_ID:
                # A first start that was cut off leaves a database without a single table; that one is still ours to fill.
                if application == 0 and tables == 0:
                    return 0
                raise NotAStore(path=path, why="it is a database of another program")
            return check_known(connection, path)
    except sqlite3.Error as error:
        raise translated(error, path) from error


def translated(error: BaseException, path: str) -> OnwardError:
    """Return the error that a caller should see for one of SQLite's."""
    if isinstance(error, OnwardError):
        return error
    code = getattr(error, "sqlite_errorcode", None)
    why = str(error) or type(error).__name__
    primary = code & 0xFF if code is not None else None
    match primary:
        case sqlite3.SQLITE_FULL:
            return StoreFull(path=path, why=why)
        case sqlite3.SQLITE_READONLY:
            return StoreReadOnly(path=path, why=why)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy(path=path, seconds=BUSY_SECONDS)
        case sqlite3.SQLITE_NOTADB:
            return NotAStore(path=path, why=why)
        case sqlite3.SQLITE_CORRUPT:
            return StoreError(
                why=f"{path} is damaged ({why}). Stop writing to it and copy it before anything else"
            )
        case sqlite3.SQLITE_IOERR if _no_room(path):
            return StoreFull(path=path, why=why)
        case sqlite3.SQLITE_CONSTRAINT:
            return Conflict(what=f"a record ({why})")
        case None if isinstance(error, sqlite3.ProgrammingError) and "closed" in why:
            return StoreClosed()
        case _:
            return StoreError(why=f"{path}: {why}")


def _no_room(path: str) -> bool:
    """Whether the disk is full. The shared-memory file of a write-ahead log fails with an I/O error then."""
    try:
        room = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except (OSError, AttributeError):
        return False
    return room.f_bavail * room.f_frsize < _LITTLE
