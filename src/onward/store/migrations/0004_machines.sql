-- Machines that execute runs, tokens that let them in, and workspaces that lie on a machine.

CREATE TABLE machines (
  id         TEXT NOT NULL PRIMARY KEY,
  account_id TEXT NOT NULL,
  name       TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  engines    BLOB NOT NULL,                   -- a JSON array
  seen_at    INTEGER NOT NULL,
  home       INTEGER NOT NULL,
  UNIQUE (account_id, name)
) WITHOUT ROWID;

CREATE TABLE tokens (
  id         TEXT NOT NULL PRIMARY KEY,
  account_id TEXT NOT NULL,
  name       TEXT NOT NULL,
  digest     TEXT NOT NULL UNIQUE,
  scopes     TEXT NOT NULL,                   -- a JSON array
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER
) WITHOUT ROWID;

-- Rebuilt, because a path is unique on a machine now, and not in the account. Those that are there have no machine, which
-- means the machine that has the store.
CREATE TABLE workspaces_on_machines (
  id         TEXT NOT NULL PRIMARY KEY,
  account_id TEXT NOT NULL,
  path       TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  machine_id TEXT,
  moved_at   INTEGER
) WITHOUT ROWID;
INSERT INTO workspaces_on_machines (id, account_id, path, created_at)
  SELECT id, account_id, path, created_at FROM workspaces;
DROP TABLE workspaces;
ALTER TABLE workspaces_on_machines RENAME TO workspaces;
CREATE UNIQUE INDEX workspaces_by_place ON workspaces (account_id, path, coalesce(machine_id, ''));

ALTER TABLE runs ADD COLUMN machine_id TEXT;
ALTER TABLE runs ADD COLUMN claim TEXT;
ALTER TABLE runs ADD COLUMN entries INTEGER NOT NULL DEFAULT 0;
CREATE INDEX runs_waiting ON runs (session_id) WHERE state IN ('queued', 'running');
