"""Goal 6: searching a million events costs about the same for any word, and less within a lineage.

What is measured is ``search`` as people call it: index, loading, ranking and excerpts. Words that only a few events hold
are the baseline. A 95th percentile below 3 ms holds whatever its ratio, because nobody can tell it from less, so the
baseline counts as at least a fifth of that.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Final

from onward.bench.corpus import SHARES, words
from onward.bench.measure import Figure, percentile, seconds
from onward.bench.setting import Setting

MOST: Final = 5.0
FLOOR_MS: Final = 3.0


def search(setting: Setting) -> Iterator[Figure]:
    """Measure every class of words, over the whole account and within a lineage."""
    corpus = setting.corpus
    log = corpus.log
    rounds = setting.size(10, 5, 1)

    def times(kind: str, ask: Callable[[str], object]) -> list[float]:
        ask(words(kind)[0])
        return [seconds(lambda word=word: ask(word)) * 1000 for _ in range(rounds) for word in words(kind)]  # type: ignore[misc]

    over_all = {kind: times(kind, log.search) for kind in SHARES}
    within = {kind: times(kind, lambda word: log.search(word, session_id=corpus.newest)) for kind in SHARES}

    p95 = {kind: percentile(spent, 0.95) for kind, spent in over_all.items()}
    rare = max(p95["rare"], FLOOR_MS / MOST)
    worst = max(p95, key=lambda kind: p95[kind])
    yield Figure(
        goal=6,
        what=f"search over {corpus.events:,} events, p95 of the slowest kind of word against a rare one",
        ratio=p95[worst] / rare,
        target=MOST,
        bound="<=",
        baseline=p95["rare"],
        ours=p95[worst],
        unit="ms",
        repetitions=rounds,
        spread=(min(p95.values()) / rare, max(p95.values()) / rare),
        note=", ".join(f"{kind} {value:.2g} ms" for kind, value in p95.items()),
    )
    middle = {kind: statistics.median(within[kind]) / statistics.median(over_all[kind]) for kind in SHARES}
    slowest = max(middle, key=lambda kind: middle[kind])
    yield Figure(
        goal=6,
        what="search within a lineage against the whole account, median of the slowest kind of word",
        ratio=middle[slowest],
        target=1.0,
        bound="<=",
        baseline=statistics.median(over_all[slowest]),
        ours=statistics.median(within[slowest]),
        unit="ms",
        repetitions=rounds,
        spread=(min(middle.values()), max(middle.values())),
        note=f"slowest: {slowest} words",
    )
