"""What a turn of Claude Code used: counters that it keeps for the whole conversation, as the difference for one turn.

``total_cost_usd`` and ``modelUsage`` of a result count from the conversation's beginning, over every process that took
part in it; the program stores them in its own file (a ``cost-state`` row) and reads them back when it resumes. So the
difference is taken from what stood there before the turn. Versions that keep no such row count from each process's start,
and then there was nothing before. Both include what subagents used, which a result's ``usage`` does not.

It deliberately never guesses: totals that fell (a file from another machine, a counter begun anew) give no cost, and the
tokens that the requests themselves reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from onward.core.bodies import Usage
from onward.core.codec import loads

_TOTALS: Final = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation has cost so far."""

    cost_usd: float = 0.0
    models: dict[str, Any] = {}
    """Tokens by model, as the program's ``modelUsage`` has them."""


def spent_of(record: dict[str, Any]) -> Spent | None:
    """Return the totals in a result, or in a ``cost-state`` row; None if there are none."""
    cost = record.get("total_cost_usd", record.get("totalCostUSD"))
    models = record.get("modelUsage")
    if not isinstance(cost, int | float) or isinstance(cost, bool):
        return None
    return Spent(cost_usd=float(cost), models=models if isinstance(models, dict) else {})


def spent_in(rows: Iterable[bytes]) -> Spent:
    """Return the totals that a conversation's own file holds: those of its last ``cost-state`` row."""
    last = None
    for row in rows:
        if b'"cost-state"' in row:
            last = row
    if last is None:
        return Spent()
    try:
        record = loads(last)
    except ValueError:
        return Spent()
    return (spent_of(record) if isinstance(record, dict) else None) or Spent()


def used_by(usage: dict[str, Any], before: Usage | None) -> Usage:
    """Return what one model request has used by now, given what it had reported before. Counts only grow."""
    known = before or Usage()
    return Usage(
        input_tokens=_most(usage.get("input_tokens"), known.input_tokens),
        output_tokens=_most(usage.get("output_tokens"), known.output_tokens),
        cache_read_tokens=_most(usage.get("cache_read_input_tokens"), known.cache_read_tokens),
        cache_write_tokens=_most(usage.get("cache_creation_input_tokens"), known.cache_write_tokens),
    )


def summed(requests: tuple[Usage, ...]) -> Usage:
    """Return what these requests used together; the context holds the prompt of the newest."""
    if not requests:
        return Usage()
    return Usage(
        input_tokens=sum(map(_prompt, requests)),
        output_tokens=sum(one.output_tokens or 0 for one in requests),
        cache_read_tokens=sum(one.cache_read_tokens or 0 for one in requests),
        cache_write_tokens=sum(one.cache_write_tokens or 0 for one in requests),
        context_tokens=_prompt(requests[-1]),
    )


def risen(before: Spent, after: Spent, requests: Usage, *, window: int | None = None) -> Usage:
    """Return the usage of a turn between these totals. ``requests`` is what its requests reported one by one."""
    rise = {name: _total(after, name) - _total(before, name) for name in _TOTALS}
    cost = after.cost_usd - before.cost_usd
    fell = cost < 0 or any(count < 0 for count in rise.values())
    shown = msgspec.structs.replace(
        requests, window=window, cost_usd=None if fell or after is before else round(cost, 9)
    )
    if fell or not after.models:
        return shown
    read, wrote = rise["cacheReadInputTokens"], rise["cacheCreationInputTokens"]
    return msgspec.structs.replace(
        shown,
        input_tokens=rise["inputTokens"] + read + wrote,
        output_tokens=rise["outputTokens"],
        cache_read_tokens=read,
        cache_write_tokens=wrote,
    )


def window_of(record: dict[str, Any]) -> int | None:
    """Return the context window that a result names: that of the model which read the most."""
    models = record.get("modelUsage")
    known = (
        [model for model in models.values() if isinstance(model, dict)] if isinstance(models, dict) else []
    )
    sized = [
        model for model in known if isinstance(model.get("contextWindow"), int) and model["contextWindow"]
    ]
    if not sized:
        return None
    return int(max(sized, key=lambda model: _count(model.get("inputTokens")))["contextWindow"])


def _total(spent: Spent, name: str) -> int:
    return sum(_count(model.get(name)) for model in spent.models.values() if isinstance(model, dict))


def _prompt(request: Usage) -> int:
    return (request.input_tokens or 0) + (request.cache_read_tokens or 0) + (request.cache_write_tokens or 0)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _most(value: Any, known: int | None) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return known
    return max(value, known or 0)
