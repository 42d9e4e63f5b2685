"""The writer of an import: drafts in, batches out, each with the cursor that belongs to it.

**The transaction that makes a kill harmless**: one ``Batch`` holds the events of some hundred records, the bytes they came
from, and the ``ImportedFile`` with the offset after the last of them and the reader's state. Either all of it is stored or
none, so the next import starts exactly where the last batch ended. A link between two sessions is written in the batch
that follows both, together with the state that says so.

Event ids are derived from the native session, the record and the part of it (invariant L3): what was stored by an earlier
import, by another copy of the file or before the file was rewritten is not stored again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import msgspec

from onward.core import ids as make
from onward.core.bodies import Checkpoint, SessionChange
from onward.core.codec import body_of, encode
from onward.core.digests import content_digest
from onward.core.events import NewEvent, Source
from onward.core.ids import Ids
from onward.core.records import ImportedFile, Link, Original, Session, Workspace
from onward.errors import Conflict
from onward.importers.contract import TITLE_LIMIT, Counts, Draft, Line, Reader, Strand, pack
from onward.service.importing_originals import files_of, place_of, stretches
from onward.store.contract import Append, Batch, SessionPatch, Store

EVENTS_A_BATCH: Final = 512
BYTES_A_BATCH: Final = 1024 * 1024

LINES_NAMED: Final = 5
"""Broken lines that a report names one by one."""

_FINGERPRINT: Final = 4096
_KEPT_WITHIN: Final = 5_000
"""Events before a compaction among which the messages that it kept are looked for."""


class Account(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the record of an imported file says beside its cursor."""

    counts: Counts = msgspec.field(default_factory=Counts)
    key: str = ""
    """What tells its sessions from others of the same native session: a subagent, a segment, a differing copy."""
    line: int = 1
    """The number of the next line."""
    torn: int = 0
    """1 when the last line was torn off: counted as broken, not consumed."""
    broken: list[tuple[int, str]] = []
    """The first broken lines, and why each could not be read."""
    reason: str | None = None
    empty: bool = False
    partial: bool = False
    """An import that was stopped in the middle: more of the file was there to be read."""
    unlinked: bool = False
    """A session of this file has a parent in another file that is not here yet."""

    def note_broken(self, number: int, why: str | None) -> None:
        """Remember a broken line, if few were remembered so far."""
        if len(self.broken) < LINES_NAMED:
            self.broken.append((number, why or "not JSON"))


class FileWriter:
    """Writes what one native file becomes."""

    def __init__(
        self,
        store: Store,
        account_id: str,
        reader: Reader,
        path: str,
        *,
        file_id: str,
        limit: int,
        mtime_ns: int,
        now: Callable[[], int],
        ids: Ids,
        key: str = "",
    ) -> None:
        self.store = store
        self.account_id = account_id
        self.reader = reader
        self.file_id = file_id
        self.cursor = 0
        self.account = Account(key=key)
        self._path = path
        self._limit = limit
        self._mtime_ns = mtime_ns
        self._now = now
        self._ids = ids
        self._key = key
        self._patient = False
        self._salt = ids.salt
        self._written = 0
        self._events: dict[str, list[NewEvent]] = {}
        self._count = 0
        self._sessions: list[Session] = []
        self._workspaces: dict[str, Workspace] = {}
        self._blobs: dict[str, bytes] = {}
        self._base = ""
        self._shared: set[str] = set()
        self._known_workspaces: dict[str, str] = {}
        self._engine = reader.engine
        self._pool = ThreadPoolExecutor(1, "onward-import")
        self._pending: Future[None] | None = None

    def close(self) -> None:
        """Wait for what is being written. Closing twice is allowed."""
        self._pool.shutdown(wait=True)

    def start_at(self, cursor: int, account: Account) -> None:
        """Go on where an earlier import stopped."""
        self.cursor = self._written = cursor
        self.account.line, self.account.broken = account.line, account.broken

    def part_ways(self, key: str) -> None:
        """Become sessions of their own: the file is another telling of a session that is stored already."""
        self._key = self.account.key = key
        self._base, self._patient = "", False

    def share(self) -> None:
        """Expect that records of this file are stored already: the file was rewritten, or this is a copy of it."""
        self._patient = True

    def add(self, line: Line, drafts: list[Draft]) -> bool:
        """Take what a record became, and its bytes. Return whether a batch was handed over to be committed."""
        for draft in drafts:
            self._add(draft, line)
        self.cursor = line[1] + line[3]
        self.account.line = line[0] + 1
        if self._count < EVENTS_A_BATCH and self.cursor - self._written < BYTES_A_BATCH:
            return False
        self.account.partial = True
        self.flush()
        return True

    def close_calls(self, drafts: list[Draft]) -> None:
        """Take the results that end calls without one: no record stands behind them."""
        for draft in drafts:
            self._add(draft, None)

    def event_id(self, at: int, ident: str) -> str:
        """Return the id that an event of this file has, given its draft's time and identity."""
        return make.derived_id(make.EVENT, at, self.base, ident)

    @property
    def base(self) -> str:
        """The session that stands for the native session: event ids are derived from it."""
        if not self._base:
            self._base = self.reader.strands[""].session or self.session_id("")
        return self._base

    def session_id(self, key: str) -> str:
        """Return the id of the session that a strand becomes."""
        at = self.reader.strands[""].at
        strand = self.reader.strands[key]
        return make.derived_id(
            make.SESSION,
            strand.at or at,
            self.account_id,
            self._engine,
            self.reader.native_id,
            self._key,
            key,
        )

    def _add(self, draft: Draft, line: Line | None) -> None:
        strand = self.reader.strands[draft.strand]
        event_id = make.derived_id(make.EVENT, draft.at, self.base, draft.ident)
        if self._patient and (known := self.store.event(event_id)) is not None:
            if not strand.session:
                strand.session = known.session_id
                self._shared.add(known.session_id)
            return
        if not strand.session or strand.session in self._shared:
            self._open(strand)
        body = draft.body if isinstance(draft.body, bytes) else self._complete(draft, strand)
        events = self._events.setdefault(strand.session, [])
        events.append(
            NewEvent(
                id=event_id,
                at=draft.at,
                kind=draft.kind,
                actor=draft.actor,
                body=body,
                salt=self._salt(),
                source=Source(
                    producer="import",
                    engine=self._engine,
                    native_id=draft.native_id,
                    place=place_of(strand.file_index, line) if line else None,
                ),
            )
        )
        for digest, content in draft.blobs:
            self._blobs[digest] = content
        self._count += 1

    def _open(self, strand: Strand) -> None:
        """Give a strand its session: a new one, or the one that a copy of the file made before."""
        if not strand.session:
            strand.at = strand.at or self.reader.strands[""].at
            strand.session = self.session_id(strand.key)
            existing = self.store.session(strand.session)
            if existing is None:
                self._begin(strand)
                return
        files = files_of(self.store, strand.session)
        known = [i for i, (_, file_id) in enumerate(files) if file_id == self.file_id]
        self._shared.discard(strand.session)
        if known:
            strand.file_index = known[-1]
            return
        strand.file_index = len(files)
        body = SessionChange(change="imported", engine=self._engine, files=(self._path,), note=self.file_id)
        self._events.setdefault(strand.session, []).append(self._session_event(strand, body, "imported"))

    def reopen(self) -> None:
        """Note a new set of originals with every session that gets more events: the file was rewritten."""
        self._shared.update(s.session for s in self.reader.strands.values() if s.session)

    def _begin(self, strand: Strand) -> None:
        workspace = self._workspace(strand.cwd, strand.at)
        session = Session(
            id=strand.session,
            account_id=self.account_id,
            created_at=strand.at,
            title=self._title(strand),
            workspace_id=workspace,
            engine=self._engine,
            imported=True,
        )
        self._sessions.append(session)
        body = SessionChange(
            change="opened",
            engine=self._engine,
            version=strand.version or self.reader.version,
            files=(self._path,),
            note=self.file_id,
            reason="imported",
        )
        self._events.setdefault(session.id, []).append(self._session_event(strand, body, "opened"))

    def _session_event(self, strand: Strand, body: SessionChange, what: str) -> NewEvent:
        ident = f"{what}\x00{strand.key}\x00{self.file_id if what == 'imported' else ''}"
        return NewEvent(
            id=make.derived_id(make.EVENT, strand.at, strand.session, ident),
            at=strand.at if what == "opened" else self._now(),
            kind="session",
            actor="system",
            body=encode(body),
            salt=self._salt(),
            source=Source(
                producer="import",
                engine=self._engine,
                native_id=self.reader.native_id if not strand.key else strand.native_id,
            ),
        )

    def _workspace(self, path: str | None, at: int) -> str | None:
        if not path:
            return None
        if path not in self._known_workspaces:
            found = self.store.workspace(self.account_id, path)
            if found is None:
                found = Workspace(
                    id=make.derived_id(make.WORKSPACE, 0, self.account_id, path),
                    account_id=self.account_id,
                    path=path,
                    created_at=at,
                )
                self._workspaces[path] = found
            self._known_workspaces[path] = found.id
        return self._known_workspaces[path]

    def _complete(self, draft: Draft, strand: Strand) -> bytes:
        """Give a checkpoint the numbers of what it shadows: everything that the session holds before it."""
        assert isinstance(draft.body, Checkpoint)
        self.settle()
        session = self.store.session(strand.session)
        waiting = self._events.get(strand.session, ())
        head = (session.head_seq if session else 0) + len(waiting)
        kept = [self.event_id(at, ident) for at, ident in draft.kept_idents]
        if draft.kept:
            wanted = set(draft.kept)
            recent = self.store.events(strand.session, limit=_KEPT_WITHIN, newest_first=True)
            kept += [e.id for e in (*reversed(recent), *waiting) if e.source.native_id in wanted]
        body = msgspec.structs.replace(
            draft.body, first_seq=1 if head else None, last_seq=head or None, kept=tuple(kept)
        )
        return encode(body)

    def flush(self, *, links: tuple[Link, ...] = (), titles: bool = False) -> None:
        """Commit what was taken so far together with the cursor. Waits for the batch before, not for this one."""
        patches: tuple[SessionPatch, ...] = ()
        if titles:
            patches = tuple(self._learned(s) for s in self.reader.strands.values() if s.session)
        start, end = self._written, self.cursor
        self._written = end
        self.account.counts = self.reader.counts
        imported = ImportedFile(
            id=self.file_id,
            account_id=self.account_id,
            path=self._path,
            engine=self._engine,
            version=self.reader.version,
            size=end,
            mtime_ns=self._mtime_ns,
            fingerprint=fingerprint(self._path, end),
            account=pack(self.account),
            state=self.reader.save(),
            sessions=self.sessions(),
            imported_at=self._now(),
            seen_size=self._limit,
        )
        batch = Batch(
            workspaces=tuple(self._workspaces.values()),
            sessions=tuple(self._sessions),
            links=links,
            blobs=tuple(self._blobs.items()),
            appends=tuple(Append(session_id=s, events=tuple(e)) for s, e in self._events.items()),
            session_patches=patches,
            imports=(imported,),
        )
        self._workspaces, self._sessions, self._blobs, self._events = {}, [], {}, {}
        self._count = 0
        # Compressing lets other threads run: the batch before is being committed meanwhile.
        batch = msgspec.structs.replace(batch, originals=self._originals(start, end))
        self.settle()
        self._pending = self._pool.submit(self._commit, batch)

    def _originals(self, start: int, end: int) -> tuple[Original, ...]:
        if end == start:
            return ()
        with open(self._path, "rb") as file:  # a handle of its own: the lines are being read through another
            originals = tuple(stretches(file, self.file_id, start, end))
        if sum(original.length for original in originals) != end - start:
            raise OSError(0, "the file became shorter while it was read")
        return originals

    def _learned(self, strand: Strand) -> SessionPatch:
        """Return what a session's rows have told since its first one: its title, its folder. A person's title stays."""
        stored = self.store.session(strand.session)
        title: str | None = self._title(strand) or None
        if stored is not None and title not in (None, stored.title) and self._was_renamed(strand.session):
            title = None
        return SessionPatch(
            session_id=strand.session, title=title, workspace_id=self._workspace(strand.cwd, strand.at)
        )

    def _was_renamed(self, session_id: str) -> bool:
        told = self.store.events(session_id, limit=200, kinds=("session",), newest_first=True)
        return any(isinstance(b := body_of(e), SessionChange) and b.change == "renamed" for e in told)

    def _title(self, strand: Strand) -> str:
        title = strand.title
        if not title and strand.kind == "fork" and strand.parent is not None:
            title = f"{self.reader.strands[strand.parent].title} (branch)".strip()
        # A title is for people, who cannot read lone surrogates, nor what fills a screen: a row has it as it was given.
        title = " ".join(title[: 10 * TITLE_LIMIT].encode("utf-8", "replace").decode().split())
        return title if len(title) <= TITLE_LIMIT else title[: TITLE_LIMIT - 1].rstrip() + "…"

    def sessions(self) -> tuple[str, ...]:
        """Return the sessions of this file, the main line first."""
        return tuple(s.session for s in self.reader.strands.values() if s.session)

    def settle(self) -> None:
        """Wait until the last batch is stored. Raises what its commit raised."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _commit(self, batch: Batch) -> None:
        try:
            self.store.commit(batch)
        except Conflict:
            # Another import made the same sessions or workspaces meanwhile: they are the same ones.
            self.store.commit(_without_known(self.store, batch))


def fingerprint(path: str, end: int) -> str:
    """Return the digest of the last bytes of a file before ``end``."""
    if not end:
        return content_digest(b"")
    with open(path, "rb") as file:
        start = max(0, end - _FINGERPRINT)
        file.seek(start)
        return content_digest(file.read(end - start))


def link_between(
    kind: str, parent: str, child: str, at: int, *, event_id: str | None = None, seq: int | None = None
) -> Link:
    """Return the link of an imported branch or subagent."""
    return Link(
        id=make.derived_id(make.LINK, at, kind, parent, child),
        type="child" if kind == "child" else "fork",
        from_session=parent,
        to_session=child,
        created_at=at,
        reason="imported",
        event_id=event_id,
        seq=seq,
    )


def _without_known(store: Store, batch: Batch) -> Batch:
    return msgspec.structs.replace(
        batch,
        sessions=tuple(s for s in batch.sessions if store.session(s.id) is None),
        workspaces=tuple(w for w in batch.workspaces if store.workspace(w.account_id, w.path) is None),
        links=tuple(link for link in batch.links if store.link(link.id) is None),
    )
