-- The log and the records beside it.
--
-- Times are microseconds since 1970 (UTC). Ids of records are text; ids of events, of which there are many, are the 16 bytes
-- behind them. REFERENCES are declared for readers and for `PRAGMA foreign_key_check`; the store checks before it writes.

CREATE TABLE workspaces (
  id         TEXT NOT NULL PRIMARY KEY,
  account_id TEXT NOT NULL,
  path       TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  UNIQUE (account_id, path)
) WITHOUT ROWID;

CREATE TABLE sessions (
  no           INTEGER PRIMARY KEY,           -- what events and the full text call it
  id           TEXT NOT NULL UNIQUE,
  account_id   TEXT NOT NULL,
  created_at   INTEGER NOT NULL,
  title        TEXT NOT NULL,
  description  TEXT NOT NULL,
  workspace_id TEXT,
  origin_id    TEXT,
  engine       TEXT,
  imported     INTEGER NOT NULL,
  archived     INTEGER NOT NULL,
  head_seq     INTEGER NOT NULL,              -- from here on: kept by the store
  head_chain   BLOB NOT NULL,
  updated_at   INTEGER NOT NULL,
  input_seq    INTEGER NOT NULL,
  fence        INTEGER NOT NULL
);
CREATE INDEX sessions_of_account ON sessions (account_id);

-- Kind, actor, producer and engine of an event: a handful of combinations, told once each.
CREATE TABLE stamps (
  no       INTEGER PRIMARY KEY,
  kind     TEXT NOT NULL,
  actor    TEXT NOT NULL,
  producer TEXT NOT NULL,
  engine   TEXT
);

-- The log. A digest is not kept while the body and the salt that give it are: the chain value covers it either way, so a
-- flipped byte of any of them shows. An erased event has lost its salt and keeps its digest instead.
CREATE TABLE events (
  pos       INTEGER PRIMARY KEY,              -- commit order, without gaps; the row of its words in `search`
  session   INTEGER NOT NULL REFERENCES sessions (no),
  seq       INTEGER NOT NULL,
  at        INTEGER NOT NULL,
  stamp     INTEGER NOT NULL REFERENCES stamps (no),
  id        BLOB NOT NULL,
  chain     BLOB NOT NULL,
  salt      BLOB,
  digest    BLOB,
  run       BLOB,
  native_id TEXT,
  place     TEXT,
  body      BLOB NOT NULL
);
CREATE UNIQUE INDEX events_in_session ON events (session, seq);
CREATE UNIQUE INDEX events_by_id ON events (id);

-- Tool calls without a result.
CREATE TABLE open_calls (
  session  INTEGER NOT NULL REFERENCES sessions (no),
  call     TEXT NOT NULL,
  event_id TEXT NOT NULL,
  seq      INTEGER NOT NULL,
  PRIMARY KEY (session, call)
) WITHOUT ROWID;

-- The newest plan and pins of a session.
CREATE TABLE state (
  session INTEGER NOT NULL REFERENCES sessions (no),
  kind    TEXT NOT NULL,
  pos     INTEGER NOT NULL REFERENCES events (pos),
  PRIMARY KEY (session, kind)
) WITHOUT ROWID;

CREATE TABLE links (
  id           TEXT NOT NULL PRIMARY KEY,
  type         TEXT NOT NULL,
  from_session TEXT NOT NULL REFERENCES sessions (id),
  to_session   TEXT NOT NULL UNIQUE REFERENCES sessions (id),
  created_at   INTEGER NOT NULL,
  reason       TEXT NOT NULL,
  key          TEXT,
  event_id     TEXT,
  seq          INTEGER,
  manifest_id  TEXT,
  report_to    TEXT,
  actor        TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX links_from ON links (from_session, type);
CREATE UNIQUE INDEX links_by_key ON links (from_session, key) WHERE key IS NOT NULL;

CREATE TABLE manifests (
  id           TEXT NOT NULL PRIMARY KEY,
  link_id      TEXT NOT NULL,
  from_session TEXT NOT NULL,
  to_session   TEXT NOT NULL,
  body         BLOB NOT NULL,
  digest       TEXT NOT NULL,
  created_at   INTEGER NOT NULL
);

CREATE TABLE blobs (
  digest  TEXT NOT NULL PRIMARY KEY,
  content BLOB NOT NULL
);

CREATE TABLE runs (
  id          TEXT NOT NULL PRIMARY KEY,
  session_id  TEXT NOT NULL REFERENCES sessions (id),
  created_at  INTEGER NOT NULL,
  state       TEXT NOT NULL,
  engine      TEXT NOT NULL,
  attempt     INTEGER NOT NULL,
  retry_of    TEXT,
  input_event TEXT,
  input       BLOB,
  input_actor TEXT NOT NULL,
  options     BLOB NOT NULL,
  owner       TEXT,
  lease_until INTEGER,
  fence       INTEGER NOT NULL,
  started_at  INTEGER,
  ended_at    INTEGER,
  reason      TEXT,
  usage       BLOB
);
CREATE INDEX runs_of_session ON runs (session_id, created_at, id);
CREATE INDEX runs_unfinished ON runs (state, created_at, id) WHERE state IN ('queued', 'running');
-- At most one run of a session is running, whatever the code above believes.
CREATE UNIQUE INDEX one_running_run ON runs (session_id) WHERE state = 'running';

CREATE TABLE engine_sessions (
  session_id TEXT NOT NULL REFERENCES sessions (id),
  engine     TEXT NOT NULL,
  native_id  TEXT NOT NULL,
  model      TEXT,
  machine_id TEXT,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (session_id, engine)
) WITHOUT ROWID;

CREATE TABLE drafts (
  run_id     TEXT NOT NULL PRIMARY KEY REFERENCES runs (id),
  session_id TEXT NOT NULL,
  text       TEXT NOT NULL,
  updated_at INTEGER NOT NULL,
  kind       TEXT NOT NULL
);

CREATE TABLE imports (
  id          TEXT NOT NULL,
  account_id  TEXT NOT NULL,
  path        TEXT NOT NULL,
  engine      TEXT NOT NULL,
  version     TEXT,
  size        INTEGER NOT NULL,
  mtime_ns    INTEGER NOT NULL,
  fingerprint TEXT NOT NULL,
  account     BLOB NOT NULL,
  state       BLOB NOT NULL,
  sessions    TEXT NOT NULL,                  -- a JSON array of ids
  imported_at INTEGER NOT NULL,
  seen_size   INTEGER NOT NULL,
  PRIMARY KEY (account_id, path)
);

-- Stretches of native files as they were, compressed.
CREATE TABLE originals (
  file_id TEXT NOT NULL,
  "offset" INTEGER NOT NULL,
  length  INTEGER NOT NULL,
  data    BLOB NOT NULL,
  PRIMARY KEY (file_id, "offset")
);

-- Words to events. Contentless, and without positions and sizes: they would double it, and ranking is done by the service on
-- the newest matches. Every row ends with two marks, words that no text can contain, for its session and its account.
CREATE VIRTUAL TABLE search USING fts5 (
  said, content = '', columnsize = 0, detail = none, tokenize = 'porter unicode61 remove_diacritics 2'
);

-- How far the log has been read into `search`, and by which version of core.words.
CREATE TABLE search_mark (
  only  INTEGER PRIMARY KEY CHECK (only = 1),
  pos   INTEGER NOT NULL,
  words INTEGER NOT NULL
);
INSERT INTO search_mark (only, pos, words) VALUES (1, 0, 0);
