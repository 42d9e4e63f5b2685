"""Pricing: what a run cost, where the engine did not say so itself.

Rates are the caller's: prices change, so none are built in. A rate is found by the model's exact name, then by the longest
prefix that names it, then by the engine's own default. What an engine reports is always believed before what we compute.
Tokens without a rate are counted as *unpriced*, never as free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from onward.core.bodies import Usage
from onward.errors import InvalidInput


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars for a million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    """None: as other input."""
    cache_write: float | None = None

    def __post_init__(self) -> None:
        """Refuse a price below zero. Raises InvalidInput."""
        for field in self.__struct_fields__:
            price = getattr(self, field)
            if price is not None and price < 0:
                raise InvalidInput(what=f"the {field} rate", why=f"{price} is below zero")


Rates = Mapping[str, Rate]
"""By model, by a prefix of models, or by engine."""


def rate_of(rates: Rates, model: str | None, engine: str = "") -> Rate | None:
    """Return the rate of a model, or None when nothing names it."""
    if model:
        if model in rates:
            return rates[model]
        named = [prefix for prefix in rates if prefix and model.startswith(prefix)]
        if named:
            return rates[max(named, key=len)]
    return rates.get(engine)


def cost_of(usage: Usage, rate: Rate | None) -> float | None:
    """Return what a usage cost in dollars: as its engine says, else by the rate; None where neither is known.

    ``Usage.input_tokens`` includes what was read from and written to a cache.
    """
    if usage.cost_usd is not None:
        return usage.cost_usd
    if rate is None:
        return None
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    plain = max((usage.input_tokens or 0) - read - written, 0)
    dollars = (
        plain * rate.input
        + read * (rate.input if rate.cache_read is None else rate.cache_read)
        + written * (rate.input if rate.cache_write is None else rate.cache_write)
        + (usage.output_tokens or 0) * rate.output
    )
    return dollars / 1_000_000


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What several runs used together."""

    runs: int = 0
    measured: int = 0
    """Those of them whose engine said what they used."""
    unpriced: int = 0
    """Measured ones whose cost is not known; ``cost_usd`` leaves them out."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float = 0.0


def spent(runs: Iterable[tuple[Usage | None, float | None]]) -> Spent:
    """Add up runs, each as its usage and its cost where known."""
    total = Spent()
    for usage, cost in runs:
        total = msgspec.structs.replace(total, runs=total.runs + 1)
        if usage is None:
            continue
        total = msgspec.structs.replace(
            total,
            measured=total.measured + 1,
            unpriced=total.unpriced + (cost is None),
            input_tokens=total.input_tokens + (usage.input_tokens or 0),
            output_tokens=total.output_tokens + (usage.output_tokens or 0),
            cache_read_tokens=total.cache_read_tokens + (usage.cache_read_tokens or 0),
            cache_write_tokens=total.cache_write_tokens + (usage.cache_write_tokens or 0),
            cost_usd=total.cost_usd + (cost or 0.0),
        )
    return total
