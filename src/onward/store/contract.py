"""The store contract: one way to write, a few ways to read.

Everything that must happen together is one ``Batch``, and ``commit`` writes it whole or not at all. A batch first states
what must still be true (``guards``: the decision was made on a snapshot); if it is not, ``Conflict`` is raised, nothing is
written, and the caller decides again. The store alone gives out sequence numbers, chain values and fencing numbers.

Every implementation passes the suite in ``onward.testing.store_contract``. Stores are synchronous and safe to call from
many threads. They know nothing of accounts being allowed or not: the service checks that before it asks.

Order inside one commit: guards, machines, tokens, workspaces, sessions, links, manifests, blobs, runs, appends, run changes,
the rest. So the last words of a run and its final state go into one batch: the append is checked against the run while it
still runs.

What a store keeps by itself, in the same transaction as an append: the session's head (seq, chain), ``updated_at`` (the
largest ``at`` seen), ``input_seq`` (kind ``message``, actor ``user`` or ``trigger``), the table of open calls (opened by a
``tool_call``, closed by the first ``tool_result`` of the same call id, see ``codec.call_of``), and ``state`` (the newest
``plan`` and ``pins`` event). Full text is filled after the log, behind a watermark at most 200 events back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from onward.core.events import Event, NewEvent
from onward.core.records import (
    Draft,
    EngineSession,
    ImportedFile,
    Link,
    Machine,
    NativeKept,
    NativeRows,
    OpenCall,
    Original,
    Run,
    RunState,
    Session,
    StoredManifest,
    Token,
    Workspace,
)


class HeadIs(msgspec.Struct, frozen=True):
    """The session's newest event still has this number."""

    session_id: str
    seq: int


class LinksAre(msgspec.Struct, frozen=True):
    """This many links of this type still leave the session (``key`` uniqueness is enforced anyway)."""

    session_id: str
    type: str
    count: int


class RunIs(msgspec.Struct, frozen=True):
    """The run is still in this state; with ``fence``, it is still held under that fencing number.

    With ``lease_before``, its lease still ends before that time: whoever holds it has not renewed it.
    """

    run_id: str
    state: RunState
    fence: int | None = None
    lease_before: int | None = None


class NoOpenCalls(msgspec.Struct, frozen=True):
    """The session has no open calls other than these."""

    session_id: str
    but: tuple[str, ...] = ()


class NoRuns(msgspec.Struct, frozen=True):
    """The session has no queued or running runs other than these."""

    session_id: str
    but: tuple[str, ...] = ()


class NoDraft(msgspec.Struct, frozen=True):
    """Nothing is being streamed under this run."""

    run_id: str


Guard = HeadIs | LinksAre | RunIs | NoOpenCalls | NoRuns | NoDraft


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """Events for the end of one session, in this order.

    An event whose id is already stored, in whatever session, is not stored again; the stored one is returned in its place
    (invariant L3).
    With ``run_id`` and ``fence``, the run must be ``running`` under exactly that number, else ``LeaseLost`` (invariant L6).
    """

    session_id: str
    events: tuple[NewEvent, ...]
    run_id: str | None = None
    fence: int | None = None


class RunChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change to a run. ``state`` must be allowed by ``records.TRANSITIONS`` from the state found, else InvalidTransition.

    A change to ``running`` gives the run the next fencing number of its session, and is refused with ``Conflict`` while
    another run of the session is running. ``fence``, if given, must match, else ``LeaseLost``; a heartbeat
    (``fence`` without ``state``) also needs the run to be running still. Fields left at None keep their value;
    ``clear_input`` empties ``input`` and ``context`` once the message is in the log.
    """

    run_id: str
    state: RunState | None = None
    fence: int | None = None
    owner: str | None = None
    lease_until: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    reason: str | None = None
    usage: bytes | None = None
    input_event: str | None = None
    clear_input: bool = False
    session_id: str | None = None
    """Queued runs may move to a successor (invariant C6)."""
    machine_id: str | None = None
    claim: str | None = None
    entry: int | None = None
    """The number of an entry from another machine: one more than those acknowledged (``Run.entries``), else Conflict."""


class SessionPatch(msgspec.Struct, frozen=True, kw_only=True):
    """New values for a session's own fields. None keeps what is there."""

    session_id: str
    title: str | None = None
    description: str | None = None
    engine: str | None = None
    archived: bool | None = None
    workspace_id: str | None = None


class WorkspacePatch(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace is on another machine now, or in another folder. One that is there already is a Conflict."""

    workspace_id: str
    machine_id: str | None
    path: str
    moved_at: int


class MachineSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's runner said something at this time. The latest time stays."""

    machine_id: str
    at: int


class LinkPatch(msgspec.Struct, frozen=True, kw_only=True):
    """News of a child: it reports to another session now, or it has reported (invariant C6). None keeps what is there.

    A child reports once: the ``reported_at`` and ``outcome`` that were stored first stay.
    """

    link_id: str
    report_to: str | None = None
    reported_at: int | None = None
    outcome: str | None = None


class Erase(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the body of an event by a tombstone: the body becomes ``tombstone``, the salt goes, the digest stays (L5).

    Its text leaves the search index in the same transaction, and its originals are dropped by the caller.
    """

    event_id: str
    tombstone: bytes


class DropBlob(msgspec.Struct, frozen=True, kw_only=True):
    """Take a blob away, unless something still names it: an event, a manifest or a message that waits (L5).

    Looked at after the erasures of the same batch. It reads every body that is stored, so it is for erasing alone.
    """

    digest: str
    but: str | None = None
    """A manifest that may name it all the same: what it described was erased."""


class DropNative(msgspec.Struct, frozen=True, kw_only=True):
    """Take rows of engines' own files away: all of a session, or those of one conversation of an account.

    Without ``path`` all files of the conversation go, else that one.
    """

    session_id: str | None = None
    account_id: str = ""
    engine: str = ""
    native_id: str = ""
    scope: str = ""
    path: str | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is written together, and what must hold for it to be written."""

    guards: tuple[Guard, ...] = ()
    machines: tuple[Machine, ...] = ()
    """One replaces what was stored under its id. An id of another account, or a name that its account has, is a Conflict."""
    tokens: tuple[Token, ...] = ()
    """One replaces what was stored under its id. An id of another account, or a digest that is there, is a Conflict."""
    workspaces: tuple[Workspace, ...] = ()
    """One that exists under the same id, account, machine and path is left as it is; any other claim to its path on that
    machine is a Conflict."""
    sessions: tuple[Session, ...] = ()
    links: tuple[Link, ...] = ()
    """At most one link leads to a session, whatever its type; a second is a Conflict."""
    manifests: tuple[StoredManifest, ...] = ()
    blobs: tuple[tuple[str, bytes], ...] = ()
    """``(sha256:<hex>, content)``; one that exists is left as it is."""
    runs: tuple[Run, ...] = ()
    run_changes: tuple[RunChange, ...] = ()
    appends: tuple[Append, ...] = ()
    session_patches: tuple[SessionPatch, ...] = ()
    link_patches: tuple[LinkPatch, ...] = ()
    workspace_patches: tuple[WorkspacePatch, ...] = ()
    seen: tuple[MachineSeen, ...] = ()
    engine_sessions: tuple[EngineSession, ...] = ()
    drafts: tuple[Draft, ...] = ()
    """One a run; a later one replaces it. Refused with LeaseLost once the run is final."""
    drop_drafts: tuple[str, ...] = ()
    imports: tuple[ImportedFile, ...] = ()
    originals: tuple[Original, ...] = ()
    """One replaces what was kept at its offset; one of length 0 only takes that away. So a stretch can be cut around an
    erased record."""
    drop_native: tuple[DropNative, ...] = ()
    """Carried out before ``native_rows`` of the same batch are added."""
    native_rows: tuple[NativeRows, ...] = ()
    """Each is added behind those of its file; the store gives it its ``part``."""
    erasures: tuple[Erase, ...] = ()
    drop_blobs: tuple[DropBlob, ...] = ()


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit wrote: the stored events of every append, in order (a repeated id gives the event stored before)."""

    events: tuple[Event, ...] = ()
    runs: tuple[Run, ...] = ()
    """The runs that ``run_changes`` changed, as they are now."""


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list: newest activity first, at most ``limit``, those after ``cursor``."""

    account_id: str
    workspace_id: str | None = None
    text: str | None = None
    """Part of the title or id, case-insensitive."""
    include_archived: bool = False
    include_children: bool = True
    limit: int = 50
    cursor: str | None = None


class Match(msgspec.Struct, frozen=True):
    """One event whose text matches a search, before ranking."""

    session_id: str
    seq: int


class Matches(msgspec.Struct, frozen=True, kw_only=True):
    """The newest matches, at most ``limit``; ``complete`` is False when the index lags behind the log or more exist."""

    found: tuple[Match, ...]
    complete: bool


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How much an account has."""

    sessions: int
    events: int
    runs: dict[str, int]
    """By state; a state that none is in is absent."""


class Store(Protocol):
    """A place for sessions and their events."""

    @property
    def url(self) -> str:
        """Where this store is, as ``onward.open`` takes it."""
        ...

    def commit(self, batch: Batch) -> Committed:
        """Write a batch whole or not at all.

        Raises Conflict (a guard failed, a link or key exists already, another run is running), LeaseLost,
        InvalidTransition, SessionNotFound, RunNotFound, CycleRefused (a continuation or child link that would close a
        circle), StoreFull, StoreReadOnly, StoreBusy, StoreClosed. After any of them nothing of the batch is stored.
        """
        ...

    def session(self, session_id: str) -> Session | None:
        """Return a session as it stands now."""
        ...

    def sessions(self, query: SessionQuery) -> tuple[list[Session], str | None]:
        """Return a page of sessions and the cursor of the next page, or None at the end."""
        ...

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
        """Return events with ``after < seq <= upto``, at most ``limit``, oldest first unless asked otherwise.

        An unknown session has no events. ``newest_first`` starts at ``upto`` and goes down.
        """
        ...

    def events_at(self, places: Sequence[tuple[str, int]]) -> list[Event]:
        """Return the events at these places (session and number), sorted by them; those that are not there are left out."""
        ...

    def event(self, event_id: str) -> Event | None:
        """Return one event by its id."""
        ...

    def scan(self, session_id: str, *, after: int = 0) -> Iterator[Event]:
        """Yield all events of a session after ``after`` in order, in bounded memory, from one consistent snapshot."""
        ...

    def links(self, session_id: str) -> list[Link]:
        """Return every link from or to the session, oldest first."""
        ...

    def link(self, link_id: str) -> Link | None:
        """Return one link."""
        ...

    def link_by_key(self, from_session: str, key: str) -> Link | None:
        """Return the link that a command with this idempotency key made from this session."""
        ...

    def lineage(self, session_id: str, *, limit: int = 1000) -> list[Link]:
        """Return all links of the tree the session belongs to: up to its root over every type, then everything below.

        Level by level from the root, oldest first within a level; ``limit`` cuts at the lower end.
        """
        ...

    def manifest(self, manifest_id: str) -> StoredManifest | None:
        """Return a manifest by its id."""
        ...

    def runs(self, session_id: str, *, limit: int = 100) -> list[Run]:
        """Return the newest runs of a session, newest first."""
        ...

    def run(self, run_id: str) -> Run | None:
        """Return one run."""
        ...

    def unfinished(self, session_id: str) -> list[Run]:
        """Return every queued and running run of a session, oldest first."""
        ...

    def runs_in(self, state: RunState, *, lease_before: int | None = None, limit: int = 100) -> list[Run]:
        """Return runs in a state, oldest first; with ``lease_before``, only those whose lease ended before that time."""
        ...

    def open_calls(self, session_id: str) -> list[OpenCall]:
        """Return the tool calls of a session that have no result, oldest first."""
        ...

    def state(self, session_id: str) -> dict[str, Event]:
        """Return the newest ``plan`` and ``pins`` events of a session, by kind; missing ones are absent."""
        ...

    def engine_sessions(self, session_id: str) -> list[EngineSession]:
        """Return what each engine calls this session."""
        ...

    def draft(self, run_id: str) -> Draft | None:
        """Return what is being streamed under a run."""
        ...

    def heads(self, session_ids: Sequence[str]) -> dict[str, int]:
        """Return the number of the newest event of each of these sessions; those that are not there are left out."""
        ...

    def drafts(self, session_ids: Sequence[str]) -> list[Draft]:
        """Return what is being streamed in these sessions, by run."""
        ...

    def touched(
        self, account_id: str, *, since: str | None = None, limit: int = 1000
    ) -> tuple[list[str], str]:
        """Return the sessions of an account that events were appended to after a cursor, and the next cursor.

        Each once, the one that was written to last at the end. At most ``limit`` events are looked at: there are more while
        the cursor moves on. Without a cursor: none, and the cursor of this moment. Raises InvalidInput for one that this log
        did not give.
        """
        ...

    def tally(self, account_id: str) -> Tally:
        """Return how many sessions, events and runs an account has. What it costs grows with their number."""
        ...

    def blob(self, digest: str) -> bytes | None:
        """Return the content behind ``sha256:<hex>``."""
        ...

    def workspace(self, account_id: str, path: str, machine_id: str | None = None) -> Workspace | None:
        """Return the workspace of this path on a machine; without one, on the machine that has the store."""
        ...

    def workspace_by_id(self, workspace_id: str) -> Workspace | None:
        """Return a workspace."""
        ...

    def workspaces(self, account_id: str) -> list[Workspace]:
        """Return the workspaces of an account, oldest first."""
        ...

    def machine(self, machine_id: str) -> Machine | None:
        """Return a machine."""
        ...

    def machines(self, account_id: str) -> list[Machine]:
        """Return the machines of an account, oldest first."""
        ...

    def machine_by_name(self, account_id: str, name: str) -> Machine | None:
        """Return the machine of an account with this name."""
        ...

    def token_by_digest(self, digest: str) -> Token | None:
        """Return the token whose secret has this digest, revoked and expired ones included."""
        ...

    def tokens(self, account_id: str) -> list[Token]:
        """Return the tokens of an account, oldest first."""
        ...

    def waiting_for(self, machine: Machine, engines: Sequence[str], *, limit: int = 20) -> list[Run]:
        """Return queued runs that a machine may execute with these engines, oldest first.

        They are of the machine's account; the workspace of their session is on that machine, or there is none; no run of
        their session is running, and none of it waits before them (see ``running.next_queued``).
        """
        ...

    def imported_file(self, account_id: str, path: str) -> ImportedFile | None:
        """Return how far a native file was read."""
        ...

    def originals(self, file_id: str) -> list[tuple[int, int]]:
        """Return ``(offset, length)`` of every stretch kept of a native file, in order."""
        ...

    def original(self, file_id: str, offset: int, length: int) -> bytes | None:
        """Return these exact bytes of a native file (decompressed), or None if any of them is not kept."""
        ...

    def native_rows(
        self, account_id: str, engine: str, native_id: str, *, scope: str = ""
    ) -> list[NativeRows]:
        """Return what is kept of the files of an engine's own conversation: by path, then in the order of adding."""
        ...

    def native_kept(self, account_id: str, engine: str, *, scope: str = "") -> list[NativeKept]:
        """Return the files of an engine of which rows are kept, by conversation and path."""
        ...

    def search(
        self,
        terms: Sequence[str],
        *,
        account_id: str,
        sessions: Sequence[str] | None = None,
        limit: int = 500,
        any_term: bool = False,
    ) -> Matches:
        """Return the newest events whose text has all terms (or any), within an account or some of its sessions.

        Terms are words as ``core.words`` cuts them. The index is brought up to date first, within a bound.
        """
        ...

    def index_lag(self) -> int:
        """Return how many events the full text is behind the log."""
        ...

    def reindex(self) -> int:
        """Build the full text anew from the log. Return the number of events read."""
        ...

    def check(self) -> list[str]:
        """Return what is wrong with the storage itself (not the chain), in words; empty when sound."""
        ...

    def close(self) -> None:
        """Finish what is queued and let go of every resource. Closing twice is allowed."""
        ...
