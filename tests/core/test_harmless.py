"""Text that is about to be shown: nothing in it acts or hides."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.harmless import harmless


@given(st.text())
def test_no_control_character_and_no_surrogate_is_left(text: str) -> None:
    shown = harmless(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]


@given(st.text(alphabet=st.characters(categories=("L", "N", "P", "Zs", "S", "Mn", "Mc"))))
def test_what_languages_are_written_with_stays(text: str) -> None:
    assert harmless(text) == text


@pytest.mark.parametrize(
    ("given_", "shown"),
    [
        ("a\x1b[31m", "a\\x1b[31m"),
        ("exe\u202egnp", "exe\\u202egnp"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("\ufeffx\u2060", "\\ufeffx\\u2060"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("a\r\nb\tc", "a\nb\tc"),
        ("a\rb", "a\\x0db"),
        ("שלום عربي", "שלום عربي"),
        ("👩‍👩‍👧", "👩‍👩‍👧"),
    ],
)
def test_what_acts_or_hides_is_shown_as_an_escape(given_: str, shown: str) -> None:
    assert harmless(given_) == shown


@given(st.text())
def test_doing_it_twice_changes_nothing_more(text: str) -> None:
    assert harmless(harmless(text)) == harmless(text)
