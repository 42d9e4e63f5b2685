"""Writing what a batch says about machines, tokens and workspaces into SQLite. A part of ``sqlite_batch``."""

from __future__ import annotations

import sqlite3
from typing import Any, TypeVar

from onward.core.records import Machine, Record, Token, Workspace
from onward.errors import Conflict, NotFound
from onward.store import rules
from onward.store import statements as sql
from onward.store.contract import Batch, WorkspacePatch
from onward.store.rows import bindable, shape

R = TypeVar("R", bound=Record)


def write_first(db: sqlite3.Connection, batch: Batch) -> None:
    """Write machines, tokens and new workspaces. Raises Conflict."""
    for machine in batch.machines:
        there = _one(db, Machine, sql.MACHINE, machine.id)
        rival = _one(db, Machine, sql.MACHINE_BY_NAME, machine.account_id, machine.name)
        if rival is not None and rival.id != machine.id:
            raise Conflict(what=f"machine {machine.name}, which exists already")
        db.execute(sql.SET_MACHINE, shape(Machine).row(rules.kept_machine(machine, there)))
    for token in batch.tokens:
        known = _one(db, Token, sql.TOKEN, token.id)
        same = _one(db, Token, sql.TOKEN_BY_DIGEST, token.digest)
        if same is not None and same.id != token.id:
            raise Conflict(what="a token with this secret, which exists already")
        db.execute(sql.SET_TOKEN, shape(Token).row(rules.kept_token(token, known)))
    for workspace in batch.workspaces:
        found = _at(db, workspace.account_id, workspace.path, workspace.machine_id)
        found = found or _one(db, Workspace, sql.WORKSPACE_BY_ID, workspace.id)
        if found is None:
            db.execute(sql.ADD_WORKSPACE, shape(Workspace).row(workspace))
        elif not rules.same_place(found, workspace):
            raise Conflict(what=f"workspace {workspace.path}, which exists already")


def write_changes(db: sqlite3.Connection, batch: Batch) -> None:
    """Write where workspaces moved and when machines were heard of. Raises Conflict, NotFound."""
    for patch in batch.workspace_patches:
        _move(db, patch)
    for seen in batch.seen:
        if db.execute(sql.MACHINE_SEEN, (seen.at, seen.machine_id)).rowcount == 0:
            raise NotFound(what="machine", value=seen.machine_id)


def _move(db: sqlite3.Connection, patch: WorkspacePatch) -> None:
    workspace = _one(db, Workspace, sql.WORKSPACE_BY_ID, patch.workspace_id)
    if workspace is None:
        raise NotFound(what="workspace", value=patch.workspace_id)
    there = _at(db, workspace.account_id, patch.path, patch.machine_id)
    if there is not None and there.id != workspace.id:
        raise Conflict(what=f"workspace {patch.path}, which exists there already")
    moved = rules.moved(workspace, patch)
    db.execute(sql.MOVE_WORKSPACE, (moved.machine_id, bindable(moved.path), moved.moved_at, moved.id))


def _at(db: sqlite3.Connection, account_id: str, path: str, machine_id: str | None) -> Workspace | None:
    return _one(db, Workspace, sql.WORKSPACE, account_id, path, machine_id or "")


def _one(db: sqlite3.Connection, record: type[R], statement: str, *values: Any) -> R | None:
    row = db.execute(statement, tuple(map(bindable, values))).fetchone()
    return None if row is None else shape(record).record(row)
