-- Rows of engines' own files, as they wrote them, so that a conversation can be given back to its engine.

CREATE TABLE native_rows (
  account_id TEXT NOT NULL,
  engine     TEXT NOT NULL,
  native_id  TEXT NOT NULL,
  scope      TEXT NOT NULL,
  path       TEXT NOT NULL,
  part       INTEGER NOT NULL,
  session_id TEXT,
  at         INTEGER NOT NULL,
  count      INTEGER NOT NULL,
  data       BLOB NOT NULL,                   -- zlib
  UNIQUE (account_id, engine, native_id, scope, path, part)
);
CREATE INDEX native_rows_by_session ON native_rows (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX native_rows_by_scope ON native_rows (account_id, engine, scope, native_id, path, at);
