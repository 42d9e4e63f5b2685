"""The large store: one long session, and a lineage of short ones whose events lie scattered between its own.

Marker words with a known number of hits stand in its texts: rare ones in twenty events, frequent ones in two of five. It
is written through the bulk path, a thousand events a commit, full text included, and shared by the goals that need it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from onward.bench.payloads import BODY_BYTES, Prose, event
from onward.bench.setting import Setting, open_at
from onward.core import ids as make
from onward.core.records import Link
from onward.library import Onward
from onward.store.contract import Append, Batch

SHARES: Final[dict[str, tuple[int, float]]] = {
    "rare": (20, 0.0),
    "middling": (20, 1 / 500),
    "common": (6, 1 / 10),
    "frequent": (3, 2 / 5),
}
"""Classes of marker words: how many words, and the share of events that hold each. Rare ones stand in ``RARE_HITS``."""

RARE_HITS: Final = 20
LINEAGE: Final = 5
CHUNK: Final = 1000

_LINEAGE_SHARE: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A store that was built, still open."""

    log: Onward
    path: Path
    long: str
    """The session of ``events`` events."""
    newest: str
    """The last session of the lineage."""
    events: int
    seconds: float
    """How long it took to write, full text included."""


def words(kind: str) -> list[str]:
    """Return the marker words of a class."""
    return [f"{kind}{chr(ord('a') + n)}x" for n in range(SHARES[kind][0])]


def build(setting: Setting) -> Corpus:
    """Write the large store into the folder of a run."""
    count = setting.size(1_000_000, 50_000, 3_000)
    path = setting.folder / "corpus.db"
    log = open_at(path)
    long = log.start("Long").id
    lineage = _lineage(log)
    prose = setting.prose
    marks = _rare_places(prose, count)
    others = [(word, share) for words_, share in _shared() for word in words_]
    start = time.perf_counter()
    for first in range(0, count, CHUNK):
        texts = [_text(prose, number, marks, others) for number in range(first, min(first + CHUNK, count))]
        _write(log, long, texts, first)
        side = lineage[prose.choose(len(lineage))]
        few = max(1, int(CHUNK * _LINEAGE_SHARE))
        _write(log, side, [_text(prose, -1, marks, others) for _ in range(few)], first)
    spent = time.perf_counter() - start
    # What follows measures a store that was opened, not one that has just written everything.
    log.close()
    return Corpus(log=open_at(path), path=path, long=long, newest=lineage[-1], events=count, seconds=spent)


def _shared() -> list[tuple[list[str], float]]:
    return [(words(kind), share) for kind, (_, share) in SHARES.items() if share]


def _rare_places(prose: Prose, count: int) -> dict[int, list[str]]:
    places: dict[int, list[str]] = {}
    for word in words("rare"):
        for _ in range(RARE_HITS):
            places.setdefault(prose.choose(count), []).append(word)
    return places


def _text(prose: Prose, number: int, marks: dict[int, list[str]], others: list[tuple[str, float]]) -> str:
    extra = [*marks.get(number, ()), *(word for word, share in others if prose.chance(share))]
    return f"{prose.text(BODY_BYTES - 40 - 8 * len(extra))} {' '.join(extra)}"


def _write(log: Onward, session: str, texts: list[str], turn: int) -> None:
    events = tuple(event(log.platform, text, turn + n) for n, text in enumerate(texts))
    log.platform.store.commit(Batch(appends=(Append(session_id=session, events=events),)))


def _lineage(log: Onward) -> list[str]:
    """Open sessions that continue one another. Only their links matter here, not what was handed over."""
    platform = log.platform
    sessions = [log.start(f"Lineage {n}").id for n in range(LINEAGE)]
    links = tuple(
        Link(
            id=platform.ids.new(make.LINK),
            type="continuation",
            from_session=before,
            to_session=after,
            created_at=platform.clock(),
            reason="phase_change",
        )
        for before, after in pairwise(sessions)
    )
    platform.store.commit(Batch(links=links))
    return sessions
