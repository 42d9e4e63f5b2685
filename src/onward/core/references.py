"""Source references: exact addresses of what a handoff rests on.

A source is a range of events, one event, a resource or a memory, each with the reason why it matters. Events may be cited
by id or by number; ``resolve`` (in the service) fills in the other, and both are stored. Written form, as on the command
line: ``12-18``, ``ses_…:12-18``, ``evt_…``, ``https://…``, ``memory:notes/plan.md``, each optionally followed by
``=why it matters``.

This module reads and checks the shape of references. Whether a source exists is asked where the log is.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from onward.errors import InvalidInput

MAX_SOURCES: Final = 64
"""Sources that one handoff may cite."""

MAX_RELEVANCE: Final = 1000
"""Characters in the reason given for a source."""

_SCHEMES: Final = ("http", "https", "ipfs", "hm", "file", "blob")

_SPEC: Final = re.compile(r"^(?:(?P<session>ses_[0-9A-Z]{26}):)?(?P<first>\d+)(?:-(?P<last>\d+))?$")


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One source of a handoff. Which fields are set depends on ``kind``."""

    kind: Literal["session_events", "session_event", "resource", "memory"]
    relevance: str = ""
    session: str | None = None
    """The session that the events are in; None means the one being continued."""
    from_seq: int | None = None
    to_seq: int | None = None
    from_event: str | None = None
    to_event: str | None = None
    url: str | None = None
    version: str | None = None
    block_id: str | None = None
    path: str | None = None
    digest: str | None = None

    @property
    def is_events(self) -> bool:
        """Whether it addresses events of a session."""
        return self.kind in ("session_events", "session_event")

    def address(self) -> str:
        """Return the address in written form, without the reason."""
        if self.is_events:
            first = self.from_seq if self.from_seq is not None else self.from_event
            last = self.to_seq if self.to_seq is not None else self.to_event
            span = str(first) if last in (None, first) else f"{first}-{last}"
            return f"{self.session}:{span}" if self.session else span
        if self.kind == "resource":
            extra = (f"@{self.version}" if self.version else "") + (
                f"#{self.block_id}" if self.block_id else ""
            )
            return f"{self.url}{extra}"
        return f"memory:{self.path}" + (f"@{self.digest}" if self.digest else "")


def parse_spec(spec: str) -> Source:
    """Read the written form of a source. Raises InvalidInput with what would be accepted."""
    address, _, relevance = (
        spec.partition("=") if not spec.startswith(tuple(f"{s}:" for s in _SCHEMES)) else (spec, "", "")
    )
    if " " in spec and not relevance and address == spec:
        address, _, relevance = spec.partition(" ")
    address, relevance = address.strip(), relevance.strip()
    if match := _SPEC.match(address):
        first = int(match["first"])
        last = int(match["last"] or first)
        kind: Literal["session_events", "session_event"] = (
            "session_event" if match["last"] is None else "session_events"
        )
        return _checked(
            Source(kind=kind, session=match["session"], from_seq=first, to_seq=last, relevance=relevance),
            spec,
        )
    if address.startswith("evt_"):
        first_id, _, last_id = address.partition("-")
        return Source(
            kind="session_events" if last_id else "session_event",
            from_event=first_id,
            to_event=last_id or first_id,
            relevance=relevance,
        )
    if address.startswith("memory:"):
        path, _, digest = address.removeprefix("memory:").partition("@")
        return _checked(Source(kind="memory", path=path, digest=digest or None, relevance=relevance), spec)
    if address.partition(":")[0] in _SCHEMES:
        return _checked(Source(kind="resource", url=address, relevance=relevance), spec)
    raise InvalidInput(
        what=f"source {spec!r}",
        why="expected 12, 12-18, ses_…:12-18, evt_…, memory:PATH or a URL, then =why it matters",
    )


def parse_source(value: Any) -> Source:
    """Read a source as an agent gives it: an object in camelCase or snake_case, or the written form.

    Lenient in spelling, strict in meaning: an unknown kind, a missing address or a backward range is refused.
    """
    if isinstance(value, str):
        return parse_spec(value)
    if not isinstance(value, dict):
        raise InvalidInput(
            what="a source", why=f"expected an object or a string, found {type(value).__name__}"
        )
    given = {_snake(str(k)): v for k, v in value.items()}
    rename = {
        "session_id": "session",
        "from_event_id": "from_event",
        "to_event_id": "to_event",
        "event_id": "from_event",
        "event": "from_event",
        "seq": "from_seq",
        "from": "from_seq",
        "to": "to_seq",
        "cid": "digest",
        "why": "relevance",
    }
    given = {rename.get(k, k): v for k, v in given.items()}
    for end in ("from", "to"):  # "from": "evt_…" is an id, "from": 12 is a number
        seq = given.get(f"{end}_seq")
        if isinstance(seq, str):
            if seq.startswith("evt_"):
                given[f"{end}_event"] = given.pop(f"{end}_seq")
            elif seq.isdigit():
                given[f"{end}_seq"] = int(seq)
    kind = given.get("kind") or given.get("type")
    if kind is None:
        kind = "resource" if "url" in given else "memory" if "path" in given else "session_events"
    known = {
        f: given[f] for f in Source.__struct_fields__ if f in given and f != "kind" and given[f] is not None
    }
    try:
        source = msgspec.convert({"kind": kind, **known}, Source)
    except msgspec.ValidationError as error:
        raise InvalidInput(what=f"source {value!r}", why=str(error)) from None
    if source.is_events and source.to_seq is None and source.to_event is None:
        source = msgspec.structs.replace(source, to_seq=source.from_seq, to_event=source.from_event)
    return _checked(source, value)


def _checked(source: Source, given: object) -> Source:
    why = None
    if source.is_events:
        if source.from_seq is None and source.from_event is None:
            why = "it names no event"
        elif source.from_seq is not None and source.from_seq < 1:
            why = f"event numbers start at 1, found {source.from_seq}"
        elif source.from_seq is not None and source.to_seq is not None and source.to_seq < source.from_seq:
            why = f"the range runs backwards, {source.from_seq} to {source.to_seq}"
    elif source.kind == "resource":
        if not source.url:
            why = "a resource needs its url"
        elif source.url.partition(":")[0] not in _SCHEMES:
            why = f"the url scheme must be one of {', '.join(_SCHEMES)}"
    elif not source.path:
        why = "a memory needs its path"
    if len(source.relevance) > MAX_RELEVANCE:
        why = f"its relevance has {len(source.relevance)} characters, at most {MAX_RELEVANCE} are kept"
    if why:
        raise InvalidInput(what=f"source {given!r}", why=why)
    return source


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda m: "_" + m[1].lower(), name)
