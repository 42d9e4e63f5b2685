"""The first Codex format: a whole session as one JSON document, ``{"session": {…}, "items": […]}``.

Its records are its items, each with the place of its bytes in the document, so that everything after this module is the
same as for a file of lines. A document is read anew whenever it changed: it is no log.
"""

from __future__ import annotations

import codecs
from typing import Final

import msgspec

from onward.importers.contract import Line


class _Document(msgspec.Struct):
    session: msgspec.Raw
    items: list[msgspec.Raw]


_document: Final = msgspec.json.Decoder(_Document)


def items_of(data: bytes) -> tuple[bytes, list[Line]] | None:
    """Return the session object and the items as lines numbered from 1; None when this is no such document."""
    try:
        document = _document.decode(data.removeprefix(codecs.BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    lines: list[Line] = []
    offset = data.find(b'"items"')
    for number, item in enumerate(document.items, 1):
        native = bytes(item)
        offset = data.find(native, offset)
        lines.append((number, offset, native, len(native)))
        offset += len(native)
    return bytes(document.session), lines
