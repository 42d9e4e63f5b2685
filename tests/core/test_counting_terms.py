"""How often the words of a question stand in a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core import words
from onward.core.ranking import SCORED_CHARS, counted
from onward.core.stemming import stem

# Few letters, so that words begin, end and run into one another; accents, signs and digits.
texts = st.text(alphabet="aabdeginlrsty_ -.AB9éßΣσ\n", max_size=80)


def by_tokens(text: str, terms: list[str]) -> dict[str, int]:
    """The same count, the plain way: cut the text into tokens and stem each of them."""
    wanted = {stem(t): t for t in terms}
    out: dict[str, int] = {}
    for token in words.tokens(words.index_text(text[:SCORED_CHARS])):
        for begin, term in wanted.items():
            # A single character of an unspaced script stands for every word that begins with it, as in the index.
            if token.startswith(term) if words.is_prefix(term) else stem(token) == begin:
                out[term] = out.get(term, 0) + 1
    return out


@given(texts, st.lists(texts, max_size=4))
def test_counting_finds_what_cutting_into_words_and_stemming_finds(text: str, asked: list[str]) -> None:
    terms = [term for some in asked for term in words.cut(some)]
    if terms:
        assert counted(text, terms) == by_tokens(text, terms)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("date dates dated", 3),
        ("update predates", 0),
        ("parse_date, date-line; DATE", 3),
        ("date" * 3, 0),
        ("updated a date", 1),
    ],
)
def test_inflected_forms_count_and_words_that_only_hold_the_term_do_not(text: str, count: int) -> None:
    assert counted(text, ["date"]) == ({"date": count} if count else {})


def test_only_the_first_characters_of_a_long_text_are_looked_at() -> None:
    assert counted("x " * SCORED_CHARS + "date", ["date"]) == {}
