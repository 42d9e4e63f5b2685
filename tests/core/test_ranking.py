"""Ranking: what lifts an event above another, each rule by a pair of which only that differs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core import ranking
from onward.core.ranking import KIND_WEIGHT, Candidate, excerpt, is_asking, rank

TERMS = ["timeout", "gateway", "bank"]
WEIGHTS = {"timeout": 3.0, "gateway": 1.0, "bank": 2.0}


def candidate(
    seq: int, *held: str, session: str = "ses_a", at: int | None = None, **fields: Any
) -> Candidate:
    fields = {"kind": "message", "length": 100, "actor": "user", **fields}
    counts = fields.pop("counts", None) or dict.fromkeys(held, 1)
    return Candidate(session=session, seq=seq, at=0 if at is None else at, words=counts, **fields)


def order(*candidates: Candidate, distance: dict[str, int] | None = None, **options: Any) -> list[int]:
    options.setdefault("weights", WEIGHTS)
    return [s.candidate.seq for s in rank(candidates, TERMS, distance or {"ses_a": 0}, **options)]


def test_a_rare_word_is_worth_more_than_a_common_one() -> None:
    assert order(candidate(10, "gateway"), candidate(20, "timeout")) == [20, 10]


def test_more_of_the_words_beat_one_of_them_repeated() -> None:
    assert order(candidate(10, counts={"timeout": 9}), candidate(20, "timeout", "bank")) == [20, 10]


def test_a_word_in_a_long_text_is_worth_less() -> None:
    assert order(candidate(10, "bank", length=3000), candidate(20, "bank", length=80)) == [20, 10]


def test_a_hit_beside_a_hit_is_lifted() -> None:
    assert order(candidate(10, "bank"), candidate(50, "bank"), candidate(51, "timeout"))[1:] == [50, 10]
    # Only the nearest few events count as beside.
    far = 51 + ranking.NEIGHBOURS + 1
    assert order(candidate(far, "bank"), candidate(90, "bank", at=1), candidate(51, "timeout"))[1:] == [
        90,
        far,
    ]


def test_the_reply_to_a_question_is_found_without_any_of_its_words() -> None:
    question = candidate(10, *TERMS, asks=True)
    reply = candidate(12, actor="agent")
    assert order(question, candidate(11, kind="tool_result"), reply, candidate(90, "gateway")) == [12, 10, 90]


@pytest.mark.parametrize(
    "between",
    [
        {"seq": 12, "actor": "user"},
        {"seq": 12 + ranking.REPLY_WITHIN, "actor": "agent"},
        {"seq": 12, "actor": "agent", "session": "ses_b"},
        {"seq": 12, "actor": "agent", "kind": "tool_result"},
    ],
    ids=["the same speaker", "too far", "another session", "a tool"],
)
def test_what_is_no_reply_and_has_no_word_is_left_out(between: dict[str, Any]) -> None:
    fields = {**between}
    assert order(candidate(10, *TERMS, asks=True), candidate(fields.pop("seq"), **fields)) == [10]


def test_a_statement_comes_before_a_question_with_the_same_words() -> None:
    assert order(candidate(10, "bank", asks=True, at=5), candidate(50, "bank")) == [50, 10]


def test_the_newer_of_two_equal_hits_comes_first() -> None:
    assert order(candidate(10, "bank", at=1), candidate(50, "bank", at=2)) == [50, 10]


def test_a_nearer_session_comes_first() -> None:
    near, far = candidate(10, "bank", session="ses_a"), candidate(20, "bank", session="ses_b")
    assert order(far, near, distance={"ses_a": 0, "ses_b": 4}) == [10, 20]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("message", "tool_call"),
        ("tool_call", "tool_result"),
        ("tool_result", "raw"),
        ("message", "reasoning"),
        ("message", "something new"),
    ],
)
def test_what_people_and_agents_said_comes_before_traffic(better: str, worse: str) -> None:
    assert order(candidate(10, "bank", kind=worse), candidate(50, "bank", kind=better)) == [50, 10]


def test_without_weights_the_words_of_few_candidates_count_more() -> None:
    many = [candidate(n * 10, "gateway") for n in range(1, 9)]
    assert order(*many, candidate(200, "timeout"), weights=None)[0] == 200


candidates = st.lists(
    st.builds(
        Candidate,
        session=st.sampled_from(["ses_a", "ses_b"]),
        seq=st.integers(1, 30),
        at=st.integers(0, 50),
        kind=st.sampled_from([*KIND_WEIGHT, "unknown"]),
        words=st.dictionaries(st.sampled_from([*TERMS, "other"]), st.integers(0, 5), max_size=3),
        length=st.integers(0, 5000),
        actor=st.sampled_from(["user", "agent", "tool"]),
        asks=st.booleans(),
    ),
    unique_by=lambda c: (c.session, c.seq),
    max_size=25,
)


@given(candidates, st.randoms())
def test_the_order_depends_on_the_candidates_only_not_on_how_they_come(
    some: list[Candidate], random: Any
) -> None:
    mixed = list(some)
    random.shuffle(mixed)
    once, again = rank(some, TERMS, {"ses_a": 1}), rank(mixed, TERMS, {"ses_a": 1})
    assert once == again
    assert [s.score for s in once] == sorted((s.score for s in once), reverse=True)
    assert all(s.score >= 0 for s in once)
    # Whoever has a word of the question is in the answer.
    held = {(c.session, c.seq) for c in some if any(c.words.get(term) for term in TERMS)}
    assert held <= {(s.candidate.session, s.candidate.seq) for s in once}


def test_nothing_is_ranked_for_nothing() -> None:
    assert rank([], TERMS, {}) == []
    assert rank([candidate(1, "bank")], [], {}) == []


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Which port is it?", True),
        ("Which port? I forgot.", True),
        ("端口是多少？", True),
        ("see http://x/?q=1 for more", False),
        ("It is 8417.", False),
        ("(really?)", True),
    ],
)
def test_a_text_asks_when_a_sentence_of_it_ends_so(text: str, asks: bool) -> None:
    assert is_asking(text) is asks


def test_an_excerpt_is_the_part_around_the_words_and_says_what_is_missing() -> None:
    text = "x" * 1000 + " the retries of it " + "y" * 1000
    shown = excerpt(text, ["retry"], 200)
    assert "retries" in shown
    before, after = (int(number.replace(",", "")) for number in re.findall(r"([\d,]+) characters", shown))
    assert before + 200 + after == len(text)
    assert excerpt("short", ["retry"], 200) == "short"


def test_an_excerpt_is_cut_where_most_of_the_words_are_then_around_the_rarest() -> None:
    common = "the bank said " * 40
    both = common + "z" * 400 + " a timeout of the bank " + "z" * 400
    assert "a timeout of the bank" in excerpt(both, ["bank", "timeout"], 200)
    rare = common + "z" * 400 + " a timeout " + "z" * 400
    assert "a timeout" in excerpt(rare, ["bank", "timeout"], 200)
    assert excerpt("z" * 400, ["bank"], 200).startswith("z")
