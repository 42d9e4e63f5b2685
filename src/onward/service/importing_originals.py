"""Originals: every byte of a native file that was consumed, kept as it was.

An event of an import names its place, ``<file index>:<line>@<offset>+<length>``. The index counts the files named in the
session's ``opened`` and ``imported`` events, whose notes hold the ids under which the bytes are kept. So any record can be
shown exactly, and a native file that was deleted (engines do that after thirty days) can be written back.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

from onward.core.bodies import SessionChange
from onward.core.codec import body_of
from onward.core.events import Event
from onward.core.records import Original
from onward.errors import NotFound
from onward.importers.contract import Line
from onward.store.contract import Store

STRETCH: Final = 1024 * 1024
"""Bytes of a stretch before compression, at most."""

_PLACE: Final = re.compile(r"(\d+):(\d+)@(\d+)\+(\d+)")


def place_of(file_index: int, line: Line) -> str:
    """Spell the address of a record: its file among the session's, its line, and its bytes without the line end."""
    number, offset, data, size = line
    return f"{file_index}:{number}@{offset}+{size if data is None else len(data)}"


def stretches(file: BinaryIO, file_id: str, offset: int, end: int) -> Iterator[Original]:
    """Yield the bytes ``offset`` to ``end`` of a file as originals, compressed. Leaves the file's position elsewhere."""
    file.seek(offset)
    while offset < end:
        data = file.read(min(STRETCH, end - offset))
        if not data:
            return
        yield Original(file_id=file_id, offset=offset, length=len(data), data=zlib.compress(data, 1))
        offset += len(data)


def files_of(store: Store, session_id: str) -> list[tuple[str, str]]:
    """Return the native files that a session was read from, as ``(path, id of its originals)``, in the order of places."""
    found: list[tuple[str, str]] = []
    for event in store.events(session_id, kinds=["session"], limit=1000):
        body = body_of(event)
        if isinstance(body, SessionChange) and body.change in ("opened", "imported") and body.note:
            found.extend(zip(body.files, body.note.split(), strict=False))
    return found


def original_record(store: Store, event: Event) -> bytes:
    """Return the native record behind an imported event, byte for byte, without its line end.

    Raises NotFound when the event was not imported, or its record was blanked (an erasure does that).
    """
    found = _whereabouts(store, event)
    data = store.original(*found) if found else None
    if data is None or not data.strip():
        raise NotFound(what="the original record of event", value=event.id)
    return data


def _whereabouts(store: Store, event: Event) -> tuple[str, int, int] | None:
    """Return the file, the offset and the length of the record behind an event."""
    found = _PLACE.fullmatch(event.source.place or "")
    if found is None:
        return None
    index, _, offset, length = (int(part) for part in found.groups())
    files = files_of(store, event.session_id)
    return (files[index][1], offset, length) if index < len(files) else None


def blanked_originals(store: Store, event: Event) -> tuple[Original, ...]:
    """Return the stretches that hold the record behind an event, its bytes replaced by blanks; nothing if none is kept.

    Written in the batch that erases the event (invariant L5). Every other record stays exact, and where it was; other events
    of the same record (a response may have several blocks) lose their original with it.
    """
    found = _whereabouts(store, event)
    if found is None:
        return ()
    file_id, start, length = found
    blanked: list[Original] = []
    for offset, size in store.originals(file_id):
        first, last = max(start, offset), min(start + length, offset + size)
        if first >= last or (data := store.original(file_id, offset, size)) is None:
            continue
        data = data[: first - offset] + b" " * (last - first) + data[last - offset :]
        blanked.append(Original(file_id=file_id, offset=offset, length=size, data=zlib.compress(data, 1)))
    return tuple(blanked)


def original_file(store: Store, file_id: str) -> Iterator[bytes]:
    """Yield the bytes of a native file as far as they were imported, to write it back. Raises NotFound on a gap."""
    at = 0
    for offset, length in store.originals(file_id):
        data = store.original(file_id, offset, length) if offset == at else None
        if data is None:
            raise NotFound(what=f"byte {at} of native file", value=file_id)
        yield data
        at += length
