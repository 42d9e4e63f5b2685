"""A store in one SQLite file, shared by any number of threads and processes.

Writing is in ``sqlite_writer`` (who writes when) and ``sqlite_batch`` (what is written); full text is in ``sqlite_search``;
this module opens the file, reads from it and puts the parts together. The file is in write-ahead mode: a reader sees one
consistent state and never waits for a writer. ``synchronous=FULL`` is the default, so a commit that returned survives a
power cut.

A file that is not an Onward store, or one of a newer version, is refused and left as it is. A file that cannot be written is
read all the same.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from onward.core.events import Event
from onward.core.records import (
    Draft,
    EngineSession,
    ImportedFile,
    Link,
    Machine,
    NativeKept,
    NativeRows,
    OpenCall,
    Record,
    Run,
    RunState,
    Session,
    StoredManifest,
    Token,
    Workspace,
)
from onward.errors import StoreBusy, StoreClosed, StoreError, StoreReadOnly
from onward.store import rules, sqlite_search
from onward.store import statements as sql
from onward.store.contract import Batch, Committed, Matches, SessionQuery, Tally
from onward.store.migrate import newest
from onward.store.rows import bindable, shape
from onward.store.sqlite_connection import (
    APPLICATION_ID,
    BUSY_SECONDS,
    connect,
    connect_reader,
    is_sealed,
    recognise,
    translated,
)
from onward.store.sqlite_events import Stamps, event_of, stored_events

if TYPE_CHECKING:
    from onward.store.sqlite_writer import Writer

R = TypeVar("R", bound=Record)

_PAGE: Final = 8192
"""Bytes of a page in a new file: messages of the usual size leave less of it empty than of a smaller one."""
_LOG: Final = 4 * 1024 * 1024
"""Bytes of the write-ahead log from which a commit takes it into the file. Somebody waits for that, so it is not more."""
_IDLE_READERS: Final = 4
_SCAN: Final = 256
_CATCH_UP: Final = 5
"""Steps of ``sqlite_search.STEP`` events that a search reads into the index before it answers with what there is."""
_SEARCH_WAIT: Final = 0.25


class SqliteStore:
    """The store in a file. ``synchronous`` is SQLite's: FULL, or NORMAL to trade the last commits for speed.

    Raises NotAStore, StoreTooNew, StoreReadOnly or StoreError when the file cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str], *, synchronous: str = "FULL") -> None:
        self.path = os.path.abspath(path)
        self._stamps = Stamps()
        self._readers: deque[sqlite3.Connection] = deque()
        self._closed = False
        self._pid = os.getpid()
        self._sealed = is_sealed(self.path)
        self._synchronous = synchronous
        self._opening = threading.Lock()
        self._opened: Writer | None = None
        schema = recognise(self.path, sealed=self._sealed)
        if self._sealed and not schema:
            raise StoreReadOnly(path=self.path, why="it is empty and cannot be written")
        if not self._sealed and schema < newest():
            self._open_writer()

    @property
    def _writer(self) -> Writer | None:
        """What writes, or None where nothing can be written. It is opened at the first use: who only reads needs no lock."""
        return self._opened or (None if self._sealed else self._open_writer())

    def _open_writer(self) -> Writer:
        with self._opening:
            self._check_open()
            if self._opened is None:
                self._opened = self._new_writer()
            return self._opened

    def _new_writer(self) -> Writer:
        from onward.store.migrate import migrate
        from onward.store.process_lock import ProcessLock
        from onward.store.sqlite_writer import Writer

        try:
            # Conversations are private: a new file is its owner's, and its log files take their mode from it. One that is
            # there is not opened: closing it would let go of SQLite's locks on it (see ``recognise``).
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            lock = ProcessLock(f"{self.path}.lock")
        except OSError as error:
            raise StoreError(why=f"{self.path} cannot be opened: {error.strerror}") from None
        with contextlib.ExitStack() as undo:
            undo.callback(lock.close)
            if not lock.acquire(BUSY_SECONDS):
                raise StoreBusy(path=self.path, seconds=BUSY_SECONDS)
            try:
                connection = undo.enter_context(contextlib.closing(connect(self.path)))
                connection.execute(f"PRAGMA page_size = {_PAGE}")
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
                connection.execute(
                    f"PRAGMA synchronous = {'NORMAL' if self._synchronous.upper() == 'NORMAL' else 'FULL'}"
                )
                (page,) = connection.execute("PRAGMA page_size").fetchone()
                connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG // page}").fetchone()
                migrate(connection, APPLICATION_ID, self.path)
            except sqlite3.Error as error:
                raise translated(error, self.path) from error
            lock.release()
            undo.pop_all()
        return Writer(connection, self.path, lock, self._stamps)

    @property
    def url(self) -> str:
        return f"sqlite:///{quote(self.path)}"

    def commit(self, batch: Batch) -> Committed:
        if (writer := self._writer) is None:
            self._check_open()
            raise StoreReadOnly(path=self.path, why="the file or its folder does not allow it")
        return writer.commit(batch, rules.check_shape(batch))

    def close(self) -> None:
        if self._closed:
            return
        with self._opening:
            if self._opened is not None:
                self._opened.close()
            self._closed = True
        while self._readers:
            self._readers.pop().close()

    # -- readers ------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed
        if os.getpid() != self._pid:
            raise StoreError(why=f"{self.path} was opened before this process was forked; open it again here")

    @contextlib.contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        self._check_open()
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = connect_reader(self.path, sealed=self._sealed)
        try:
            yield connection
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if len(self._readers) < _IDLE_READERS and not self._closed:
                self._readers.append(connection)
            else:
                connection.close()

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._reader() as db:
            return db.execute(statement, tuple(map(bindable, values))).fetchall()

    def _records(self, record: type[R], statement: str, *values: Any) -> list[R]:
        return [shape(record).record(row) for row in self._rows(statement, *values)]

    def _record(self, record: type[R], statement: str, *values: Any) -> R | None:
        found = self._records(record, statement, *values)
        return found[0] if found else None

    # -- reading ------------------------------------------------------------------------------------------------------

    def session(self, session_id: str) -> Session | None:
        return self._record(Session, sql.SESSION, session_id)

    def sessions(self, query: SessionQuery) -> tuple[list[Session], str | None]:
        at, last = rules.decode_cursor(query) or (None, "")
        found = self._records(
            Session,
            sql.SESSIONS,
            query.account_id,
            *(query.workspace_id,) * 2,
            query.include_archived,
            *(query.text,) * 3,
            query.include_children,
            *(at,) * 3,
            last,
            query.limit + 1,
        )
        page = found[: query.limit]
        return page, rules.encode_cursor(page[-1]) if page and len(found) > len(page) else None

    def events(
        self,
        session_id: str,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int = 200,
        kinds: Sequence[str] | None = None,
        newest_first: bool = False,
    ) -> list[Event]:
        bounds = (after, sql.NO_END if upto is None else upto)
        with self._reader() as db:
            session = db.execute(sql.SESSION_NO, (session_id,)).fetchone()
            if session is None:
                return []
            stamps = [] if kinds is None else self._stamps.of_kinds(db, kinds)
            if kinds is not None and not stamps:
                return []
            statement = sql.events(len(stamps), newest_first)
            rows = db.execute(statement, (*session, *bounds, *stamps, max(limit, 0))).fetchall()
            return [event_of(db, self._stamps, session_id, row) for row in rows]

    def events_at(self, places: Sequence[tuple[str, int]]) -> list[Event]:
        wanted: dict[str, set[int]] = {}
        for session_id, seq in places:
            wanted.setdefault(session_id, set()).add(seq)
        found: list[Event] = []
        with self._reader() as db:
            for session_id, numbers in sorted(wanted.items()):
                session = db.execute(sql.SESSION_NO, (session_id,)).fetchone()
                if session is None:
                    continue
                listed = f"[{','.join(map(str, numbers))}]"
                rows = db.execute(sql.EVENTS_AT, (*session, listed)).fetchall()
                found += [event_of(db, self._stamps, session_id, row) for row in rows]
        return found

    def event(self, event_id: str) -> Event | None:
        if rules.packed_event_id(event_id) is None:
            return None
        with self._reader() as db:
            return stored_events(db, self._stamps, [event_id]).get(event_id)

    def scan(self, session_id: str, *, after: int = 0) -> Iterator[Event]:
        with self._reader() as db:
            db.execute("BEGIN")
            session = db.execute(sql.SESSION_NO, (session_id,)).fetchone()
            if session is None:
                return
            found = db.execute(sql.events(0, False), (*session, after, sql.NO_END, -1))
            while rows := found.fetchmany(_SCAN):
                for row in rows:
                    yield event_of(db, self._stamps, session_id, row)

    def links(self, session_id: str) -> list[Link]:
        return self._records(Link, sql.LINKS, session_id, session_id)

    def link(self, link_id: str) -> Link | None:
        return self._record(Link, sql.LINK, link_id)

    def link_by_key(self, from_session: str, key: str) -> Link | None:
        return self._record(Link, sql.LINK_BY_KEY, from_session, key)

    def lineage(self, session_id: str, *, limit: int = 1000) -> list[Link]:
        return self._records(Link, sql.LINEAGE, session_id, limit)

    def manifest(self, manifest_id: str) -> StoredManifest | None:
        return self._record(StoredManifest, sql.MANIFEST, manifest_id)

    def runs(self, session_id: str, *, limit: int = 100) -> list[Run]:
        return self._records(Run, sql.RUNS, session_id, limit)

    def run(self, run_id: str) -> Run | None:
        return self._record(Run, sql.RUN, run_id)

    def unfinished(self, session_id: str) -> list[Run]:
        return self._records(Run, sql.UNFINISHED_RUNS, session_id)

    def runs_in(self, state: RunState, *, lease_before: int | None = None, limit: int = 100) -> list[Run]:
        return self._records(Run, sql.runs_in(state), lease_before, lease_before, limit)

    def open_calls(self, session_id: str) -> list[OpenCall]:
        return self._records(OpenCall, sql.OPEN_CALLS, session_id)

    def state(self, session_id: str) -> dict[str, Event]:
        with self._reader() as db:
            rows = db.execute(sql.STATE, (session_id,)).fetchall()
            return {
                event.kind: event for event in (event_of(db, self._stamps, session_id, row) for row in rows)
            }

    def engine_sessions(self, session_id: str) -> list[EngineSession]:
        return self._records(EngineSession, sql.ENGINE_SESSIONS, session_id)

    def draft(self, run_id: str) -> Draft | None:
        return self._record(Draft, sql.DRAFT, run_id)

    def heads(self, session_ids: Sequence[str]) -> dict[str, int]:
        return dict(self._rows(sql.HEADS, tuple(session_ids)))

    def drafts(self, session_ids: Sequence[str]) -> list[Draft]:
        return self._records(Draft, sql.DRAFTS, tuple(session_ids))

    def tally(self, account_id: str) -> Tally:
        with self._reader() as db:
            sessions, events = db.execute(sql.TALLY, (account_id,)).fetchone()
            runs = dict(db.execute(sql.TALLY_RUNS, (account_id,)).fetchall())
        return Tally(sessions=sessions, events=events, runs=runs)

    def touched(
        self, account_id: str, *, since: str | None = None, limit: int = 1000
    ) -> tuple[list[str], str]:
        with self._reader() as db:
            (newest,) = db.execute(sql.NEWEST_POSITION).fetchone()
            after = rules.position(since, newest)
            rows = db.execute(sql.TOUCHED, (after, limit)).fetchall()
        found = [id for _, id, account in rows if account == account_id]
        return found, str(rows[-1][0] if rows else after)

    def blob(self, digest: str) -> bytes | None:
        found = self._rows(sql.BLOB, digest)
        return found[0][0] if found else None

    def workspace(self, account_id: str, path: str, machine_id: str | None = None) -> Workspace | None:
        return self._record(Workspace, sql.WORKSPACE, account_id, path, machine_id or "")

    def workspace_by_id(self, workspace_id: str) -> Workspace | None:
        return self._record(Workspace, sql.WORKSPACE_BY_ID, workspace_id)

    def workspaces(self, account_id: str) -> list[Workspace]:
        return self._records(Workspace, sql.WORKSPACES, account_id)

    def machine(self, machine_id: str) -> Machine | None:
        return self._record(Machine, sql.MACHINE, machine_id)

    def machines(self, account_id: str) -> list[Machine]:
        return self._records(Machine, sql.MACHINES, account_id)

    def machine_by_name(self, account_id: str, name: str) -> Machine | None:
        return self._record(Machine, sql.MACHINE_BY_NAME, account_id, name)

    def token_by_digest(self, digest: str) -> Token | None:
        return self._record(Token, sql.TOKEN_BY_DIGEST, digest)

    def tokens(self, account_id: str) -> list[Token]:
        return self._records(Token, sql.TOKENS, account_id)

    def waiting_for(self, machine: Machine, engines: Sequence[str], *, limit: int = 20) -> list[Run]:
        offered = bindable(tuple(engines))
        return self._records(
            Run, sql.WAITING_FOR, machine.account_id, machine.id, machine.home, offered, limit
        )

    def imported_file(self, account_id: str, path: str) -> ImportedFile | None:
        return self._record(ImportedFile, sql.IMPORTED_FILE, account_id, path)

    def originals(self, file_id: str) -> list[tuple[int, int]]:
        return [(offset, length) for offset, length in self._rows(sql.ORIGINALS, file_id)]

    def original(self, file_id: str, offset: int, length: int) -> bytes | None:
        rows = self._rows(sql.ORIGINALS_FROM, file_id, offset, file_id, offset, offset + length)
        return rules.cut_original(((start, size, data) for start, size, data in rows), offset, length)

    def native_rows(
        self, account_id: str, engine: str, native_id: str, *, scope: str = ""
    ) -> list[NativeRows]:
        return self._records(NativeRows, sql.NATIVE_ROWS, account_id, engine, native_id, scope)

    def native_kept(self, account_id: str, engine: str, *, scope: str = "") -> list[NativeKept]:
        return self._records(NativeKept, sql.NATIVE_KEPT, account_id, engine, scope)

    # -- full text ----------------------------------------------------------------------------------------------------

    def search(
        self,
        terms: Sequence[str],
        *,
        account_id: str,
        sessions: Sequence[str] | None = None,
        limit: int = 500,
        any_term: bool = False,
    ) -> Matches:
        behind = self._catch_up()
        with self._reader() as db:
            found = sqlite_search.find(db, terms, account_id, sessions, limit, any_term)
        return Matches(found=found.found, complete=found.complete and not behind)

    def _catch_up(self) -> int:
        """Read what the log has and the index has not, within bounds. Return how much is left."""
        left = self.index_lag()
        for _ in range(_CATCH_UP):
            if not left or self._sealed:
                break
            try:
                self._open_writer().run(sqlite_search.read_on, wait=_SEARCH_WAIT)
            except (StoreBusy, StoreError):
                break  # somebody is writing a lot, or nothing can be written: the answer says that it is not complete
            left = self.index_lag()
        return left

    def index_lag(self) -> int:
        with self._reader() as db:
            return sqlite_search.lag(db)

    def reindex(self) -> int:
        if (writer := self._writer) is None:
            raise StoreReadOnly(path=self.path, why="the file or its folder does not allow it")
        writer.run(sqlite_search.forget_all)
        total = 0
        while (read := writer.run(sqlite_search.read_on)[0]) > 0:
            total += read
        return total

    def check(self) -> list[str]:
        from onward.store.sqlite_checks import faults

        with self._reader() as db:
            found = list(faults(db))
        if (writer := self._writer) is not None:
            found += writer.run(lambda db: list(sqlite_search.faults(db)))
        return found
