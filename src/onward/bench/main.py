"""``onward bench``: run the goals that were asked for and print what was measured.

Every figure is a line as soon as it is known, or all of them are one JSON document. The answer of ``run`` says whether
everything that has a target met it, so a script can ask. A measurement writes only below a temporary folder.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

from onward.bench.measure import Figure, as_json, line, machine
from onward.bench.setting import Scale, Setting
from onward.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Goal:
    """One goal of the design: what it is about, and where it is measured."""

    number: int
    about: str
    where: str | None
    """``module:function`` in this package; None while what it is about does not exist."""

    def figures(self, setting: Setting) -> Iterator[Figure]:
        """Measure it."""
        if self.where is None:
            yield Figure(goal=self.number, what=self.about, note="not built yet")
            return
        module, _, function = self.where.partition(":")
        measure: Callable[[Setting], Iterator[Figure]] = getattr(
            import_module(f"onward.bench.{module}"), function
        )
        yield from measure(setting)


GOALS: Final = (
    Goal(number=1, about="append, one commit", where="appending:commits"),
    Goal(number=2, about="sixteen producers", where="appending:producers"),
    Goal(number=3, about="append with full text", where="appending:full_text"),
    Goal(number=4, about="a million events against a thousand", where="growing:growth"),
    Goal(number=5, about="import", where="importing:imports"),
    Goal(number=6, about="search over a million events", where="searching:search"),
    Goal(number=7, about="events over SSE", where="streaming:streams"),
    Goal(number=8, about="start-up", where="starting:start_up"),
    Goal(number=9, about="sixteen writer processes", where="competing:competition"),
    Goal(number=10, about="disk", where="keeping:disk"),
    Goal(number=11, about="the longest stall of an event loop", where="stalling:stalls"),
)


def run(names: Sequence[str], *, json: bool, quick: bool, quality: bool = False) -> int:
    """Measure the goals with these numbers, or all of them, and print the figures.

    Return 0 when every figure meets its target and 1 otherwise. ``ranking`` alone measures what a search finds instead of
    how fast it is; with ``quality`` it is how well a small model goes on from a projection (``contexts``) or takes over from
    another engine (``waking``). Raises InvalidInput for a name that is none.
    """
    if quality:
        from onward.bench import quality as answering

        return answering.run(names, json=json, quick=quick)
    if list(names) == ["ranking"]:
        from onward.bench import ranking

        return ranking.run(json=json, quick=quick)
    chosen = _chosen(names)
    measured: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="onward-bench-") as place:
        folder = Path(place)
        conditions = machine(folder)
        if not json:
            sys.stdout.write(", ".join(f"{name} {value}" for name, value in conditions.items()) + "\n")
        for figure in figures(chosen, folder, "quick" if quick else "full"):
            measured.append(figure)
            if not json:
                sys.stdout.write(line(figure) + "\n")
                sys.stdout.flush()
    if json:
        document = {"goals": [as_json(figure) for figure in measured], "machine": conditions}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")
    return 0 if all(figure.holds is not False for figure in measured) else 1


def figures(goals: Sequence[Goal], folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure goals one after the other, in one setting."""
    setting = Setting(folder=folder, scale=scale)
    try:
        for goal in goals:
            yield from goal.figures(setting)
    finally:
        setting.close()


def _chosen(names: Sequence[str]) -> tuple[Goal, ...]:
    known = {str(goal.number): goal for goal in GOALS}
    if unknown := [name for name in names if name not in known]:
        raise InvalidInput(what=f"goal {unknown[0]!r}", why=f"there are {', '.join(known)}")
    return tuple(goal for name, goal in known.items() if not names or name in names)
