"""What a text takes on a terminal, and how it is cut and broken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onward.core.columns import columns, fitted, wrapped

TEXTS = st.text(alphabet=st.sampled_from("abc 漢字かな\u0301\u200d…🙂\t\n"), max_size=80)


def test_wide_characters_take_two_columns_and_marks_none() -> None:
    assert columns("abc") == 3
    assert columns("漢字") == 4
    assert columns("e\u0301") == 1
    assert columns("") == 0


@given(TEXTS, st.integers(0, 40))
def test_a_fitted_line_takes_no_more_than_its_width_and_is_whole_where_it_can_be(
    text: str, width: int
) -> None:
    shown = fitted(text, width)
    assert columns(shown) <= width
    assert (shown == text) == (columns(text) <= width)
    if shown != text and shown:
        assert shown.endswith("…")
        assert text.startswith(shown[:-1])


@given(TEXTS, st.integers(4, 40))
def test_wrapped_lines_keep_to_the_width_and_lose_nothing_but_white_space(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    for line in lines:
        assert columns(line) <= width or line.isascii()


def test_an_address_that_is_longer_than_the_line_stays_whole() -> None:
    address = "https://example.org/" + "a" * 60
    assert wrapped(f"see {address} there", 30) == ["see", address, "there"]
