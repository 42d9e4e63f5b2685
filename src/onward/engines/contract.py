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
from typing import Any, Literal, Protocol

import msgspec

from onward.core.bodies import Usage
from onward.core.transcript import TranscriptMessage


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do. What it cannot do, it refuses; it does not pretend."""

    memory: bool = False
    """It keeps a conversation of its own that a later turn can resume."""
    chooses_id: bool = False
    """The id of that conversation can be chosen by us, before the first prompt."""
    restore: bool = False
    """Our log can be given back to it exactly."""
    tools: bool = False
    """It calls tools that we offer."""
    streaming: bool = False
    """It says text as it is produced."""
    window: int | None = None
    """Its context window in tokens, where known."""


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
    native: NativeSession | None = None
    workdir: str | None = None
    model: str | None = None
    options: dict[str, Any] = {}
    """``adapter_opts`` of the caller, passed through as they are."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """The root of what an engine says."""


class Started(Signal, kw_only=True, frozen=True):
    """The engine has begun: which model, which conversation of its own, and whether it resumed the one asked for."""

    model: str | None = None
    native_id: str | None = None
    resumed: bool = False


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


class ToolAnswered(Signal, kw_only=True, frozen=True):
    """What the tool answered. With ``recorded`` the log has it already."""

    call: str
    output: Any = None
    status: Literal["ok", "error", "outcome_unknown"] = "ok"
    name: str | None = None
    recorded: bool = False


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


def call_id(run_id: str, number: int) -> str:
    """Return our id for the ``number``-th tool call of a run (from 1)."""
    return f"{run_id}.{number}"
