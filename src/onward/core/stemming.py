"""Stemming: the words that a question and a text share although they end differently.

This is the algorithm of M. F. Porter, "An algorithm for suffix stripping" (Program 14, 1980), as the full-text index of
SQLite applies it. Ranking has to find the same words in a text that the index found, so the two must agree; a test
compares them.

It knows English endings only. A word in another script comes back as it is.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Final

SHORTEST: Final = 3
LONGEST: Final = 64
"""UTF-8 bytes: words outside these bounds are their own stems."""

_STEP_2: Final = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("logi", "log"),
    ("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"),
    ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"),
    ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"),
)  # fmt: skip
_STEP_3: Final = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_STEP_4: Final = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Return the stem of a word in lower case.

    Every word with this stem begins with all of the stem but its last letter, so whoever looks for them can look for that.
    """
    data = word.encode("utf-8", "surrogatepass")
    if not SHORTEST <= len(data) < LONGEST or not word[-1].isascii():
        return word
    if not word.isascii():
        # The index looks at bytes, so a letter beyond ASCII is several consonants.
        return _stem(data.decode("latin-1")).encode("latin-1").decode("utf-8", "surrogatepass")
    return _stem(word)


def _stem(word: str) -> str:
    word = _plural(word)
    word = _past(word)
    if word[-1] == "y" and _vowel_in(word[:-1]):
        word = f"{word[:-1]}i"
    word = _replaced(word, _STEP_2)
    word = _replaced(word, _STEP_3)
    for ending in sorted((e for e in _STEP_4 if word.endswith(e)), key=len, reverse=True)[:1]:
        rest = word[: -len(ending)]
        if _measure(rest) > 1 and (ending != "ion" or rest.endswith(("s", "t"))):
            word = rest
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _short(word[:-1])):
            word = word[:-1]
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


def _plural(word: str) -> str:
    if (word.endswith("sses") and len(word) > 4) or (word.endswith("ies") and len(word) > 3):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed") and len(word) > 3:
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        if word.endswith(ending) and _vowel_in(word[: -len(ending)]):
            rest = word[: -len(ending)]
            if rest.endswith(("at", "bl", "iz")):
                return f"{rest}e"
            if (
                len(rest) > 1
                and rest[-1] == rest[-2]
                and _consonant(rest, len(rest) - 1)
                and rest[-1].isascii()
                and rest[-1] not in "lsz"
            ):
                return rest[:-1]
            return f"{rest}e" if _measure(rest) == 1 and _short(rest) else rest
    return word


def _replaced(word: str, table: tuple[tuple[str, str], ...]) -> str:
    for ending, other in table:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            return f"{rest}{other}" if _measure(rest) > 0 else word
    return word


def _consonant(word: str, at: int) -> bool:
    if word[at] == "y":
        return at == 0 or not _consonant(word, at - 1)
    return word[at] not in "aeiou"


def _vowel_in(word: str) -> bool:
    return any(not _consonant(word, at) for at in range(len(word)))


def _measure(word: str) -> int:
    """Return how often a vowel is followed by a consonant."""
    kinds = [_consonant(word, at) for at in range(len(word))]
    return sum(1 for before, after in pairwise(kinds) if after and not before)


def _short(word: str) -> bool:
    """Whether a word ends like ``hop``: consonant, vowel, consonant, the last one not w, x or y."""
    last = len(word) - 1
    return (
        last >= 2
        and _consonant(word, last)
        and not _consonant(word, last - 1)
        and _consonant(word, last - 2)
        and word[last] not in "wxy"
    )
