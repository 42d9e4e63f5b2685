"""What a runner on another machine and the server say to each other, as values. JSON, with bytes in base64.

An ``Entry`` is one of the few things that change a run; it has a number (see ``service.entries``). Everything else is a
question that can be asked again.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec

from onward.core.bodies import Usage
from onward.core.codec import encode, loads
from onward.core.events import NewEvent
from onward.core.records import Offer, Run
from onward.engines.contract import Mirrored, Permitted
from onward.runner.desk import Ended, EndState, Opened
from onward.service.machines import Slept
from onward.service.opening import EngineFacts, Prepared

LONGEST_ASKING: Final = 25.0
"""Seconds that one question for a permission is held open."""

T = TypeVar("T")


class Registering(msgspec.Struct, frozen=True, kw_only=True):
    """A machine says its name and what it has."""

    name: str
    engines: tuple[Offer, ...] = ()


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The machine as the server knows it, and the server's terms."""

    machine: str
    name: str
    lease: float
    """Seconds that a run stays its own without a word."""
    beat: float
    """Seconds between two signs of life."""


class Claiming(msgspec.Struct, frozen=True, kw_only=True):
    """A runner asks for work. ``claim`` names this asking; under the same name it gets the same run."""

    machine: str
    engines: tuple[str, ...]
    claim: str
    wait: float = 0.0
    """Seconds to wait for a run, at most 25."""


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A run to execute, or nothing yet."""

    run: Run | None = None


class GivingBack(msgspec.Struct, frozen=True, kw_only=True):
    """A runner stops and does not begin what it may have been given under this name."""

    machine: str
    claim: str


class Preparing(msgspec.Struct, frozen=True, kw_only=True):
    """A runner asks what its engine is given."""

    fence: int
    facts: EngineFacts


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the server carries out."""

    name: str
    description: str
    schema: dict[str, Any]


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine is given."""

    prepared: Prepared
    tools: tuple[OfferedTool, ...] = ()


class Calling(msgspec.Struct, frozen=True, kw_only=True):
    """The agent calls a tool of ours."""

    fence: int
    facts: EngineFacts
    name: str
    input: dict[str, Any] = {}


class Beating(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of life of one run."""

    fence: int
    lease: Annotated[float, msgspec.Meta(ge=0)]


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """The engine waits for a permission that it asked for."""

    fence: int
    request: str
    """The event of the request."""
    seconds: float
    """How long to wait for the answer, at most ``LONGEST_ASKING``."""
    last: bool = False
    """If nobody has answered by then, the answer is no."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered; nothing when nobody has yet."""

    answer: Permitted | None = None


class Sleeping(msgspec.Struct, frozen=True, kw_only=True):
    """Processes that were put to sleep in one sweep."""

    machine: str
    ended: tuple[Slept, ...]


class Placing(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of this machine is a workspace; with ``workspace``, that one is here now."""

    machine: str
    path: str
    workspace: str | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="entry"):
    """The root of what changes a run."""


class RecordEntry(Entry, frozen=True, kw_only=True, tag="record"):
    """What the engine said, for the log."""

    events: tuple[NewEvent, ...]
    drop_draft: bool = False


class DraftEntry(Entry, frozen=True, kw_only=True, tag="draft"):
    """Text that is being streamed."""

    text: str


class OpenedEntry(Entry, frozen=True, kw_only=True, tag="opened"):
    """How the run got its context."""

    opened: Opened


class MirrorEntry(Entry, frozen=True, kw_only=True, tag="mirror"):
    """Rows of the engine's own files."""

    engine: str
    rows: Mirrored


class SettleEntry(Entry, frozen=True, kw_only=True, tag="settle"):
    """The end of the run. That it was continued is written by the continuation itself, and nobody else says so."""

    state: EndState
    engine: str
    reason: str = ""
    usage: Usage | None = None
    reply: str = ""


AnyEntry = RecordEntry | DraftEntry | OpenedEntry | MirrorEntry | SettleEntry


class Entering(msgspec.Struct, frozen=True, kw_only=True):
    """One numbered entry of a run."""

    fence: int
    number: int
    entry: AnyEntry


class Entered(msgspec.Struct, frozen=True, kw_only=True):
    """The entry was acknowledged, now or before."""

    number: int
    ended: Ended | None = None
    """For the end of a run: what became of it."""


def write(value: msgspec.Struct) -> bytes:
    """Return a value as JSON, lone surrogates and all."""
    return encode(value)  # type: ignore[arg-type]  # it encodes any struct; bodies are what it is usually given


def read(data: bytes, kind: type[T]) -> T:
    """Return the value behind JSON. Raises msgspec.ValidationError, or ValueError for what is no JSON."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.convert(loads(data), kind)
