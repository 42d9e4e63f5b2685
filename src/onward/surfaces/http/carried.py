"""Carried: words that a person has written and not sent, on their way from one page to another.

A page without script can hand a text on only in an address or through the server. An address is remembered by browsers
and is too short for a message, so the server keeps the text for a little while and the address names it by a random key.
It is in memory only and belongs to an account; what is lost with it is a draft that still stands on the page it came from.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import Final

KEPT_SECONDS: Final = 3600
MOST_TEXTS: Final = 256
MOST_CHARACTERS: Final = 16 * 1024 * 1024
"""Characters of all texts together. The oldest are let go first."""


class Carried:
    """Texts that are on their way. Safe to use from many threads."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._texts: dict[str, tuple[str, int, str]] = {}
        self._lock = threading.Lock()

    def put(self, account_id: str, text: str) -> str:
        """Keep a text; return the key that names it."""
        key = secrets.token_urlsafe(16)
        with self._lock:
            self._texts[key] = account_id, self._clock() + KEPT_SECONDS * 1_000_000, text
            while len(self._texts) > 1 and (
                len(self._texts) > MOST_TEXTS
                or sum(len(text) for *_, text in self._texts.values()) > MOST_CHARACTERS
            ):
                del self._texts[next(iter(self._texts))]
        return key

    def get(self, account_id: str, key: str) -> str:
        """Return a text of this account, nothing where there is none any more. It stays: pages are loaded again."""
        with self._lock:
            owner, until, text = self._texts.get(key, ("", 0, ""))
        return text if owner == account_id and until > self._clock() else ""
