"""What becomes of a text that is read as Markdown."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.surfaces.http.console.hostile import HOSTILE
from tests.surfaces.http.console.markup import Markup, acting

from onward.surfaces.http.console import markdown


def harm_in(text: str) -> list[str]:
    """Return what is in the markup of a text that should not be."""
    markup = Markup(str(markdown.rendered(text)))
    strange = [tag for tag, _ in markup.elements if tag not in markdown.TAGS]
    attributes = [
        (tag, name)
        for tag, held in markup.elements
        for name in held
        if name not in {"a": ("href", "title", "rel"), "ol": ("start",), "pre": ("class",)}.get(tag, ())
    ]
    links = [held.get("href", "") for held in markup.named("a")]
    leading = [link for link in links if link and link.partition(":")[0].lower() not in markdown.SCHEMES]
    return [*acting(markup), *strange, *map(str, attributes), *leading, *markup.faults]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_becomes_markup_that_does_nothing(text: str) -> None:
    assert harm_in(text) == []


# fmt: off
PIECES = st.sampled_from((
    "<", ">", '"', "'", "&", "[", "]", "(", ")", "!", "`", "```", "\n", "\n\n", "# ", "> ", "- ", "|", "---", "*",
    "javascript:", "data:", "http://a.b", "on=", "<script>", "</script>", "<a href=", "&#x6a;", "\\", "\t", "\x00",
    "\u202e", "x", " ", "1. ", "style=", "src=",
))
# fmt: on


@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_text_made_of_the_pieces_of_markup_becomes_more_than_it_may(text: str) -> None:
    assert harm_in(text) == []


@given(st.text(max_size=200))
def test_any_text_at_all_is_rendered(text: str) -> None:
    assert harm_in(text) == []


MARKS = ("[", "![", "[x](", "*a_", "&a", "<", "`a", "> ", "- ", "a\n\n", "|a", "  - a\n", "1. a\n   > b\n")


@pytest.mark.parametrize("mark", MARKS)
def test_no_text_costs_more_than_a_moment(mark: str) -> None:
    begun = time.process_time()
    for count in (200, 400, 700, 1_500, markdown.LIMIT):
        markdown.rendered((mark * count)[: markdown.LIMIT])
    assert time.process_time() - begun < 2  # without the bounds, many times that


def test_what_people_write_reads_as_they_meant_it() -> None:
    made = str(
        markdown.rendered(
            "# Title\n\n**bold** `code` [link](https://example.org)\n\n- one\n- two\n\n| a |\n|---|\n| 1 |"
        )
    )
    for part in (
        "<h4>Title</h4>",
        "<strong>bold</strong>",
        "<code>code</code>",
        "<li>one</li>",
        "<td>1</td>",
    ):
        assert part in made
    assert '<a href="https://example.org" rel="noopener noreferrer nofollow">link</a>' in made


def test_a_picture_is_a_link_to_it_so_that_reading_fetches_nothing() -> None:
    made = str(markdown.rendered("![a chart](https://example.org/c.png)"))
    assert "<img" not in made
    assert "[picture: a chart]</a>" in made


def test_a_link_to_a_page_of_this_server_stays_text() -> None:
    assert "<a" not in str(markdown.rendered("[sign out](/logout) [this](#main) [that](//evil.example)"))


def test_control_characters_are_shown_and_do_not_act() -> None:
    made = str(markdown.rendered("safe\u202egnp.exe\x1b[0m"))
    assert "safe\\u202egnp.exe\\x1b[0m" in made


def test_headings_of_a_text_stand_below_those_of_the_page() -> None:
    assert {tag for tag, _ in Markup(str(markdown.rendered("# a\n\n### b\n\nc\n---"))).elements} == {"h4"}


def test_a_text_that_is_too_long_for_markdown_is_shown_as_it_is() -> None:
    made = str(markdown.rendered("**x** " * markdown.LIMIT))
    assert made.startswith('<pre class="plain">**x** ')
