"""A file from before machines were known: its workspaces stay, on the machine that has the store."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

from onward.core.records import Workspace
from onward.store import migrate
from onward.store.sqlite import SqliteStore
from onward.store.sqlite_connection import APPLICATION_ID


def test_workspaces_and_runs_of_an_older_file_have_no_machine(tmp_path: Path) -> None:
    older = tmp_path / "migrations"
    older.mkdir()
    for _, name in migrate.known()[:3]:
        shutil.copy(Path(migrate.FOLDER) / name, older)
    path = tmp_path / "store.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate.migrate(db, APPLICATION_ID, str(path), str(older))
        db.execute("INSERT INTO workspaces VALUES ('wsp_1', 'acc_1', '/p', 5)")
        db.execute(
            "INSERT INTO runs (id, session_id, created_at, state, engine, attempt, input_actor, options, fence)"
            " VALUES ('run_1', 'ses_1', 5, 'completed', 'script', 1, 'user', x'7b7d', 1)"
        )
    with contextlib.closing(SqliteStore(path)) as store:
        made = Workspace(id="wsp_1", account_id="acc_1", path="/p", created_at=5)
        assert store.workspaces("acc_1") == [made]
        assert store.workspace("acc_1", "/p") == made
        run = store.run("run_1")
        assert run is not None
        assert (run.machine_id, run.claim, run.entries) == (None, None, 0)
