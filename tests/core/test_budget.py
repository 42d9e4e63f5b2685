"""Counting: named, additive, and never failing, whatever a text holds."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.budget import MESSAGE_OVERHEAD, CharsCounter, message_cost, messages_cost
from onward.core.transcript import TranscriptMessage
from onward.errors import InvalidInput, MissingExtra
from onward.service.counting import COUNTERS, counter_by_name

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_four_characters_are_a_token_rounded_up(text: str) -> None:
    count = CharsCounter().count(text)
    assert (count - 1) * 4 < len(text) <= count * 4


@pytest.mark.requirement("P4")
@given(st.lists(ANY_TEXT))
def test_the_sum_of_the_parts_is_never_below_the_whole(texts: list[str]) -> None:
    counter = CharsCounter()
    assert sum(counter.count(text) for text in texts) >= counter.count("".join(texts))


@pytest.mark.requirement("P4")
@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_is_found_again_by_the_name_it_says(name: str) -> None:
    if name == "o200k":
        pytest.importorskip("toktok", reason="the `tokens` extra is not installed")
    assert counter_by_name(name).name == name


def test_the_exact_counter_counts_o200k_tokens() -> None:
    pytest.importorskip("toktok", reason="the `tokens` extra is not installed")
    counter = counter_by_name("o200k")
    assert counter.count("hello world") == 2
    assert counter.count("") == 0
    assert counter.count("四個字元") > CharsCounter().count("四個字元")


def test_a_special_token_in_a_text_is_counted_as_text() -> None:
    pytest.importorskip("toktok", reason="the `tokens` extra is not installed")
    assert counter_by_name("o200k").count("<|endoftext|>") > 1


@given(ANY_TEXT)
def test_the_exact_counter_takes_any_text_even_with_lone_surrogates(text: str) -> None:
    pytest.importorskip("toktok", reason="the `tokens` extra is not installed")
    counter = counter_by_name("o200k")
    assert (counter.count(text) == 0) == (text == "")


def test_a_counter_whose_package_is_missing_says_which_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "toktok", None)
    with pytest.raises(MissingExtra, match=r"onward\[tokens\]"):
        counter_by_name("o200k")


def test_a_counter_that_nobody_knows_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidInput, match="chars/4, o200k"):
        counter_by_name("words")


def test_a_message_costs_its_words_its_tool_and_a_constant() -> None:
    counter = CharsCounter()
    said = TranscriptMessage(role="user", content="x" * 8)
    called = TranscriptMessage(
        role="assistant", tool_call_id="c", tool_name="read", tool_input={"path": "abcdef"}
    )
    answered = TranscriptMessage(role="tool", tool_call_id="c", tool_output="y" * 40)
    assert message_cost(said, counter) == MESSAGE_OVERHEAD + 2
    assert message_cost(called, counter) == MESSAGE_OVERHEAD + 1 + counter.count('{"path":"abcdef"}')
    assert message_cost(answered, counter) == MESSAGE_OVERHEAD + 10
    assert messages_cost([said, called, answered], counter) == sum(
        message_cost(message, counter) for message in (said, called, answered)
    )


def test_a_message_without_words_still_costs_its_marks() -> None:
    assert message_cost(TranscriptMessage(role="user"), CharsCounter()) == MESSAGE_OVERHEAD
