"""Similarity: ordering the best candidates once more, by what texts mean as far as an embedding knows it.

An embedding sees that "how long does it wait" and "the timeout" are about one thing, which words do not. It also finds
everything similar that is beside the point, so it does not replace the score: both are put on one scale, and a share of the
order is given to it. What the words did not find, it never sees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

SHARE: Final = 0.4
"""How much of the order is decided by similarity."""


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two vectors; 0 where one of them has no direction. Raises ValueError for different lengths."""
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    size = math.sqrt(sum(a * a for a in one)) * math.sqrt(sum(b * b for b in other))
    return dot / size if size and math.isfinite(size) else 0.0


def blended(scores: Sequence[float], similar: Sequence[float], share: float = SHARE) -> list[float]:
    """Return the scores with a share of them given to similarity, on the scale of the scores.

    Similarities are stretched to the span that they cover, since models differ in theirs. Equal ones change nothing.
    """
    if not scores or max(similar) - min(similar) < 1e-9:
        return list(scores)
    top, low, span = max(scores), min(similar), max(similar) - min(similar)
    return [
        round((1 - share) * score + share * top * (near - low) / span, 6)
        for score, near in zip(scores, similar, strict=True)
    ]
