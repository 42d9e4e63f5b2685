"""Words of the console: numbers, sizes, times and states as a person reads them. Pure; the time is passed in."""

from __future__ import annotations

from typing import Final

import msgspec

from onward.core.ages import ago
from onward.core.events import iso

STATES: Final = {
    "queued": "waiting",
    "running": "working",
    "completed": "done",
    "failed": "failed",
    "cancelled": "cancelled",
    "interrupted": "cut off",
    "continued": "continued elsewhere",
}
"""The states of a run, said to a person."""
REASONS: Final = {
    "topic_change": "Topic changed",
    "phase_change": "A new phase began",
    "refocus": "Refocused",
    "context_pressure": "The context was getting full",
    "user_request": "A person asked for it",
    "other": "Another reason",
}
"""Reasons of continuations, said to a person."""
RESULTS: Final = {
    "ok": "done",
    "error": "failed",
    "not_started": "never started",
    "outcome_unknown": "outcome unknown",
}
"""The states of a tool's result, said to a person."""


class When(msgspec.Struct, frozen=True, kw_only=True):
    """A moment, three ways."""

    iso: str
    """For the ``datetime`` attribute."""
    exact: str
    """To the second, in UTC."""
    ago: str
    """How long ago, as of now."""


def when(at: int | None, now: int) -> When | None:
    """Return a moment in microseconds since 1970 as it is shown; None for one that is not known."""
    if not at or at < 0:
        return None
    told = iso(at)
    return When(iso=told, exact=f"{told[:10]} {told[11:19]} UTC" if "T" in told else told, ago=ago(at, now))


def number(value: float | None) -> str:
    """Return a number with its thousands apart."""
    return "" if value is None else f"{value:,}"


def counted(count: int, noun: str, many: str | None = None) -> str:
    """Return a number with its noun, in the plural where it is not one."""
    return f"{count:,} {noun if count == 1 else many or f'{noun}s'}"


def tokens(count: int | None) -> str:
    """Return a number of tokens, short: 950, 12.4k, 1.2M."""
    if count is None:
        return "unknown"
    if count < 1000:
        return str(count)
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + unit
    return str(count)


def money(usd: float | None) -> str:
    """Return a cost in US dollars."""
    if usd is None:
        return "unknown"
    return f"${usd:.4f}" if 0 < usd < 0.01 else f"${usd:,.2f}"


def size(count: int) -> str:
    """Return a number of bytes."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{count} bytes"


def cut(text: str, limit: int) -> str:
    """Return a text on one line, with an ellipsis where it goes on."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"
