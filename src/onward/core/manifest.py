"""The manifest: the record of a projection, complete enough to compile it again.

It says what was put into the successor's first context, what was left out and why, at what cost, under which counter, and
which exact versions of state went along (invariants P1, P2, P6). Together with the log it is every input of
``projection.compile_projection``: ``onward manifest --verify`` loads the events it names, compiles again and compares
digests.

It is data, written once in the transaction that creates the successor. It is deliberately not a summary of anything.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from onward.core.bodies import PlanStep
from onward.core.codec import encode, loads
from onward.core.references import Source

COMPILER: Final = "projection/2"
"""The name of the rules that ``projection.py`` follows. It changes when the same inputs would give other bytes."""

Cause = Literal[
    "budget", "other_session", "external", "duplicate", "revoked", "changed", "missing", "not_dialogue"
]
"""Why something is not loaded. ``external``: a resource or memory that was not read here and stays an address; ``changed``:
what is there now is not the version that was asked for; ``not_dialogue``: bookkeeping, state and imported records among
the exchanges that are shown."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The root of what a manifest lists."""


class Initiating(Entry, kw_only=True, frozen=True):
    """The message that caused the continuation, where it stands."""

    event: str
    seq: int
    """Its number in ``session``."""
    digest: str
    session: str | None = None
    """The session that holds it; None means the predecessor. Of a branch it may be the one that it branched from."""


class Handoff(Entry, kw_only=True, frozen=True):
    """The agent's or person's orientation for the successor. Narrative, never state."""

    purpose: str
    current_request: str = ""
    established_facts: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    next_actions: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}
    """Headings that the agent added, each with its lines."""


class Cost(Entry, kw_only=True, frozen=True):
    """What a section of the projection costs."""

    section: str
    tokens: int
    digest: str = ""
    """``sha256:<hex>`` of the section's text, so that a projection that differs can be told apart by its parts."""


class Included(Entry, kw_only=True, frozen=True):
    """A range of events whose lines are in the projection."""

    session: str
    from_seq: int
    to_seq: int
    section: Literal["cited", "recent", "relevant"]
    tokens: int
    digest: str
    """``sha256:<hex>`` over the digests of the events, in order."""
    pointers: int = 0
    """How many of them appear only as a pointer with their size."""
    source: int | None = None
    """The number of the source (from 0) that cited it."""
    text: str = ""
    """``sha256:<hex>`` of the text that these lines are part of, given with its first range like the tokens."""


class Content(Entry, kw_only=True, frozen=True):
    """A resource or memory as it was read when the session was continued. Its bytes are kept as the blob ``digest``."""

    source: int
    """The number of the source (from 0)."""
    digest: str
    """``sha256:<hex>`` of the bytes: the version that everything after this refers to (P5)."""
    size: int
    """Bytes."""
    resolver: str
    """What read it: ``file``, ``store``, ``http``."""
    version: str = ""
    """What the place calls this version (an entity tag, for instance), where it says so."""
    included: bool = False
    """Whether all of it is in the projection. If not, the omitted say why."""
    tokens: int = 0
    text: str = ""
    """``sha256:<hex>`` of its lines in the projection."""


class Omitted(Entry, kw_only=True, frozen=True):
    """Something that was offered and is not loaded. It stays linked and can be recalled."""

    address: str
    cause: Cause
    tokens: int | None = None
    """What it would have cost, where it was counted."""
    source: int | None = None
    note: str | None = None


class Scope(Entry, kw_only=True, frozen=True):
    """A stretch of log that the successor descends from: everything in it is included or listed as omitted."""

    session: str
    from_seq: int
    to_seq: int


class CarriedPlan(Entry, kw_only=True, frozen=True):
    """What became of the plan."""

    transfer: Literal["carry", "close", "omit"]
    event: str | None = None
    """The event of the predecessor's revision."""
    revision: int | None = None
    steps: tuple[PlanStep, ...] = ()
    """Carried: as they are in the successor. Omitted: as they were. Closed: the unfinished ones as dropped."""


class CarriedState(Entry, kw_only=True, frozen=True):
    """Everything that moved as state, by id and revision."""

    plan: CarriedPlan = CarriedPlan(transfer="omit")
    pins_event: str | None = None
    pins: tuple[str, ...] = ()
    """The pins that were carried, ``tool NAME@version``."""
    children: tuple[str, ...] = ()
    """Delegated sessions that report to the successor now."""
    runs: tuple[str, ...] = ()
    """Queued runs that moved to the successor."""
    calls: tuple[str, ...] = ()
    """Open tool calls of the predecessor that were named, with unknown outcome."""


class Coverage(Entry, kw_only=True, frozen=True):
    """How far the handoff rests on sources (design, answer 6)."""

    facts: int = 0
    decisions: int = 0
    sources: int = 0


class Manifest(Entry, kw_only=True, frozen=True):
    """The whole record."""

    id: str
    link: str
    predecessor: str
    predecessor_title: str
    successor: str
    origin: str
    initiating: Initiating
    created_at: int
    actor: str
    reason: str
    title: str
    description: str = ""
    engine: str | None = None
    model: str | None = None
    budget: int
    tokenizer: str
    """The counter that counted every figure in here."""
    compiler: str = COMPILER
    costs: tuple[Cost, ...] = ()
    tokens: int = 0
    """What the whole costs: the projection and the initiating message."""
    handoff: Handoff
    sources: tuple[Source, ...] = ()
    scope: tuple[Scope, ...] = ()
    recent: tuple[Scope, ...] = ()
    """The stretches that were offered as recent exchanges."""
    relevant: tuple[str, ...] = ()
    """Ids of the other events that were offered, best first."""
    identity: tuple[tuple[str, str], ...] = ()
    """The facts about the session that were recomputed for it."""
    included: tuple[Included, ...] = ()
    contents: tuple[Content, ...] = ()
    """The resources and memories that were read, in the order of the sources."""
    omitted: tuple[Omitted, ...] = ()
    state: CarriedState = CarriedState()
    coverage: Coverage = Coverage()
    adjusted: tuple[str, ...] = ()
    """Fields of the command that were accepted in another spelling or place than asked for."""
    recommended_unused: tuple[str, ...] = ()
    digest: str = ""
    """``sha256:<hex>`` of the projection's text."""


Now = Literal["available", "erased", "revoked", "changed", "missing", "external"]
"""What became of a source. ``external``: it was never read here, and is not now."""


class Shown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One source of a projection, as it stands today."""

    address: str
    section: str
    """``initiating message``, ``cited``, ``recent`` or ``relevant``."""
    now: Now
    source: int | None = None
    """The number of the source (from 0) in the handoff."""
    included: bool = False
    """Whether it is in the projection."""
    erased: tuple[int, ...] = ()
    """The numbers of its events whose words were erased."""
    pinned: str | None = None
    """The digest of what was read then."""
    kept: bool = False
    """Whether those bytes are still here, whatever became of the place they were read from."""
    note: str = ""


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the JSON bytes of a manifest, the form that is stored and digested."""
    try:
        return _encoder.encode(manifest)
    except UnicodeEncodeError:
        builtins: dict[str, Any] = msgspec.to_builtins(manifest)
        return encode(builtins)


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest behind these bytes."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.convert(loads(data), Manifest)
