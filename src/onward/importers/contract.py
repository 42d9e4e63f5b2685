"""The importer contract: native lines in, drafts of events out, and an account that always adds up.

A reader knows one engine's native format. It is pure: it sees numbered lines, keeps a small state and says what each
record becomes; it opens no file, calls no store and reads no clock. ``service.importing`` drives it and writes.

Reading happens in two passes over the same lines. ``survey`` looks ahead cheaply (where the tree forks, which calls never
get a result, whether a user's text is carried twice); ``read`` then turns one record at a time into an ``Outcome``.
Every record ends in exactly one verdict, so ``read = mapped + raw + broken`` holds for every file.

One native file may hold several conversations: the main line, abandoned branches, subagents. Each is a ``Strand`` and
becomes a session of its own. Whoever writes a reader can prove it with ``onward.testing.importer_contract``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec

from onward.core.bodies import Checkpoint
from onward.core.codec import encode, loads
from onward.errors import InvalidInput

_S = TypeVar("_S", bound=msgspec.Struct)

Line = tuple[int, int, bytes | None, int]
"""``(line number from 1, byte offset, bytes without the line end, size with it)``. The bytes are None when the line is
longer than ``lines.LONGEST``: it is counted and kept as an original, but not read."""

Verdict = Literal["mapped", "raw", "broken", "blank"]

TITLE_LIMIT: Final = 120
"""Characters of a title taken from the dialogue."""

OWN_TITLE: Final = 4
"""The rank of a title that a person gave; 3 is one the engine made, 2 a summary, 1 the first ask, 0 none."""


class Counts(msgspec.Struct, kw_only=True):
    """Native records by what became of them, and native messages by what they are."""

    read: int = 0
    mapped: int = 0
    raw: int = 0
    broken: int = 0
    user: int = 0
    assistant: int = 0
    tool_calls: int = 0
    tool_results: int = 0

    @property
    def dialogue(self) -> int:
        """How many records carry a message, a call or a result; a file with none of them reads as empty."""
        return self.user + self.assistant + self.tool_calls + self.tool_results

    def add(self, other: Counts) -> None:
        """Add another account to this one."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Strand(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One conversation inside a native file. Part of the reader's state; it becomes one session.

    ``key`` names it within the file and stays the same from import to import: ``""`` is the main line.
    """

    key: str
    kind: Literal["main", "fork", "child"] = "main"
    parent: str | None = None
    """The key of the strand that it left, or that delegated it."""
    hangs_on: str | None = None
    """The native id of the last record that a branch shares with its parent; None is the very beginning."""
    call: str | None = None
    """The provider's id of the call that delegated a child."""
    native_id: str = ""
    at: int = 0
    cwd: str | None = None
    version: str | None = None
    model: str | None = None
    title: str = ""
    title_rank: int = 0
    session: str = ""
    """The session it became; set by the writer."""
    file_index: int = 0
    """The place of this file among those that the session was read from; set by the writer."""
    linked: bool = False
    """Whether the link to its parent is written; set by the writer."""
    open: dict[str, list[str]] = {}
    """Calls without a result: the provider's id, to our id and the tool's name."""
    used: set[str] | None = set()
    """Short digests of the call ids in use; None when there are too many to remember (see ``calls``)."""
    closed: dict[str, list[str]] = {}
    """Calls that a closer answered; a real result may still come."""
    prompt: str = ""
    """Of a child: the digest of what it was asked."""
    early: set[str] = set()
    """Provider's ids of results that came before any call of that id."""
    tips: list[str] = []
    """Native ids that the next record may hang on without leaving this strand."""
    tip_message: str | None = None


class Draft(msgspec.Struct, kw_only=True):
    """An event that has no id and no place yet."""

    strand: str
    at: int
    kind: str
    actor: str
    body: bytes | Checkpoint
    """JSON bytes; a checkpoint is completed with the numbers of what it shadows by the writer."""
    ident: str
    """What makes it this event within the native session: the record's id or digest, and the part of it."""
    native_id: str | None = None
    blobs: tuple[tuple[str, bytes], ...] = ()
    kept: tuple[str, ...] = ()
    """For a checkpoint: native ids of the messages that the engine kept verbatim …"""
    kept_idents: tuple[tuple[int, str], ...] = ()
    """… or, where they have none, their time and ``ident``."""


class Outcome(msgspec.Struct, kw_only=True):
    """What became of one record."""

    verdict: Verdict
    drafts: list[Draft] = []
    why: str | None = None
    """Why a record is broken, in words."""


class Survey(msgspec.Struct, kw_only=True):
    """What the first pass saw."""

    dialogue: int = 0
    """Records that carry a message, a call or a result."""
    known: int = 0
    """Records of a type that the format has."""
    objects: int = 0
    """Lines that are JSON objects."""
    broken: int = 0


class Reader(Protocol):
    """Reads one native file of one engine."""

    @property
    def engine(self) -> str:
        """The name of the engine that writes this format."""
        ...

    @property
    def counts(self) -> Counts:
        """The account of the file since its beginning; part of what ``save`` returns."""
        ...

    @property
    def strands(self) -> dict[str, Strand]:
        """The conversations found so far, by key."""
        ...

    @property
    def native_id(self) -> str:
        """The engine's own id of the session in this file."""
        ...

    @property
    def version(self) -> str | None:
        """The engine's version, the newest one that the file names."""
        ...

    def restart(self) -> None:
        """Forget the account and the open calls, keep the strands: the file will be read again from byte 0."""
        ...

    def survey(self, lines: Iterable[Line], *, whole: bool = True, fallback_at: int = 0) -> Survey:
        """Look ahead over the lines that ``read`` will get; with ``whole`` False those are only the new ones.

        ``fallback_at`` stands in when the file names no time at all. Raises ``NeedsWhole`` when the new lines cannot be
        understood without the beginning of the file.
        """
        ...

    def read(self, line: Line) -> Outcome:
        """Turn one line into drafts. Never raises for what a line holds."""
        ...

    def finish(self) -> list[Draft]:
        """Return what is due at the end of the file: a result for every call that has none, marked as a closer."""
        ...

    def save(self) -> bytes:
        """Return what the next import needs to go on from here, as JSON."""
        ...


class NeedsWhole(Exception):
    """The new part of a file cannot be understood without its beginning: survey it from byte 0."""


def body(fields: dict[str, Any]) -> bytes:
    """Return the JSON bytes of an event body; what is None or False is left out.

    Values may be ``msgspec.Raw``: native JSON, passed through as the bytes that were given.
    """
    return encode({name: value for name, value in fields.items() if value is not None and value is not False})


def pack(state: msgspec.Struct) -> bytes:
    """Return a reader's state as JSON; native ids and titles may hold what UTF-8 cannot."""
    try:
        return msgspec.json.encode(state)
    except UnicodeEncodeError:
        return encode(msgspec.to_builtins(state))


def unpack(data: bytes, kind: type[_S]) -> _S:
    """Return the state that ``pack`` packed."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.convert(loads(data), kind)


def native_json(value: Any) -> msgspec.Raw:
    """Return a value as native JSON. Raises ValueError for one that is nested too deeply to be written."""
    try:
        return msgspec.Raw(encode(value))
    except InvalidInput as error:
        raise ValueError(str(error)) from None


UNTELLABLE: Final = (ValueError, RecursionError, InvalidInput)
"""What a reader meets where a record is JSON and yet holds what no event can: numbers out of range, a thousand levels."""


def check_text(data: bytes) -> None:
    """Raise UnicodeDecodeError for a line that is not UTF-8, anywhere in it.

    The decoder looks only at what it makes values of; what passes through as native JSON would be found out much later.
    """
    if not data.isascii():
        data.decode("utf-8")


def why_broken(error: Exception) -> str:
    """Say in two words why a line could not be read. Positions inside it would be taken for lines of the file."""
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    if isinstance(error, RecursionError) or "deep" in str(error):
        return "nested too deeply"
    return "a number out of range" if "no JSON number" in str(error) or "digits" in str(error) else "not JSON"
