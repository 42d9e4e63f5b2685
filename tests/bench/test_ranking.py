"""The ranking benchmark: its data is the same every time and what it says it is, and its figures are shares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onward.bench import conversations_words as tables
from onward.bench import main, ranking
from onward.bench.conversations import KINDS, Conversations, Question, Shape, written
from onward.bench.ranking import DEPTHS, HALVES, OURS, recalled
from onward.core import words
from onward.core.codec import searchable_text
from onward.core.stemming import stem
from onward.errors import InvalidInput
from onward.store.sqlite import SqliteStore

SMALL = Shape(lineages=1, sessions=3, events=150)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SqliteStore:
    store = SqliteStore(tmp_path_factory.mktemp("ranking") / "a.db", synchronous="NORMAL")
    yield store
    store.close()


@pytest.fixture(scope="module")
def made(store: SqliteStore) -> Conversations:
    return written(store, seed=3, half=0, shape=SMALL)


def test_a_seed_gives_the_same_events_and_questions_each_time(
    store: SqliteStore, made: Conversations, tmp_path: Path
) -> None:
    again = SqliteStore(tmp_path / "b.db", synchronous="NORMAL")
    assert written(again, seed=3, half=0, shape=SMALL) == made
    for session in made.lineages[0]:
        assert [e.chain for e in again.scan(session)] == [e.chain for e in store.scan(session)]
    assert written(again, seed=4, half=0, shape=SMALL) != made
    again.close()


def test_every_question_has_its_evidence_in_the_lineage_where_it_is_asked(
    store: SqliteStore, made: Conversations
) -> None:
    for question in made.questions:
        event = store.event(question.evidence)
        assert event is not None
        lineage = next(lineage for lineage in made.lineages if lineage[-1] == question.session)
        assert event.session_id in lineage
    assert {question.kind for question in made.questions} == set(KINDS)


def test_a_replaced_value_stands_before_the_one_that_replaced_it(
    store: SqliteStore, made: Conversations
) -> None:
    assert made.replaced
    for old, new in made.replaced.items():
        earlier, later = store.event(old), store.event(new)
        assert earlier is not None
        assert later is not None
        line = made.lineages[0]
        assert (line.index(earlier.session_id), earlier.seq) < (line.index(later.session_id), later.seq)


def test_questions_are_asked_in_other_words_than_their_evidence(
    store: SqliteStore, made: Conversations
) -> None:
    shares: dict[str, list[float]] = {}
    for question in made.questions:
        event = store.event(question.evidence)
        assert event is not None
        said = {stem(word) for word in words.cut(searchable_text(event.kind, event.body))}
        asked = {stem(word) for word in words.query_terms(question.text)}
        shares.setdefault(question.kind, []).append(len(asked & said) / len(asked))
    middle = {kind: sum(some) / len(some) for kind, some in shares.items()}
    assert middle["beside"] < 0.1
    for kind in ("told", "early"):
        assert 0.2 < middle[kind] < 0.8, middle
    assert all(share < 1 for kind, share in middle.items() if kind != "cjk")


def test_the_two_halves_share_no_entry_of_a_table() -> None:
    for table in (
        tables.MODIFIERS,
        tables.STATEMENTS,
        tables.UPDATES,
        tables.CAUSES,
        tables.CHOICES,
        tables.BUGS,
    ):
        assert not set(table[0::2]) & set(table[1::2])
    assert len({seed for _, _, seed in HALVES}) == len({half for _, half, _ in HALVES}) == 2


def test_a_full_run_asks_at_least_three_hundred_questions_on_each_half(made: Conversations) -> None:
    lineages = ranking.shape(quick=False).lineages
    assert len(made.questions) * lineages >= 300
    assert ranking.shape(quick=False).sessions * ranking.shape(quick=False).events >= 4000


def test_recall_is_the_share_of_questions_whose_evidence_is_among_the_first_hits() -> None:
    questions = [Question(kind="told", text=str(n), session="s", evidence=f"e{n}") for n in (1, 7, 12, 40)]
    answer = [f"e{n}" for n in range(1, 26)]
    told, whole = recalled("x", questions, lambda _: answer)
    assert told.at == whole.at == (0.25, 0.5, 0.75)
    assert (told.kind, whole.kind, whole.questions) == ("told", "all", 4)


def test_it_prints_a_table_or_one_document_and_says_whether_the_target_is_met(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ranking, "shape", lambda *, quick: SMALL)
    status = main.run(["ranking"], json=True, quick=True)
    document = json.loads(capsys.readouterr().out)
    assert [half["name"] for half in document["halves"]] == ["development", "held-out"]
    assert status == (0 if document["holds"] else 1)
    for half in document["halves"]:
        assert {r["contender"] for r in half["recalls"]} == {*ranking.BASELINES, OURS}
        for recall in half["recalls"]:
            assert len(recall["at"]) == len(DEPTHS)
            assert list(recall["at"]) == sorted(recall["at"])
            assert all(0 <= share <= 1 for share in recall["at"])
        assert half["superseding"]["wrong"] == 0
    main.run(["ranking"], json=False, quick=True)
    told = capsys.readouterr().out
    assert "held-out half" in told
    assert f"target >= {ranking.BETTER}" in told


def test_it_finds_more_than_plain_bm25(monkeypatch: pytest.MonkeyPatch) -> None:
    half = ranking.measured("small", 1, 5, Shape(lineages=1, sessions=3, events=300))
    assert half.recall(OURS, 10) > half.recall(ranking.BASELINES[0], 10)
    assert half.recall(OURS, 10) > half.recall(ranking.BASELINES[1], 10)


def test_it_is_measured_alone() -> None:
    with pytest.raises(InvalidInput, match="goal 'ranking' is not valid"):
        main.run(["ranking", "1"], json=True, quick=True)
