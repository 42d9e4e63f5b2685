"""An embedder without a model: words hashed into vectors, the same on every machine.

Texts are similar as far as they share words, or words that were declared to mean the same. It stands in for a real model
where a test is about what is done with vectors, and it counts how often it was asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from onward.core import words


class HashingEmbedder:
    """Embeds texts by their words. ``same`` maps words to the word that they count as."""

    name = "hashing"

    def __init__(self, *, same: Mapping[str, str] | None = None, dimensions: int = 64) -> None:
        self._same = dict(same or {})
        self._dimensions = dimensions
        self.asked: list[tuple[str, ...]] = []
        """The texts of each call, in order."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text."""
        self.asked.append(tuple(texts))
        return [self._embedded(text) for text in texts]

    def _embedded(self, text: str) -> list[float]:
        vector = [0.0] * self._dimensions
        for term in words.cut(text):
            digest = hashlib.sha256(self._same.get(term, term).encode("utf-8", "surrogatepass")).digest()
            vector[int.from_bytes(digest[:4], "big") % self._dimensions] += 1.0 if digest[4] % 2 else -1.0
        return vector
