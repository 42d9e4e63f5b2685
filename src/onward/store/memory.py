"""A store in memory: the model that every other store is tested against.

It is plain dictionaries behind one lock. A commit writes as it goes and notes what each key held before; when anything is
refused, the notes are played back, so that nothing of the batch remains. It keeps no file and no index: a search reads all
words, newest first. It is deliberately not fast; it is meant to be right at a glance.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from onward.core import words
from onward.core.codec import call_of, searchable_text
from onward.core.events import Event, NewEvent, seal
from onward.core.records import (
    FINAL_STATES,
    Draft,
    EngineSession,
    ImportedFile,
    Link,
    NativeKept,
    NativeRows,
    OpenCall,
    Original,
    Run,
    RunState,
    Session,
    StoredManifest,
)
from onward.errors import (
    Conflict,
    CycleRefused,
    EventNotFound,
    NotFound,
    RunNotFound,
    SessionNotFound,
    StoreClosed,
)
from onward.store import rules
from onward.store.contract import (
    Append,
    Batch,
    Committed,
    DropBlob,
    Guard,
    HeadIs,
    LinksAre,
    Match,
    Matches,
    NoDraft,
    NoOpenCalls,
    NoRuns,
    RunChange,
    RunIs,
    SessionQuery,
    Tally,
)
from onward.store.memory_machines import MachinesInMemory

_ABSENT: Final = object()
_K = TypeVar("_K")
_V = TypeVar("_V")
_D = TypeVar("_D", Link, Run)


class MemoryStore(MachinesInMemory):
    """A store that lives as long as the object does. See ``contract.Store`` for what each method promises."""

    def __init__(self, *, url: str = "memory://") -> None:
        super().__init__()
        self._url = url
        self._lock = threading.RLock()
        self._closed = False
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self._sessions: dict[str, Session] = {}
        self._links: dict[str, Link] = {}
        self._manifests: dict[str, StoredManifest] = {}
        self._blobs: dict[str, bytes] = {}
        self._runs: dict[str, Run] = {}
        self._events: dict[tuple[str, int], Event] = {}
        self._places: dict[str, tuple[str, int]] = {}
        """Event id to session and number, in commit order."""
        self._calls: dict[tuple[str, str], OpenCall] = {}
        self._state: dict[tuple[str, str], int] = {}
        self._engine_sessions: dict[tuple[str, str], EngineSession] = {}
        self._drafts: dict[str, Draft] = {}
        self._imports: dict[tuple[str, str], ImportedFile] = {}
        self._originals: dict[tuple[str, int], Original] = {}
        self._native: dict[tuple[str, str, str, str, str, int], NativeRows] = {}
        """By account, engine, conversation, scope, path and part."""

    @property
    def url(self) -> str:
        return self._url

    # -- writing ------------------------------------------------------------------------------------------------------

    def commit(self, batch: Batch) -> Committed:
        rules.check_shape(batch)
        with self._lock:
            self._check_open()
            self._undo = []
            try:
                return self._apply(batch)
            except BaseException:
                for table, key, before in reversed(self._undo):
                    if before is _ABSENT:
                        del table[key]
                    else:
                        table[key] = before
                raise
            finally:
                self._undo = []

    def _put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def _drop(self, table: dict[Any, Any], key: Any) -> None:
        if key in table:
            self._undo.append((table, key, table[key]))
            del table[key]

    def _apply(self, batch: Batch) -> Committed:
        for guard in batch.guards:
            self._check_guard(guard)
        for append in batch.appends:
            if append.run_id is not None:
                rules.check_hold(append, self._runs.get(append.run_id))
        self._apply_machines(batch)
        for session in batch.sessions:
            self._add(self._sessions, session.id, rules.fresh_session(session), "session")
        for link in batch.links:
            self._add_link(link)
        for manifest in batch.manifests:
            self._add(self._manifests, manifest.id, manifest, "manifest")
        for digest, content in batch.blobs:
            if digest not in self._blobs:
                self._put(self._blobs, digest, content)
        for run in batch.runs:
            self._need(run.session_id)
            self._add(self._runs, run.id, rules.fresh_run(run), "run")
            if run.state == "running":
                self._put(self._runs, run.id, self._started(rules.fresh_run(run)))
        events = tuple(event for append in batch.appends for event in self._append(append))
        changed = tuple(self._change_run(change) for change in batch.run_changes)
        self._apply_rest(batch)
        return Committed(events=events, runs=changed)

    def _apply_rest(self, batch: Batch) -> None:
        for patch in batch.session_patches:
            self._put(
                self._sessions, patch.session_id, rules.patched_session(self._need(patch.session_id), patch)
            )
        for change in batch.link_patches:
            link = self._links.get(change.link_id)
            if link is None:
                raise NotFound(what="link", value=change.link_id)
            if change.report_to is not None:
                self._need(change.report_to)
            self._put(self._links, link.id, rules.patched_link(link, change))
        self._apply_moves(batch)
        for known in batch.engine_sessions:
            self._need(known.session_id)
            self._put(self._engine_sessions, (known.session_id, known.engine), known)
        for draft in batch.drafts:
            rules.check_draft(self._need_run(draft.run_id))
            self._put(self._drafts, draft.run_id, draft)
        for run_id in batch.drop_drafts:
            self._drop(self._drafts, run_id)
        for imported in batch.imports:
            self._put(self._imports, (imported.account_id, imported.path), imported)
        for original in batch.originals:
            if original.length:
                self._put(self._originals, (original.file_id, original.offset), original)
            else:
                self._drop(self._originals, (original.file_id, original.offset))
        for gone in batch.drop_native:
            for key in [key for key, rows in self._native.items() if rules.is_gone(rows, gone)]:
                self._drop(self._native, key)
        for rows in batch.native_rows:
            if rows.session_id is not None:
                self._need(rows.session_id)
            file = (rows.account_id, rows.engine, rows.native_id, rows.scope, rows.path)
            part = max((key[-1] + 1 for key in self._native if key[:-1] == file), default=0)
            self._put(self._native, (*file, part), msgspec.structs.replace(rows, part=part))
        for erasure in batch.erasures:
            place = self._places.get(erasure.event_id)
            if place is None:
                raise EventNotFound(event=erasure.event_id)
            if not self._events[place].erased:
                self._put(self._events, place, rules.erased_event(self._events[place], erasure.tombstone))

        for blob in batch.drop_blobs:
            if not self._is_named(blob):
                self._drop(self._blobs, blob.digest)

    def _is_named(self, blob: DropBlob) -> bool:
        name = blob.digest.encode()
        return (
            any(name in event.body for event in self._events.values())
            or any(name in known.body for known in self._manifests.values() if known.id != blob.but)
            or any(name in (run.input or b"") + (run.context or b"") for run in self._runs.values())
        )

    def _check_guard(self, guard: Guard) -> None:
        held = False
        match guard:
            case HeadIs(session_id, seq):
                held = self._need(session_id).head_seq == seq
            case LinksAre(session_id, type_, count):
                found = [
                    link
                    for link in self._links.values()
                    if link.from_session == session_id and link.type == type_
                ]
                held = len(found) == count
            case RunIs(run_id):
                held = rules.run_is(guard, self._need_run(run_id))
            case NoOpenCalls(session_id, but):
                held = all(call in but for session, call in self._calls if session == session_id)
            case NoRuns(session_id, but):
                held = all(run.id in but for run in self.unfinished(session_id))
            case NoDraft(run_id):
                held = run_id not in self._drafts
        if not held:
            raise Conflict(what=rules.subject(guard))

    def _add(self, table: dict[str, Any], key: str, value: Any, what: str) -> None:
        if key in table:
            raise Conflict(what=f"{what} {key}, which exists already")
        self._put(table, key, value)

    def _add_link(self, link: Link) -> None:
        self._need(link.from_session)
        self._need(link.to_session)
        into = {known.to_session: known.from_session for known in self._links.values()}
        at: str | None = link.from_session
        while at is not None:
            if at == link.to_session:
                raise CycleRefused(from_session=link.from_session, to_session=link.to_session)
            at = into.get(at)
        if link.to_session in into:
            raise Conflict(
                what=f"session {link.to_session}, which is linked from {into[link.to_session]} already"
            )
        if link.key is not None and self.link_by_key(link.from_session, link.key):
            raise Conflict(what=f"the links of {link.from_session}: key {link.key!r} exists already")
        self._add(self._links, link.id, link, "link")

    def _change_run(self, change: RunChange) -> Run:
        run = rules.changed_run(self._need_run(change.run_id), change)
        self._need(run.session_id)
        if change.state == "running":
            run = self._started(run)
        self._put(self._runs, run.id, run)
        return run

    def _started(self, run: Run) -> Run:
        for other in self._runs.values():
            if other.session_id == run.session_id and other.state == "running" and other.id != run.id:
                raise Conflict(what=f"session {run.session_id}, in which run {other.id} is running")
        session = self._need(run.session_id)
        self._put(self._sessions, session.id, msgspec.structs.replace(session, fence=session.fence + 1))
        return msgspec.structs.replace(run, fence=session.fence + 1)

    def _append(self, append: Append) -> Iterator[Event]:
        self._need(append.session_id)
        for new in append.events:
            place = self._places.get(new.id)
            yield self._events[place] if place else self._append_one(append.session_id, new)

    def _append_one(self, session_id: str, new: NewEvent) -> Event:
        session = self._sessions[session_id]
        event = seal(new, session_id, session.head_seq + 1, session.head_chain)
        self._put(self._events, (session_id, event.seq), event)
        self._put(self._places, event.id, (session_id, event.seq))
        self._put(
            self._sessions,
            session_id,
            msgspec.structs.replace(
                session,
                head_seq=event.seq,
                head_chain=event.chain,
                updated_at=max(session.updated_at, event.at),
                input_seq=event.seq if rules.opens_input(new) else session.input_seq,
            ),
        )
        if event.kind in ("plan", "pins"):
            self._put(self._state, (session_id, event.kind), event.seq)
        call, _ = call_of(event.kind, event.body)
        if call and event.kind == "tool_result":
            self._drop(self._calls, (session_id, call))
        elif call and (session_id, call) not in self._calls:
            opened = OpenCall(session_id=session_id, call=call, event_id=event.id, seq=event.seq)
            self._put(self._calls, (session_id, call), opened)
        return event

    def _need(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFound(session=session_id)
        return session

    def _need_run(self, run_id: str) -> Run:
        run = self._runs.get(run_id)
        if run is None:
            raise RunNotFound(run=run_id)
        return run

    # -- reading ------------------------------------------------------------------------------------------------------

    def session(self, session_id: str) -> Session | None:
        return self._get(self._sessions, session_id)

    def sessions(self, query: SessionQuery) -> tuple[list[Session], str | None]:
        after = rules.decode_cursor(query)
        with self._lock:
            self._check_open()
            children = {link.to_session for link in self._links.values() if link.type == "child"}
            found = [
                session
                for session in self._sessions.values()
                if session.account_id == query.account_id
                and (query.workspace_id is None or session.workspace_id == query.workspace_id)
                and (query.include_archived or not session.archived)
                and (query.include_children or session.id not in children)
                and (after is None or (rules.activity(session), session.id) < after)
                and rules.matches_text(session, query.text)
            ]
        found.sort(key=lambda session: (rules.activity(session), session.id), reverse=True)
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
        with self._lock:
            self._check_open()
            session = self._sessions.get(session_id)
            if session is None:
                return []
            last = session.head_seq if upto is None else min(upto, session.head_seq)
            order = range(max(after, 0) + 1, last + 1)
            found: list[Event] = []
            for seq in reversed(order) if newest_first else order:
                if len(found) >= limit:
                    break
                event = self._events[session_id, seq]
                if kinds is None or event.kind in kinds:
                    found.append(event)
            return found

    def events_at(self, places: Sequence[tuple[str, int]]) -> list[Event]:
        with self._lock:
            self._check_open()
            return [self._events[place] for place in sorted(set(places)) if place in self._events]

    def event(self, event_id: str) -> Event | None:
        with self._lock:
            self._check_open()
            place = self._places.get(event_id)
            return self._events[place] if place else None

    def scan(self, session_id: str, *, after: int = 0) -> Iterator[Event]:
        session = self.session(session_id)
        return iter(self.events(session_id, after=after, limit=session.head_seq) if session else ())

    def links(self, session_id: str) -> list[Link]:
        return self._oldest_first(
            self._links, lambda link: session_id in (link.from_session, link.to_session)
        )

    def link(self, link_id: str) -> Link | None:
        return self._get(self._links, link_id)

    def link_by_key(self, from_session: str, key: str) -> Link | None:
        found = self._oldest_first(
            self._links, lambda link: (link.from_session, link.key) == (from_session, key)
        )
        return found[0] if found else None

    def lineage(self, session_id: str, *, limit: int = 1000) -> list[Link]:
        with self._lock:
            self._check_open()
            into = {link.to_session: link.from_session for link in self._links.values()}
            root = session_id
            while root in into:
                root = into[root]
            tree: list[Link] = []
            level = {root}
            while level and len(tree) < limit:
                below = [
                    link
                    for link in self._oldest_first(self._links, lambda _: True)
                    if link.from_session in level
                ]
                tree += below
                level = {link.to_session for link in below}
            return tree[:limit]

    def manifest(self, manifest_id: str) -> StoredManifest | None:
        return self._get(self._manifests, manifest_id)

    def runs(self, session_id: str, *, limit: int = 100) -> list[Run]:
        return self._oldest_first(self._runs, lambda run: run.session_id == session_id)[::-1][:limit]

    def run(self, run_id: str) -> Run | None:
        return self._get(self._runs, run_id)

    def unfinished(self, session_id: str) -> list[Run]:
        return self._oldest_first(
            self._runs, lambda run: run.session_id == session_id and run.state not in FINAL_STATES
        )

    def runs_in(self, state: RunState, *, lease_before: int | None = None, limit: int = 100) -> list[Run]:
        def wanted(run: Run) -> bool:
            lapsed = lease_before is None or (run.lease_until is not None and run.lease_until < lease_before)
            return run.state == state and lapsed

        return self._oldest_first(self._runs, wanted)[:limit]

    def open_calls(self, session_id: str) -> list[OpenCall]:
        with self._lock:
            self._check_open()
            found = [call for call in self._calls.values() if call.session_id == session_id]
        return sorted(found, key=lambda call: call.seq)

    def state(self, session_id: str) -> dict[str, Event]:
        with self._lock:
            self._check_open()
            return {
                kind: self._events[session_id, seq]
                for (session, kind), seq in self._state.items()
                if session == session_id
            }

    def engine_sessions(self, session_id: str) -> list[EngineSession]:
        with self._lock:
            self._check_open()
            found = [known for known in self._engine_sessions.values() if known.session_id == session_id]
        return sorted(found, key=lambda known: known.engine)

    def draft(self, run_id: str) -> Draft | None:
        return self._get(self._drafts, run_id)

    def heads(self, session_ids: Sequence[str]) -> dict[str, int]:
        found = ((id, self._get(self._sessions, id)) for id in session_ids)
        return {id: session.head_seq for id, session in found if session is not None}

    def drafts(self, session_ids: Sequence[str]) -> list[Draft]:
        with self._lock:
            self._check_open()
            found = [draft for draft in self._drafts.values() if draft.session_id in session_ids]
        return sorted(found, key=lambda draft: draft.run_id)

    def tally(self, account_id: str) -> Tally:
        with self._lock:
            self._check_open()
            mine = {s.id: s.head_seq for s in self._sessions.values() if s.account_id == account_id}
            runs = Counter[str](run.state for run in self._runs.values() if run.session_id in mine)
        return Tally(sessions=len(mine), events=sum(mine.values()), runs=dict(runs))

    def touched(
        self, account_id: str, *, since: str | None = None, limit: int = 1000
    ) -> tuple[list[str], str]:
        with self._lock:
            self._check_open()
            after = rules.position(since, len(self._events))
            # A dictionary keeps the order in which events came, and none ever leaves it.
            looked_at = list(islice(self._events, after, after + limit))
            last = {session_id: None for session_id, _ in reversed(looked_at)}
            found = [id for id in reversed(last) if self._sessions[id].account_id == account_id]
            return found, str(after + len(looked_at))

    def blob(self, digest: str) -> bytes | None:
        return self._get(self._blobs, digest)

    def imported_file(self, account_id: str, path: str) -> ImportedFile | None:
        return self._get(self._imports, (account_id, path))

    def originals(self, file_id: str) -> list[tuple[int, int]]:
        return [(offset, length) for offset, length, _ in self._stretches(file_id)]

    def original(self, file_id: str, offset: int, length: int) -> bytes | None:
        return rules.cut_original(self._stretches(file_id), offset, length)

    def native_rows(
        self, account_id: str, engine: str, native_id: str, *, scope: str = ""
    ) -> list[NativeRows]:
        with self._lock:
            self._check_open()
            return [
                self._native[key]
                for key in sorted(self._native)
                if key[:4] == (account_id, engine, native_id, scope)
            ]

    def native_kept(self, account_id: str, engine: str, *, scope: str = "") -> list[NativeKept]:
        newest: dict[tuple[str, str], int] = {}
        with self._lock:
            self._check_open()
            for rows in self._native.values():
                if (rows.account_id, rows.engine, rows.scope) == (account_id, engine, scope):
                    file = (rows.native_id, rows.path)
                    newest[file] = max(rows.at, newest.get(file, rows.at))
        return [NativeKept(native_id=id, path=path, at=at) for (id, path), at in sorted(newest.items())]

    def search(
        self,
        terms: Sequence[str],
        *,
        account_id: str,
        sessions: Sequence[str] | None = None,
        limit: int = 500,
        any_term: bool = False,
    ) -> Matches:
        wanted = rules.single_words(terms)
        enough = any if any_term else all
        found: list[Match] = []
        with self._lock:
            self._check_open()
            for session_id, seq in reversed(self._places.values()):
                if self._sessions[session_id].account_id != account_id or (
                    sessions is not None and session_id not in sessions
                ):
                    continue
                said = _words_of(self._events[session_id, seq])
                if wanted and enough(_holds(said, word) for word in wanted):
                    if len(found) == limit:
                        return Matches(found=tuple(found), complete=False)
                    found.append(Match(session_id, seq))
        return Matches(found=tuple(found), complete=True)

    def index_lag(self) -> int:
        self._check_open()
        return 0

    def reindex(self) -> int:
        self._check_open()
        return len(self._places)

    def check(self) -> list[str]:
        self._check_open()
        return []

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed

    def _get(self, table: dict[_K, _V], key: _K) -> _V | None:
        with self._lock:
            self._check_open()
            return table.get(key)

    def _oldest_first(self, table: dict[str, _D], wanted: Callable[[_D], bool]) -> list[_D]:
        with self._lock:
            self._check_open()
            return sorted(filter(wanted, table.values()), key=lambda record: (record.created_at, record.id))

    def _stretches(self, file_id: str) -> list[tuple[int, int, bytes]]:
        with self._lock:
            self._check_open()
            return sorted(
                (o.offset, o.length, o.data) for o in self._originals.values() if o.file_id == file_id
            )


def _words_of(event: Event) -> frozenset[str]:
    if event.erased:
        return frozenset()
    return frozenset(words.tokens(words.index_text(searchable_text(event.kind, event.body))))


def _holds(said: frozenset[str], word: str) -> bool:
    return any(token.startswith(word) for token in said) if words.is_prefix(word) else word in said
