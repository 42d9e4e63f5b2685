"""Goals 1, 2 and 3: what it costs to append, durably.

The clock runs from the text to the commit that returned, so it includes making the event, its salt, digest and chain
value. A store reads its log into the full text in steps of at least 200 events. Goal 1, which is about commits, has that
done off the clock, and warms both contenders up; goal 3, which is about full text, leaves it on the clock of whoever
commits. Both have the same baseline: rows without full text.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from onward.bench.measure import Figure, absolute, alternating, compared, in_turns, seconds
from onward.bench.payloads import Prose, event, texts
from onward.bench.raw import RawLog
from onward.bench.setting import Setting, open_at
from onward.library import Onward
from onward.store.contract import Append, Batch
from onward.store.rules import INDEX_LAG

TURN: Final = 10
PRODUCERS: Final = 16

_STRIDE: Final = 10
"""Commits before it is the other contender's turn."""


class _Ours:
    """A store and a session to append to."""

    def __init__(self, folder: Path) -> None:
        self.log: Onward = open_at(folder / "ours.db")
        self.session = self.log.start("Measured").id
        self._turn = 0

    def append(self, said: list[str]) -> None:
        """Store messages in one durable commit."""
        self._turn += 1
        platform = self.log.platform
        events = tuple(event(platform, text, self._turn + n) for n, text in enumerate(said))
        platform.store.commit(Batch(appends=(Append(session_id=self.session, events=events),)))


def commits(setting: Setting) -> Iterator[Figure]:
    """Goal 1: one event a commit, and a turn of ten a commit, against raw rows."""
    for what, batch in (("append, one event a commit", 1), ("append, a turn of 10 a commit", TURN)):
        count = setting.size(500 if batch == 1 else 200, 100, 10)
        ours, raw = [], []
        for _ in range(setting.size(12, 4, 1)):
            mine, theirs, _ = _race(setting, count, batch, level=True)
            ours.append(count * batch / mine)
            raw.append(count * batch / theirs)
        yield compared(
            1, f"{what}, chain included", ours=ours, baseline=raw, target=0.8, bound=">=", unit="events/s"
        )


def producers(setting: Setting) -> Iterator[Figure]:
    """Goal 2: sixteen threads, each with a session of its own, against one raw writer; one event a commit."""
    each = setting.size(200, 60, 4)
    alone = setting.size(400, 100, 8)
    said = texts(setting.prose, PRODUCERS * each)

    def many() -> float:
        with setting.place() as folder, open_at(folder / "ours.db") as log:
            return PRODUCERS * each / _produce(log, said)

    def one() -> float:
        with setting.place() as folder:
            raw = RawLog(folder / "raw.db")

            def all_of_it() -> None:
                for text in islice(said, alone):
                    raw.append("s", (text,))

            spent = seconds(all_of_it)
            raw.close()
            return alone / spent

    rates = in_turns(many, one, setting.size(7, 3, 1))
    yield compared(
        2,
        f"append, {PRODUCERS} producers, against one raw writer",
        ours=[a for a, _ in rates],
        baseline=[b for _, b in rates],
        target=3.5,
        bound=">=",
        unit="events/s",
    )


def full_text(setting: Setting) -> Iterator[Figure]:
    """Goal 3: one event a commit over a long log, full text included, against raw rows without full text."""
    count = setting.size(1200, 400, 220)
    ours, raw, behind = [], [], []
    for _ in range(setting.size(4, 2, 1)):
        mine, theirs, lag = _race(setting, count, 1)
        ours.append(count / mine)
        raw.append(count / theirs)
        behind.append(float(lag))
    yield compared(
        3,
        "append with full text, against raw rows without",
        ours=ours,
        baseline=raw,
        target=0.7,
        bound=">=",
        unit="events/s",
    )
    yield absolute(
        3, "full text behind the log, at most", values=behind, target=INDEX_LAG, bound="<=", unit="events"
    )


def _race(setting: Setting, count: int, batch: int, *, level: bool = False) -> tuple[float, float, int]:
    """Append ``count`` times to both in turns. Return our seconds, theirs, and how far our index was behind at most.

    With ``level``, the index is brought up to date off the clock, before it is due.
    """
    prose: Prose = setting.prose
    with setting.place() as folder:
        ours, raw = _Ours(folder), RawLog(folder / "raw.db")
        said = [texts(prose, batch) for _ in range(count + _STRIDE)]
        mine, theirs = iter(said), iter(said)
        lag = 0

        def we() -> None:
            for some in islice(mine, _STRIDE):
                ours.append(some)

        def they() -> None:
            for some in islice(theirs, _STRIDE):
                raw.append("s", some)

        def look() -> None:
            nonlocal lag
            lag = max(lag, ours.log.platform.store.index_lag())
            if level:
                ours.log.search("anything")

        with ours.log:
            we()  # what happens once a store is no part of what a commit costs
            they()
            look()
            spent = alternating(we, they, -(-count // _STRIDE), between=look)
        raw.close()
        return (*spent, lag)


def _produce(log: Onward, said: list[str]) -> float:
    """Let sixteen threads append all texts, one event a commit. Return the seconds from the first to the last."""
    platform = log.platform
    sessions = [log.start(f"Producer {n}").id for n in range(PRODUCERS)]
    each = len(said) // PRODUCERS
    start = threading.Barrier(PRODUCERS + 1)
    failed: list[BaseException] = []

    def produce(number: int) -> None:
        try:
            start.wait()
            for turn, text in enumerate(said[number * each : (number + 1) * each]):
                append = Append(session_id=sessions[number], events=(event(platform, text, turn),))
                platform.store.commit(Batch(appends=(append,)))
        except BaseException as error:  # noqa: BLE001 (it is raised again below, on the thread that measures)
            failed.append(error)

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(PRODUCERS)]
    for thread in threads:
        thread.start()

    def all_of_it() -> None:
        start.wait()
        for thread in threads:
            thread.join()

    spent = seconds(all_of_it)
    if failed:
        raise failed[0]
    return spent
