"""What can be wrong with a SQLite store itself, apart from its chains: pages, indexes, references, heads, blobs, originals.

Nothing here repairs anything. Each finding is a sentence that names the place.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from typing import Final

from onward.core.digests import content_digest

_HEADS: Final = """
SELECT s.id, s.head_seq, count(e.seq), coalesce(max(e.seq), 0)
FROM sessions s LEFT JOIN events e ON e.session = s.no
GROUP BY s.no HAVING s.head_seq <> count(e.seq) OR s.head_seq <> coalesce(max(e.seq), 0)
"""

_ORIGINALS: Final = 'SELECT file_id, "offset", length, data FROM originals'


def faults(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield what is wrong, in words; nothing when all is sound."""
    try:
        for (finding,) in connection.execute("PRAGMA quick_check"):
            if finding != "ok":
                yield f"the file is damaged: {finding}"
        for table, row, target, _ in connection.execute("PRAGMA foreign_key_check"):
            yield f"row {row} of {table} points to a row of {target} that is not there"
        for session, head, count, newest in connection.execute(_HEADS):
            yield f"session {session} says it has {head} events; there are {count}, the newest is {newest}"
        for digest, content in connection.execute("SELECT digest, content FROM blobs"):
            if content_digest(content) != digest:
                yield f"blob {digest} does not hold what its name says"
        for file_id, offset, length, data in connection.execute(_ORIGINALS):
            if not _holds(data, length):
                yield f"byte {offset:,} and on of native file {file_id} cannot be read any more"
    except sqlite3.DatabaseError as error:
        yield f"the file is damaged: {error}"


def _holds(data: bytes, length: int) -> bool:
    """Whether compressed bytes are what was compressed: they end with a checksum of it (RFC 1950)."""
    try:
        return len(zlib.decompress(data)) == length
    except (zlib.error, TypeError):
        return False
