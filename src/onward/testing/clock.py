"""A clock that stands still and ids that count: time and chance for tests.

Both are passed in wherever the real ones are (``core.ids.Ids``, ``now: Callable[[], int]``): a test says what time it
is, and makes the same ids, salts and digests on every run.
"""

from __future__ import annotations

import itertools
import threading
from datetime import datetime

from onward.core import ids
from onward.core.events import micros


class FakeClock:
    """A clock that moves only when it is told to. Calling it returns microseconds since 1970, UTC."""

    def __init__(self, start: int | datetime = datetime(2026, 1, 1)) -> None:  # noqa: DTZ001 (taken as UTC)
        self.now = start if isinstance(start, int) else micros(start)

    def __call__(self) -> int:
        """Return the time that it is."""
        return self.now

    def tick(self, seconds: float = 1.0) -> int:
        """Move on by this many seconds (fractions allowed) and return the new time."""
        self.now += round(seconds * 1_000_000)
        return self.now


class FakeIds:
    """Ids that count up from one, each prefix for itself, at the time of a clock. Safe to call from many threads.

    Two of them with different ``space`` never give the same id, which is what two processes are to each other.
    """

    def __init__(self, clock: FakeClock | None = None, *, space: int = 0) -> None:
        self.clock = clock or FakeClock()
        self._space = space
        self._counters: dict[str, itertools.count[int]] = {}
        self._lock = threading.Lock()

    def _next(self, name: str) -> int:
        with self._lock:
            return next(self._counters.setdefault(name, itertools.count(1)))

    def new(self, prefix: str) -> str:
        """Return the next id of this prefix."""
        return ids.make_id(
            prefix, self.clock.now, (self._space << 40 | self._next(prefix)).to_bytes(10, "big")
        )

    def salt(self) -> bytes:
        """Return 16 bytes that were never returned before, and that anyone could predict."""
        return (self._space << 64 | self._next("salt")).to_bytes(16, "big")
