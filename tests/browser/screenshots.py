"""The pictures of the console: ``python -m tests.browser.screenshots FOLDER``, which is ``make screenshots``.

They show the furnished store of the tests, so they show what the pages are, and can be taken anew after every change. Each
is 1280 by 800, in the light or the dark, with few enough bytes to live in a repository.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright
from tests import needs
from tests.browser import furnishing
from tests.browser.conftest import PATIENCE, QUIET, WIDE
from tests.browser.housing import House

MOST_BYTES: Final = 200_000
"""Bytes of one picture."""


def main(folder: Path) -> None:
    """Take every picture."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="onward-screens-") as place:
        home = House(Path(place))
        try:
            there = furnishing.furnish(home.log)
            home.serve()
            shots = (
                ("sessions", "/", "light", ""),
                ("session", f"/sessions/{there.origin}", "light", ".transition-card"),
                ("successor", f"/sessions/{there.successor}", "dark", ".session-head"),
                ("handoff", f"/manifests/{there.manifest}", "light", ""),
                ("lineage", f"/sessions/{there.origin}/lineage", "light", ""),
                (
                    "continue",
                    f"/sessions/{there.branch}/continue?purpose=Do+it+without+the+library",
                    "dark",
                    "",
                ),
                ("search", "/search?q=clock", "light", ""),
            )
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=needs.browser(), args=list(QUIET), chromium_sandbox=False
                )
                for name, address, look, sight in shots:
                    context = browser.new_context(
                        base_url=home.url,
                        viewport=WIDE,
                        color_scheme=look,  # type: ignore[arg-type]  # light or dark
                        reduced_motion="reduce",
                    )
                    context.add_cookies([home.cookie])  # type: ignore[list-item]
                    context.set_default_timeout(PATIENCE)
                    taken(context.new_page(), address, sight, folder / f"{name}.png")
                    context.close()
                browser.close()
        finally:
            home.close()


def taken(page: Page, address: str, sight: str, file: Path) -> None:
    """Take a picture of a page, with a part of it in sight. Raises RuntimeError for one that is too large to keep."""
    page.goto(address)
    page.wait_for_load_state("load")
    if sight:
        # Somebody who moves is let go: the page does not go to its end any more.
        page.mouse.wheel(0, -1)
        page.locator(sight).first.evaluate("(one) => one.scrollIntoView({ block: 'center' })")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    shot = page.screenshot(path=file, animations="disabled", caret="hide")
    if len(shot) > MOST_BYTES:
        raise RuntimeError(f"{file.name} takes {len(shot):,} bytes, and {MOST_BYTES:,} is the most")
    sys.stdout.write(f"{file} {len(shot):,} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
