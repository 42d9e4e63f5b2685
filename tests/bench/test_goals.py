"""Every goal runs, says what it measured and comes to a verdict. How fast anything was is nobody's business here."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest

from onward.bench import main
from onward.bench.importing import _Opened
from onward.bench.main import GOALS, Goal
from onward.bench.measure import Figure, as_json
from onward.errors import InvalidInput

BUILT = [goal for goal in GOALS if goal.where]

# How many figures have a target, by goal: what the design asks for.
TARGETS = {1: 2, 2: 1, 3: 2, 4: 3, 5: 2, 6: 2, 7: 4, 8: 2, 9: 2, 10: 1, 11: 1}


def test_every_goal_of_the_design_is_listed_once() -> None:
    assert [goal.number for goal in GOALS] == list(range(1, 12))
    assert {goal.number for goal in BUILT} == TARGETS.keys()


@pytest.mark.parametrize("goal", BUILT, ids=lambda goal: f"goal {goal.number}")
def test_a_goal_runs_and_comes_to_a_verdict(goal: Goal, tmp_path: Path) -> None:
    figures = list(main.figures([goal], tmp_path, "tiny"))

    assert sum(figure.target is not None for figure in figures) == TARGETS[goal.number]
    assert len({figure.what for figure in figures}) == len(figures)
    for figure in figures:
        assert figure.goal == goal.number
        assert figure.repetitions > 0
        assert figure.ratio is not None
        assert math.isfinite(figure.ratio)
        if figure.target is not None:
            assert figure.holds in (True, False)
            assert figure.spread is not None
            assert figure.spread[0] <= figure.ratio <= figure.spread[1]


def test_what_a_goal_needs_on_disk_is_gone_afterwards(tmp_path: Path) -> None:
    list(main.figures([BUILT[0]], tmp_path, "tiny"))

    assert list(tmp_path.iterdir()) == []


def test_goals_that_share_a_store_build_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onward.bench import corpus

    built = []
    build = corpus.build
    monkeypatch.setattr(corpus, "build", lambda setting: built.append(setting) or build(setting))

    list(main.figures([goal for goal in GOALS if goal.number in (4, 6)], tmp_path, "tiny"))

    assert len(built) == 1


def test_a_goal_that_is_not_built_says_so_and_has_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    later = Goal(number=12, about="something for later", where=None)
    monkeypatch.setattr(main, "GOALS", (*GOALS, later))

    assert main.run([str(later.number)], json=False, quick=True) == 0

    assert f"{later.number}  {later.about}: not built yet" in capsys.readouterr().out


def test_a_name_that_is_no_goal_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"goal '12' is not valid: there are 1, 2, 3"):
        main.run(["1", "12"], json=False, quick=True)


@pytest.mark.parametrize(("ratio", "status"), [(0.9, 0), (0.7, 1)])
def test_the_answer_is_0_only_when_every_target_is_met(
    ratio: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "figures", lambda *_: iter([figure(ratio=ratio)]))

    assert main.run([], json=True, quick=True) == status

    document = json.loads(capsys.readouterr().out)
    assert document["goals"][0]["holds"] is (status == 0)


def test_json_is_one_document_with_figures_and_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(main, "figures", lambda *_: iter([figure(), figure(ratio=0.5)]))

    main.run([], json=True, quick=True)

    document = json.loads(capsys.readouterr().out)
    assert document.keys() == {"goals", "machine"}
    assert [list(one) for one in document["goals"]] == [list(as_json(figure()))] * 2
    assert document["goals"][0].keys() >= {
        "goal", "what", "ratio", "target", "holds", "baseline", "ours", "unit", "repetitions", "spread",
    }  # fmt: skip
    assert document["machine"].keys() == {"python", "sqlite", "cores", "system", "fsync_us"}
    assert "/" not in msgspec.json.encode(document["machine"]).decode()


def test_opens_of_native_files_are_counted_only_while_somebody_listens(tmp_path: Path) -> None:
    (native := tmp_path / "a.jsonl").write_bytes(b"{}\n")
    (other := tmp_path / "a.db").write_bytes(b"")

    with _Opened(tmp_path) as opened:
        native.read_bytes()
        native.read_bytes()
        other.read_bytes()
    native.read_bytes()

    assert opened.times == {str(native): 2}


def figure(**changes: object) -> Figure:
    given = Figure(
        goal=1, what="append", ratio=0.9, target=0.8, baseline=2.0, ours=1.8, unit="s", repetitions=3, spread=(0.8, 1)
    )  # fmt: skip
    return msgspec.structs.replace(given, **changes)
