"""A session of a hundred thousand events opens as a short one does, and stays as light however far somebody reads back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from tests.browser.conftest import Visiting
from tests.browser.furnishing import lengthen
from tests.browser.housing import House

EVENTS = 100_000
OPENED = 5.0
"""Seconds, on a machine that does other things too. Quiet, it is a fraction of one."""
HEAP = 48 * 1024 * 1024
"""Bytes of script memory after twenty pages of a hundred events."""
PLACE = "(id) => document.getElementById(id).getBoundingClientRect().top"


@pytest.fixture(scope="module")
def long(home: House, apart: Callable[..., Any]) -> Iterator[str]:
    """A session of that many events."""
    session = home.session("A hundred thousand events")
    apart(lengthen, home.log, session, EVENTS)
    return session


def test_it_opens_at_its_newest_events_in_bounded_time(visit: Visiting, long: str) -> None:
    page = visit()
    page.goto("/")
    began = time.monotonic()
    page.goto(f"/sessions/{long}")
    expect(page.locator(f"#e{EVENTS}")).to_be_in_viewport()
    took = time.monotonic() - began
    assert took < OPENED
    assert page.locator("article[data-seq]").count() == 100


def test_earlier_pages_load_in_place_and_the_reader_stays_where_they_read(visit: Visiting, long: str) -> None:
    page = visit()
    page.goto(f"/sessions/{long}")
    expect(page.locator(f"#e{EVENTS}")).to_be_in_viewport()
    lowest = EVENTS - 99
    for _ in range(20):
        earlier = page.locator(".paging.earlier a")
        earlier.scroll_into_view_if_needed()
        first = f"e{lowest}"
        before = page.evaluate(PLACE, first)
        earlier.click()
        lowest -= 100
        # Not `expect`: for its message it walks through all that there is, and has everything laid out that is out of sight.
        page.wait_for_selector(f"#e{lowest}", state="attached")
        settled(page)
        assert abs(page.evaluate(PLACE, first) - before) < 60, f"the page jumped when event {lowest} came in"
    assert page.locator("article[data-seq]").count() == 2_100
    numbers = page.evaluate(
        "() => [...document.querySelectorAll('article[data-seq]')].map((one) => Number(one.dataset.seq))"
    )
    assert numbers == list(range(lowest, EVENTS + 1))
    client = page.context.new_cdp_session(page)
    client.send("HeapProfiler.collectGarbage")
    heap = client.send("Runtime.getHeapUsage")["usedSize"]
    assert heap < HEAP


def test_any_event_in_the_middle_is_opened_at_its_place(visit: Visiting, long: str) -> None:
    page = visit()
    page.goto(f"/sessions/{long}?at=50000#e50000")
    expect(page.locator("#e50000")).to_be_in_viewport()
    page.get_by_role("link", name="Later", exact=True).click()
    expect(page.locator("article[data-seq]").first).to_be_attached()
    page.get_by_role("link", name="Newest", exact=True).click()
    expect(page.locator(f"#e{EVENTS}")).to_be_attached()


def test_what_is_said_now_arrives_at_its_end(
    visiting: Callable[..., BrowserContext], home: House, long: str
) -> None:
    page = visiting(home).new_page()
    page.goto(f"/sessions/{long}?at=100#e100")
    expect(page.locator("#e100")).to_be_in_viewport()
    head = home.log.session(long).head_seq
    page.goto(f"/sessions/{long}")
    expect(page.locator(f"#e{head}")).to_be_in_viewport()


def settled(page: Page) -> None:
    """Wait until the page has been drawn twice as it is now."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
