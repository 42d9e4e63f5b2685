"""What makes a record itself when the engine gave it no id: its bytes, where it stands, and how often it came.

The same record must get the same identity at every import (invariant L3), also when lines before it were added or taken
away; and two records that are equal byte for byte must not share one, or the second would vanish. So the identity is a
digest of the bytes and of an anchor near them (the last record with an id, or the record before), plus a number for the
second, third … record of that digest in one pass.
"""

from __future__ import annotations

import hashlib


class Idents:
    """Gives identities out in the order of the file."""

    def __init__(self) -> None:
        self._given: dict[bytes, int] = {}

    def of(self, data: bytes, anchor: str = "") -> str:
        """Return the identity of a record, given its bytes and what it stands by."""
        h = hashlib.sha256(anchor.encode("utf-8", "surrogatepass"))
        h.update(b"\x00")
        h.update(data)
        digest = h.digest()[:12]
        count = self._given.get(digest, 0)
        self._given[digest] = count + 1
        return digest.hex() if count == 0 else f"{digest.hex()}~{count}"
