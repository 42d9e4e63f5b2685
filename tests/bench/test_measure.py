"""How figures come about: turns, medians, verdicts, lines."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.bench import native
from onward.bench.measure import Figure, absolute, alternating, compared, in_turns, line, percentile
from onward.bench.payloads import BODY_BYTES, Prose, body, texts
from onward.importers.claude_rows import row_of

rates = st.floats(min_value=0.001, max_value=1e6)


def test_contenders_take_turns_and_who_begins_changes() -> None:
    order: list[str] = []
    numbers = iter(range(100))

    def contender(name: str) -> float:
        order.append(name)
        return next(numbers)

    pairs = in_turns(lambda: contender("a"), lambda: contender("b"), 3)

    assert order == ["a", "b", "b", "a", "a", "b"]
    assert pairs == [(0, 1), (3, 2), (4, 5)]


def test_strides_alternate_and_what_lies_between_is_off_the_clock() -> None:
    order: list[str] = []

    spent = alternating(
        lambda: order.append("a"), lambda: order.append("b"), 3, between=lambda: order.append("|")
    )

    assert "".join(order) == "ab|ba|ab|"
    assert all(seconds >= 0 for seconds in spent)


@given(st.lists(st.tuples(rates, rates), min_size=1, max_size=9), st.randoms())
def test_a_ratio_is_the_median_over_repetitions_in_any_order(
    pairs: list[tuple[float, float]], rng: random.Random
) -> None:
    def measured() -> Figure:
        return compared(
            1, "x", ours=[a for a, _ in pairs], baseline=[b for _, b in pairs], target=1, bound=">=", unit=""
        )

    first = measured()
    rng.shuffle(pairs)

    assert measured() == first
    assert first.ratio == statistics.median(a / b for a, b in pairs)
    assert first.repetitions == len(pairs)


@pytest.mark.parametrize(
    ("bound", "ratio", "holds"),
    [(">=", 0.8, True), (">=", 0.79, False), ("<=", 0.8, True), ("<=", 0.81, False)],
)
def test_a_target_is_met_at_its_very_value(bound: str, ratio: float, holds: bool) -> None:
    assert Figure(goal=1, what="x", ratio=ratio, target=0.8, bound=bound).holds is holds


def test_a_figure_without_a_target_has_no_verdict() -> None:
    assert Figure(goal=1, what="x", ratio=0.5).holds is None
    assert Figure(goal=1, what="x", target=0.5).holds is None


def test_a_line_says_goal_ratio_target_verdict_number_and_spread() -> None:
    figure = compared(
        3, "append", ours=[75, 80], baseline=[100, 100], target=0.8, bound=">=", unit="events/s"
    )

    assert line(figure) == (
        " 3  append: 0.775x (target >= 0.8) does not hold; n=2, 0.75 to 0.8; 77.5 against 100 events/s"
    )


def test_a_line_of_a_figure_that_is_no_ratio_names_its_unit() -> None:
    figure = absolute(9, "wait", values=[42.0], target=100, bound="<=", unit="ms", baseline=[40.0])

    assert line(figure) == " 9  wait: 42 ms (target <= 100) holds; n=1, 42 to 42; 42 against 40 ms"


@given(st.lists(st.integers(), min_size=1, max_size=50), st.floats(min_value=0.01, max_value=1))
def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed(
    values: list[int], share: float
) -> None:
    found = percentile(values, share)

    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)


def test_payloads_are_the_same_every_time_and_of_the_size_they_should_have() -> None:
    one, other = texts(Prose(), 200), texts(Prose(), 200)

    assert one == other
    assert len(set(one)) == len(one)
    assert 0.9 < statistics.mean(len(body(text, 0)) for text in one) / BODY_BYTES < 1.1


def test_native_files_are_the_same_every_time_and_every_row_is_one_the_importer_reads(tmp_path: Path) -> None:
    written = [native.write(tmp_path / name, Prose(), files=2, size=20_000) for name in ("a", "b")]
    files = [sorted((tmp_path / name).rglob("*.jsonl")) for name in ("a", "b")]

    assert written[0] == written[1]
    assert [f.read_bytes() for f in files[0]] == [f.read_bytes() for f in files[1]]
    for file in files[0]:
        rows = [row_of(row) for row in file.read_bytes().splitlines()]
        assert {row.type for row in rows} == {"user", "assistant"}
        assert len({row.uuid for row in rows}) == len(rows)
        assert {row.session for row in rows} == {file.stem}
