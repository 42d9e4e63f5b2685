"""How text becomes terms, and that a question meets the text it was cut from, whatever either of them holds."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.words import (
    STOP_WORDS,
    TERM_LIMIT,
    cut,
    fold,
    index_text,
    is_prefix,
    query_terms,
    tokens,
)

any_text = st.text(st.characters(exclude_categories=()), max_size=60)  # lone surrogates too
words_of_code = st.from_regex(r"[a-z]{1,8}([A-Z][a-z]{1,8}|_[a-z]{1,8}|[0-9]{1,3}){0,4}", fullmatch=True)
# Without endings that a stemmer takes off, so that a stemming index must agree with one that does not stem.
plain_words = st.sampled_from(
    ["alpha", "beta", "gamma", "Zürich", "版本需求", "用法", "gpt4", "fooBar", "한국어", "x"]
)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("What is the plan?", ["plan"]),
        ("What is it?", ["what", "is", "it"]),
        ("parseHttpRequest2", ["parse", "http", "request", "2"]),
        ("HTTPServer", ["http", "server"]),
        ("snake_case core/words.py", ["snake", "case", "core", "words", "py"]),
        ("Field用法", ["field", "用法"]),
        ("版本需求", ["版本", "本需", "需求"]),
        ("是", ["是"]),
        ("Café CAFÉ cafe\u0301", ["cafe"]),
        ("a3f9b2cc0d1e57aa", ["a3f9b2cc0d1e57aa"]),
        ("", []),
        ("!?", []),
        ("\0 \ud800 \ue000", []),
    ],
)
def test_a_question_is_cut_into_these_terms(text: str, terms: list[str]) -> None:
    assert query_terms(text) == terms


@pytest.mark.parametrize(
    ("text", "indexed"),
    [
        ("plain prose, as it is.", "plain prose, as it is."),
        ("Capitals At Starts", "Capitals At Starts"),
        ("use parseHttpRequest", "use parseHttpRequest parse Http Request"),
        ("utf8", "utf8 utf 8"),
        ("\0", " "),
    ],
)
def test_text_is_prepared_for_the_index_like_this(text: str, indexed: str) -> None:
    assert index_text(text) == indexed


@given(any_text)
def test_every_term_of_a_text_is_a_token_of_its_index(text: str) -> None:
    said = tokens(index_text(text))
    for term in cut(text):
        assert term in said or (is_prefix(term) and any(token.startswith(term) for token in said))


@given(st.lists(st.one_of(words_of_code, any_text), max_size=8).map(" ".join))
def test_cutting_a_term_again_gives_that_term(text: str) -> None:
    for term in cut(text):
        assert cut(term) == [term]


@given(any_text)
def test_folding_is_done_once_and_leaves_letters_digits_and_ascii(text: str) -> None:
    folded = fold(text)
    assert fold(folded) == folded
    assert all(char.isascii() or char.isalnum() for char in folded)
    assert "\0" not in folded
    folded.encode("utf-8")


@given(st.lists(st.sampled_from(sorted(STOP_WORDS)), min_size=1, max_size=5))
def test_a_question_of_nothing_but_stop_words_is_still_asked(stop_words: list[str]) -> None:
    assert query_terms(" ".join(stop_words)) == list(dict.fromkeys(stop_words))


def test_a_pasted_page_is_asked_by_its_first_terms() -> None:
    page = " ".join(f"w{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(500))
    assert query_terms(page) == page.split()[:TERM_LIMIT]


@pytest.mark.parametrize("blob", ["aB3" * 100_000, "a" * 500_000, "A1" * 100_000, "9" * 500_000])
@pytest.mark.timeout(20)
def test_a_long_run_without_spaces_is_no_identifier_and_costs_linear_time(blob: str) -> None:
    assert index_text(f"x {blob} y") == f"x {blob} y"


@given(any_text.filter(str.isalnum))
def test_a_character_of_an_unspaced_script_is_found_alone_inside_a_run(text: str) -> None:
    said = tokens(index_text(text))
    for char in fold(text):
        if is_prefix(char):
            assert any(token.startswith(char) for token in said)


def test_sqlite_takes_every_letter_and_digit_that_is_kept_for_one_token() -> None:
    kept = [code for code in range(128, 0x32000) if fold(chr(code)) == chr(code) and chr(code).isalnum()]
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE said USING fts5 (w, tokenize = 'unicode61 remove_diacritics 2')")
    db.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab (said, instance)")
    db.executemany("INSERT INTO said (rowid, w) VALUES (?, ?)", [(code, f"a{chr(code)}b") for code in kept])
    split = db.execute("SELECT doc FROM tokens GROUP BY doc HAVING count(*) > 1").fetchall()
    db.close()
    assert len(kept) > 100_000
    assert [hex(code) for (code,) in split] == []


@given(
    st.lists(plain_words, max_size=8).map(" ".join),
    st.lists(plain_words, min_size=1, max_size=3).map(" ".join),
)
def test_sqlite_and_the_plain_tokens_agree_on_what_matches(text: str, question: str) -> None:
    db = sqlite3.connect(":memory:")
    db.execute(
        "CREATE VIRTUAL TABLE said USING fts5 (w, detail = none, tokenize = 'porter unicode61 remove_diacritics 2')"
    )
    db.execute("INSERT INTO said (rowid, w) VALUES (1, ?)", (index_text(text),))
    said = tokens(index_text(text))
    for term in query_terms(question):
        prefix = is_prefix(term)
        found = db.execute(
            "SELECT 1 FROM said WHERE said MATCH ?", (f'"{term}"{"*" if prefix else ""}',)
        ).fetchone()
        here = any(token.startswith(term) for token in said) if prefix else term in said
        assert (found is not None) == here, term
    db.close()
