"""Stems, against the index that has to find the same words."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.stemming import stem

# What the rules are about, so that random words reach them: beginnings of a few letters and chains of endings.
ENDINGS = """
    ational tional enci anci izer logi bli abli alli entli eli ousli ization ation ator alism iveness fulness ousness
    aliti iviti biliti icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment ent ion ou ism
    ate iti ous ive ize s es ies ed ing eed y e ll sses
""".split()  # noqa: SIM905 (a list of endings reads as endings)
words = st.builds(
    lambda begin, ends: begin + "".join(ends),
    st.text("abcdeilnorstyxzw", min_size=0, max_size=5),
    st.lists(st.sampled_from(ENDINGS), max_size=3),
).filter(bool)


@pytest.fixture(scope="module")
def index() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE said USING fts5 (w, tokenize = 'porter unicode61')")
    db.execute("CREATE VIRTUAL TABLE tokens USING fts5vocab (said, row)")
    yield db
    db.close()


@given(st.lists(st.one_of(words, st.text("abeßж日1", min_size=1, max_size=70)), min_size=1, max_size=40))
def test_a_stem_is_what_the_index_of_sqlite_keeps_of_a_word(
    index: sqlite3.Connection, some: list[str]
) -> None:
    for word in some:
        index.execute("DELETE FROM said")
        index.execute("INSERT INTO said (rowid, w) VALUES (1, ?)", (word,))
        kept = [term for (term,) in index.execute("SELECT term FROM tokens")]
        assert [stem(word)] == kept


@given(words)
def test_a_word_begins_with_its_stem_but_for_the_last_letter(word: str) -> None:
    assert word.startswith(stem(word)[:-1])


@pytest.mark.parametrize(
    "forms",
    [
        ("retry", "retries", "retried", "retrying"),
        ("size", "sizes", "sized", "sizing"),
        ("connect", "connected", "connection", "connecting"),
        ("drop", "dropped", "dropping", "drops"),
        ("schedule", "scheduled", "scheduling"),
    ],
)
def test_forms_of_a_word_have_one_stem(forms: tuple[str, ...]) -> None:
    assert len({stem(form) for form in forms}) == 1


@pytest.mark.parametrize("word", ["版本", "ab", "x" * 64, "größe", ""])
def test_what_has_no_english_ending_is_its_own_stem(word: str) -> None:
    assert stem(word) == word
