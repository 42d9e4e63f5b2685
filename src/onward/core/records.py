"""The records beside the log: sessions, links, runs, manifests and what an engine remembers.

Each is a frozen value that says how things stand now; how they came to stand so is in the events. They are written in the
same transaction as the events that explain them, through one ``Batch`` (invariant C2), and never on their own.

Times are microseconds since 1970, UTC. Ids are described in ``ids.py``.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

LinkType = Literal["continuation", "child", "fork"]
RunState = Literal["queued", "running", "completed", "failed", "cancelled", "interrupted", "continued"]

FINAL_STATES: Final = frozenset(("completed", "failed", "cancelled", "interrupted", "continued"))

TRANSITIONS: Final[dict[str, frozenset[str]]] = {
    "queued": frozenset(("running", "cancelled", "failed")),
    "running": frozenset(("completed", "failed", "cancelled", "interrupted", "continued")),
}
"""What a run in this state may become. A state that is missing here is final."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The root of all records."""


class Workspace(Record, kw_only=True, frozen=True):
    """The place the work is about: a repository or a folder. Its sessions share a timeline."""

    id: str
    account_id: str
    path: str
    """The folder as its machine spells it. Unique on a machine of an account."""
    created_at: int
    machine_id: str | None = None
    """The machine that has the folder; None is the machine that has the store."""
    moved_at: int | None = None
    """When it was last moved to another machine or folder; from then on, its path is where its runs work."""


class Offer(Record, kw_only=True, frozen=True):
    """An engine that a machine has, or would have."""

    name: str
    version: str | None = None
    """The version of its program, where asking for it is cheap."""
    unavailable: str | None = None
    """Why it cannot run there, in words; None when it can."""


class Machine(Record, kw_only=True, frozen=True):
    """A computer on which a runner executes runs."""

    id: str
    account_id: str
    name: str
    """As people know it. Unique within an account."""
    created_at: int
    engines: bytes = b"[]"
    """What it offers, a JSON array of ``Offer``."""
    seen_at: int = 0
    """When its runner last said anything; 0 for a machine on which none ever waited for work."""
    home: bool = False
    """It is the machine that has the store: workspaces without a machine are on it."""


class Token(Record, kw_only=True, frozen=True):
    """The right to act for an account over the network, for whoever holds its secret. The secret itself is nowhere."""

    id: str
    account_id: str
    name: str
    """What it is for, in the words of whoever made it."""
    digest: str
    """``sha256:<hex>`` of the secret."""
    scopes: tuple[str, ...]
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None


class Session(Record, kw_only=True, frozen=True):
    """One conversation: how it stands now."""

    id: str
    account_id: str
    created_at: int
    title: str = ""
    description: str = ""
    workspace_id: str | None = None
    origin_id: str | None = None
    """The session reached by following predecessors to the end; None means this one is its own origin."""
    engine: str | None = None
    """The engine that produced or last ran it."""
    imported: bool = False
    archived: bool = False
    head_seq: int = 0
    """The number of the newest event; also how many there are. Kept by the store."""
    head_chain: bytes = bytes(32)
    """The chain value of the newest event. Kept by the store."""
    updated_at: int = 0
    """The time of the newest event that was appended. Kept by the store."""
    input_seq: int = 0
    """The newest message by a user or a trigger; 0 means nobody has spoken. Kept by the store."""
    fence: int = 0
    """The newest fencing number given out for a run of this session. Kept by the store."""


class Link(Record, kw_only=True, frozen=True):
    """A typed edge between two sessions.

    ``continuation``: predecessor to successor. ``child``: parent to delegated child. ``fork``: source to branch.
    """

    id: str
    type: LinkType
    from_session: str
    to_session: str
    created_at: int
    reason: str = ""
    key: str | None = None
    """The idempotency key of the command that made it; unique for one ``from_session``."""
    event_id: str | None = None
    """The initiating event of a continuation; the call that delegated a child; the last shared event of a fork."""
    seq: int | None = None
    """The number of that event in the session that holds it: ``from_session``, unless that is a branch and the message which
    was continued stands in what it branched from (the manifest's ``initiating.session`` says which)."""
    manifest_id: str | None = None
    report_to: str | None = None
    """For a child: the session it reports to now, when its parent went on elsewhere."""
    actor: str = "agent"
    reported_at: int | None = None
    """For a child: when it reported back, or was given up. Until then it is pending."""
    outcome: str | None = None
    """For a child: how its work ended, in a word."""


class Run(Record, kw_only=True, frozen=True):
    """One turn of an engine in a session."""

    id: str
    session_id: str
    created_at: int
    state: RunState = "queued"
    engine: str = ""
    attempt: int = 1
    retry_of: str | None = None
    input_event: str | None = None
    """The message this run answers, once it is in the log."""
    input: bytes | None = None
    """The body of a message that waits for its turn; it enters the log when the run starts."""
    input_actor: str = "user"
    context: bytes | None = None
    """The body of a context that waits with the message; it enters the log right before it."""
    options: bytes = b"{}"
    """Continuation mode, limits and adapter options, as JSON."""
    owner: str | None = None
    """Who holds the lease."""
    lease_until: int | None = None
    fence: int = 0
    started_at: int | None = None
    ended_at: int | None = None
    reason: str | None = None
    """Why it ended as it did, in words."""
    usage: bytes | None = None
    """Tokens and cost as JSON, see ``bodies.Usage``."""
    machine_id: str | None = None
    """The machine that executes it, or executed it, where that is registered."""
    claim: str | None = None
    """What the runner called its claim: asked for again, because the answer was lost, it gets the same run."""
    entries: int = 0
    """How many of the numbered entries of a runner on another machine have been acknowledged."""


class StoredManifest(Record, kw_only=True, frozen=True):
    """A manifest as it was written, with the projection that it describes."""

    id: str
    link_id: str
    from_session: str
    to_session: str
    body: bytes
    """The manifest as JSON."""
    digest: str
    """``sha256:<hex>`` of ``body``."""
    created_at: int


class EngineSession(Record, kw_only=True, frozen=True):
    """What one engine calls this session, written before the first prompt where the id can be chosen."""

    session_id: str
    engine: str
    native_id: str
    model: str | None = None
    machine_id: str | None = None
    updated_at: int = 0


class Draft(Record, kw_only=True, frozen=True):
    """Text that is being streamed and is not an event yet. After a crash it becomes an interrupted message."""

    run_id: str
    session_id: str
    text: str
    updated_at: int
    kind: str = "message"


class OpenCall(Record, kw_only=True, frozen=True):
    """A tool call without a result."""

    session_id: str
    call: str
    event_id: str
    seq: int


class ImportedFile(Record, kw_only=True, frozen=True):
    """How far a native file was read, so that the next import starts there."""

    id: str
    account_id: str
    path: str
    engine: str
    version: str | None
    size: int
    """Bytes consumed so far: the offset at which the next read starts."""
    mtime_ns: int
    fingerprint: str
    """``sha256:<hex>`` of the last bytes before ``size``; if they differ on disk, the file was rewritten."""
    account: bytes
    """The account of every record read so far, as JSON."""
    state: bytes = b""
    """What the reader needs to go on, as JSON."""
    sessions: tuple[str, ...] = ()
    imported_at: int = 0
    seen_size: int = 0
    """The size of the file when it was last looked at (it may end in a torn record that was not consumed)."""


class Original(Record, kw_only=True, frozen=True):
    """A stretch of a native file, kept exactly as it was (compressed): bytes ``offset`` to ``offset + length``."""

    file_id: str
    offset: int
    length: int
    data: bytes
    """zlib-compressed bytes."""


class NativeRows(Record, kw_only=True, frozen=True):
    """Rows that an engine added to one of its own files, kept exactly, in the order in which they were added.

    They stand beside the log and are no part of it: what an engine needs to take up its own conversation elsewhere.
    """

    account_id: str
    engine: str
    native_id: str
    """The engine's own conversation."""
    scope: str = ""
    """Keeps conversations of one id apart, for a client of ours that has such a notion (the Claude SDK's project)."""
    path: str = ""
    """Which file of that conversation: empty for the main one, else the engine's own subpath."""
    part: int = 0
    """The number of these rows among those of the file, from 0. Given by the store."""
    session_id: str | None = None
    """Our session, where there is one: what is erased there takes these rows with it."""
    at: int = 0
    count: int = 0
    """How many rows."""
    data: bytes = b""
    """zlib-compressed: the rows, with a line feed between them."""


class NativeKept(Record, kw_only=True, frozen=True):
    """A file of an engine's own of which rows are kept."""

    native_id: str
    path: str
    at: int
    """When the newest of them came."""


def may_become(state: str, wanted: str) -> bool:
    """Whether a run in ``state`` may become ``wanted``."""
    return wanted in TRANSITIONS.get(state, frozenset())
