"""Machines, workspaces and notifications over HTTP."""

from __future__ import annotations

from typing import Final

import msgspec

from onward import errors
from onward.core.events import iso
from onward.service import machines, workspaces
from onward.surfaces.http import bounds, paging, shapes
from onward.surfaces.http.routing import Ask, Route


class MachinesShape(shapes.Shape, frozen=True, kw_only=True):
    """The machines of an account."""

    machines: tuple[shapes.MachineShape, ...]
    next: str | None


class WorkspacesShape(shapes.Shape, frozen=True, kw_only=True):
    """The workspaces of an account."""

    workspaces: tuple[shapes.WorkspaceShape, ...]
    next: str | None


class Moving(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a workspace is now."""

    machine: bounds.Name
    """By name or id."""
    path: bounds.Folder


class NotificationShape(shapes.Shape, frozen=True, kw_only=True):
    """Something that happened by itself."""

    at: str
    text: str
    sessions: tuple[str, ...]


class NotificationsShape(shapes.Shape, frozen=True, kw_only=True):
    """What happened by itself since the server started, newest first."""

    notifications: tuple[NotificationShape, ...]


def listed(ask: Ask) -> MachinesShape:
    """List machines."""
    found, cursor = paging.page(machines.listed(ask.platform), ask.query)
    return MachinesShape(machines=tuple(shapes.machine(m, ask.platform) for m in found), next=cursor)


def show(ask: Ask) -> shapes.MachineShape:
    """Return a machine."""
    return shapes.machine(machines.get(ask.platform, ask.path["machine"]), ask.platform)


def places(ask: Ask) -> WorkspacesShape:
    """List workspaces."""
    found, cursor = paging.page(workspaces.listed(ask.platform), ask.query)
    return WorkspacesShape(workspaces=tuple(shapes.workspace(w, ask.platform) for w in found), next=cursor)


def move(ask: Ask) -> shapes.WorkspaceShape:
    """Put a workspace on another machine or in another folder."""
    given: Moving = ask.body
    machine = machines.get(ask.platform, given.machine)
    moved = workspaces.move(ask.platform, ask.path["workspace"], machine, given.path)
    return shapes.workspace(moved, ask.platform)


def notifications(ask: Ask) -> NotificationsShape:
    """List what happened by itself."""
    found = ask.house.notifications(ask.platform.account_id)
    shown = tuple(NotificationShape(at=iso(n.at), text=n.text, sessions=n.sessions) for n in found)
    return NotificationsShape(notifications=shown)


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/machines",
        does="List the machines that execute runs, with what they offer and whether anybody is there.",
        scope="read",
        handler=listed,
        query=paging.Paged,
        answer=MachinesShape,
    ),
    Route(
        method="GET",
        path="/v1/machines/{machine}",
        does="Return a machine.",
        scope="read",
        handler=show,
        answer=shapes.MachineShape,
    ),
    Route(
        method="GET",
        path="/v1/workspaces",
        does="List the workspaces, and which machine has each.",
        scope="read",
        handler=places,
        query=paging.Paged,
        answer=WorkspacesShape,
    ),
    Route(
        method="POST",
        path="/v1/workspaces/{workspace}/move",
        does="Say that a workspace is on another machine or in another folder now.",
        scope="write",
        handler=move,
        body=Moving,
        answer=shapes.WorkspaceShape,
        errors=(errors.MachineNotFound, errors.Conflict),
        example={"machine": "tower", "path": "/home/me/parser"},
    ),
    Route(
        method="GET",
        path="/v1/notifications",
        does="List what happened by itself since the server started.",
        scope="read",
        handler=notifications,
        answer=NotificationsShape,
    ),
)
