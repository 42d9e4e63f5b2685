"""Signing in with a provider in a real browser, which has its own mind about cookies on the way back from another site."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright
from tests import needs
from tests.browser.conftest import NARROW, QUIET, SIZES
from tests.browser.housing import ROOT
from tests.browser.test_accessible import AXE, OVERFLOW, faults

from onward.testing.stub_oidc import Person, StubProvider

ELSEWHERE: Final = "127.0.0.2"
"""An address of this machine that is another site than 127.0.0.1 to a browser."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for which there are two sites."""
    command = needs.need("browser")
    with sync_playwright() as playwright:
        args = [f"{one} , EXCLUDE {ELSEWHERE}" if "resolver" in one else one for one in QUIET]
        started = playwright.chromium.launch(executable_path=command, args=args, timeout=60_000)
        yield started
        started.close()


@pytest.fixture
def provider() -> Iterator[StubProvider]:
    """A provider on another site, where a person has to press something."""
    with StubProvider(person=Person(sub="1", email="ada@example.com"), host=ELSEWHERE, asks=True) as running:
        yield running


@pytest.fixture
def address(provider: StubProvider, tmp_path: Path) -> Iterator[str]:
    """Where the server is."""
    served = subprocess.Popen(
        [
            *(sys.executable, "-m", "onward", "serve", "--json", "--no-runner", "--port", "0"),
            *("--store", str(tmp_path / "store.db")),
            *("--oidc-issuer", provider.issuer, "--oidc-client", "onward", "--oidc-allow", "@example.com"),
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert served.stdout is not None
    url = json.loads(served.stdout.readline())["url"]
    provider.redirects.append(f"{url}/login/oidc/back")
    yield url
    served.send_signal(signal.SIGTERM)
    served.communicate(timeout=60)


@pytest.fixture(params=[True, False], ids=["script", "no script"])
def context(request: pytest.FixtureRequest, browser: Browser, address: str) -> Iterator[BrowserContext]:
    """Somebody who is not signed in."""
    made = browser.new_context(base_url=address, java_script_enabled=request.param, viewport=NARROW)
    made.set_default_timeout(15_000)
    yield made
    made.close()


def test_the_way_through_another_site_ends_where_it_began_and_signed_in(
    context: BrowserContext, provider: StubProvider, address: str
) -> None:
    page = context.new_page()
    page.goto("/machines")
    page.get_by_role("link", name="Sign in with").click()
    page.wait_for_url(f"{provider.issuer}/**")
    page.get_by_role("link", name="Agree").click()
    page.wait_for_url(f"{address}/machines")
    expect(page.locator("h1")).to_have_text("Machines")

    # Back does not lead to an address with a code in it.
    page.go_back()
    assert "code=" not in page.url

    page.goto("/tokens")
    page.get_by_label("What it is for").fill("laptop")
    page.get_by_role("button", name="Make a token").click()
    expect(page.get_by_label("The token", exact=True)).to_contain_text("onw_")

    page.get_by_label("Look and account").click()
    expect(page.get_by_text("ada@example.com", exact=True)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("h1")).to_have_text("Sign in")
    page.goto("/machines")
    expect(page.locator("h1")).to_have_text("Sign in")


def test_who_is_not_on_the_list_reads_why_and_can_be_somebody_else(
    context: BrowserContext, provider: StubProvider, address: str
) -> None:
    provider.person = Person(sub="2", email="eve@example.org")
    page = context.new_page()
    page.goto("/login")
    page.get_by_role("link", name="Sign in with").click()
    page.get_by_role("link", name="Agree").click()
    expect(page.get_by_role("alert")).to_contain_text("--oidc-allow eve@example.org")
    provider.person = Person(sub="1", email="ada@example.com")
    page.get_by_role("link", name="somebody else").click()
    assert "prompt=select_account" in page.url
    page.get_by_role("link", name="Agree").click()
    page.wait_for_url(f"{address}/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")


@pytest.mark.parametrize("looks", list(SIZES))
def test_nothing_on_the_way_in_keeps_anybody_out(
    browser: Browser, provider: StubProvider, address: str, looks: str, need: Callable[[str], Any]
) -> None:
    context = browser.new_context(base_url=address, viewport=SIZES[looks])  # type: ignore[arg-type]
    context.add_init_script(path=need("axe"))
    page, found = context.new_page(), []

    def look() -> None:
        found.extend(faults(page.url, page.evaluate(AXE)))
        assert page.evaluate(OVERFLOW) == ""

    provider.person = Person(sub="2", email="eve-with-a-very-long-name-of-forty-letters@example.org")
    page.goto("/login")
    look()
    page.get_by_role("link", name="Sign in with").click()
    page.get_by_role("link", name="Agree").click()
    expect(page.get_by_role("alert")).to_be_visible()
    look()
    provider.person = Person(sub="1", email="ada@example.com")
    page.get_by_role("link", name="Sign in with").click()
    page.get_by_role("link", name="Agree").click()
    page.wait_for_url(f"{address}/")
    page.goto("/tokens")
    look()
    page.get_by_label("What it is for").fill("laptop")
    page.get_by_role("button", name="Make a token").click()
    page.get_by_label("Look and account").click()
    look()
    context.close()
    assert not found, "\n".join(found)
