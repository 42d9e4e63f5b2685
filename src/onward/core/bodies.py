"""What an event says: one frozen struct a kind, each field followed by its sentence.

Bodies are JSON objects. Fields that are absent have their default; fields that this version does not know stay in the
stored bytes and are simply not shown here. A context form constructs only with the facts it promises (design, section 4);
text whose producer promises no shape is ``opaque``.

It is deliberately not where bodies are parsed: see ``codec.py``, which never fails on one.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

NOTICE_LIMIT: Final = 120
"""Characters in the summary of a notice, which shows collapsed."""


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The root of all bodies."""


class Part(Body, frozen=True, kw_only=True):
    """An image or file of a message, kept once as a blob and linked by its digest."""

    blob: str
    """``sha256:<hex>`` of the content."""
    media_type: str = "application/octet-stream"
    name: str | None = None
    bytes: int | None = None


class ContinuedFrom(Body, frozen=True, kw_only=True):
    """Where the initiating message of a continuation stands in the predecessor (invariant C4)."""

    session: str
    event: str
    seq: int
    digest: str
    """``sha256:<hex>``, the digest of the original event."""


class Message(Body, frozen=True, kw_only=True):
    """What a person, a trigger or the agent said."""

    role: Literal["user", "assistant", "system"]
    text: str = ""
    parts: tuple[Part, ...] = ()
    steering: bool = False
    """Sent while the agent was working, to steer it."""
    interrupted: bool = False
    """The speaker was cut off: this is what had been said by then."""
    aside: bool = False
    """Harness text that an engine filed under a role (slash-command echoes, reminders): kept, not part of the dialogue."""
    continued_from: ContinuedFrom | None = None
    model: str | None = None


class Context(Body, frozen=True, kw_only=True, tag_field="form"):
    """Text that enters the model's input without anyone having said it."""

    text: str = ""


def notice_summary(text: str) -> str:
    """Return a text of any length as the summary of a notice: on one line, cut with an ellipsis beyond its limit."""
    line = " ".join(text.split())
    return line if len(line) <= NOTICE_LIMIT else f"{line[: NOTICE_LIMIT - 1].rstrip()}…"


class Section(Body, frozen=True, kw_only=True):
    """One named part of a snapshot."""

    name: str
    text: str

    def __post_init__(self) -> None:
        """Refuse a section that does not say what it is."""
        if not self.name.strip():
            raise ValueError("a section needs its name")


class Snapshot(Context, frozen=True, kw_only=True, tag="snapshot"):
    """Current state that a later snapshot replaces."""

    sections: tuple[Section, ...]

    def __post_init__(self) -> None:
        """Refuse a snapshot without its sections."""
        if not self.sections:
            raise ValueError("a snapshot needs at least one section")


class Notice(Context, frozen=True, kw_only=True, tag="notice"):
    """A one-off account of what just happened; its summary is what shows when collapsed."""

    summary: str

    def __post_init__(self) -> None:
        """Refuse a notice whose summary is missing or too long to show collapsed."""
        if not self.summary.strip():
            raise ValueError("a notice needs a summary")
        if len(self.summary) > NOTICE_LIMIT:
            raise ValueError(
                f"the summary of a notice has at most {NOTICE_LIMIT} characters; this one has {len(self.summary)}"
            )


class Relay(Context, frozen=True, kw_only=True, tag="relay"):
    """A message that another agent addressed to this one."""

    sender: str
    """The session that speaks."""

    def __post_init__(self) -> None:
        """Refuse a relay without a sender."""
        if not self.sender.strip():
            raise ValueError("a relay needs its sender session")


class RecalledReference(Body, frozen=True, kw_only=True, omit_defaults=False):
    """What was kept of one other session, and what was not. All of it is written out, zeros too."""

    source: str
    """The session."""
    label: str
    """What the message calls it."""
    captured_seq: int
    """The number of its newest event at that moment."""
    checkpoint: bool = False
    """Whether a checkpoint stands in it for earlier parts."""
    original: int = 0
    """Messages and checkpoints that the source had in view."""
    retained: int = 0
    """Those of them that are quoted, whole or cut."""
    omitted: int = 0
    """Those that are left out altogether."""
    omitted_bytes: int = 0
    """UTF-8 bytes of text that are missing, of those left out and of those cut."""
    truncated: bool = False
    """Whether anything is missing."""

    def __post_init__(self) -> None:
        """Refuse counts that do not add up."""
        if not self.source.strip():
            raise ValueError("a reference needs its source session")
        counts = (self.captured_seq, self.original, self.retained, self.omitted, self.omitted_bytes)
        if min(counts) < 0 or self.retained + self.omitted != self.original:
            raise ValueError(
                f"of {self.original} messages, {self.retained} retained and {self.omitted} omitted do not add up"
            )


class Recall(Context, frozen=True, kw_only=True, tag="recall"):
    """Material lifted from another session's log, with exact counts of what was left out."""

    references: tuple[RecalledReference, ...]

    def __post_init__(self) -> None:
        """Refuse a recall that names no reference."""
        if not self.references:
            raise ValueError("a recall needs at least one reference")


class ProjectionContext(Context, frozen=True, kw_only=True, tag="projection"):
    """The successor's first model context; the manifest says what is in it and what is not."""

    manifest: str

    def __post_init__(self) -> None:
        """Refuse a projection without its manifest."""
        if not self.manifest.strip():
            raise ValueError("a projection needs its manifest")


class BriefContext(Context, frozen=True, kw_only=True, tag="brief"):
    """A bounded reconstruction of the timeline, given to an engine that holds no conversation of its own."""

    rows: int
    """How many rows of the timeline it shows."""
    scope: Literal["session", "workspace", "projection"] = "session"
    """Whose rows: the conversation's own; those of its workspace; those that came after the projection it began with. Only
    a brief of the workspace is part of what later turns are given: the others repeat what stands in the conversation."""
    oldest: int | None = None
    """The time of the oldest row that is shown, in microseconds; None when it is not known."""
    newest: int | None = None

    def __post_init__(self) -> None:
        """Refuse a brief that shows nothing: an empty record gives no brief."""
        if self.rows < 1:
            raise ValueError(f"a brief shows at least one row of the timeline; this one shows {self.rows}")


class Instructions(Context, frozen=True, kw_only=True, tag="instructions"):
    """Standing instructions: a system prompt, a project file."""


class Opaque(Context, frozen=True, kw_only=True, tag="opaque"):
    """Text whose producer promises no shape."""


class Reasoning(Body, frozen=True, kw_only=True):
    """What a model thought, as far as its provider shows it."""

    text: str = ""
    signature: str | None = None
    """The provider's signature or encrypted content, untouched."""


class ToolCall(Body, frozen=True, kw_only=True):
    """The agent asks for a tool."""

    call: str
    """Our id of the call, unique within the session."""
    name: str
    input: Any = None
    provider_call: str | None = None
    """The provider's own id, which may repeat."""


class ToolResult(Body, frozen=True, kw_only=True):
    """What became of a tool call."""

    call: str
    output: Any = None
    status: Literal["ok", "error", "not_started", "outcome_unknown"] = "ok"
    name: str | None = None
    provider_call: str | None = None
    parts: tuple[Part, ...] = ()
    closer: bool = False
    """Written by Onward because no result had arrived. A real one that comes later is kept and told beside it; it does not
    take its place, since a model has read this one by then (invariant T2)."""


class Terminal(Body, frozen=True, kw_only=True):
    """What a coding engine's pane showed."""

    text: str


class Command(Body, frozen=True, kw_only=True):
    """What a coding engine was told to do, outside the dialogue."""

    text: str


class Outcome(Body, frozen=True, kw_only=True):
    """How a coding engine's work ended."""

    text: str
    status: str = "unknown"


class Checkpoint(Body, frozen=True, kw_only=True):
    """A compaction summary. It shadows earlier events for the model; it does not replace them in the log."""

    text: str
    first_seq: int | None = None
    """The first event of this session that it shadows, if that is known."""
    last_seq: int | None = None
    kept: tuple[str, ...] = ()
    """Ids of events inside the range that the engine kept verbatim."""
    trigger: str | None = None


class PlanStep(Body, frozen=True, kw_only=True):
    """One step of a plan."""

    id: str
    text: str
    status: Literal["open", "active", "done", "dropped"] = "open"
    resolution: str | None = None


class Plan(Body, frozen=True, kw_only=True):
    """One full revision of the plan; the newest revision is the current one."""

    revision: int
    steps: tuple[PlanStep, ...] = ()
    closed: bool = False
    carried_from: str | None = None
    """The event of the predecessor's plan that this one carries on."""


class Pin(Body, frozen=True, kw_only=True):
    """A tool or resource that stays loaded, at the version that was chosen."""

    kind: Literal["tool", "resource"]
    name: str
    version: str | None = None
    scope: str | None = None


class Pins(Body, frozen=True, kw_only=True):
    """One full revision of the pins."""

    revision: int
    pins: tuple[Pin, ...] = ()
    carried_from: str | None = None


class Usage(Body, frozen=True, kw_only=True):
    """Tokens and cost of a run, as its engine measured them. None means that it did not say."""

    input_tokens: int | None = None
    """Of all model requests of the turn together."""
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None
    window: int | None = None
    """The size of the model's context window, where known."""
    context_tokens: int | None = None
    """The prompt of the newest model request alone: what the context holds, where ``input_tokens`` is a sum."""


class RunChange(Body, frozen=True, kw_only=True):
    """A run changed its state."""

    run: str
    state: str
    engine: str | None = None
    reason: str | None = None
    usage: Usage | None = None
    attempt: int = 1


class Approval(Body, frozen=True, kw_only=True):
    """Somebody was asked for permission, or answered."""

    state: Literal["requested", "granted", "denied"]
    subject: str
    call: str | None = None
    note: str | None = None
    request: Any = None
    """The whole of what was asked for, so that it can be carried out as it was."""
    answers: str | None = None
    """The event of the request that this one grants or denies."""


class Signature(Body, frozen=True, kw_only=True):
    """Somebody's signature of a manifest, detached: it stands beside the manifest and changes nothing in it."""

    manifest: str
    digest: str
    """``sha256:<hex>`` of the manifest's bytes, which is what was signed (``signing.statement``)."""
    public_key: str
    """The key that checks it: 32 bytes in base64. Whose key it is, the reader has to know."""
    value: str
    """The 64 bytes of the signature in base64."""
    algorithm: Literal["ed25519"] = "ed25519"


class OpeningFacts(Body, frozen=True, kw_only=True):
    """How a run got its context: what was asked of the engine, and what it confirmed (see ``core.wording``)."""

    outcome: Literal["resumed", "restored", "seeded", "fresh"] | None = None
    """As confirmed by whoever drove the engine; None when nothing was confirmed."""
    reason: str = ""
    """Why, in a sentence for a person."""
    engine: str = ""
    branch: str = ""
    """Which question decided what was asked, one of ``core.opening.Branch``."""
    asked: Literal["resume", "restore", "fresh"] | None = None
    """What was asked of the engine. Another outcome than this one says that it did not confirm it."""
    native: str | None = None
    """The engine's own id of the conversation that it works in, as it reported it."""
    given: Literal["brief", "messages"] | None = None
    """In what shape a reconstruction was given: as text before what was asked, or as the messages themselves."""
    scope: Literal["session", "workspace", "projection"] | None = None
    """What a reconstruction was made from."""
    rows: int = 0
    """How many rows, or messages, it holds."""
    oldest: int | None = None
    newest: int | None = None
    """The times of its first and last row, in microseconds."""
    fault: str = ""
    """Why no reconstruction could be written, if that failed. The conversation was opened all the same."""


class SessionChange(Body, frozen=True, kw_only=True):
    """Something happened to the session as a whole."""

    change: Literal[
        "opened",
        "renamed",
        "continued",
        "forked",
        "branched",
        "erased",
        "archived",
        "opening",
        "imported",
        "delegated",
        "reported",
        "signed",
    ]
    title: str | None = None
    link: str | None = None
    other: str | None = None
    """The session at the other end of the link."""
    reason: str | None = None
    opening: str | None = None
    """``resumed``, ``restored``, ``seeded`` or ``fresh``: how the run got its context, as confirmed by the runner."""
    facts: OpeningFacts | None = None
    """Of an opening: everything that is told about it."""
    engine: str | None = None
    version: str | None = None
    files: tuple[str, ...] = ()
    """On import: the native files, in the order that the places of events count them."""
    event: str | None = None
    """The event concerned (of an erasure, of a fork's point)."""
    note: str | None = None
    signature: Signature | None = None


class Recalled(Body, frozen=True, kw_only=True):
    """Somebody read exact earlier material."""

    how: Literal["read", "search", "lineage", "manifest"]
    query: str
    returned: tuple[str, ...] = ()
    """Addresses of what was returned, ``ses_…:12-14``."""
    had_omitted: tuple[str, ...] = ()
    """Those of them that the projection of this session had omitted."""


BODIES: Final[dict[str, type[Body]]] = {
    "message": Message,
    "context": Context,
    "reasoning": Reasoning,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "terminal": Terminal,
    "command": Command,
    "outcome": Outcome,
    "checkpoint": Checkpoint,
    "plan": Plan,
    "pins": Pins,
    "run": RunChange,
    "approval": Approval,
    "session": SessionChange,
    "recalled": Recalled,
}
"""Kind to struct. ``raw`` has none: its body is the native record itself, whatever it holds."""

FORMS: Final = (Snapshot, Notice, Relay, Recall, ProjectionContext, BriefContext, Instructions, Opaque)
