"""The event envelope: one immutable record in a session's log.

An event is a header (who, when, where from) around a body that is kept as the bytes that were given (invariant L2).
``NewEvent`` is what a writer hands over; the store answers with an ``Event``, which adds the sequence number, the digest
and the chain value. What the body means is in ``bodies.py``; how it is read back is in ``codec.py``.

It is deliberately unaware of storage, and a kind it does not know is as welcome as any other (invariant L4).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from onward.core import digests

KINDS: Final = (
    "message",
    "context",
    "reasoning",
    "tool_call",
    "tool_result",
    "terminal",
    "command",
    "outcome",
    "checkpoint",
    "plan",
    "pins",
    "run",
    "approval",
    "session",
    "recalled",
    "raw",
)
"""The closed set of kinds that this version writes. Others are kept whole and shown as unknown."""

ACTORS: Final = ("user", "agent", "system", "trigger", "tool")

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso(at: int) -> str:
    """Return a time in microseconds since 1970 as ISO 8601 in UTC, with microseconds."""
    seconds, rest = divmod(at, 1_000_000)
    try:
        return f"{_iso_second(seconds)}.{rest:06d}Z"
    except OverflowError:  # a year that a datetime cannot hold
        return f"{at}us"


@lru_cache(maxsize=1024)
def _iso_second(seconds: int) -> str:
    """Return a time without its fraction. Events come in flocks, so most of them share theirs."""
    return (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


def micros(moment: datetime) -> int:
    """Return a moment as microseconds since 1970 (UTC). A moment without a zone is taken as UTC."""
    delta = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an event came from.

    ``producer`` is ``onward`` (the platform itself), ``person``, ``engine`` (live) or ``import``. ``place`` is the address
    of the original record, ``<file index>:<line>@<byte offset>+<length>``; the file index counts the files named in the
    session's ``opened`` event.
    """

    producer: str
    engine: str | None = None
    native_id: str | None = None
    place: str | None = None


ONWARD: Final = Source(producer="onward")
PERSON: Final = Source(producer="person")

_encode_source = msgspec.json.Encoder().encode
_source_bytes: dict[Source, bytes] = {ONWARD: _encode_source(ONWARD), PERSON: _encode_source(PERSON)}


def encode_source(source: Source) -> bytes:
    """Return the JSON bytes of a source: the form that is stored and that enters the chain."""
    try:
        # Sources with a place are each seen once; looking them up would only hash them.
        return (_source_bytes.get(source) if source.place is None else None) or _encode_source(source)
    except (
        UnicodeEncodeError
    ):  # a native id with a lone surrogate: keep it readable, lose nothing of the rest
        clean = {
            name: value.encode("utf-8", "backslashreplace").decode()
            for name in source.__struct_fields__
            if isinstance(value := getattr(source, name), str)
        }
        return _encode_source(Source(**clean))


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is not stored yet. ``body`` is JSON bytes; ``at`` is microseconds since 1970, UTC."""

    id: str
    at: int
    kind: str
    actor: str
    body: bytes
    salt: bytes
    source: Source = ONWARD
    run_id: str | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the log. Order is ``(session_id, seq)``, seq from 1 without gaps, never the clock (invariant L1).

    ``salt`` is empty when the body was erased; then ``body`` is the tombstone and ``digest`` is still that of the body
    that was there (invariant L5).
    """

    id: str
    session_id: str
    seq: int
    at: int
    kind: str
    actor: str
    run_id: str | None
    source: Source
    body: bytes
    salt: bytes
    digest: bytes
    chain: bytes

    @property
    def erased(self) -> bool:
        """Whether the body was erased and only its digest remains."""
        return not self.salt

    @property
    def time(self) -> datetime:
        """The time of the event as a datetime in UTC, exact to the microsecond.

        Raises OverflowError outside the years 1 to 9999; ``iso`` writes any time.
        """
        return EPOCH + timedelta(microseconds=self.at)


def seal(event: NewEvent, session_id: str, seq: int, previous_chain: bytes) -> Event:
    """Give a new event its place: sequence number, digest and chain value. Stores call this under their lock."""
    id, at, kind, actor, run_id, source = (
        event.id,
        event.at,
        event.kind,
        event.actor,
        event.run_id,
        event.source,
    )
    digest = digests.body_digest(event.salt, event.body)
    header = digests.header_bytes(id, session_id, seq, at, kind, actor, run_id, encode_source(source))
    return Event(
        id=id,
        session_id=session_id,
        seq=seq,
        at=at,
        kind=kind,
        actor=actor,
        run_id=run_id,
        source=source,
        body=event.body,
        salt=event.salt,
        digest=digest,
        chain=digests.chain_digest(previous_chain, header, digest),
    )


def fault_in(event: Event, expected_seq: int, previous_chain: bytes) -> str | None:
    """Re-derive one event. Return what is wrong with it in words, or None if everything matches (invariant L2)."""
    if event.seq != expected_seq:
        return f"expected event {expected_seq}, found {event.seq}: an event was removed or moved"
    if not event.erased and digests.body_digest(event.salt, event.body) != event.digest:
        return "the body does not match its digest"
    header = digests.header_bytes(
        event.id,
        event.session_id,
        event.seq,
        event.at,
        event.kind,
        event.actor,
        event.run_id,
        encode_source(event.source),
    )
    if digests.chain_digest(previous_chain, header, event.digest) != event.chain:
        return "the header or its place in the chain does not match"
    return None
