"""Ages: how long ago something was, as a person says it. One spelling for briefs, reasons and headings."""

from __future__ import annotations

from typing import Final

MICROSECONDS: Final = 1_000_000
"""In a second; all times of the log are in microseconds since 1970."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def span(microseconds: int) -> str:
    """Return a length of time in one unit, rounded down: ``42 s``, ``17 min``, ``3 h``, ``5 d``. Negative counts as none.

    Up to two hours are told in minutes and up to two days in hours, so that a figure never hides half of itself.
    """
    seconds = max(0, microseconds) // MICROSECONDS
    if seconds < 2 * _MINUTE:
        return f"{seconds} s"
    if seconds < 2 * _HOUR:
        return f"{seconds // _MINUTE} min"
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR} h"
    return f"{seconds // _DAY} d"


def ago(at: int, now: int) -> str:
    """Return how long before ``now`` a time was. A time in the future was just now; one that is not known says so."""
    return f"{span(now - at)} ago" if at > 0 else "at an unknown time"
