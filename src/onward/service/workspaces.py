"""Workspaces: the folders that work is about, each on the machine that has it.

A session belongs to a workspace, and a workspace lies on one machine: its runs are executed there. When the folder moves,
the workspace moves, and with it every conversation that is about it. Their next runs are executed on the other machine,
which holds none of their engines' conversations: they open as restored or seeded there, never cold (invariant O1).
"""

from __future__ import annotations

from onward.core import ids as make
from onward.core.records import Machine, Session, Workspace
from onward.errors import InvalidInput, WorkspaceNotFound
from onward.service import machines
from onward.service.platform import Platform
from onward.store.contract import Batch, WorkspacePatch


def place(
    platform: Platform, path: str, machine: Machine | None = None
) -> tuple[Workspace, tuple[Workspace, ...]]:
    """Return the workspace of a folder and, when it is new, its record to be stored.

    Without a machine the folder is on the one that has the store.
    """
    on = None if machine is None or machine.home else machine.id
    found = platform.store.workspace(platform.account_id, path, on)
    if found is not None:
        return found, ()
    named = (platform.account_id, path) if on is None else (platform.account_id, path, on)
    id = make.derived_id(make.WORKSPACE, 0, *named)
    if platform.store.workspace_by_id(id) is not None:
        id = platform.ids.new(make.WORKSPACE)  # the one that was here first has moved, and kept its id
    made = Workspace(
        id=id, account_id=platform.account_id, path=path, created_at=platform.clock(), machine_id=on
    )
    return made, (made,)


def ensure(platform: Platform, path: str, machine: Machine | None = None) -> Workspace:
    """Return the workspace of a folder, stored. Raises InvalidInput for a path that is none."""
    found, new = place(platform, checked_path(path), machine)
    if new:
        platform.store.commit(Batch(workspaces=new))
    return found


def checked_path(path: str) -> str:
    """Return a folder's path. Raises InvalidInput for an empty one: every machine spells its own in its own way."""
    if not path.strip() or "\0" in path:
        raise InvalidInput(what=f"the folder {path!r}", why="it has no name")
    return path


def get(platform: Platform, named: str, machine: Machine | None = None) -> Workspace:
    """Return a workspace of this account by its id, or by its path on a machine. Raises WorkspaceNotFound (A1)."""
    found = platform.store.workspace_by_id(named)
    if found is None:
        on = None if machine is None or machine.home else machine.id
        found = platform.store.workspace(platform.account_id, named, on)
    if found is None and machine is None:
        alike = [w for w in listed(platform) if w.path == named]
        found = alike[0] if len(alike) == 1 else None
    if found is None or found.account_id != platform.account_id:
        raise WorkspaceNotFound(workspace=named)
    return found


def listed(platform: Platform) -> list[Workspace]:
    """Return the workspaces of this account, oldest first."""
    return platform.store.workspaces(platform.account_id)


def move(platform: Platform, named: str, machine: Machine, path: str) -> Workspace:
    """Put a workspace on another machine, or in another folder. Moving it to where it is changes nothing.

    Runs that wait are executed there from now on; one that is running ends where it began. Raises Conflict when another
    workspace is in that folder already.
    """
    found = get(platform, named)
    on = None if machine.home else machine.id
    if (found.machine_id, found.path) != (on, path):
        patch = WorkspacePatch(
            workspace_id=found.id, machine_id=on, path=checked_path(path), moved_at=platform.clock()
        )
        platform.store.commit(Batch(workspace_patches=(patch,)))
    return get(platform, found.id)


def of_session(platform: Platform, session: Session) -> Workspace | None:
    """Return the workspace of a session, if it has one."""
    return platform.store.workspace_by_id(session.workspace_id) if session.workspace_id else None


def machine_of(platform: Platform, workspace: Workspace) -> Machine | None:
    """Return the machine that a workspace is on; None for that of the store while it is not registered."""
    if workspace.machine_id is None:
        return machines.home(platform)
    return platform.store.machine(workspace.machine_id)


def is_here(platform: Platform, workspace: Workspace) -> bool:
    """Whether a workspace is on the machine that this process executes runs on."""
    return workspace.machine_id is None or workspace.machine_id == platform.machine_id


def has_moved(platform: Platform, session: Session) -> bool:
    """Whether the workspace of a session has ever moved: then a folder that one of its runs was given may be gone."""
    workspace = of_session(platform, session)
    return workspace is not None and workspace.moved_at is not None
