"""What Codex writes, as types.

Four shapes are known: an envelope ``{timestamp, ordinal?, type, payload}`` a line (since late 2025); bare items a line,
between lines of ``record_type: state`` (mid 2025); one JSON document ``{session, items}`` (the first versions); and rows
of derived engines that add fields to these. Fields whose native JSON passes through unread are ``msgspec.Raw``.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from onward.core.codec import loads
from onward.importers.contract import check_text, native_json

EMPTY: Final = msgspec.Raw(b"")

_T = TypeVar("_T", bound=msgspec.Struct)


class Base(msgspec.Struct):
    """Where the history of a file begins that holds only what came after."""

    thread_id: str = ""
    end_ordinal_exclusive: int = 0


class Item(msgspec.Struct):
    """The payload of a row, of whatever type; or a bare item."""

    type: str | None = None
    id: str | None = None
    role: str | None = None
    content: msgspec.Raw = EMPTY
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: msgspec.Raw = EMPTY
    input: msgspec.Raw = EMPTY
    action: msgspec.Raw = EMPTY
    output: msgspec.Raw = EMPTY
    result: msgspec.Raw = EMPTY
    tools: msgspec.Raw = EMPTY
    status: str | None = None
    success: bool | None = None
    summary: msgspec.Raw = EMPTY
    encrypted_content: str | None = None
    message: str | None = None
    text: str | None = None
    images: list[str] | None = None
    reason: str | None = None
    timestamp: str | float | None = None
    record_type: str | None = None
    cwd: str | None = None
    cli_version: str | None = None
    model: str | None = None
    thread_name: str | None = None
    new_thread_id: str | None = None
    forked_from_id: str | None = None
    parent_thread_id: str | None = None
    history_base: Base | None = None
    source: msgspec.Raw = EMPTY
    replacement_history: list[msgspec.Raw] | None = None
    passthrough: msgspec.Raw = msgspec.field(name="internal_chat_message_metadata_passthrough", default=EMPTY)


class Row(msgspec.Struct):
    """A line of a rollout: an envelope around an item."""

    type: str | None = None
    timestamp: str | float | None = None
    ordinal: int | None = None
    payload: Item | None = None


class ContentBlock(msgspec.Struct):
    """One piece of a message's content, or of a tool's output."""

    type: str = ""
    text: str | None = None
    image_url: str | None = None


class _Kinds(msgspec.Struct):
    content_item_kinds: list[str] | None = None


class _Spawn(msgspec.Struct):
    parent_thread_id: str | None = None


class _Subagent(msgspec.Struct):
    thread_spawn: _Spawn | None = None


class _SourceOf(msgspec.Struct):
    subagent: _Subagent | None = None


_row: Final = msgspec.json.Decoder(Row)
_item: Final = msgspec.json.Decoder(Item)
_blocks: Final = msgspec.json.Decoder(list[ContentBlock])
_kinds: Final = msgspec.json.Decoder(_Kinds)
_source: Final = msgspec.json.Decoder(_SourceOf)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class NotAnObject(ValueError):
    """The line is JSON, but no object."""


def row_of(data: bytes) -> tuple[Row, Item]:
    """Return a line's envelope and item; a bare item gets an empty envelope.

    Raises NotAnObject, or ValueError when the line is not JSON in UTF-8.
    """
    check_text(data)
    try:
        row = _row.decode(data)
        if row.payload is not None:
            return row, row.payload
        item = _item.decode(data)
    except _UNREADABLE:
        found = loads(data)
        if not isinstance(found, dict):
            raise NotAnObject("a JSON value that is not an object") from None
        payload = found.get("payload")
        if isinstance(payload, dict):
            envelope = _piecewise({**found, "payload": None}, Row)
            return envelope, _piecewise(payload, Item)
        item = _piecewise(found, Item)
    return Row(timestamp=item.timestamp), item


def _piecewise(found: dict[str, Any], struct: type[_T]) -> _T:
    fields: dict[str, Any] = {}
    for f in msgspec.structs.fields(struct):
        if f.encode_name not in found:
            continue
        value = found[f.encode_name]
        if f.type is msgspec.Raw:
            fields[f.name] = native_json(value)
            continue
        if f.name == "replacement_history":
            fields[f.name] = [native_json(v) for v in value] if isinstance(value, list) else None
            continue
        try:
            fields[f.name] = msgspec.convert(value, f.type)
        except msgspec.ValidationError:
            continue
    return struct(**fields)


def blocks_of(content: msgspec.Raw) -> list[ContentBlock] | None:
    """Return content as blocks: a plain string is one block of text. None when it is neither, or cannot be held."""
    data = bytes(content)
    if data.startswith(b"["):
        try:
            return _blocks.decode(data)
        except _UNREADABLE:
            try:
                found = loads(data)
            except ValueError:
                return None
            return [_piecewise(b, ContentBlock) for b in found if isinstance(b, dict)]
    text = text_of(content)
    return None if text is None else [ContentBlock(type="text", text=text)]


def text_of(content: msgspec.Raw) -> str | None:
    """Return content that is a JSON string, or None."""
    data = bytes(content)
    if not data.startswith(b'"'):
        return None
    try:
        found = loads(data)
    except ValueError:
        return None
    return found if isinstance(found, str) else None


def item_in(history: msgspec.Raw) -> Item:
    """Return an item of a replacement history."""
    try:
        return _item.decode(bytes(history))
    except _UNREADABLE:
        found = loads(bytes(history))
        return _piecewise(found, Item) if isinstance(found, dict) else Item()


def kinds_of(item: Item) -> list[str]:
    """Return what newer versions say each piece of content is (``user.text``, ``environments.…``); else nothing."""
    data = bytes(item.passthrough)
    if b'"content_item_kinds"' not in data:
        return []
    try:
        return _kinds.decode(data).content_item_kinds or []
    except _UNREADABLE:
        return []


def spawned_by(item: Item) -> str | None:
    """Return the thread that started this one as its subagent."""
    if item.parent_thread_id:
        return item.parent_thread_id
    data = bytes(item.source)
    if b'"thread_spawn"' not in data:
        return None
    try:
        subagent = _source.decode(data).subagent
    except _UNREADABLE:
        return None
    return subagent.thread_spawn.parent_thread_id if subagent and subagent.thread_spawn else None
