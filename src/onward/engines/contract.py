"""The engine contract: one turn in, a stream of signals out.

An engine is a guest. It gets a ``Turn`` (what was said before, what is asked now, which tools it may use) and yields
``Signal`` values as they happen. Whoever drives it (the runner) writes each signal to the log *before* asking for the
next one, so an engine that yields ``ToolCalled`` before it calls the tool can crash at any point without the log
missing an effect. ``Finished`` is the only proof of an end: a stream that stops without it has failed, whatever the
exit code said.

An engine never touches the store, never decides what a session is, and never invents a success. Every implementation
passes the suite in ``onward.testing.engine_contract``. Engines are asynchronous; asyncio is imported by those that
need it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Literal, Protocol, runtime_checkable

import msgspec

from onward.core.bodies import Body, Usage
from onward.core.transcript import TranscriptMessage


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do. What it cannot do, it refuses; it does not pretend."""

    memory: bool = False
    """It keeps a conversation of its own that a later turn can resume."""
    reads: Literal["messages", "text"] = "messages"
    """How it is told what came before, where it holds nothing: as messages (``Turn.history``), or as text in front of the
    input (``Turn.brief``)."""
    chooses_id: bool = False
    """The id of that conversation can be chosen by us, before the first prompt."""
    restore: bool = False
    """Our log can be given back to it exactly."""
    tools: bool = False
    """It calls tools that we offer."""
    streaming: bool = False
    """It says text as it is produced."""
    acts: bool = False
    """It acts by itself, with tools of its own: reads and writes files, runs commands, reaches the network."""
    permissions: bool = False
    """It asks before it acts (``Turn.permit``)."""
    window: int | None = None
    """Its context window in tokens, where known."""


PermissionMode = Literal["default", "accept_edits", "plan", "full_auto", "dangerously_skip_permissions"]
"""How much an engine may do by itself: what it may by default; edit files too; only plan; everything it can inside its own
sandbox; everything. Each engine's module says what it makes of these."""

PERMISSION_MODES: Final = ("default", "accept_edits", "plan", "full_auto", "dangerously_skip_permissions")


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answered."""

    output: Any
    status: Literal["ok", "error"] = "ok"
    ends_turn: bool = False
    """The turn is over: the engine stops at once and answers nothing (``continue_session`` does this)."""
    recorded: bool = False
    """The result is in the log already, written by the tool's own transaction."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that Onward offers to an engine."""

    name: str
    description: str
    schema: dict[str, Any]
    """JSON Schema of the input, an object."""
    call: Callable[[str, dict[str, Any]], Awaitable[ToolOutcome]]
    """``await call(our_call_id, input)``. Never raises for bad input: that is an outcome with status ``error``."""


class NativeSession(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's own conversation that a turn should resume."""

    id: str
    model: str | None = None


class NativeFile(msgspec.Struct, frozen=True, kw_only=True):
    """What we hold of one of an engine's own files, row by row as the engine wrote it (see ``Mirrored``)."""

    native_id: str
    path: str = ""
    """Which file of that conversation: empty for the main one, else the engine's own subpath (a subagent's)."""
    rows: tuple[bytes, ...] = ()
    """Each one record without its line end, in order."""


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """An engine asks before it acts."""

    subject: str
    """What it is about to do, for a person, in a line."""
    tool: str = ""
    input: Any = None
    call: str | None = None
    """Our id of the call that it is about, if that was told before."""
    edits: bool = False
    """It changes files of the workspace and does nothing else."""


class Permitted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a ``Permission``."""

    granted: bool
    note: str = ""
    """Why not, for the engine to read."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an engine needs for one turn."""

    session_id: str
    run_id: str
    input: str
    """What is asked now. It is not in ``history``."""
    history: tuple[TranscriptMessage, ...] = ()
    """What was said before, valid for any provider (invariant T1). Empty when ``native`` is resumed."""
    system: str = ""
    """Control and safety text; empty leaves the engine's own."""
    tools: tuple[Tool, ...] = ()
    brief: str = ""
    """A reconstruction of what came before, fenced and complete as it is. An engine that turns out to hold no conversation
    puts it in front of the input, in the same message, once; one that resumes or restores drops it unread (O2)."""
    native: NativeSession | None = None
    """Resume this conversation. If the engine does not know it: ``recorded``, else a new one with the brief."""
    native_only: bool = False
    """Resume or fail: nothing takes the place of ``native`` (O5)."""
    new_id: str | None = None
    """The id that a new conversation gets, for engines whose ids can be chosen. The log has it already."""
    recorded: tuple[NativeFile, ...] = ()
    """What we hold of the engine's own files of ``native``, for an engine that can restore."""
    prefer_recorded: bool = False
    """Give ``recorded`` back even where the engine may still hold ``native``: the record comes first."""
    workdir: str | None = None
    model: str | None = None
    permission_mode: PermissionMode = "default"
    permit: Callable[[Permission], Awaitable[Permitted]] | None = None
    """Asks whoever may allow it. None: nobody can be asked, so what the mode does not allow is refused."""
    allowed_tools: tuple[str, ...] | None = None
    """The engine's own tools that it may use, by the engine's names; None leaves that to the mode."""
    denied_tools: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    """``adapter_opts`` of the caller, passed through as they are."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """The root of what an engine says."""


class Started(Signal, kw_only=True, frozen=True):
    """The engine has begun: which model, which conversation of its own, and how it got its context.

    At most one of the three is true, and only when it was confirmed: by the engine's own report that it works in the
    conversation that was asked for (``resumed``, ``restored``), or because the brief is in the message (``briefed``).
    """

    model: str | None = None
    native_id: str | None = None
    resumed: bool = False
    restored: bool = False
    """It held nothing, was given back ``Turn.recorded``, and resumed that."""
    briefed: bool = False
    """It held nothing; ``Turn.brief`` was put in front of the input."""
    why: str = ""
    """Why it did not resume what it was asked to, in a sentence for a person; empty if it did."""


class TextDelta(Signal, kw_only=True, frozen=True):
    """A piece of the answer, as it is produced. Shown at once; the log gets the whole text with ``Said``."""

    text: str


class Said(Signal, kw_only=True, frozen=True):
    """A finished message. Takes the place of the deltas before it."""

    text: str
    model: str | None = None


class Thought(Signal, kw_only=True, frozen=True):
    """Reasoning, as far as the provider shows it; the signature goes back untouched."""

    text: str
    signature: str | None = None


class ToolCalled(Signal, kw_only=True, frozen=True):
    """The agent asks for a tool. Yielded before the tool runs."""

    call: str
    """Our id of the call, unique within the session: the engine makes it from ``turn.run_id`` and a counter."""
    name: str
    input: Any = None
    provider_call: str | None = None
    ours: bool = False
    """It is a tool of ``Turn.tools``, and not one of the engine's own that happens to have its name."""


class ToolAnswered(Signal, kw_only=True, frozen=True):
    """What the tool answered. With ``recorded`` the log has it already."""

    call: str
    output: Any = None
    status: Literal["ok", "error", "not_started", "outcome_unknown"] = "ok"
    name: str | None = None
    recorded: bool = False


class Noted(Signal, kw_only=True, frozen=True):
    """Something else that belongs into the log: a checkpoint, a plan, a terminal's text, a record of an unknown kind."""

    kind: str
    """The kind of the event, see ``core.bodies``."""
    body: Body | bytes
    """The body, or with kind ``raw`` the engine's record as it came."""
    actor: str = "agent"


class Mirrored(Signal, kw_only=True, frozen=True):
    """Rows that the engine has added to one of its own files, so that they can be given back to it (``Turn.recorded``).

    Kept beside the log, never part of it, in the order in which they come.
    """

    native_id: str
    rows: tuple[bytes, ...]
    path: str = ""


class Measured(Signal, kw_only=True, frozen=True):
    """Usage so far in this turn. Later values replace earlier ones."""

    usage: Usage


class Finished(Signal, kw_only=True, frozen=True):
    """The end of the turn, and the only proof of it.

    ``continued`` means that a tool ended the turn (see ``ToolOutcome.ends_turn``).
    """

    status: Literal["completed", "failed", "cancelled", "continued"]
    reason: str = ""
    retryable: bool = False
    """Another attempt, or another engine, may well succeed: nothing was done, and the cause will pass."""
    code: str = ""
    """The kind of failure where it is known, one of ``FAILURES``."""


FAILURES: Final = (
    "authentication",
    "rate_limited",
    "unavailable",
    "quota",
    "timeout",
    "invalid_request",
    "not_installed",
    "resume_refused",
    "busy",
    "protocol",
    "crashed",
    "policy",
    "unknown",
)
"""Kinds of failure. ``busy``: another writer works in the engine's conversation. ``crashed``: the program ended without
saying how its turn ended. ``policy``: a limit of ours stopped it."""


class Engine(Protocol):
    """What produces the agent's side of a conversation."""

    @property
    def name(self) -> str:
        """The name in ``--engine`` and in the log."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    def unavailable(self) -> str | None:
        """Return why it cannot run here, in words that say how to change that; None when it can. Cheap, no side effects."""
        ...

    def run(self, turn: Turn) -> AsyncIterator[Signal]:
        """Take a turn. Exactly one ``Finished`` ends the stream.

        Cancelling the task, or closing the iterator, stops the engine and everything it started. Failures of the
        engine come as ``Finished(status="failed", reason=…)``; only programming errors raise.
        """
        ...


class Awake(msgspec.Struct, frozen=True, kw_only=True):
    """A process that an engine keeps running between turns, so that the next one starts at once."""

    session_id: str
    idle_since: float
    """``time.monotonic()`` at the end of its last turn."""
    pid: int | None = None


@runtime_checkable
class KeepsProcesses(Protocol):
    """An engine that may keep processes running between turns (if it was constructed with ``warm=True``)."""

    def awake(self) -> tuple[Awake, ...]:
        """Return the processes that wait for a next turn; those in the middle of one are not among them."""
        ...

    async def sleep(self, session_id: str) -> bool:
        """End the process that waits for this session's next turn, and everything it started. Return whether there was one.

        The conversation is not touched: the next turn wakes it.
        """
        ...

    async def aclose(self) -> None:
        """End every process."""
        ...


def call_id(run_id: str, number: int) -> str:
    """Return our id for the ``number``-th tool call of a run (from 1)."""
    return f"{run_id}.{number}"
