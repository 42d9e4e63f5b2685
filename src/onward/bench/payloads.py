"""Payloads: what is written and searched while measuring, generated, the same on every machine.

Words are made up but spread like those of a language (Zipf): a few stand everywhere and most are rare, which is what a
full-text index and a compressor live on. A message is a stretch of one long passage, so a million of them cost little to
make and no two are the same.
"""

from __future__ import annotations

import random
from itertools import accumulate
from typing import Final

from onward.core.bodies import Message
from onward.core.codec import encode
from onward.core.events import NewEvent
from onward.service.platform import Platform

SEED: Final = 20260101

BODY_BYTES: Final = 600
"""About what the body of a message takes, as JSON."""

_VOCABULARY: Final = 20_000
_PASSAGE_WORDS: Final = 300_000
_CONSONANTS: Final = "bcdfghklmnprstvz"
_VOWELS: Final = "aeiou"


class Prose:
    """An endless supply of text. The same seed gives the same texts in the same order."""

    def __init__(self, seed: int = SEED) -> None:
        self._random = random.Random(seed)
        words = _vocabulary(self._random)
        weights = list(accumulate(1 / (rank + 2.7) for rank in range(len(words))))
        self._passage = " ".join(self._random.choices(words, cum_weights=weights, k=_PASSAGE_WORDS))

    def text(self, size: int) -> str:
        """Return about ``size`` characters of text; none is empty."""
        start = self._random.randrange(len(self._passage) - size)
        return self._passage[start : start + size].strip() or "text"

    def choose(self, among: int) -> int:
        """Return a number below ``among``."""
        return self._random.randrange(among)

    def chance(self, share: float) -> bool:
        """Return True this often."""
        return self._random.random() < share


def _vocabulary(rng: random.Random) -> list[str]:
    """Different words, short ones first, as frequent words are short."""
    words: dict[str, None] = {}
    while len(words) < _VOCABULARY:
        syllables = 1 + min(4, len(words) // 4000 + rng.randrange(2))
        word = "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(syllables))
        words[word + rng.choice(_CONSONANTS) if rng.random() < 0.3 else word] = None
    return list(words)


def texts(prose: Prose, count: int) -> list[str]:
    """Return texts whose messages take about ``BODY_BYTES``."""
    return [prose.text(BODY_BYTES - 40) for _ in range(count)]


def body(text: str, turn: int) -> bytes:
    """Return the body of a message; people and agents take turns."""
    return encode(Message(role="assistant" if turn % 2 else "user", text=text))


def event(platform: Platform, text: str, turn: int) -> NewEvent:
    """Return a message as an event that is not stored yet."""
    return platform.event("message", body(text, turn), "agent" if turn % 2 else "user")
