"""What Claude Code writes, as types: one JSON object a line, about forty types of them, and new ones every month.

Only what the importer looks at is declared; fields whose native JSON passes through unread are ``msgspec.Raw``. A row whose
fields have unexpected types is read a second time, leniently: the field that drifted is left out, the row stays.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from onward.core.codec import loads
from onward.importers.contract import check_text, native_json

EMPTY: Final = msgspec.Raw(b"")

_T = TypeVar("_T")


class Block(msgspec.Struct):
    """One content block of a message."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str | None = None
    data: str | None = None
    id: str = ""
    name: str = ""
    tool_use_id: str = ""
    input: msgspec.Raw = EMPTY
    content: msgspec.Raw = EMPTY
    source: msgspec.Raw = EMPTY
    title: str | None = None
    is_error: bool | None = None


class Message(msgspec.Struct):
    """A message in the shape of the provider's API."""

    id: str | None = None
    role: str = ""
    model: str | None = None
    content: str | list[Block] | None = None


class Row(msgspec.Struct):
    """One record of a transcript file."""

    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    parent: str | msgspec.UnsetType | None = msgspec.field(name="parentUuid", default=msgspec.UNSET)
    logical_parent: str | None = msgspec.field(name="logicalParentUuid", default=None)
    session: str | None = msgspec.field(name="sessionId", default=None)
    timestamp: str | float | None = None
    cwd: str | None = None
    version: str | None = None
    sidechain: bool | None = msgspec.field(name="isSidechain", default=None)
    agent: str | None = msgspec.field(name="agentId", default=None)
    meta: bool | None = msgspec.field(name="isMeta", default=None)
    compact_summary: bool | None = msgspec.field(name="isCompactSummary", default=None)
    transcript_only: bool | None = msgspec.field(name="isVisibleInTranscriptOnly", default=None)
    api_error: bool | None = msgspec.field(name="isApiErrorMessage", default=None)
    aborted: bool | None = msgspec.field(name="isAbortedMidStream", default=None)
    message: Message | None = None
    origin: msgspec.Raw = EMPTY
    summary: str | None = None
    leaf: str | None = msgspec.field(name="leafUuid", default=None)
    custom_title: str | None = msgspec.field(name="customTitle", default=None)
    ai_title: str | None = msgspec.field(name="aiTitle", default=None)
    error: msgspec.Raw = EMPTY
    attachment: msgspec.Raw = EMPTY
    compact: msgspec.Raw = msgspec.field(name="compactMetadata", default=EMPTY)
    tool_use_result: msgspec.Raw = msgspec.field(name="toolUseResult", default=EMPTY)


class LightBlock(msgspec.Struct):
    """As much of a content block as the first pass needs."""

    type: str = ""
    id: str = ""
    tool_use_id: str = ""


class LightMessage(msgspec.Struct):
    """As much of a message as the first pass needs."""

    id: str | None = None
    content: msgspec.Raw = EMPTY


class LightRow(msgspec.Struct):
    """As much of a row as the first pass needs: where it hangs in the tree."""

    type: str = ""
    timestamp: str | float | None = None
    subtype: str | None = None
    uuid: str | None = None
    parent: str | msgspec.UnsetType | None = msgspec.field(name="parentUuid", default=msgspec.UNSET)
    logical_parent: str | None = msgspec.field(name="logicalParentUuid", default=None)
    session: str | None = msgspec.field(name="sessionId", default=None)
    sidechain: bool | None = msgspec.field(name="isSidechain", default=None)
    agent: str | None = msgspec.field(name="agentId", default=None)
    meta: bool | None = msgspec.field(name="isMeta", default=None)
    compact_summary: bool | None = msgspec.field(name="isCompactSummary", default=None)
    leaf: str | None = msgspec.field(name="leafUuid", default=None)
    message: LightMessage | None = None


_row: Final = msgspec.json.Decoder(Row)
_light: Final = msgspec.json.Decoder(LightRow)
_light_blocks: Final = msgspec.json.Decoder(list[LightBlock])


class NotAnObject(ValueError):
    """The line is JSON, but no object."""


def row_of(data: bytes) -> Row:
    """Decode a row. Raises NotAnObject, or ValueError when the line is not JSON in UTF-8."""
    check_text(data)
    try:
        return _row.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lenient(data, Row)


def light_row_of(data: bytes) -> LightRow:
    """Decode as much of a row as the first pass needs. Raises like ``row_of``."""
    check_text(data)
    try:
        return _light.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lenient(data, LightRow)


def light_blocks_of(message: LightMessage | None) -> list[LightBlock] | None:
    """Return the content blocks of a message, or None when its content is plain text."""
    content = bytes(message.content) if message else b""
    if not content.startswith(b"["):
        return None
    try:
        return _light_blocks.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            found = loads(content)
        except ValueError:
            return []  # the second pass says what is wrong with the row
        return [_piecewise(b, LightBlock) for b in found if isinstance(b, dict)]


def _lenient(data: bytes, struct: type[_T]) -> _T:
    found = loads(data)
    if not isinstance(found, dict):
        raise NotAnObject("a JSON value that is not an object")
    return _piecewise(found, struct)  # type: ignore[no-any-return]


def _piecewise(found: dict[str, Any], struct: Any) -> Any:
    """Build a struct from what fits it, field by field."""
    fields: dict[str, Any] = {}
    for f in msgspec.structs.fields(struct):
        if f.encode_name not in found:
            continue
        value = found[f.encode_name]
        if f.type is msgspec.Raw:
            fields[f.name] = native_json(value)
        elif f.encode_name == "message":
            kind = Message if struct is Row else LightMessage
            fields[f.name] = _piecewise(value, kind) if isinstance(value, dict) else None
        elif f.name == "content" and struct is Message:
            fields[f.name] = (
                [
                    _piecewise(b if isinstance(b, dict) else {"type": "text", "text": str(b)}, Block)
                    for b in value
                ]
                if isinstance(value, list)
                else value
                if isinstance(value, str)
                else None
            )
        else:
            try:
                fields[f.name] = msgspec.convert(value, f.type)
            except msgspec.ValidationError:
                continue
    return struct(**fields)
