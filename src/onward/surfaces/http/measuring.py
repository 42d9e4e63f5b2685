"""Measuring: how long requests took, by route, since the server started. Told by ``metrics``."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Final

import msgspec

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds. What took longer than the last is counted all the same."""


class Histogram(msgspec.Struct, kw_only=True):
    """How long the requests of one route took that ended with one status."""

    counts: list[int]
    """By bucket, the last for what is beyond them."""
    seconds: float = 0.0


class Meters:
    """What is counted of requests. Routes and statuses are few, so it does not grow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, int], Histogram] = {}

    def took(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            found = self._found.setdefault((route, status), Histogram(counts=[0] * (len(BUCKETS) + 1)))
            found.counts[bisect_left(BUCKETS, seconds)] += 1
            found.seconds += seconds

    def read(self) -> list[tuple[str, int, Histogram]]:
        """Return what was counted, by route and status."""
        with self._lock:
            return [
                (route, status, Histogram(counts=list(found.counts), seconds=found.seconds))
                for (route, status), found in sorted(self._found.items())
            ]
