"""A conversation is cut off as in life, and another engine is asked about it through the platform.

An engine that answers if and only if the statement is in front of it stands in for the model, so what it gets right is
exactly what it was given, and everything is the same in every run.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from onward.bench import main, quality, waking
from onward.bench.quality import Models
from onward.bench.quality_scenes import SCENES, Fact, Scene
from onward.bench.quality_scoring import declines, mentions, pretends, remembers, states
from onward.bench.quality_talk import opened
from onward.bench.waking import CONDITIONS, INSTRUCTION, Waking, evaluate, table
from onward.bench.waking_cutting import AGAIN, LAST_ASK, LAST_WORDS, Work, again, cut_off
from onward.core.bodies import Message, ToolCall, ToolResult
from onward.core.brief import PREAMBLE
from onward.core.budget import CharsCounter
from onward.core.codec import body_of, flat
from onward.core.events import Event
from onward.core.lines import said
from onward.engines.contract import Capabilities, Turn
from onward.engines.local import chat_messages
from onward.engines.script import Fail, Say, ScriptEngine, Step
from onward.errors import EngineError

COUNTER = CharsCounter()
UNKNOWN = "That is not in the notes."
SCENE = SCENES[0]
SHORT = msgspec.structs.replace(SCENE, exchanges=2, beats=SCENE.beats[:2])


class Witness:
    """Answers what is in front of it, refuses what exceeds a number of characters, and keeps every turn."""

    def __init__(self, most: int | None = None) -> None:
        self.turns: list[Turn] = []
        self._most = most
        able = Capabilities(streaming=True, window=4096)
        self.engine = ScriptEngine(script=self._script, capabilities=able)

    def _script(self, turn: Turn) -> Iterator[Step]:
        self.turns.append(turn)
        context = "\n".join(told["content"] for told in chat_messages("", (*turn.history,))) + turn.input
        if self._most is not None and len(context) > self._most:
            yield Fail(reason=f"{len(context)} characters are too many")
            return
        fact = asked_in(turn)
        yield Say(text=fact.answers[0] if states(context, fact) else UNKNOWN)


def asked_in(turn: Turn) -> Fact:
    return next(fact for scene in SCENES for fact in scene.facts if turn.input.endswith(fact.asks))


@cache
def measured() -> tuple[Waking, Witness]:
    witness = Witness()
    return evaluate(witness.engine, (SCENE,)), witness


def of(condition: str) -> list[tuple[waking.Woken, Turn]]:
    report, witness = measured()
    pairs = zip(report.answers, witness.turns, strict=True)
    return [(answer, turn) for answer, turn in pairs if answer.condition == condition]


def log_of(work: Work) -> list[Event]:
    with work.open() as log:
        return log.platform.store.events(work.session, limit=10_000)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return cut_off(SHORT, tmp_path, COUNTER)


# How the conversation came about, and how it ended


def test_every_word_of_the_agent_is_in_the_log_because_a_run_of_its_engine_wrote_it(work: Work) -> None:
    events = log_of(work)
    by_agent = [event for event in events if event.kind in ("tool_call", "tool_result")]
    by_agent += [event for event in events if event.kind == "message" and event.actor == "agent"]

    assert len(by_agent) > 8
    assert all(event.run_id for event in by_agent)
    assert {event.source.engine for event in by_agent if event.source.producer == "engine"} == {"acp"}
    # Only the result of the call that was cut off is ours.
    assert [event.kind for event in by_agent if event.source.producer != "engine"].count("tool_result") == 1


def test_the_log_says_what_the_scene_says_in_the_same_order() -> None:
    def words(events: list[Event]) -> list[str]:
        out = []
        for event in events:
            match body := body_of(event):
                case Message() if body.text != "Noted.":
                    out.append(body.text)
                case ToolCall():
                    out.append(flat(body.input))
                case ToolResult():
                    out.append(flat(body.output))
        return out

    log, written = opened(SHORT, COUNTER)
    with log:
        expected = words(log.platform.store.events(written.session, limit=10_000))
    with tempfile.TemporaryDirectory() as folder:
        found = words(log_of(cut_off(SHORT, Path(folder), COUNTER)))

    assert found[: len(expected)] == expected
    assert found[len(expected)] == LAST_ASK


@pytest.mark.requirement("O2")
def test_until_then_its_engine_goes_on_in_its_own_memory_as_it_confirms(work: Work) -> None:
    # The first turn has nothing to go on with, and the last is not counted.
    assert work.resumed == work.turns - 2 > 1


def test_it_is_killed_in_the_middle_of_a_call_and_a_sentence_and_the_log_says_so(work: Work) -> None:
    *_, call, sentence, result, run = log_of(work)
    told, answered = body_of(sentence), body_of(result)

    assert work.state == "failed"
    assert "killed by signal 9" in work.reason
    assert call.kind == "tool_call"
    assert isinstance(told, Message)
    assert told.interrupted
    assert told.text == LAST_WORDS
    assert isinstance(answered, ToolResult)
    assert answered.status == "outcome_unknown"
    assert run.kind == "run"


def test_nothing_is_left_of_its_memory_but_the_log(work: Work) -> None:
    assert work.forgotten == 1
    assert not list((work.folder / "memory").iterdir())
    with work.open() as log:
        assert log.verify().ok


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_an_answer_stands_in_one_event_of_the_conversation_and_nowhere_else(scene: Scene) -> None:
    brief = msgspec.structs.replace(scene, exchanges=len(scene.beats))
    with tempfile.TemporaryDirectory() as folder:
        work = cut_off(brief, Path(folder), COUNTER)
        events = log_of(work)

    for fact in scene.facts:
        assert [event.seq for event in events if mentions(said(event), fact)] == [work.evidence[fact.asks]]


@pytest.mark.requirement("O5")
@pytest.mark.requirement("O2")
def test_the_first_engine_is_seeded_once_its_memory_is_gone_and_never_taken_to_have_resumed(
    work: Work,
) -> None:
    found = {opened.way: opened for opened in again(SHORT, work)}

    assert {way: opened.opening for way, opened in found.items()} == {
        "cut off": "seeded",
        "orderly end": "seeded",
        "another's turn": "seeded",
        "own memory only": None,
    }
    assert found["cut off"].branch == "ended_in_error"
    assert found["orderly end"].branch == "resume"
    assert "does not know" in found["orderly end"].reason
    assert found["another's turn"].branch == "other_engine"
    assert "taken by script" in found["another's turn"].reason
    assert found["own memory only"].state == "failed"
    assert all(found[way].told_once for way in found if found[way].opening == "seeded")


def test_what_the_first_engine_answers_shows_that_it_remembers_nothing(work: Work) -> None:
    list(again(SHORT, work))

    asked = [event.seq for event in log_of(work) if event.kind == "message" and said(event) == AGAIN]
    replies = [
        said(event)
        for event in log_of(work)
        if event.seq > asked[0] and event.kind == "message" and event.source.engine == "acp"
    ]
    assert replies == ["I hold 0 earlier prompts."] * 3


# What another engine is given


@pytest.mark.requirement("O2")
def test_every_question_about_the_work_is_opened_as_seeded_with_the_reason_as_confirmed() -> None:
    report, _ = measured()

    assert [row.condition for row in report.rows] == list(CONDITIONS)
    assert [row.openings for row in report.rows] == [{"fresh": 8}, {"seeded": 8}, {"seeded": 8}]
    for condition in ("transcript", "brief"):
        assert {answer.branch for answer, _ in of(condition)} == {"cannot_resume"}
        assert all("keeps no conversation of its own" in answer.reason for answer, _ in of(condition))


@pytest.mark.requirement("O1")
def test_cold_it_is_given_nothing_although_the_work_lies_in_the_same_folder() -> None:
    for answer, turn in of("cold"):
        assert answer.branch == "clean_slate"
        assert (turn.history, turn.brief, turn.input) == ((), "", answer.question)


def test_the_transcript_is_given_as_messages_that_end_before_the_question() -> None:
    for answer, turn in of("transcript"):
        assert turn.input == answer.question
        assert len(turn.history) == answer.rows > 40
        assert LAST_WORDS in turn.history[-2].content + turn.history[-1].content + turn.history[-3].content


@pytest.mark.requirement("O3")
def test_the_brief_is_given_once_in_front_of_the_question_and_begins_by_saying_what_it_is() -> None:
    for answer, turn in of("brief"):
        assert turn.history == ()
        assert turn.brief == ""
        assert turn.input.startswith(PREAMBLE)
        assert turn.input.count(PREAMBLE) == 1
        assert turn.input.endswith(f"\n\n{answer.question}")


def test_the_questions_of_a_conversation_share_what_is_given_byte_for_byte() -> None:
    given = {
        condition: {
            (msgspec.json.encode(turn.history), turn.input.removesuffix(answer.question))
            for answer, turn in of(condition)
        }
        for condition in CONDITIONS
    }

    assert {condition: len(different) for condition, different in given.items()} == dict.fromkeys(
        CONDITIONS, 1
    )


def test_a_second_run_gives_the_same_brief() -> None:
    second = Witness()
    evaluate(second.engine, (SHORT,))
    third = Witness()
    evaluate(third.engine, (SHORT,))

    assert [turn.input for turn in second.turns] == [turn.input for turn in third.turns]


def test_everything_is_asked_under_the_same_control_text_and_without_tools() -> None:
    _, witness = measured()

    assert {turn.system for turn in witness.turns} == {INSTRUCTION}
    assert not any(turn.tools for turn in witness.turns)


# How it is counted


def test_what_is_right_is_exactly_what_was_given() -> None:
    report, _ = measured()

    for answer in report.answers:
        assert answer.right is answer.present
        assert not answer.other
    cold, transcript, brief = report.rows
    assert (cold.right, cold.present) == (0, 0)
    assert 0 < brief.right == brief.present == brief.right_when_present < 8
    assert 0 < transcript.right == transcript.right_when_present < 8
    assert report.questions == 8


def test_what_only_a_successful_call_put_out_is_in_no_brief_however_large() -> None:
    report, _ = measured()

    assert report.from_tools == 1
    assert report.reaches[-1].present == 7
    assert all(report.reaches[0].present <= reach.present for reach in report.reaches)


def test_what_fits_a_brief_without_a_model_is_what_it_held_when_it_was_asked() -> None:
    report, _ = measured()

    assert report.reaches[0].present == report.rows[2].present
    assert report.reaches[0].shown == of("brief")[0][0].rows


def test_an_engine_that_refuses_what_it_is_given_has_failed_the_question() -> None:
    report = evaluate(Witness(most=1_000).engine, (SHORT,))

    cold, transcript, brief = report.rows
    assert (cold.not_put, brief.not_put) == (0, brief.asked)
    assert transcript.right == 0 or transcript.not_put == 0
    assert "too many" in next(answer.note for answer in report.answers if answer.condition == "brief")


def test_an_engine_that_fails_with_nothing_given_ends_the_run() -> None:
    broken = ScriptEngine(script=[Fail(reason="out of memory")])

    with pytest.raises(EngineError, match="out of memory"):
        evaluate(broken, (SHORT,))


@pytest.mark.parametrize(
    ("reply", "tells"),
    [
        ("", (True, False, False)),
        ("The port is not mentioned.", (True, False, False)),
        ("I don't know which port it is.", (True, False, False)),
        ("I do not remember that.", (True, False, False)),
        ("It listens on port 7443.", (False, False, False)),
        ("As we discussed, it is 7443.", (False, True, False)),
        ("You told me earlier that it is 7443.", (False, True, False)),
        ("I remember: port 7443.", (False, True, False)),
        ('(I used the tool read_file with {"path":"a.py"})', (False, False, True)),
        ("I ran the tests and they pass.", (False, False, True)),
        ("The agent ran the tests.", (False, False, False)),
    ],
)
def test_a_reply_that_cannot_tell_one_that_remembers_and_one_that_acted_are_told_apart(
    reply: str, tells: tuple[bool, bool, bool]
) -> None:
    assert (declines(reply), remembers(reply), pretends(reply)) == tells


# What is printed


def test_the_table_says_what_was_asked_opened_right_and_held() -> None:
    report, _ = measured()

    text = table(report)

    brief = next(line for line in text.splitlines() if line.startswith("  brief"))
    row = report.rows[2]
    assert f"{row.right} of 8" in brief
    assert f"{row.right_when_present} of {row.present}" in brief
    assert "the first engine again" in text
    assert "seeded 1 of 1" in text
    assert "not opened, failed 1 of 1" in text


@pytest.mark.parametrize(("names", "keys"), [([], {"quality", "waking"}), (["waking"], {"waking"})])
def test_json_is_one_document_with_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], names: list[str], keys: set[str]
) -> None:
    monkeypatch.setattr(quality, "SCENES", (SHORT,))
    monkeypatch.setattr(
        quality,
        "local_models",
        lambda: Models(
            answering=Witness().engine, summarising=ScriptEngine(script=[Say(text="Something was done.")])
        ),
    )

    assert main.run(names, json=True, quick=True, quality=True) == 0

    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document.keys() == keys
    assert document["waking"]["questions"] == 2
    assert [row["condition"] for row in document["waking"]["rows"]] == list(CONDITIONS)
    assert len(document["waking"]["answers"]) == 2 * len(CONDITIONS)
    assert "brief" in printed.err


def test_the_real_model_wakes_up_to_two_questions(model_file: Path) -> None:
    report = evaluate(quality.local_models().answering, (SHORT,))

    assert report.questions == 2
    assert report.model
    assert [row.openings for row in report.rows] == [{"fresh": 2}, {"seeded": 2}, {"seeded": 2}]
    assert all(answer.reply and answer.read for answer in report.answers)
