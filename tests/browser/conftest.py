"""A real browser over the whole console.

Every test gets pages that are watched (``watching``), and servers that are processes (``housing``). The browser is started
once a module, not once a run: Playwright keeps an event loop running in the thread that uses it, and other tests have loops
of their own. What is read only is shared by all tests: one furnished store behind one server.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests import needs
from tests.browser import furnishing, housing
from tests.browser.furnishing import Furnished
from tests.browser.housing import House
from tests.browser.watching import Watch

QUIET: Final = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-dev-shm-usage",
    # Nothing but this machine has an address: what a page might ask elsewhere fails at once, and is seen all the same.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
NARROW: Final = {"width": 320, "height": 640}
WIDE: Final = {"width": 1280, "height": 800}
SIZES: Final = {"320px": NARROW, "1280px": WIDE}
PATIENCE: Final = 15_000
"""Milliseconds that a page may take for anything."""

LEASE: Final = 3
"""Seconds after which a run whose server was killed is taken up again, where that is tested."""

Visiting = Callable[..., Page]

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    command = needs.need("browser")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=command, args=list(QUIET), chromium_sandbox=False, timeout=60_000
        )
        yield started
        started.close()


@pytest.fixture(scope="session")
def apart() -> Iterator[Callable[..., Any]]:
    """Calls a function in a thread without an event loop: engines that are driven from here bring their own."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


@pytest.fixture(scope="session")
def furnished(
    tmp_path_factory: pytest.TempPathFactory, apart: Callable[..., Any]
) -> Iterator[tuple[House, Furnished]]:
    """A store with everything in it, and its server. Shared: read it, and open sessions of your own to write in."""
    needs.need("browser")
    made = House(tmp_path_factory.mktemp("furnished"))
    try:
        told = apart(furnishing.furnish, made.log)
        made.serve()
        yield made, told
    finally:
        made.close()


@pytest.fixture(scope="session")
def home(furnished: tuple[House, Furnished]) -> House:
    """The server of the furnished store."""
    return furnished[0]


@pytest.fixture(scope="session")
def there(furnished: tuple[House, Furnished]) -> Furnished:
    """What there is in the furnished store."""
    return furnished[1]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[House]:
    """A server with a store of its own, for a test that kills it."""
    with housing.house(tmp_path, lease=LEASE) as made:
        yield made


@pytest.fixture
def visiting(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """`visiting(house, **options)` is a browser of somebody who is signed in; what its pages did is looked at in the end."""
    with contextlib.ExitStack() as opened:
        watches: list[Watch] = []
        houses: set[House] = set()

        def visit(
            house: House, *, signed: bool = True, at: str = "", lossy: bool = False, **options: Any
        ) -> BrowserContext:
            options.setdefault("viewport", WIDE)
            context = browser.new_context(base_url=at or house.url, **options)
            opened.callback(context.close)
            context.set_default_timeout(PATIENCE)
            watch = Watch(context, at or house.url)
            if lossy:
                watch.lose_the_server()
            watches.append(watch)
            houses.add(house)
            if signed:
                context.add_cookies([{**house.cookie, "url": at or house.url}])
            return context

        yield visit
        faults = [fault for watch in watches for fault in watch.faults]
        faults += [fault for house in houses for fault in house.faults()]
        assert not faults, "\n".join(faults)


@pytest.fixture
def visit(visiting: Callable[..., BrowserContext], home: House) -> Visiting:
    """`visit(**options)` is a page of somebody who is signed in at the furnished server."""
    return lambda **options: visiting(home, **options).new_page()


@pytest.fixture(params=list(SIZES))
def size(request: pytest.FixtureRequest) -> dict[str, int]:
    """A narrow window and a wide one."""
    found: dict[str, int] = SIZES[request.param]
    return found
