"""Charts: figures as geometry for a template to draw. Pure.

One bar, as long as the budget or as what was spent where that is more, with a part a section. A part is told apart by its
place in the bar and in the list beside it, which has every figure in words; its shade only repeats that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

LENGTH: Final = 1000
"""Units of the whole bar."""
SHADES: Final = 8
THINNEST: Final = 2
"""Units of a part that costs anything at all."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One section of the bar."""

    name: str
    tokens: int
    share: str
    """Of the budget, in words."""
    x: float
    width: float
    shade: int


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """The bar."""

    parts: tuple[Part, ...]
    tokens: int
    budget: int
    free: int
    """Tokens of the budget that are left; less than 0 where it does not suffice."""
    limit: float
    """Where the budget ends."""
    told: str
    """The whole of it in a sentence."""


def stacked(sections: Sequence[tuple[str, int]], budget: int, tokens: int) -> Chart:
    """Return sections with their costs as one bar against a budget."""
    total = max(budget, tokens, sum(cost for _, cost in sections), 1)
    parts, x = [], 0.0
    for number, (name, cost) in enumerate(sections):
        width = max(cost * LENGTH / total, THINNEST) if cost else 0.0
        width = min(width, max(0.0, LENGTH - x))
        share = f"{cost / budget:.1%}" if budget > 0 else ""
        parts.append(
            Part(
                name=name,
                tokens=cost,
                share=share,
                x=round(x, 2),
                width=round(width, 2),
                shade=number % SHADES,
            )
        )
        x += width
    share = f", {tokens / budget:.0%}" if budget > 0 else ""
    return Chart(
        parts=tuple(parts),
        tokens=tokens,
        budget=budget,
        free=budget - tokens,
        limit=round(budget * LENGTH / total, 2),
        told=f"{tokens:,} of {budget:,} tokens{share}",
    )
