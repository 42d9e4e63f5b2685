"""Times as native files spell them, as microseconds since 1970 (UTC).

ISO 8601 with or without a zone, and numbers of seconds, milliseconds or microseconds: which of them is told by size, as
no session was written before 1973. What is no time gives None, and the caller goes on with the time before it.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Final

from onward.core.events import micros

_MICROSECONDS_FROM: Final = 100_000_000_000_000
_MILLISECONDS_FROM: Final = 100_000_000_000
_LATEST: Final = 1 << 53


@lru_cache(maxsize=256)
def _from_text(text: str) -> int | None:
    try:
        return micros(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def moment_of(value: object) -> int | None:
    """Return a native time in microseconds since 1970, or None if it is no time."""
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not 0 < value < _LATEST:  # NaN and infinity fail this too
        return None
    if value >= _MICROSECONDS_FROM:
        return int(value)
    return round(value * (1_000 if value >= _MILLISECONDS_FROM else 1_000_000))


def moment_in_uuid7(value: str) -> int | None:
    """Return the time inside a version 7 UUID, or None if it is not one (RFC 9562, section 5.7)."""
    if len(value) != 36 or value[14] != "7":
        return None
    try:
        return int(value[:8] + value[9:13], 16) * 1000
    except ValueError:
        return None
