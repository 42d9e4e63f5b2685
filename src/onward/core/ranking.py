"""Ranking: which of the candidates of a search answer it best.

An event counts for the words of the question that it has: rare words more, a repeated word less each time, and a word in a
long text less than in a short one. Whoever has most of the words is worth more than whoever repeats one. What stands beside
a good hit is lifted by it, because the words around an answer are often in the events next to it; most of all the reply to a
question, which need not repeat a word of it. Then recency, the distance in the lineage, and the kind: what people and agents
said before tool output, tool output before imported records.

Every factor is a number below, chosen on the development half of ``onward bench ranking``. The same input gives the same
order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from onward.core import words
from onward.core.pooling import weight
from onward.core.stemming import stem

SCORED_CHARS: Final = 4000
"""Characters of an event that its score looks at."""
OCCURRENCES: Final = 64
"""How often a word of the question is looked for in one text, to choose what is shown of it."""
SATURATION: Final = 1.2
"""How soon repeating a word stops to count."""
LENGTH_SHARE: Final = 0.5
LENGTH: Final = 300
"""Characters of a text of usual length; ``LENGTH_SHARE`` of a word's count is divided by how much longer a text is."""
COVERAGE: Final = 0.9
"""The part of a score that depends on how much of the question an event has, by weight."""
NEIGHBOURS: Final = 3
"""How many events to each side can lift a hit."""
NEIGHBOUR_SHARE: Final = 0.15
"""What a neighbouring hit adds, of its own score, halved with each step away."""
REPLY_SHARE: Final = 0.85
"""What a question adds to the reply that follows it."""
REPLY_WITHIN: Final = 5
"""Events between a question and its reply: tools may have worked in between."""
ASKING: Final = 0.5
"""What a question is worth beside a statement: who searches wants the answer."""
RECENCY_SHARE: Final = 0.05
"""The difference between the newest and the oldest hit."""
DISTANCE_SHARE: Final = 0.02
"""What each step in the lineage costs."""
FARTHEST: Final = 10
KIND_WEIGHT: Final[dict[str, float]] = {
    "message": 1.0,
    "checkpoint": 0.95,
    "outcome": 0.9,
    "command": 0.8,
    "reasoning": 0.75,
    "context": 0.5,
    "tool_call": 0.85,
    "tool_result": 0.7,
    "terminal": 0.6,
    "raw": 0.3,
}

_LIFTS: Final = tuple((step, NEIGHBOUR_SHARE / 2 ** (step - 1)) for step in range(1, NEIGHBOURS + 1))
_rest_of_word: Final = re.compile(r"[^\W_]*")
_asks: Final = re.compile(r"[?？](?:[\s)\"'”’]|\Z)")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One event with what its score needs."""

    session: str
    seq: int
    at: int
    kind: str
    words: Mapping[str, int]
    """How often each word of the question stands in it; words it lacks are absent. Empty for a mere neighbour."""
    length: int = 1
    """Its length in characters."""
    actor: str = ""
    asks: bool = False
    """Whether it asks something, see ``is_asking``."""


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its score, higher is better."""

    candidate: Candidate
    score: float


def rank(
    candidates: Sequence[Candidate],
    terms: Sequence[str],
    distance: Mapping[str, int],
    weights: Mapping[str, float] | None = None,
) -> list[Scored]:
    """Order candidates, best first; ties go to the newer event. Those that neither have a word nor are lifted are left out.

    ``distance`` is the number of links to each session. ``weights`` says what each word tells; by default that is derived
    from the candidates themselves.
    """
    total = len(candidates)
    if weights is None:
        holding = {term: sum(1 for c in candidates if term in c.words) for term in terms}
        weights = {term: weight(held, total) for term, held in holding.items()}
    whole = sum(weights.get(term, 0.0) for term in terms) or 1.0
    own: dict[str, dict[int, float]] = {}
    for c in candidates:
        own.setdefault(c.session, {})[c.seq] = _own(c, weights, whole)
    replies = _replies(candidates, own)
    nearness = {
        session: max(0.2, 1 - DISTANCE_SHARE * min(distance.get(session, FARTHEST), FARTHEST))
        for session in own
    }
    scored = []
    for n, c in enumerate(sorted(candidates, key=lambda c: (c.at, c.session, c.seq))):
        beside = own[c.session]
        lift = replies.get((c.session, c.seq), 0.0)
        if beside[c.seq]:
            for step, share in _LIFTS:
                lift += max(beside.get(c.seq - step, 0.0), beside.get(c.seq + step, 0.0)) * share
        if not (beside[c.seq] or lift):
            continue  # it has none of the words, and no question before it has
        score = (beside[c.seq] * (ASKING if c.asks else 1.0) + lift) * KIND_WEIGHT.get(c.kind, 0.5)
        score *= (1 + RECENCY_SHARE * n / max(total - 1, 1)) * nearness[c.session]
        scored.append(Scored(candidate=c, score=round(score, 6)))
    scored.sort(key=lambda s: (-s.score, -s.candidate.at, s.candidate.session, -s.candidate.seq))
    return scored


def _own(candidate: Candidate, weights: Mapping[str, float], whole: float) -> float:
    """Return what an event scores by itself."""
    score = held = 0.0
    ease = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * candidate.length / LENGTH)
    for term, count in candidate.words.items():
        if count and (weighs := weights.get(term, 0.0)):
            score += weighs * count * (1 + SATURATION) / (count + ease)
            held += weighs
    return score * (1 - COVERAGE + COVERAGE * held / whole)


def _replies(
    candidates: Sequence[Candidate], own: Mapping[str, Mapping[int, float]]
) -> dict[tuple[str, int], float]:
    """Return what each reply gains from the question before it."""
    said = sorted((c.session, c.seq, c.actor, c.asks) for c in candidates if c.kind == "message")
    found = {}
    for (session, seq, actor, asks), (other, then, by, _) in pairwise(said):
        if asks and session == other and by != actor and then - seq <= REPLY_WITHIN:
            found[session, then] = own[session][seq] * REPLY_SHARE
    return found


def is_asking(text: str) -> bool:
    """Whether a text ends a sentence with a question mark, somewhere in its first characters."""
    return ("?" in text or "？" in text) and _asks.search(text, 0, SCORED_CHARS) is not None


def counted(text: str, terms: Sequence[str]) -> dict[str, int]:
    """Return how often each term stands in the first characters of a text, inflected forms included.

    A single character of an unspaced script stands in every word that begins with it, as it does for the index. Of terms
    with the same stem only the last is counted.
    """
    low = words.lower(words.index_text(text[:SCORED_CHARS]))
    out: dict[str, int] = {}
    for wanted, term in {stem(term): term for term in terms}.items():
        prefix = words.is_prefix(term)
        # All words with this stem begin so, and looking for that is much faster than cutting a text into words.
        begin = wanted if prefix else (wanted[:-1] or wanted)
        at, count = low.find(begin), 0
        while at >= 0:
            if at and low[at - 1].isalnum():
                end = at + 1
            else:
                end = _rest_of_word.match(low, at).end()  # type: ignore[union-attr]
                count += prefix or stem(low[at:end]) == wanted
            at = low.find(begin, end)
        if count:
            out[term] = count
    return out


def _densest(text: str, terms: Sequence[str], size: int) -> int:
    """Return where the stretch of ``size`` characters begins that is worth most: at one of the terms, else 0."""
    found: list[tuple[int, int]] = []
    worth: list[float] = []
    for number, term in enumerate(terms):
        beginning = stem(term)[:-1] or term
        places: list[int] = []
        at = text.find(beginning)
        while at >= 0 and len(places) < OCCURRENCES:
            places.append(at)
            at = text.find(beginning, at + 1)
        found += [(at, number) for at in places]
        worth.append(1 + 1 / (len(places) or 1))
    found.sort()
    held, total = [0] * len(terms), 0.0
    best, start, end = 0.0, 0, 0
    for at, number in found:
        while end < len(found) and found[end][0] < at + size:
            other = found[end][1]
            total += worth[other] if not held[other] else 0
            held[other] += 1
            end += 1
        if total > best + 1e-9:
            best, start = total, at
        held[number] -= 1
        total -= worth[number] if not held[number] else 0
    return start


def excerpt(text: str, terms: Sequence[str], limit: int) -> str:
    """Return the part of a text that has most of the terms, at most ``limit`` characters and the marks of what is cut.

    Of parts with equally many, the one with the terms that the text says least often; then the first.
    """
    if len(text) <= limit:
        return text
    start = max(0, _densest(text.lower(), terms, limit - limit // 4) - limit // 4)
    start = min(start, len(text) - limit)
    cut = text[start : start + limit]
    before = f"… {start:,} characters before … " if start else ""
    after = len(text) - start - limit
    return before + cut + (f" … {after:,} characters after …" if after > 0 else "")
