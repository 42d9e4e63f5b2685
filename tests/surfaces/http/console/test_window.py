"""Pages of a session: bounded, whole, and the same whether they come at once or piece by piece."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.surfaces.http.console.visiting import Visitor, anchors, call, result, shown

from onward.core.bodies import Body
from onward.surfaces.http.console.window import PAGE, window


@pytest.fixture
def visitor() -> Visitor:
    return Visitor()


def test_a_long_session_opens_with_its_newest_hundred_events(visitor: Visitor) -> None:
    session = visitor.session()
    visitor.say(session, *map(str, range(250)))
    page = visitor.page(f"/sessions/{session.id}")
    assert [int(seq) for seq in anchors(page)] == list(range(152, 252))
    assert f"/sessions/{session.id}?before=152" in page


def test_earlier_pages_lead_to_the_beginning_and_every_event_is_on_one_of_them(visitor: Visitor) -> None:
    session = visitor.session()
    visitor.say(session, *map(str, range(333)))
    seen: list[int] = []
    before: int | None = None
    while True:
        found = window(visitor.platform, session, before=before)
        assert len(found.entries) <= PAGE
        seen = [one.seq for one in found.entries] + seen
        if found.earlier is None:
            break
        before = found.earlier
    assert seen == list(range(1, 335))


def test_later_pages_lead_to_the_end(visitor: Visitor) -> None:
    session = visitor.session()
    visitor.say(session, *map(str, range(120)))
    first = visitor.page(f"/sessions/{session.id}?at=1")
    assert f"/sessions/{session.id}?after=100" in first
    second = visitor.page(f"/sessions/{session.id}?after=100")
    assert anchors(second)[-1] == "121"
    assert "Later</a>" not in second


@pytest.mark.parametrize("at", [1, 60, 200, 201, 5_000])
def test_an_event_that_is_asked_for_is_on_the_page_or_its_end_is(visitor: Visitor, at: int) -> None:
    session = visitor.session()
    visitor.say(session, *map(str, range(200)))
    page = visitor.page(f"/sessions/{session.id}?at={at}")
    assert str(min(at, 201)) in anchors(page)


def test_a_page_that_begins_with_a_result_says_where_its_call_is(visitor: Visitor) -> None:
    session = visitor.session()
    visitor.log(session, call("Bash", "a"))
    visitor.say(session, *map(str, range(98)))
    visitor.log(session, result("a", "the outcome"))
    newest = visitor.page(f"/sessions/{session.id}")
    assert "Result of Bash" not in newest  # both halves are on this page
    pushed = visitor.page(f"/sessions/{session.id}?after=2")
    assert "Result of Bash" in pushed
    assert "called at #2" in pushed
    assert "the outcome" in pushed


TRAFFIC = st.lists(
    st.tuples(st.sampled_from(["call", "result", "say"]), st.sampled_from("ab")), min_size=2, max_size=24
)


class Browser:
    """What console.js does with articles: one a number, replaced only by one into which more was folded."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}

    def take(self, entries: tuple[Any, ...]) -> None:
        for one in entries:
            there = self.held.get(one.seq)
            if there is None or there.upto < one.upto:
                self.held[one.seq] = one

    def events(self) -> list[int]:
        seqs = []
        for one in self.held.values():
            seqs.append(one.seq)
            if one.view == "call":
                seqs += [r.seq for r in one.body.results if r.text is not None]
        return sorted(seqs)


@settings(max_examples=60)
@given(TRAFFIC, st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(0, 4))
def test_a_page_that_grows_piece_by_piece_holds_every_event_once(
    traffic: list[tuple[str, str]], steps: list[int], repeats: int
) -> None:
    visitor = Visitor(signed=False)
    session = visitor.session()
    made: list[tuple[str, Body | bytes, str]] = []
    for what, name in traffic:
        if what == "call":
            made.append(call("T", name))
        elif what == "result":
            made.append(result(name))
        else:
            made += [("hologram", b'{"x":1}', "agent")]
    browser, last, begun = Browser(), 1, 0
    browser.take(window(visitor.platform, visitor.platform.session(session.id)).entries)
    while begun < len(made):
        step = steps[begun % len(steps)]
        visitor.log(session, *made[begun : begun + step])
        begun += step
        now = visitor.platform.session(session.id)
        for _ in range(1 + repeats % 2):  # an answer that was lost is asked for again
            fresh = window(visitor.platform, now, after=last, least=min(browser.held))
            browser.take(fresh.entries)
        last = fresh.last
    assert browser.events() == list(range(1, len(made) + 2))


def test_new_events_come_as_a_part_of_a_page_that_says_how_far_it_goes(visitor: Visitor) -> None:
    session = visitor.session()
    visitor.log(session, call("Bash", "a"))
    visitor.say(session, "one")
    visitor.log(session, result("a", "late outcome"))
    part = visitor.page(f"/sessions/{session.id}/timeline?after=3&from=1")
    assert anchors(part) == ["2"]
    assert shown(part) == {2, 4}
    assert 'data-upto="4"' in part
    assert '<template class="reached" data-last="4" data-head="4">' in part
    without = visitor.page(f"/sessions/{session.id}/timeline?after=3&from=3")
    assert anchors(without) == ["4"]  # a page that does not have the call gets the result by itself


def test_a_part_beyond_the_end_is_empty_and_goes_no_further(visitor: Visitor) -> None:
    session = visitor.session()
    part = visitor.page(f"/sessions/{session.id}/timeline?after=9")
    assert anchors(part) == []
    assert 'data-last="9"' in part
