"""Workspaces over HTTP: one of them, and what was said and done there over all its sessions."""

from __future__ import annotations

from typing import Final

import msgspec

from onward.core.events import iso
from onward.service import briefing, workspaces
from onward.surfaces.http import bounds, shapes
from onward.surfaces.http.routing import Ask, Route

LINE: Final = 4000
"""Characters of one row."""


class Telling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which stretch of a timeline: at most one of the two, neither for the newest."""

    since: bounds.Moment | None = None
    """Forwards from here: microseconds since 1970, not included."""
    before: bounds.Moment | None = None
    """Backwards from here: microseconds since 1970, not included."""
    limit: bounds.To200 = briefing.TIMELINE
    children: bool = False
    """Delegated sessions too."""


class RowShape(shapes.Shape, frozen=True, kw_only=True):
    """One line of a timeline."""

    session: str
    seq: int
    at: str
    moment: int
    """The same in microseconds since 1970: a cursor for ``since`` and ``before``."""
    label: str
    text: str


class TimelineShape(shapes.Shape, frozen=True, kw_only=True):
    """A stretch of a timeline, oldest first."""

    workspace: str
    rows: tuple[RowShape, ...]
    more: bool
    """There are more rows in the direction that was read."""


def show(ask: Ask) -> shapes.WorkspaceShape:
    """Return a workspace."""
    return shapes.workspace(workspaces.get(ask.platform, ask.path["workspace"]), ask.platform)


def timeline(ask: Ask) -> TimelineShape:
    """Return what was said and done."""
    given: Telling = ask.query
    found = briefing.timeline(
        ask.platform,
        ask.path["workspace"],
        since=given.since,
        before=given.before,
        limit=given.limit,
        children=given.children,
    )
    rows = tuple(
        RowShape(
            session=row.session,
            seq=row.seq,
            at=iso(row.at),
            moment=row.at,
            label=row.label,
            text=_line(row.text),
        )
        for row in found.rows
    )
    return TimelineShape(workspace=ask.path["workspace"], rows=rows, more=found.more)


def _line(text: str) -> str:
    return text if len(text) <= LINE else f"{text[:LINE]}… ({len(text) - LINE:,} more characters)"


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/workspaces/{workspace}",
        does="Return a workspace, and which machine has it.",
        scope="read",
        handler=show,
        answer=shapes.WorkspaceShape,
        tag="weak",
    ),
    Route(
        method="GET",
        path="/v1/workspaces/{workspace}/timeline",
        does="Return what was said and done in a workspace, over all its sessions.",
        scope="read",
        handler=timeline,
        query=Telling,
        answer=TimelineShape,
    ),
)
