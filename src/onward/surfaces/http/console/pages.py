"""Pages: every page of the console, as data. No path is answered by two."""

from __future__ import annotations

from typing import Final

from onward.surfaces.http.console import (
    approving,
    branching,
    continuing,
    door,
    handoff,
    lineage,
    picking,
    places,
    provider,
    ranges,
    runs,
    session,
    tokens,
)
from onward.surfaces.http.console.visiting import Page

PAGES: Final[tuple[Page, ...]] = (
    *door.PAGES,
    *provider.PAGES,
    *places.PAGES,
    *session.PAGES,
    *runs.PAGES,
    *lineage.PAGES,
    *ranges.PAGES,
    *handoff.PAGES,
    *continuing.PAGES,
    *approving.PAGES,
    *branching.PAGES,
    *picking.PAGES,
    *tokens.PAGES,
)
