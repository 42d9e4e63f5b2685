"""The table: every route of the server."""

from __future__ import annotations

from typing import Final

import onward
from onward.surfaces.http import (
    approving,
    continuing,
    describing,
    drafting,
    events,
    lineages,
    live,
    machines,
    manifests,
    metrics,
    recalling,
    referencing,
    runners,
    runs,
    sessions,
    shapes,
    states,
    tokens,
    workspaces,
)
from onward.surfaces.http.routing import Ask, Route


def health(ask: Ask) -> shapes.Health:
    """Say that the server is there."""
    del ask
    return shapes.Health(ok=True, version=onward.__version__)


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/v1/health",
        does="Say that the server is there.",
        scope=None,
        handler=health,
        answer=shapes.Health,
    ),
    *describing.ROUTES,
    *metrics.ROUTES,
    *sessions.ROUTES,
    *states.ROUTES,
    *live.ROUTES,
    *events.ROUTES,
    *runs.ROUTES,
    *continuing.ROUTES,
    *drafting.ROUTES,
    *approving.ROUTES,
    *lineages.ROUTES,
    *manifests.ROUTES,
    *recalling.ROUTES,
    *referencing.ROUTES,
    *workspaces.ROUTES,
    *machines.ROUTES,
    *tokens.ROUTES,
    *runners.ROUTES,
)
"""In the order in which documentation shows them. No path is answered by two."""
