"""Pages: every page of the console, as data. No path is answered by two."""

from __future__ import annotations

from typing import Final

from onward.surfaces.http.console import door, places, runs, session
from onward.surfaces.http.console.visiting import Page

PAGES: Final[tuple[Page, ...]] = (*door.PAGES, *places.PAGES, *session.PAGES, *runs.PAGES)
