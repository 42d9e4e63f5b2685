"""Runs over HTTP: how one stands, ending it, and trying again."""

from __future__ import annotations

from typing import Final

from onward.service import running
from onward.surfaces.http import shapes
from onward.surfaces.http.routing import Ask, Route


def show(ask: Ask) -> shapes.RunShape:
    """Return a run; one that waits says what for."""
    return shapes.run(running.get(ask.platform, ask.path["run"]), ask.platform)


def cancel(ask: Ask) -> shapes.RunShape:
    """Cancel a run."""
    return shapes.run(running.cancel(ask.platform, ask.path["run"]), ask.platform)


def retry(ask: Ask) -> shapes.RunShape:
    """Queue a run again."""
    return shapes.run(running.retry(ask.platform, ask.path["run"]), ask.platform)


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/runs/{run}",
        does="Return a run; of one that waits, the reason says what for.",
        scope="read",
        handler=show,
        answer=shapes.RunShape,
    ),
    Route(
        method="POST",
        path="/v1/runs/{run}/cancel",
        does="Cancel a run; one that has ended is left as it is.",
        scope="write",
        handler=cancel,
        answer=shapes.RunShape,
    ),
    Route(
        method="POST",
        path="/v1/runs/{run}/retry",
        does="Queue a run again that failed, was cancelled or was cut off.",
        scope="write",
        handler=retry,
        answer=shapes.RunShape,
        status=202,
    ),
)
