"""Ranking: which of the newest matches of a search answer it best.

The store gives matches, newest first; here they get a score. A hit counts for the rare words of the query that it has;
hits next to it lift it (the words around an answer are often in the events beside it); then recency, the distance in the
lineage, and the kind: what people and agents said before tool output, tool output before imported records. Every factor is
explained by a number below, and the same input gives the same order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from onward.core import words

SCORED_CHARS: Final = 4000
"""Characters of an event that its score looks at."""
NEIGHBOURS: Final = 3
"""How many events to each side can lift a hit."""
NEIGHBOUR_SHARE: Final = 0.35
"""What a neighbouring hit adds, of its own score, halved with each step away."""
_LIFTS: Final = tuple((step, NEIGHBOUR_SHARE / 2 ** (step - 1)) for step in range(1, NEIGHBOURS + 1))
RECENCY_SHARE: Final = 0.15
"""The difference between the newest and the oldest hit."""
DISTANCE_SHARE: Final = 0.08
"""What each step in the lineage costs."""
KIND_WEIGHT: Final[dict[str, float]] = {
    "message": 1.0,
    "checkpoint": 0.95,
    "outcome": 0.9,
    "command": 0.8,
    "reasoning": 0.75,
    "context": 0.5,
    "tool_call": 0.8,
    "tool_result": 0.7,
    "terminal": 0.6,
    "raw": 0.3,
}


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One match with what its score needs."""

    session: str
    seq: int
    at: int
    kind: str
    words: Mapping[str, int]
    """How often each word of the query stands in it; words it lacks are absent."""
    length: int = 1
    """Its length in characters."""


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its score, higher is better."""

    candidate: Candidate
    score: float


def rank(candidates: Sequence[Candidate], terms: Sequence[str], distance: Mapping[str, int]) -> list[Scored]:
    """Order candidates, best first. ``distance`` is the number of links to each session; ties go to the newer event."""
    if not candidates:
        return []
    total = len(candidates)
    holding = {t: sum(1 for c in candidates if t in c.words) for t in terms}
    weight = {t: math.log(1 + total / (1 + holding[t])) + 0.2 for t in terms}
    own: dict[str, dict[int, float]] = {}
    for c in candidates:
        own.setdefault(c.session, {})[c.seq] = _own(c, weight)
    nearness = {session: max(0.2, 1 - DISTANCE_SHARE * distance.get(session, 10)) for session in own}
    scored = []
    for n, c in enumerate(sorted(candidates, key=lambda c: (c.at, c.session, c.seq))):
        beside = own[c.session]
        lift = 0.0
        for step, share in _LIFTS:
            lift += max(beside.get(c.seq - step, 0.0), beside.get(c.seq + step, 0.0)) * share
        score = (beside[c.seq] + lift) * (1 + RECENCY_SHARE * n / max(total - 1, 1))
        score *= nearness[c.session] * KIND_WEIGHT.get(c.kind, 0.5)
        scored.append(Scored(candidate=c, score=round(score, 6)))
    scored.sort(key=lambda s: (-s.score, -s.candidate.at, s.candidate.session, -s.candidate.seq))
    return scored


def _own(candidate: Candidate, weight: Mapping[str, float]) -> float:
    """Return what an event scores by itself: rare words count more, repetitions less each time, long texts a little less."""
    score, held = 0.0, 0
    for term, count in candidate.words.items():
        if count and term in weight:
            score += weight[term] * (1 + math.log(count))
            held += 1
    coverage = held / max(len(weight), 1)
    return score * (0.5 + 0.5 * coverage) / (1 + math.log1p(candidate.length / 2000) * 0.25)


def stem(word: str) -> str:
    """Return a word without its commonest English endings: enough to meet what a stemming index has matched."""
    for ending in ("ingly", "edly", "ing", "ies", "ed", "es", "ly", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word.removesuffix("e") if len(word) > 3 else word


def counted(text: str, terms: Sequence[str]) -> dict[str, int]:
    """Return how often each term stands in the first characters of a text, inflected forms included.

    A stem is how every word begins that it is the stem of, so only words that begin with one of the stems are looked at.
    """
    wanted = {stem(t): t for t in terms}
    low = words.lower(words.index_text(text[:SCORED_CHARS]))
    out: dict[str, int] = {}
    for found in _to_the_end_of_a_word(tuple(wanted)).finditer(low):
        start = found.start()
        if start and low[start - 1].isalnum():
            continue
        term = wanted.get(stem(found[0]))
        if term is not None:
            out[term] = out.get(term, 0) + 1
    return out


@lru_cache(maxsize=64)
def _to_the_end_of_a_word(stems: tuple[str, ...]) -> re.Pattern[str]:
    """Return what finds these stems with the rest of the word behind them.

    It does not look at what stands before them, for that would keep the search from leaping to the next likely place.
    """
    return re.compile(rf"(?:{'|'.join(map(re.escape, stems))})[^\W_]*")


def excerpt(text: str, terms: Sequence[str], limit: int) -> str:
    """Return the part of a text around the first term, at most ``limit`` characters and the marks of what is cut."""
    if len(text) <= limit:
        return text
    low = text.lower()
    places = [at for t in terms if (at := low.find(stem(t))) >= 0]
    start = max(0, min(places, default=0) - limit // 4)
    start = min(start, len(text) - limit)
    cut = text[start : start + limit]
    before = f"… {start:,} characters before … " if start else ""
    after = len(text) - start - limit
    return before + cut + (f" … {after:,} characters after …" if after > 0 else "")
