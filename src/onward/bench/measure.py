"""Measuring: contenders take turns, and what is reported is a ratio.

A time on its own says more about the machine than about the code, and two times that were taken one after the other say
how the machine changed in between. So contenders alternate in short stretches, one ratio is computed a repetition, and a
figure is the median of those ratios, with the smallest and the largest beside it.

It is deliberately no profiler and keeps no history: a figure is worth something only beside the baseline of its own run.
"""

from __future__ import annotations

import gc
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

Bound = Literal[">=", "<="]

_FLUSHES: Final = 200
_PAGE: Final = 4096


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure and what is asked of it."""

    goal: int
    what: str
    ratio: float | None = None
    """What the target speaks of: ``ours`` over ``baseline``. Where a goal is no ratio, the figure itself, in ``unit``."""
    target: float | None = None
    """None for a figure that only explains another one."""
    bound: Bound = ">="
    baseline: float | None = None
    ours: float | None = None
    unit: str = ""
    """The unit of ``baseline`` and ``ours``."""
    repetitions: int = 0
    spread: tuple[float, float] | None = None
    """The smallest and the largest ratio of a repetition."""
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the target is met; None where there is nothing to compare."""
        if self.ratio is None or self.target is None:
            return None
        return self.ratio >= self.target if self.bound == ">=" else self.ratio <= self.target


def compared(
    goal: int,
    what: str,
    *,
    ours: Sequence[float],
    baseline: Sequence[float],
    target: float | None,
    bound: Bound,
    unit: str,
    note: str = "",
) -> Figure:
    """Return the figure of two contenders: the median of ``ours / baseline`` repetition by repetition."""
    ratios = [a / b for a, b in zip(ours, baseline, strict=True)]
    return Figure(
        goal=goal,
        what=what,
        ratio=statistics.median(ratios),
        target=target,
        bound=bound,
        baseline=statistics.median(baseline),
        ours=statistics.median(ours),
        unit=unit,
        repetitions=len(ratios),
        spread=(min(ratios), max(ratios)),
        note=note,
    )


def absolute(
    goal: int,
    what: str,
    *,
    values: Sequence[float],
    target: float | None,
    bound: Bound,
    unit: str,
    baseline: Sequence[float] = (),
    note: str = "",
) -> Figure:
    """Return a figure that is no ratio: the median of ``values``, in ``unit``. A baseline is only shown beside it."""
    median = statistics.median(values)
    return Figure(
        goal=goal,
        what=what,
        ratio=median,
        target=target,
        bound=bound,
        baseline=statistics.median(baseline) if baseline else None,
        ours=median,
        unit=unit,
        repetitions=len(values),
        spread=(min(values), max(values)),
        note=note,
    )


def seconds(work: Callable[[], object]) -> float:
    """Return how long a call takes, in seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(
    first: Callable[[], float], second: Callable[[], float], repetitions: int
) -> list[tuple[float, float]]:
    """Run two contenders once a repetition, who begins changing every time. Return what each of them returned."""
    found = []
    for number in range(repetitions):
        gc.collect()
        if number % 2:
            other = second()
            found.append((first(), other))
        else:
            found.append((first(), second()))
    return found


def alternating(
    first: Callable[[], object],
    second: Callable[[], object],
    strides: int,
    *,
    between: Callable[[], object] | None = None,
) -> tuple[float, float]:
    """Call two contenders in strict alternation and return the seconds that each spent in all.

    A disk that changes its mind about the cost of a flush, for a second or for a minute, does so to both. ``between`` is
    called outside the clock, after each of them had its turn.
    """
    gc.collect()
    spent = [0.0, 0.0]
    for number in range(strides):
        for which in (number % 2, 1 - number % 2):
            spent[which] += seconds((first, second)[which])
        if between is not None:
            between()
    return spent[0], spent[1]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * share // 1) - 1)]


def machine(folder: Path) -> dict[str, object]:
    """Return what the figures depend on, with no name and no path of this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "cores": cores,
        "system": f"{sys.platform} {platform.machine()}",
        "fsync_us": round(flush_cost(folder) * 1e6),
    }


def flush_cost(folder: Path) -> float:
    """Return the median time of appending one page to a file and flushing it, in seconds: the floor of a commit."""
    flush = getattr(os, "fdatasync", os.fsync)
    spent = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(_FLUSHES):
            start = time.perf_counter()
            file.write(bytes(_PAGE))
            flush(file.fileno())
            spent.append(time.perf_counter() - start)
    return statistics.median(spent)


def line(figure: Figure) -> str:
    """Return a figure as one line of text."""
    head = f"{figure.goal:>2}  {figure.what}"
    if figure.ratio is None:
        return f"{head}: {figure.note}"
    absolute_unit = figure.unit if figure.baseline is None or figure.ratio == figure.ours else ""
    verdict = {True: "holds", False: "does not hold", None: "for comparison"}[figure.holds]
    target = f" (target {figure.bound} {_short(figure.target)})" if figure.target is not None else ""
    parts = [
        f"{head}: {_short(figure.ratio)}{f' {absolute_unit}' if absolute_unit else 'x'}{target} {verdict}"
    ]
    if figure.spread is not None:
        parts.append(f"n={figure.repetitions}, {_short(figure.spread[0])} to {_short(figure.spread[1])}")
    if figure.baseline is not None and figure.ours is not None:
        parts.append(f"{_short(figure.ours)} against {_short(figure.baseline)} {figure.unit}")
    if figure.note:
        parts.append(figure.note)
    return "; ".join(parts)


def as_json(figure: Figure) -> dict[str, object]:
    """Return a figure as the JSON document holds it."""
    return {
        "goal": figure.goal,
        "what": figure.what,
        "ratio": figure.ratio,
        "target": figure.target,
        "bound": figure.bound,
        "holds": figure.holds,
        "baseline": figure.baseline,
        "ours": figure.ours,
        "unit": figure.unit,
        "repetitions": figure.repetitions,
        "spread": list(figure.spread) if figure.spread is not None else None,
        "note": figure.note,
    }


def _short(value: float | None) -> str:
    """Three digits are what these figures are worth."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
