"""What a conversation is called after its first ask."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.importers.contract import TITLE_LIMIT
from onward.importers.harness import ask_in, parted, title_from


@pytest.mark.parametrize(
    ("ask", "title"),
    [
        ("Focus on:\n- speed\n- size\n\nThen stop.", "Focus on: - speed - size"),
        ("\n \n  Rename\r\nit\r\n\r\nplease", "Rename it"),
        ("one two " * 30, ("one two " * 15).rstrip() + "…"),
        ("<environment_context>x</environment_context>", ""),
        ("", ""),
    ],
)
def test_a_title_is_the_first_paragraph_cut_behind_a_word(ask: str, title: str) -> None:
    assert title_from(ask) == title


@given(st.text(alphabet=st.sampled_from("ab漢 \n\t…"), max_size=400))
def test_a_title_is_one_line_within_the_limit_and_begins_as_the_ask_does(ask: str) -> None:
    title = title_from(ask)
    assert len(title) <= TITLE_LIMIT
    assert title == " ".join(title.split())
    whole = " ".join(ask.split())
    assert whole.startswith(title) or (title.endswith("…") and whole.startswith(title[:-1]))


@given(st.text(max_size=60), st.text(max_size=60))
def test_parting_a_text_loses_nothing_but_white_space(first: str, second: str) -> None:
    text = f"# Context from my IDE setup:\n{first}\n## My request for Codex:\n{second}"
    before, ask = parted(text)
    assert "".join((before + ask).split()) == "".join(text.split())
    assert ask_in(text) == ask.strip()
