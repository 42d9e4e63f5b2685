"""What watches the pages sees what it is there for: a watch that cannot find fault would let everything pass."""

from __future__ import annotations

import contextlib

import pytest
from playwright.sync_api import Browser, Error, Page, expect
from tests.browser.addresses import PARTS, addresses
from tests.browser.furnishing import Furnished
from tests.browser.housing import House
from tests.browser.watching import Watch

FAULTS = {
    "policy: script-src": """() => {
      const one = document.createElement("script");
      one.textContent = "1";
      document.body.append(one);
    }""",
    "policy: style-src": "() => document.body.setAttribute('style', 'color: red')",
    "policy: img-src": "() => { new Image().src = 'http://192.0.2.1/pixel.png'; }",
    "request: GET http://192.0.2.1/": "() => { location.href = 'http://192.0.2.1/'; }",
    "dialog: hello": "() => { setTimeout(() => alert('hello')); }",
    "error: thrown": "() => { setTimeout(() => { throw new Error('thrown'); }); }",
    "error: written": "() => console.error('written')",
}


@pytest.mark.parametrize("begins", list(FAULTS))
def test_a_fault_of_a_page_is_seen(browser: Browser, home: House, begins: str) -> None:
    context = browser.new_context(base_url=home.url)
    watch = Watch(context, home.url)
    context.add_cookies([home.cookie])  # type: ignore[list-item]  # it has a name, a value and an address
    page: Page = context.new_page()
    page.goto("/")
    expect(page.locator("h1")).to_be_visible()
    assert watch.faults == []
    page.evaluate(FAULTS[begins])
    for _ in range(200):
        if any(begins in fault for fault in watch.faults):
            break
        with contextlib.suppress(Error):  # it is on its way to another page
            page.evaluate("() => new Promise(requestAnimationFrame)")
    assert any(begins in fault for fault in watch.faults), watch.faults
    context.close()


def test_every_page_is_among_those_that_are_looked_at(home: House, there: Furnished) -> None:
    found = addresses(home, there)
    assert len(found) == len(set(found))
    assert len(found) > 25
    assert not any("{" in address for address in found)
    assert all(path.startswith("/") for path in PARTS)
