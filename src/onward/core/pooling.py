"""Pooling: which of the matches of a question are worth loading and ranking.

A store names the newest matches of some words and no more, since it could not rank a million of them. The newest matches
of a common word crowd out an older event that has it beside a rare one. So a question is asked in several ways: all its
words; each alone; and the common ones two, three together. What comes back are places, each known to hold some of the
words, and no event has been loaded yet. Words are weighed by how densely their matches lie; the places that weigh most,
by themselves and through their neighbours, are loaded.

Everything is a function of the matches. The number of questions to the store is bounded (``MOST_ASKED``), and so is the
number of places (``limit``). It is deliberately no score for people to see: see ``ranking.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final

Place = tuple[str, int]
"""Session and number of an event."""

MOST_ASKED: Final = 24
"""Questions to the store for one search, beside that for all words together."""
MOST_TERMS: Final = 12
"""Words of a question that are looked up one by one: the longest ones, which are rarely the common ones."""
BESIDE: Final = 2
"""Events to each side whose words count towards a place."""
BESIDE_SHARE: Final = 0.3


def alone(terms: Sequence[str]) -> list[str]:
    """Return the words to look up one by one, in the order of the question."""
    if len(terms) <= MOST_TERMS:
        return list(terms)
    longest = sorted(terms, key=lambda term: (-len(term), term))[:MOST_TERMS]
    return [term for term in terms if term in longest]


def together(common: Sequence[str], asked: int) -> list[tuple[str, ...]]:
    """Return the pairs of common words to ask for, given how many questions were asked already.

    ``common`` are the words with more matches than were named, most telling first.
    """
    pairs: list[tuple[str, ...]] = list(combinations(common, 2))
    return pairs[: max(0, MOST_ASKED - asked)]


def wider(full: Sequence[tuple[str, ...]], common: Sequence[str], asked: int) -> list[tuple[str, ...]]:
    """Return the triples to ask for: those that hold a pair which itself has more matches than were named."""
    found: dict[tuple[str, ...], None] = {}
    for pair in full:
        for term in common:
            if term not in pair:
                found[tuple(sorted((*pair, term)))] = None
    return list(found)[: max(0, MOST_ASKED - asked)]


def weights(found: Mapping[str, Sequence[Place]], full: Iterable[str]) -> dict[str, float]:
    """Return what each word tells about an event that has it, from where its matches lie.

    ``found`` holds the newest matches of each word, ``full`` names the words that have more. How many events there are is
    not known; the highest numbers that were seen in their sessions stand for it.
    """
    heads: dict[str, int] = {}
    for places in found.values():
        for session, seq in places:
            heads[session] = max(heads.get(session, 0), seq)
    total = max(sum(heads.values()), 1)
    fuller = frozenset(full)
    out = {}
    for term, places in found.items():
        covered = total
        if term in fuller:
            oldest: dict[str, int] = {}
            for session, seq in places:
                oldest[session] = min(oldest.get(session, seq), seq)
            covered = max(sum(heads[session] - seq + 1 for session, seq in oldest.items()), len(places))
        out[term] = weight(len(places), covered)
    return out


def weight(holding: int, among: int) -> float:
    """Return the weight of a word that ``holding`` of ``among`` events have."""
    return math.log(1 + (among - holding + 0.5) / (holding + 0.5)) + FLOOR


FLOOR: Final = 0.1
"""What even a word counts that stands everywhere."""


def chosen(held: Mapping[Place, Iterable[str]], weighed: Mapping[str, float], limit: int) -> list[Place]:
    """Return the places to load, at most ``limit``, the weightiest first.

    ``held`` has the newest places first; among equals the order stays.
    """
    if len(held) <= limit:
        return list(held)
    own = {place: sum(weighed[term] for term in terms) for place, terms in held.items()}

    def value(place: Place) -> float:
        session, seq = place
        beside = (own.get((session, seq + step), 0.0) for step in range(-BESIDE, BESIDE + 1) if step)
        return own[place] + BESIDE_SHARE * max(beside, default=0.0)

    return sorted(held, key=value, reverse=True)[:limit]
