"""Lines of a native file, with their places, in bounded memory.

A line ends at ``\\n``; a ``\\r`` before it belongs to the line end. What follows the last ``\\n`` is a line too: whether
it is a record that was finished or one that a dying writer tore off is for the reader to find out. Reading stops at a
limit taken when the file was opened, so that both passes see the same bytes of a file that is being written. A byte order
mark at the very beginning of a file is no part of its first record.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO, Final

from onward.importers.contract import Line

LONGEST: Final = 128 * 1024 * 1024
"""Bytes of the longest line that is read. A longer one is counted as broken; its bytes are kept all the same."""

_SKIP: Final = 1024 * 1024


def lines_of(
    file: BinaryIO, *, offset: int, limit: int, number: int = 1, longest: int = LONGEST
) -> Iterator[Line]:
    """Yield the lines from ``offset`` up to ``limit``, the first one numbered ``number``."""
    file.seek(offset)
    readline = file.readline
    while offset < limit:
        data = readline(min(longest + 2, limit - offset))
        if not data:
            return  # the file shrank while it was read; the writer notices that by its size
        size = len(data)
        if size > longest and not data.endswith(b"\n"):
            del data
            size = _to_line_end(file, offset + size, limit) - offset
            yield number, offset, None, size
        else:
            if offset == 0:
                data = data.removeprefix(codecs.BOM_UTF8)
            yield number, offset, data.rstrip(b"\r\n") if data.endswith(b"\n") else data, size
        offset += size
        number += 1


def _to_line_end(file: BinaryIO, offset: int, limit: int) -> int:
    while offset < limit:
        data = file.readline(min(_SKIP, limit - offset))
        if not data:
            break
        offset += len(data)
        if data.endswith(b"\n"):
            break
    return offset
