"""What makes a record itself when the engine gave it no id: its bytes, where it stands, and how often it came.

The same record must get the same identity at every import (invariant L3), also when lines before it were added or taken
away; and two records that are equal byte for byte must not share one, or the second would vanish. So the identity is a
digest of the bytes and of an anchor near them (the last record with an id, or the record before), plus a number for the
second, third … record of that digest. Equal records stand close together, so the latest few are what the next import needs.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Final

REMEMBERED: Final = 64
"""Identities that are handed on to the next import."""


class Idents:
    """Gives identities out in the order of the file. ``given`` is what ``latest`` returned at the last import."""

    def __init__(self, given: dict[str, int] | None = None) -> None:
        self._given: dict[str, int] = dict(given or {})

    def of(self, data: bytes, anchor: str = "") -> str:
        """Return the identity of a record, given its bytes and what it stands by."""
        h = hashlib.sha256(anchor.encode("utf-8", "surrogatepass"))
        h.update(b"\x00")
        h.update(data)
        digest = h.hexdigest()[:24]
        count = self._given.pop(digest, 0)
        self._given[digest] = count + 1
        return digest if count == 0 else f"{digest}~{count}"

    def latest(self) -> dict[str, int]:
        """Return the latest identities and how often each was given."""
        backwards = itertools.islice(reversed(self._given.items()), REMEMBERED)
        return dict(reversed(list(backwards)))
