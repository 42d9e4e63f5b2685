"""A page that was put away whole (the browser's back/forward cache) and is shown again goes on where it stood."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import BrowserContext, expect
from tests.browser.housing import House

from onward.core.bodies import Message

# Playwright switches that cache off, so its two events are given to the page as the browser would.
AWAY = "() => dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))"
BACK = "() => dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))"
COUNTED = """() => {
  window.opened = 0;
  const Real = EventSource;
  window.EventSource = class extends Real { constructor(...all) { super(...all); window.opened += 1; } };
  window.EventSource.CLOSED = Real.CLOSED;
}"""


def test_a_page_that_is_come_back_to_is_live_again_each_time(
    visiting: Callable[..., BrowserContext], home: House
) -> None:
    session = home.session("Left and come back to")
    page = visiting(home).new_page()
    page.goto(f"/sessions/{session}")
    page.evaluate(COUNTED)
    for time in range(1, 4):
        page.evaluate(AWAY)
        (meanwhile,) = home.write(session, [("message", Message(role="user", text="Meanwhile"), "user")])
        page.evaluate(BACK)
        expect(page.locator(f"#e{meanwhile.seq}")).to_be_attached()
        (after,) = home.write(session, [("message", Message(role="assistant", text="After"), "agent")])
        expect(page.locator(f"#e{after.seq}")).to_be_attached()
        assert page.evaluate("() => window.opened") == time  # one stream each time, and not one more
