"""What both provider formats share: a history taken apart into parts, and a streamed reply put together.

``parts`` turns transcript messages into a list in which a call never stands without its answer, whatever it was
given: a call that has none is answered with words that say so, and an answer without its call is told as text. So
each format only has to write parts down, and what it writes is valid for its provider (invariant T1). Every rule
looks only backwards, so a longer history begins with the same parts as a shorter one (invariant T2).

Ids and names are made to fit what providers accept (letters, digits, ``_`` and ``-``; ids of at most 40 characters).
A fitting one stays as it is; another one is always replaced by the same one.

It is deliberately free of I/O: the loop that sends and receives is in ``model.py``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from onward.core.bodies import Usage
from onward.core.codec import flat, loads
from onward.core.transcript import TranscriptMessage

EMPTY: Final = "(empty message)"
"""Stands for a question without words, since providers refuse blank text."""

UNANSWERED: Final = "No result was recorded for this call."

_fitting_id: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_unfitting: Final = re.compile(r"[^A-Za-z0-9_-]")


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Text that somebody said; reasoning when it has a signature."""

    role: Literal["user", "assistant"]
    text: str
    signature: str | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call with its answer. ``joined`` means that it was made side by side with the one before it."""

    id: str
    name: str
    input: dict[str, Any]
    output: str
    failed: bool
    joined: bool = False


Part = Told | Asked


class WireCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as the provider wrote it: ``arguments`` is text that should be a JSON object."""

    id: str
    name: str
    arguments: str

    def parsed(self) -> tuple[Any, str | None]:
        """Return the input, and why it cannot be used (then the input is the text as it came)."""
        if not self.arguments.strip():
            return {}, None
        try:
            return loads(self.arguments.encode("utf-8", "surrogatepass")), None
        except ValueError as invalid:
            return (
                self.arguments,
                f"The arguments of {self.name!r} are not valid JSON ({invalid}). Send them again.",
            )


class Reply:
    """One reply of a model, as it grows."""

    def __init__(self) -> None:
        self.text = ""
        self.thoughts: list[tuple[str, str | None]] = []
        self.calls: list[WireCall] = []
        self.usage: Usage | None = None
        self.model: str | None = None
        self.stop: Literal["end", "tools", "length", "refused", "window"] | None = None
        self.ended = False
        """Whether the provider said that this is the end. Nothing else says so."""


class Reader(Protocol):
    """Reads the events of one streamed reply."""

    reply: Reply

    def feed(self, event: str, data: str) -> str:
        """Take one server-sent event; return the text it adds to the answer. Raises ProviderFault."""
        ...


def event_object(data: str) -> dict[str, Any]:
    """Return the JSON object of a server-sent event. Raises ProviderFault if it is none."""
    try:
        found = loads(data.encode("utf-8", "surrogatepass"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ProviderFault(
            f"the stream holds an event that is no JSON object: {clean(data[:80])!r}", retryable=True
        )
    return found


class ProviderFault(Exception):
    """The provider reported an error, or sent what cannot be read."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable


def clean(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 and so no provider can take, as replacement characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def split_system(
    system: str, messages: Sequence[TranscriptMessage]
) -> tuple[str, Sequence[TranscriptMessage]]:
    """Return the control text, joined with the system messages that stand at the very beginning, and what follows."""
    count = 0
    while count < len(messages) and messages[count].role == "system":
        count += 1
    texts = [system, *(message.content for message in messages[:count])]
    return "\n\n".join(clean(text) for text in texts if text.strip()), messages[count:]


def parts(messages: Iterable[TranscriptMessage]) -> list[Part]:
    """Take a history apart. Blank texts are left out; a system message in the middle is told as the user's."""
    found: list[Part] = []
    taken: set[str] = set()
    waiting: dict[str, int] = {}
    """The calls of the current group that have no answer yet, by their original id: where they are in ``found``."""
    grouping = False
    for message in messages:
        if message.role == "assistant" and message.tool_call_id is not None:
            if message.content.strip():
                found.append(Told(role="assistant", text=clean(message.content)))
                grouping = False
            if not grouping:
                waiting = {}
            asked = Asked(
                id=_unused(message.tool_call_id, taken),
                name=fit_name(message.tool_name or ""),
                input=as_object(message.tool_input),
                output=UNANSWERED,
                failed=True,
                joined=grouping,
            )
            waiting[message.tool_call_id] = len(found)
            found.append(asked)
            grouping = True
            continue
        grouping = False
        if message.role == "tool":
            at = waiting.pop(message.tool_call_id or "", None)
            output = clean(message.tool_output if message.tool_output is not None else message.content)
            if at is None:
                text = (
                    f"Result of a call that is not shown ({message.tool_name or 'unknown tool'}):\n{output}"
                )
                found.append(Told(role="user", text=text))
                waiting = {}
            else:
                answered = msgspec.structs.replace(found[at], output=output, failed=message.status != "ok")
                found[at] = answered
        else:
            waiting = {}
            if message.content.strip() or message.signature:
                role: Literal["user", "assistant"] = "assistant" if message.role == "assistant" else "user"
                found.append(Told(role=role, text=clean(message.content), signature=message.signature))
    return found


def as_object(value: Any) -> dict[str, Any]:
    """Return a tool input as the JSON object that providers insist on; anything else goes under ``input``."""
    plain = value if isinstance(value, dict) else {} if value is None else {"input": value}
    try:
        msgspec.json.encode(plain)
    except UnicodeEncodeError:
        plain = cleaned(plain)
    return plain


def fit_name(name: str) -> str:
    """Return a tool name that providers accept."""
    return _unfitting.sub("_", name)[:64] or "tool"


def fit_id(id: str) -> str:
    """Return the id by which a provider is told of this call: itself if it fits, else one made from its digest."""
    if _fitting_id.fullmatch(id):
        return id
    readable = id.replace(".", "-")
    if "-" not in id and _fitting_id.fullmatch(readable):
        return readable
    return "call_" + hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def answer_text(output: Any) -> str:
    """Return a tool's output as the text that a model reads, the same now and when it is read from the log."""
    return clean(flat(output))


def number(value: Any) -> int | None:
    """Return a count that a provider reported, or None if it is no whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def total(before: Usage | None, now: Usage | None) -> Usage | None:
    """Return the usage of two requests together; what neither reported stays unknown."""
    if before is None or now is None:
        return now or before
    both = {}
    for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"):
        one, other = getattr(before, name), getattr(now, name)
        both[name] = one if other is None else other if one is None else one + other
    return Usage(**both)


def _unused(id: str, taken: set[str]) -> str:
    fitted, number = fit_id(id), 1
    while fitted in taken:
        number += 1
        fitted = f"{fit_id(id)[:36]}_{number}"
    taken.add(fitted)
    return fitted


def cleaned(value: Any) -> Any:
    """Return a JSON value with every text in it as ``clean`` has it, names too."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(name)): cleaned(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(inner) for inner in value]
    return value
