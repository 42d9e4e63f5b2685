"""Writing one batch into SQLite, inside a transaction that somebody else began.

Everything that is refused is meant to be refused before the first write of its batch: guards and fencing numbers first, then
each record against what is there. Where a batch is refused later all the same, the writer undoes the transaction and tries
each of its batches alone (see ``sqlite_writer``), so this order is about speed, not about what is promised.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from onward.core.digests import body_digest
from onward.core.events import Event
from onward.core.records import (
    Draft,
    EngineSession,
    ImportedFile,
    Link,
    NativeRows,
    Original,
    Run,
    Session,
    StoredManifest,
)
from onward.errors import Conflict, CycleRefused, EventNotFound, NotFound, RunNotFound, SessionNotFound
from onward.store import rules, sqlite_machines, sqlite_search
from onward.store import statements as sql
from onward.store.contract import (
    Batch,
    Committed,
    Erase,
    Guard,
    HeadIs,
    LinksAre,
    NoDraft,
    NoOpenCalls,
    NoRuns,
    RunChange,
    RunIs,
)
from onward.store.rows import bindable, readable, shape
from onward.store.sqlite_append import Appender
from onward.store.sqlite_events import Stamps

_other_parts: Final = attrgetter(*(name for name in Batch.__struct_fields__ if name != "appends"))
_NOTHING: Final = _other_parts(Batch())


def only_appends(batch: Batch) -> bool:
    """Whether a batch has nothing but appends: then no other part of it can see what was written before."""
    parts: object = _other_parts(batch)
    return parts == _NOTHING


class BatchWriter:
    """Writes batches through one connection. Holds no state but what rows with numbers stand for."""

    def __init__(self, connection: sqlite3.Connection, stamps: Stamps) -> None:
        self._db = connection
        self._stamps = stamps
        self.log = Appender(connection, stamps)
        self.erased = False
        """Whether a body was erased since this was last set to False."""

    def apply(self, batch: Batch, packed: Sequence[bytes], *, plain: bool) -> Committed:
        """Write a batch and return what it stored. Raises what ``contract.Store.commit`` says; may have written by then.

        ``packed`` are the bytes behind the ids of its events; ``plain`` is what ``only_appends`` said. What is held back of
        the batches before it must be written (``log.flush``) unless it is plain.
        """
        db = self._db
        for guard in batch.guards:
            self._check_guard(guard)
        for append in batch.appends:
            if append.fence is not None and append.run_id is not None:
                rules.check_hold(append, self._run(append.run_id))
        if plain:
            return Committed(events=self._append(batch, packed))
        sqlite_machines.write_first(db, batch)
        for session in batch.sessions:
            if self._one(sql.SESSION_EXISTS, session.id):
                raise Conflict(what=f"session {session.id}, which exists already")
            db.execute(sql.ADD_SESSION, shape(Session).row(rules.fresh_session(session)))
        for link in batch.links:
            self._add_link(link)
        for manifest in batch.manifests:
            if self._one(sql.MANIFEST, manifest.id):
                raise Conflict(what=f"manifest {manifest.id}, which exists already")
            db.execute(sql.ADD_MANIFEST, shape(StoredManifest).row(manifest))
        if batch.blobs:
            db.executemany(sql.ADD_BLOB, batch.blobs)
        for run in batch.runs:
            self._add_run(run)
        events = self._append(batch, packed)
        self.log.flush()
        changed = tuple(self._change_run(change) for change in batch.run_changes)
        self._apply_rest(batch)
        return Committed(events=events, runs=changed)

    def _append(self, batch: Batch, packed: Sequence[bytes]) -> tuple[Event, ...]:
        if len(batch.appends) == 1:
            return tuple(self.log.append(batch.appends[0], packed))
        found: list[Event] = []
        start = 0
        for append in batch.appends:
            end = start + len(append.events)
            found += self.log.append(append, packed[start:end])
            start = end
        return tuple(found)

    def _apply_rest(self, batch: Batch) -> None:
        db = self._db
        for patch in batch.session_patches:
            row = self._one(sql.SESSION, patch.session_id)
            if row is None:
                raise SessionNotFound(session=patch.session_id)
            session = rules.patched_session(shape(Session).record(row), patch)
            changed = (
                session.title,
                session.description,
                session.engine,
                session.archived,
                session.workspace_id,
            )
            db.execute(sql.PATCH_SESSION, (*map(bindable, changed), session.id))
        for change in batch.link_patches:
            row = self._one(sql.LINK, change.link_id)
            if row is None:
                raise NotFound(what="link", value=change.link_id)
            if change.report_to is not None:
                self._need_session(change.report_to)
            link = rules.patched_link(shape(Link).record(row), change)
            db.execute(sql.PATCH_LINK, (link.report_to, link.reported_at, bindable(link.outcome), link.id))
        sqlite_machines.write_changes(db, batch)
        for known in batch.engine_sessions:
            self._need_session(known.session_id)
            db.execute(sql.SET_ENGINE_SESSION, shape(EngineSession).row(known))
        for draft in batch.drafts:
            rules.check_draft(self._need_run(draft.run_id))
            db.execute(sql.SET_DRAFT, shape(Draft).row(draft))
        for run_id in batch.drop_drafts:
            db.execute(sql.DROP_DRAFT, (run_id,))
        for imported in batch.imports:
            db.execute(sql.SET_IMPORT, shape(ImportedFile).row(imported))
        for original in batch.originals:
            if original.length:
                db.execute(sql.SET_ORIGINAL, shape(Original).row(original))
            else:
                db.execute(sql.DROP_ORIGINAL, (original.file_id, original.offset))
        for gone in batch.drop_native:
            key = (gone.account_id, gone.engine, gone.native_id, gone.scope, gone.path, gone.path)
            db.execute(sql.DROP_NATIVE, tuple(map(bindable, (gone.session_id, *key))))
        for rows in batch.native_rows:
            if rows.session_id is not None:
                self._need_session(rows.session_id)
            place = (rows.account_id, rows.engine, rows.native_id, rows.scope, rows.path)
            db.execute(sql.ADD_NATIVE_ROWS, (*shape(NativeRows).row(rows), *map(bindable, place)))
        for erasure in batch.erasures:
            self._erase(erasure)
        for blob in batch.drop_blobs:
            name = blob.digest.encode()
            db.execute(sql.DROP_BLOB, (blob.digest, name, name, blob.but or "", name, name))

    def _one(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._db.execute(statement, values).fetchone()
        return row

    def _need_session(self, session_id: str) -> None:
        if self._one(sql.SESSION_EXISTS, session_id) is None:
            raise SessionNotFound(session=session_id)

    def _run(self, run_id: str) -> Run | None:
        row = self._one(sql.RUN, run_id)
        return None if row is None else shape(Run).record(row)

    def _need_run(self, run_id: str) -> Run:
        run = self._run(run_id)
        if run is None:
            raise RunNotFound(run=run_id)
        return run

    def _check_guard(self, guard: Guard) -> None:
        held = False
        match guard:
            case HeadIs(session_id, seq):
                row = self._one(sql.HEAD_SEQ, session_id)
                if row is None:
                    raise SessionNotFound(session=session_id)
                held = row[0] == seq
            case LinksAre(session_id, type_, count):
                held = self._one(sql.COUNT_LINKS, session_id, type_) == (count,)
            case RunIs():
                held = rules.run_is(guard, self._need_run(guard.run_id))
            case NoOpenCalls(session_id, but):
                rows = self._db.execute(sql.OPEN_CALLS, (session_id,)).fetchall()
                held = all(readable(row[1]) in but for row in rows)
            case NoRuns(session_id, but):
                unfinished = self._db.execute(sql.UNFINISHED_RUNS, (session_id,)).fetchall()
                held = all(shape(Run).record(row).id in but for row in unfinished)
            case NoDraft(run_id):
                held = self._one(sql.DRAFT, run_id) is None
        if not held:
            raise Conflict(what=rules.subject(guard))

    def _add_link(self, link: Link) -> None:
        self._need_session(link.from_session)
        self._need_session(link.to_session)
        if self._one(sql.IS_ABOVE, link.from_session, link.to_session):
            raise CycleRefused(from_session=link.from_session, to_session=link.to_session)
        into = self._one(sql.LINK_INTO, link.to_session)
        if into:
            raise Conflict(what=f"session {link.to_session}, which is linked from {into[0]} already")
        if link.key is not None and self._one(sql.LINK_BY_KEY, link.from_session, bindable(link.key)):
            raise Conflict(what=f"the links of {link.from_session}: key {link.key!r} exists already")
        if self._one(sql.LINK, link.id):
            raise Conflict(what=f"link {link.id}, which exists already")
        self._db.execute(sql.ADD_LINK, shape(Link).row(link))

    def _add_run(self, run: Run) -> None:
        self._need_session(run.session_id)
        if self._run(run.id):
            raise Conflict(what=f"run {run.id}, which exists already")
        run = rules.fresh_run(run)
        if run.state == "running":
            run = self._started(run)
        self._db.execute(sql.ADD_RUN, shape(Run).row(run))

    def _change_run(self, change: RunChange) -> Run:
        run = rules.changed_run(self._need_run(change.run_id), change)
        if change.session_id is not None:
            self._need_session(run.session_id)
        if change.state == "running":
            run = self._started(run)
        self._db.execute(sql.REPLACE_RUN, shape(Run).row(run))
        return run

    def _started(self, run: Run) -> Run:
        other = self._one(sql.RUNNING, run.session_id)
        if other:
            raise Conflict(what=f"session {run.session_id}, in which run {other[0]} is running")
        self._db.execute(sql.NEXT_FENCE, (run.session_id,))
        row = self._one(sql.FENCE, run.session_id)
        assert row is not None
        return rules.with_fence(run, row[0])

    def _erase(self, erasure: Erase) -> None:
        row = self._one(sql.TO_ERASE, rules.packed_event_id(erasure.event_id))
        if row is None:
            raise EventNotFound(event=erasure.event_id)
        pos, session, account, kind, salt, body = row
        if salt is not None:
            sqlite_search.forget(self._db, pos, session, readable(account), readable(kind), body)
            self._db.execute(sql.ERASE, (erasure.tombstone, body_digest(salt, body), pos))
            self.erased = True
