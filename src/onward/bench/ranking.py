"""``onward bench ranking``: how much of the evidence a search finds, beside plain BM25 on the same events.

Recall at k is the share of questions whose one evidence event is among the first k hits. Conversations and questions are
made up (``conversations.py``), so everyone can run this, and the figures compare with each other only. Two baselines
answer the same questions over the same lineages, each with an index of that lineage alone and no bound on what it ranks:

- ``bm25``: FTS5 with stemming and its own ``bm25()``, any word of the question, texts as they are;
- ``bm25, our words``: the same over words as ``core.words`` cuts them, without stop words. What is left between this one and
  ours is ranking.

The constants of the ranking were chosen on the development half; the held-out half has other subjects, statements and
questions, and a seed that was used for nothing else. Both are printed. It is deliberately no measurement of speed.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from onward.bench.conversations import KINDS, Conversations, Question, Shape, written
from onward.bench.measure import seconds
from onward.core import words
from onward.core.codec import searchable_text
from onward.service import embedding, searching
from onward.service.platform import Platform
from onward.store.contract import Store
from onward.store.sqlite import SqliteStore

DEPTHS: Final = (5, 10, 25)
HALVES: Final = (("development", 0, 11), ("held-out", 1, 20_261))
"""Name, half of the tables, and seed."""
BETTER: Final = 1.3
"""The target: recall at 10 on the held-out half, against plain BM25."""
ALL: Final = "all"
OURS: Final = "onward"
BASELINES: Final = ("bm25", "bm25, our words")

Ask = Callable[[Question], Sequence[str]]
"""Answers a question with the ids of events, best first."""


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """What one contender found of one class of questions."""

    contender: str
    kind: str
    questions: int
    at: tuple[float, ...]
    """The share found, at each of ``DEPTHS``."""


class Superseding(msgspec.Struct, frozen=True, kw_only=True):
    """What the hits of all questions said about replaced values."""

    right: int
    """Hits with a replaced value that named the event that replaced it."""
    missed: int
    """Hits with a replaced value that named nothing."""
    wrong: int
    """Hits of messages that named another event, or whose value was never replaced."""


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured on one half."""

    name: str
    seed: int
    lineages: int
    sessions: int
    events: int
    questions: int
    recalls: tuple[Recall, ...]
    superseding: Superseding
    search_ms: float
    """The median time of a search, for orientation."""

    def recall(self, contender: str, depth: int, kind: str = ALL) -> float:
        """Return one figure."""
        found = next(r for r in self.recalls if (r.contender, r.kind) == (contender, kind))
        return found.at[DEPTHS.index(depth)]


def run(*, json: bool, quick: bool) -> int:
    """Measure both halves and print them. Return 0 when the target is met on the held-out half, 1 otherwise."""
    halves = [measured(name, half, seed, shape(quick=quick)) for name, half, seed in HALVES]
    ratio = halves[-1].recall(OURS, 10) / max(halves[-1].recall(BASELINES[0], 10), 1e-9)
    if json:
        document = {
            "depths": DEPTHS,
            "halves": halves,
            "ratio_at_10": ratio,
            "target": BETTER,
            "holds": ratio >= BETTER,
        }
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")
    else:
        for half in halves:
            sys.stdout.write("\n".join(table(half)) + "\n\n")
        verdict = "holds" if ratio >= BETTER else "does not hold"
        sys.stdout.write(
            f"recall@10 on the held-out half: {ratio:.2f}x plain BM25 (target >= {BETTER}) {verdict}\n"
        )
    return 0 if ratio >= BETTER else 1


def shape(*, quick: bool) -> Shape:
    """Return how much is made."""
    return Shape(lineages=2, sessions=4, events=500) if quick else Shape()


def measured(name: str, half: int, seed: int, size: Shape) -> Half:
    """Make the conversations of a half and put every question to every contender."""
    with tempfile.TemporaryDirectory(prefix="onward-bench-") as folder:
        store = SqliteStore(Path(folder, "ranking.db"), synchronous="NORMAL")
        try:
            made = written(store, seed=seed, half=half, shape=size)
            platform = Platform(store=store)
            times: list[float] = []
            hits: dict[str, str | None] = {}
            contenders: dict[str, Ask] = {
                BASELINES[0]: _bm25(store, made, _plain_text, _plain_terms),
                BASELINES[1]: _bm25(store, made, words.index_text, words.query_terms),
                OURS: _ours(platform, times, hits),
            }
            if (embedder := embedding.configured()) is not None:
                # Without a model there is nothing to report; with one, ``onward`` is measured without it as well.
                contenders[f"{OURS}, {embedder.name}"] = contenders[OURS]
                contenders[OURS] = _ours(platform, times, hits, embedder=_Unmoved())
            recalls = [r for name, ask in contenders.items() for r in recalled(name, made.questions, ask)]
            return Half(
                name=name,
                seed=seed,
                lineages=len(made.lineages),
                sessions=sum(map(len, made.lineages)),
                events=made.events,
                questions=len(made.questions),
                recalls=tuple(recalls),
                superseding=_judged(store, made, hits),
                search_ms=statistics.median(times) * 1000,
            )
        finally:
            store.close()


def recalled(contender: str, questions: Sequence[Question], ask: Ask) -> Iterator[Recall]:
    """Put all questions to a contender and yield what it found, for each class and for all of them."""
    places: dict[str, list[int]] = {kind: [] for kind in (*KINDS, ALL)}
    for question in questions:
        found = list(ask(question))
        place = found.index(question.evidence) if question.evidence in found else max(DEPTHS)
        places[question.kind].append(place)
        places[ALL].append(place)
    for kind, some in places.items():
        if some:
            at = tuple(sum(place < depth for place in some) / len(some) for depth in DEPTHS)
            yield Recall(contender=contender, kind=kind, questions=len(some), at=at)


def table(half: Half) -> list[str]:
    """Return the figures of a half as lines of text."""
    contenders = list(dict.fromkeys(r.contender for r in half.recalls))
    head = f"{'questions':<16}" + "".join(f"{name:>22}" for name in contenders)
    deep = " / ".join(f"@{depth}" for depth in DEPTHS)
    lines = [
        (
            f"{half.name} half, seed {half.seed}: {half.questions} questions over {half.lineages} lineages, "
            f"{half.sessions} sessions, {half.events:,} events; recall {deep} in per cent"
        ),
        head,
    ]
    for kind in (*KINDS, ALL):
        row = [r for r in half.recalls if r.kind == kind]
        if row:
            cells = (" / ".join(f"{100 * share:.0f}" for share in r.at) for r in row)
            lines.append(f"{kind:<10}{row[0].questions:>6}" + "".join(f"{cell:>22}" for cell in cells))
    verdicts = half.superseding
    lines.append(
        f"superseded hits: {verdicts.right} named rightly, {verdicts.missed} missed, {verdicts.wrong} wrong; "
        f"a search took {half.search_ms:.0f} ms (median)"
    )
    return lines


class _Unmoved:
    """An embedder to which all texts are alike, so that it changes no order: it stands in for having none."""

    name = "none"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]


def _ours(
    platform: Platform,
    times: list[float],
    hits: dict[str, str | None],
    embedder: embedding.Embedder | None = None,
) -> Ask:
    def ask(question: Question) -> Sequence[str]:
        found: list[searching.Hit] = []

        def search() -> None:
            answer = searching.find(
                platform,
                question.text,
                session_id=question.session,
                limit=max(DEPTHS),
                embedder=embedder,
            )
            found.extend(answer.hits)

        times.append(seconds(search))
        hits.update((hit.event, hit.superseded_by) for hit in found)
        return [hit.event for hit in found]

    return ask


def _bm25(
    store: Store,
    made: Conversations,
    prepared: Callable[[str], str],
    cut: Callable[[str], Sequence[str]],
) -> Ask:
    indexes = {lineage[-1]: _index(store, lineage, prepared) for lineage in made.lineages}

    def ask(question: Question) -> Sequence[str]:
        wanted = " OR ".join(f'"{term}"' for term in dict.fromkeys(cut(question.text)))
        rows = indexes[question.session].execute(
            "SELECT event FROM said WHERE said MATCH ? ORDER BY bm25(said), rowid DESC LIMIT ?",
            (wanted, max(DEPTHS)),
        )
        return [event for (event,) in rows]

    return ask


def _index(store: Store, lineage: Sequence[str], prepared: Callable[[str], str]) -> sqlite3.Connection:
    index = sqlite3.connect(":memory:")
    index.execute(
        "CREATE VIRTUAL TABLE said USING fts5 (event UNINDEXED, text, tokenize = 'porter unicode61')"
    )
    for session in lineage:
        for event in store.scan(session):
            if text := searchable_text(event.kind, event.body):
                index.execute("INSERT INTO said (event, text) VALUES (?, ?)", (event.id, prepared(text)))
    return index


def _plain_text(text: str) -> str:
    return text


def _plain_terms(text: str) -> list[str]:
    """Return the words of a question as the index cuts them, stop words included."""
    return "".join(c if c.isalnum() else " " for c in text).split()


def _judged(store: Store, made: Conversations, hits: dict[str, str | None]) -> Superseding:
    """Compare what hits named with what is known. Files that were read again are no part of it."""
    right = missed = wrong = 0
    for event_id, named in hits.items():
        known = made.replaced.get(event_id)
        if known is not None:
            right += named == known
            missed += named is None
            wrong += named not in (None, known)
        elif named is not None:
            event = store.event(event_id)
            wrong += event is not None and event.kind == "message"
    return Superseding(right=right, missed=missed, wrong=wrong)
