"""The part of the store in memory about machines, tokens and workspaces. See ``memory``, of which it is a part."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from onward.core.records import Machine, Run, Session, Token, Workspace
from onward.errors import Conflict, NotFound
from onward.store import rules
from onward.store.contract import Batch


class MachinesInMemory:
    """Who may execute runs, and where the work is."""

    _lock: threading.RLock
    _sessions: dict[str, Session]
    _runs: dict[str, Run]

    def __init__(self) -> None:
        self._machines: dict[str, Machine] = {}
        self._tokens: dict[str, Token] = {}
        self._workspaces: dict[str, Workspace] = {}

    def _put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        raise NotImplementedError

    def _check_open(self) -> None:
        raise NotImplementedError

    # -- writing ------------------------------------------------------------------------------------------------------

    def _apply_machines(self, batch: Batch) -> None:
        for machine in batch.machines:
            kept = rules.kept_machine(machine, self._machines.get(machine.id))
            rival = self.machine_by_name(machine.account_id, machine.name)
            if rival is not None and rival.id != machine.id:
                raise Conflict(what=f"machine {machine.name}, which exists already")
            self._put(self._machines, machine.id, kept)
        for token in batch.tokens:
            same = self.token_by_digest(token.digest)
            if same is not None and same.id != token.id:
                raise Conflict(what="a token with this secret, which exists already")
            self._put(self._tokens, token.id, rules.kept_token(token, self._tokens.get(token.id)))
        for workspace in batch.workspaces:
            self._add_workspace(workspace)

    def _apply_moves(self, batch: Batch) -> None:
        for patch in batch.workspace_patches:
            workspace = self._workspaces.get(patch.workspace_id)
            if workspace is None:
                raise NotFound(what="workspace", value=patch.workspace_id)
            there = self.workspace(workspace.account_id, patch.path, patch.machine_id)
            if there is not None and there.id != workspace.id:
                raise Conflict(what=f"workspace {patch.path}, which exists there already")
            self._put(self._workspaces, workspace.id, rules.moved(workspace, patch))
        for seen in batch.seen:
            machine = self._machines.get(seen.machine_id)
            if machine is None:
                raise NotFound(what="machine", value=seen.machine_id)
            latest = max(machine.seen_at, seen.at)
            self._put(self._machines, machine.id, msgspec.structs.replace(machine, seen_at=latest))

    def _add_workspace(self, workspace: Workspace) -> None:
        there = self.workspace(workspace.account_id, workspace.path, workspace.machine_id)
        there = there or self._workspaces.get(workspace.id)
        if there is None:
            self._put(self._workspaces, workspace.id, workspace)
        elif not rules.same_place(there, workspace):
            raise Conflict(what=f"workspace {workspace.path}, which exists already")

    # -- reading ------------------------------------------------------------------------------------------------------

    def workspace(self, account_id: str, path: str, machine_id: str | None = None) -> Workspace | None:
        wanted = (account_id, path, machine_id)
        found = [w for w in self.workspaces(account_id) if (w.account_id, w.path, w.machine_id) == wanted]
        return found[0] if found else None

    def workspace_by_id(self, workspace_id: str) -> Workspace | None:
        with self._lock:
            self._check_open()
            return self._workspaces.get(workspace_id)

    def workspaces(self, account_id: str) -> list[Workspace]:
        with self._lock:
            self._check_open()
            found = [w for w in self._workspaces.values() if w.account_id == account_id]
        return sorted(found, key=lambda w: (w.created_at, w.id))

    def machine(self, machine_id: str) -> Machine | None:
        with self._lock:
            self._check_open()
            return self._machines.get(machine_id)

    def machines(self, account_id: str) -> list[Machine]:
        with self._lock:
            self._check_open()
            found = [m for m in self._machines.values() if m.account_id == account_id]
        return sorted(found, key=lambda m: (m.created_at, m.id))

    def machine_by_name(self, account_id: str, name: str) -> Machine | None:
        return next((m for m in self.machines(account_id) if m.name == name), None)

    def token_by_digest(self, digest: str) -> Token | None:
        with self._lock:
            self._check_open()
            return next((t for t in self._tokens.values() if t.digest == digest), None)

    def tokens(self, account_id: str) -> list[Token]:
        with self._lock:
            self._check_open()
            found = [t for t in self._tokens.values() if t.account_id == account_id]
        return sorted(found, key=lambda t: (t.created_at, t.id))

    def waiting_for(self, machine: Machine, engines: Sequence[str], *, limit: int = 20) -> list[Run]:
        with self._lock:
            self._check_open()
            unfinished = [run for run in self._runs.values() if run.state in ("queued", "running")]
            found = [run for run in unfinished if self._may_take(machine, engines, run, unfinished)]
        return sorted(found, key=lambda run: (run.created_at, run.id))[:limit]

    def _may_take(
        self, machine: Machine, engines: Sequence[str], run: Run, unfinished: Sequence[Run]
    ) -> bool:
        session = self._sessions[run.session_id]
        place = self._workspaces.get(session.workspace_id) if session.workspace_id else None
        here = place is None or place.machine_id == machine.id or (machine.home and place.machine_id is None)
        blocked = any(
            other.session_id == run.session_id
            and (other.state == "running" or rules.waits_before(other, run))
            for other in unfinished
            if other.id != run.id
        )
        return (
            run.state == "queued"
            and session.account_id == machine.account_id
            and run.engine in engines
            and here
            and not blocked
        )
