"""Bytes to bodies and back, without ever losing one.

``encode`` writes a body once, when it is made. ``decode`` reads it for display or for a model; a kind it does not know, a
form it does not know, a newer version and bytes that are no JSON all come back as ``Unreadable`` with the reason, never as
an exception and never as nothing (invariant L4).

JSON may hold lone surrogates (``"\\ud800"``), which UTF-8 cannot. The fast codec refuses those, so both directions have a
slower second way that keeps them as escapes.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from onward.core.bodies import (
    BODIES,
    FORMS,
    Body,
    BriefContext,
    Checkpoint,
    Command,
    Context,
    Message,
    Outcome,
    ProjectionContext,
    Reasoning,
    Recall,
    Terminal,
    ToolCall,
    ToolResult,
)
from onward.core.events import KINDS, Event
from onward.errors import InvalidInput


class Unreadable(Body, frozen=True, kw_only=True):
    """A body that this version cannot interpret. ``raw`` is the text of its bytes, undecodable ones replaced."""

    why: str
    raw: str = ""


class Raw(Body, frozen=True, kw_only=True):
    """An imported record that has no counterpart here, as it was."""

    record: Any = None


class Erased(Body, frozen=True, kw_only=True):
    """The place of a body that was erased."""

    reason: str | None = None
    call: str | None = None
    """Of a tool call or its result: the call id, which says nothing and keeps the pair together."""


def _plain(value: Any) -> Any:
    """Return a value that the encoder does not know as one that it does: a text of a special type is a text."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)
_form_union: Any = FORMS[0] | FORMS[1] | FORMS[2] | FORMS[3] | FORMS[4] | FORMS[5] | FORMS[6] | FORMS[7]
_decoders: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(_form_union if kind == "context" else struct)
    for kind, struct in BODIES.items()
}
_any: Final = msgspec.json.Decoder()
_erased: Final = msgspec.json.Decoder(Erased)


class _Call(msgspec.Struct):
    call: str = ""
    closer: bool = False


_call: Final = msgspec.json.Decoder(_Call)


def encode(body: Body | dict[str, Any] | list[Any] | tuple[Any, ...]) -> bytes:
    """Return the JSON bytes of a body, or of another value. Lone surrogates are written as ``\\uXXXX`` escapes.

    Raises InvalidInput for one that is nested deeper than JSON can be written here (about a thousand levels).
    """
    try:
        try:
            return _encoder.encode(body)
        except UnicodeEncodeError:
            plain = msgspec.to_builtins(body, enc_hook=_plain)
            import json

            return json.dumps(plain, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise InvalidInput(what="a body", why="it is nested too deeply to be written as JSON") from None


def loads(data: bytes) -> Any:
    """Decode JSON, lone surrogates and all. Raises ValueError when it is not JSON, or no value of ours can hold it."""
    try:
        return _any.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            # Python would take NaN, and read 1e400 as infinity; neither could be written back.
            import json  # late, like the other: few texts need what msgspec refuses

            return json.loads(data.decode("utf-8"), parse_constant=_no_number, parse_float=_finite)
        except RecursionError:
            raise ValueError("nested too deeply") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _no_number(digits)


def decode(kind: str, data: bytes) -> Body:
    """Return the body behind these bytes, or ``Unreadable`` with the reason. Never raises."""
    if kind == "raw":
        try:
            return Raw(record=loads(data))
        except ValueError:
            return Raw(record=data.decode("utf-8", "replace"))
    decoder = _decoders.get(kind)
    if decoder is None:
        return Unreadable(why=f"unknown kind {kind!r}", raw=_text(data))
    try:
        body: Body = decoder.decode(data)
        return body
    except (msgspec.DecodeError, ValueError, RecursionError) as first:
        try:
            again: Body = msgspec.convert(loads(data), _form_union if kind == "context" else BODIES[kind])
        except (msgspec.ValidationError, ValueError, RecursionError, TypeError):
            return Unreadable(why=f"{kind} cannot be read: {first}", raw=_text(data))
        return again


def body_of(event: Event) -> Body:
    """Return the body of an event; an erased one gives ``Erased``."""
    if event.erased:
        try:
            return _erased.decode(event.body)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return Erased()
    return decode(event.kind, event.body)


def shown(record: Event) -> Any:
    """Return the body of an event for a JSON document: byte for byte as it was logged, where that is JSON.

    An erased or unreadable one says so (invariant L4).
    """
    read = body_of(record)
    if isinstance(read, Erased):
        return {"erased": True, "reason": read.reason}
    if isinstance(read, Unreadable):
        return {"unreadable": read.why, "raw": read.raw}
    try:
        msgspec.json.decode(record.body)
        return msgspec.Raw(record.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # lone surrogates, and numbers that only some JSON has
        return msgspec.Raw(encode(loads(record.body)))
    except (ValueError, RecursionError) as error:
        return {"unreadable": str(error), "raw": record.body.decode("utf-8", "replace")}


def call_of(kind: str, data: bytes) -> tuple[str, bool]:
    """Return the call id of a tool event and whether it is a closer; ("", False) when there is none to be read."""
    if kind not in ("tool_call", "tool_result"):
        return "", False
    try:
        found = _call.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        body = decode(kind, data)
        if isinstance(body, ToolCall):
            return body.call, False
        return (body.call, body.closer) if isinstance(body, ToolResult) else ("", False)
    return found.call, found.closer


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def flat(value: Any) -> str:
    """Return a tool's input or output as text: strings as they are, anything else as compact JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return _text(value)
    try:
        return encode(value).decode("utf-8", "replace")
    except InvalidInput:
        return "(nested too deeply to be shown)"


def text_of(body: Body) -> str:
    """Return the words of a body: what is read aloud, searched and counted. Structured facts are not repeated."""
    match body:
        case Message() | Reasoning() | Terminal() | Command() | Outcome() | Checkpoint() | Context():
            return body.text
        case ToolCall():
            return f"{body.name} {flat(body.input)}"
        case ToolResult():
            return flat(body.output)
        case Unreadable():
            return body.raw
        case _:
            return ""


def searchable_text(kind: str, data: bytes) -> str:
    """Return the words of a body that enter the search index: those of the dialogue, of tools and of terminals.

    Contexts that were compiled from other events have none: whoever searches should find those events, not their copies.
    """
    return searched(kind, decode(kind, data)) if kind in _SEARCHED else ""


def searched(kind: str, body: Body) -> str:
    """Return what ``searchable_text`` does, of a body that was decoded already."""
    if kind not in _SEARCHED or isinstance(body, ProjectionContext | BriefContext | Recall):
        return ""
    return text_of(body)


_SEARCHED: Final = frozenset(
    (
        "message",
        "context",
        "reasoning",
        "tool_call",
        "tool_result",
        "terminal",
        "command",
        "outcome",
        "checkpoint",
    )
)
assert set(KINDS) >= _SEARCHED
