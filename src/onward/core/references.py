"""Source references: exact addresses of what a handoff rests on.

A source is a range of events, one event, a resource or a memory, each with the reason why it matters. Events may be cited
by id or by number; ``resolve`` (in the service) fills in the other, and both are stored. Written form, as on the command
line, is an address and then, if you like, ``=why it matters``:

    12    12-18    ses_…:12-18    evt_…    evt_…-evt_…    memory:notes/plan.md    https://example.com/spec

Where the address ends:

- one of events: at the first ``=`` or white space;
- a memory: at the first ``=``; its path may hold spaces;
- a URL: at the first white space, and a ``=`` that follows the space is dropped. Without white space all of it is the URL,
  so queries keep their ``=``: ``https://example.com/?a=b = why it matters``. Only when a ``=`` stands in front of that white
  space and no ``?``, ``#`` or ``;`` came before it is it the separator: ``https://example.com/spec=why it matters``.

What this cannot write (a memory whose path holds ``=``) the object form can. Lenient in spelling, strict in meaning: a field
that is not known is refused, because a range whose end was misspelled would silently be another range.

This module reads and checks the shape of references. Whether a source exists is asked where the log is.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from onward.core.ids import EVENT, SESSION, check_id
from onward.errors import InvalidInput

MAX_SOURCES: Final = 64
"""Sources that one handoff may cite."""

MAX_RELEVANCE: Final = 1000
"""Characters in the reason given for a source."""

MAX_SEQ: Final = 10**15
"""The largest number that an event of any session could have."""

_SCHEMES: Final = ("http", "https", "ipfs", "hm", "file", "blob")

_EVENT_ID: Final = r"evt_[0-9A-Za-z]+"
_EVENTS: Final = re.compile(
    rf"(?:(?P<session>ses_[0-9A-Za-z]+):)?(?P<first>[0-9]{{1,18}}|{_EVENT_ID})(?:-(?P<last>[0-9]{{1,18}}|{_EVENT_ID}))?"
    r"(?:\s*=\s*|\s+|$)(?P<why>.*)",
    re.DOTALL,
)
_URL: Final = re.compile(
    r"(?P<spaced>[^\s=?#;]+)=(?P<spaced_why>\S*\s.*)|(?P<url>\S+)(?:\s+(?:=\s*)?(?P<why>.*))?", re.DOTALL
)
_DIGEST: Final = re.compile(
    r"(?:sha256|sha512|blake2b|md5):[0-9a-f]+|baf[a-z2-7]{20,}|Qm[1-9A-HJ-NP-Za-km-z]{44}"
)

Kind = Literal["session_events", "session_event", "resource", "memory"]

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "session_events": ("session", "from_seq", "to_seq", "from_event", "to_event"),
    "resource": ("url", "version", "block_id"),
    "memory": ("path", "digest"),
}
_RESPELLED: Final = {
    "session_id": "session",
    "from_event_id": "from_event",
    "to_event_id": "to_event",
    "first_event": "from_event",
    "last_event": "to_event",
    "event_id": "from_event",
    "event": "from_event",
    "first_seq": "from_seq",
    "last_seq": "to_seq",
    "first": "from_seq",
    "last": "to_seq",
    "start": "from_seq",
    "end": "to_seq",
    "seq": "from_seq",
    "from": "from_seq",
    "to": "to_seq",
    "uri": "url",
    "cid": "digest",
    "why": "relevance",
    "reason": "relevance",
    "note": "relevance",
}


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One source of a handoff. Which fields are set depends on ``kind``."""

    kind: Kind
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
        """Return the address in written form, without the reason. Reading it gives the same address again."""
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
    text = spec.strip()
    if match := _EVENTS.fullmatch(text):
        first, last = match["first"], match["last"]
        return _checked(
            Source(
                kind="session_event" if last in (None, first) else "session_events",
                session=match["session"],
                **_end("from", first),
                **_end("to", last or first),
                relevance=match["why"].strip(),
            ),
            spec,
        )
    scheme = text.partition(":")[0].lower()
    if scheme == "memory":
        address, _, why = text[len("memory:") :].partition("=")
        path, _, digest = address.strip().rpartition("@")
        if not path or not _DIGEST.fullmatch(digest):
            path, digest = address.strip(), ""
        return _checked(Source(kind="memory", path=path, digest=digest or None, relevance=why.strip()), spec)
    if scheme in _SCHEMES and (found := _URL.fullmatch(text)):
        return _checked(
            Source(
                kind="resource",
                url=found["spaced"] or found["url"],
                relevance=(found["spaced_why"] or found["why"] or "").strip(),
            ),
            spec,
        )
    raise InvalidInput(
        what=f"source {_shown(spec)}",
        why="expected 12, 12-18, ses_…:12-18, evt_…, memory:PATH or a URL, then =why it matters",
    )


def parse_source(value: Any) -> Source:
    """Read a source as an agent gives it: an object in camelCase or snake_case, or the written form.

    Raises InvalidInput for an unknown kind or field, a missing address, a malformed id or a backward range.
    """
    if isinstance(value, bool):
        raise InvalidInput(what="a source", why="expected an object or a string, found bool")
    if isinstance(value, int):
        value = str(value)
    if isinstance(value, str):
        return parse_spec(value)
    if not isinstance(value, dict):
        raise InvalidInput(
            what="a source", why=f"expected an object or a string, found {type(value).__name__}"
        )
    given: dict[str, Any] = {}
    for key, entry in value.items():
        name = _snake(str(key))
        name = _RESPELLED.get(name, name)
        if entry is None or entry == "":
            continue
        if name in given and given[name] != entry:
            raise InvalidInput(what=f"source {_shown(value)}", why=f"it gives {name} twice, differently")
        given[name] = entry
    for end in ("from", "to"):  # "from": "evt_…" is an id, "from": 12 and "from": "12" are numbers
        seq = given.get(f"{end}_seq")
        if isinstance(seq, str):
            named = _end(end, seq.strip()) if re.fullmatch(rf"[0-9]{{1,18}}|{_EVENT_ID}", seq.strip()) else {}
            if named:
                del given[f"{end}_seq"]
                given = {**named, **given}
    kind = _kind(given, value)
    known = (*_FIELDS.get(kind, _FIELDS["session_events"]), "relevance")
    if unknown := sorted(given.keys() - set(known)):
        raise InvalidInput(
            what=f"source {_shown(value)}",
            why=f"a source of kind {kind} has no {', '.join(unknown)}; it has {', '.join(known)}",
        )
    try:
        source = msgspec.convert({"kind": kind, **given}, Source)
    except msgspec.ValidationError as error:
        raise InvalidInput(what=f"source {_shown(value)}", why=str(error)) from None
    if source.is_events:
        if source.to_seq is None and source.to_event is None:
            source = msgspec.structs.replace(source, to_seq=source.from_seq, to_event=source.from_event)
        one = (source.from_seq, source.from_event) == (source.to_seq, source.to_event)
        source = msgspec.structs.replace(source, kind="session_event" if one else "session_events")
    return _checked(source, value)


def _kind(given: dict[str, Any], value: object) -> str:
    """Take the kind out of the fields of a source, or tell it by what is there."""
    kinds = [k for name in ("kind", "type") if (k := given.pop(name, None)) is not None]
    if not kinds:
        return "resource" if "url" in given else "memory" if "path" in given else "session_events"
    kind = _snake(str(kinds[0]))
    kind = {"events": "session_events", "event": "session_event", "url": "resource"}.get(kind, kind)
    if kind not in (*_FIELDS, "session_event"):
        raise InvalidInput(
            what=f"source {_shown(value)}",
            why=f"its kind must be session_events, session_event, resource or memory; found {_shown(kinds[0])}",
        )
    return kind


def _end(end: str, value: str) -> dict[str, Any]:
    """Return one end of a range under its name: a number or an id."""
    return {f"{end}_event": value} if value.startswith("evt_") else {f"{end}_seq": int(value)}


def _checked(source: Source, given: object) -> Source:
    """Return the source if its address is one. Raises InvalidInput, naming what was given."""
    why = _fault(source)
    if why is None and len(source.relevance) > MAX_RELEVANCE:
        why = f"its relevance has {len(source.relevance):,} characters; at most {MAX_RELEVANCE:,} are kept"
    if why:
        raise InvalidInput(what=f"source {_shown(given)}", why=why)
    return source


def _fault(source: Source) -> str | None:
    """Return what is wrong with the address of a source, or None."""
    if source.kind == "resource":
        url = source.url or ""
        scheme, _, rest = url.partition(":")
        if not url:
            return "a resource needs its url"
        if scheme.lower() not in _SCHEMES or not rest.strip("/"):
            return f"the url must begin with one of {', '.join(_SCHEMES)} and name something"
        if re.search(r"\s", url):
            return "a url holds no white space; write %20"
        return None
    if source.kind == "memory":
        return None if source.path and source.path.strip() else "a memory needs its path"
    if source.from_seq is None and source.from_event is None:
        return "it names no event; give from_seq and to_seq, or from_event and to_event"
    for prefix, id in ((SESSION, source.session), (EVENT, source.from_event), (EVENT, source.to_event)):
        try:
            if id is not None:
                check_id(id, prefix)
        except InvalidInput as error:
            return error.message.rstrip(".")
    for seq in (source.from_seq, source.to_seq):
        if seq is not None and not 1 <= seq <= MAX_SEQ:
            return f"event numbers run from 1 to {MAX_SEQ:,}; found {seq}"
    if source.from_seq is not None and source.to_seq is not None and source.to_seq < source.from_seq:
        return f"the range runs backwards, {source.from_seq} to {source.to_seq}"
    return None


def _shown(value: object) -> str:
    """Return what was given, as it may stand in a message: not more of it than helps to find it."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:119]}…"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower().replace("-", "_").strip()
