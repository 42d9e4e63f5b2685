"""Runs over HTTP: how one stands, ending it, and trying again."""

from __future__ import annotations

from typing import Final

import msgspec

from onward import errors
from onward.core.codec import encode
from onward.service import opening, running
from onward.surfaces.http import bounds, shapes
from onward.surfaces.http.routing import Ask, Route


class Looking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs to list."""

    limit: bounds.To200 = 50
    """The newest so many."""


class RunsShape(shapes.Shape, frozen=True, kw_only=True):
    """The runs of a session, newest first."""

    runs: tuple[shapes.RunShape, ...]


class Retrying(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to try again; nothing for the same as before."""

    engine: bounds.Name | None = None
    """Another engine that answers."""
    options: bounds.Options | None = None
    """Dials that take the place of the run's own."""


def listed(ask: Ask) -> RunsShape:
    """List the runs of a session."""
    given: Looking = ask.query
    ask.platform.session(ask.path["session"])
    found = ask.platform.store.runs(ask.path["session"], limit=given.limit)
    unfinished = ask.platform.store.unfinished(ask.path["session"])
    return RunsShape(runs=tuple(shapes.run(run, ask.platform, unfinished) for run in found))


def show(ask: Ask) -> shapes.RunShape:
    """Return a run; one that waits says what for."""
    return shapes.run(running.get(ask.platform, ask.path["run"]), ask.platform)


def cancel(ask: Ask) -> shapes.RunShape:
    """Cancel a run."""
    return shapes.run(running.cancel(ask.platform, ask.path["run"]), ask.platform)


def retry(ask: Ask) -> shapes.RunShape:
    """Queue a run again."""
    given: Retrying = ask.body
    if given.options is not None:
        opening.parse_options(given.options)
    again = running.retry(
        ask.platform,
        ask.path["run"],
        engine=given.engine,
        options=None if given.options is None else encode(given.options),
    )
    return shapes.run(again, ask.platform)


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/sessions/{session}/runs",
        does="List the newest runs of a session.",
        scope="read",
        handler=listed,
        query=Looking,
        answer=RunsShape,
    ),
    Route(
        method="GET",
        path="/v1/runs/{run}",
        does="Return a run; of one that waits, the reason says what for.",
        scope="read",
        handler=show,
        answer=shapes.RunShape,
        tag="weak",
    ),
    Route(
        method="POST",
        path="/v1/runs/{run}/cancel",
        does="Cancel a run; one that has ended is left as it is.",
        scope="write",
        handler=cancel,
        answer=shapes.RunShape,
        errors=(errors.Conflict,),
        leads={"runs.retry": "/id", "sessions.say": "/session", "continuing.make": "/session"},
    ),
    Route(
        method="POST",
        path="/v1/runs/{run}/retry",
        does="Queue a run again that failed, was cancelled or was cut off. Again, it returns the same attempt.",
        scope="write",
        handler=retry,
        body=Retrying,
        optional=True,
        answer=shapes.RunShape,
        status=202,
        errors=(
            errors.InvalidTransition,
            errors.SessionContinued,
            errors.SessionArchived,
            errors.Conflict,
        ),
        example={"engine": "script"},
    ),
)
