"""The SQL of a store, named. It is plain enough for SQLite and PostgreSQL; parameters are positional, written ``?``.

What only one of them can do (full text, locks, wake-ups) is in that store's own files. Where the order of rows is part of a
promise, the statement says it; where a statement is fast only because of an index, the comment names it.
"""

from __future__ import annotations

from functools import cache
from typing import Final, get_args

from onward.core.records import (
    Draft,
    EngineSession,
    ImportedFile,
    Link,
    Machine,
    NativeRows,
    OpenCall,
    Original,
    Run,
    RunState,
    Session,
    StoredManifest,
    Token,
    Workspace,
)
from onward.store.rows import shape

STATES: Final = get_args(RunState)


def _columns(record: type) -> str:
    return ", ".join(f'"{name}"' for name in shape(record).names)


def _insert(table: str, record: type) -> str:
    marks = ", ".join("?" * len(shape(record).names))
    return f"INSERT INTO {table} ({_columns(record)}) VALUES ({marks})"


def _replace(table: str, record: type, key: tuple[str, ...]) -> str:
    others = ", ".join(f'"{name}" = excluded."{name}"' for name in shape(record).names if name not in key)
    conflict = ", ".join(f'"{name}"' for name in key)
    return f"{_insert(table, record)} ON CONFLICT ({conflict}) DO UPDATE SET {others}"


def _select(table: str, record: type) -> str:
    return f"SELECT {_columns(record)} FROM {table}"


# -- sessions ---------------------------------------------------------------------------------------------------------

ADD_SESSION: Final = _insert("sessions", Session)

SESSION: Final = f"{_select('sessions', Session)} WHERE id = ?"

SESSION_EXISTS: Final = "SELECT 1 FROM sessions WHERE id = ?"

# Title, description, engine, archived, workspace: what a patch may change.
PATCH_SESSION: Final = (
    "UPDATE sessions SET title = ?, description = ?, engine = ?, archived = ?, workspace_id = ? WHERE id = ?"
)

# What an append needs to know about its session, and the end of the whole log.
HEAD: Final = """
SELECT no, head_seq, head_chain, updated_at, input_seq, (SELECT max(pos) FROM events) FROM sessions WHERE id = ?
"""

MOVE_HEAD: Final = (
    "UPDATE sessions SET head_seq = ?, head_chain = ?, updated_at = ?, input_seq = ? WHERE no = ?"
)

HEAD_SEQ: Final = "SELECT head_seq FROM sessions WHERE id = ?"

# The sessions as a JSON array. By the primary key.
HEADS: Final = "SELECT id, head_seq FROM sessions WHERE id IN (SELECT value FROM json_each(?))"

# How far the log goes, and who was written to behind a position. Parameters: position, how many events. By the primary key.
TALLY: Final = "SELECT count(*), coalesce(sum(head_seq), 0) FROM sessions WHERE account_id = ?"
TALLY_RUNS: Final = """
SELECT runs.state, count(*) FROM runs JOIN sessions ON sessions.id = runs.session_id
WHERE sessions.account_id = ? GROUP BY runs.state
"""

NEWEST_POSITION: Final = "SELECT coalesce(max(pos), 0) FROM events"
TOUCHED: Final = """
SELECT max(e.pos) AS newest, s.id, s.account_id
FROM (SELECT pos, session FROM events WHERE pos > ? ORDER BY pos LIMIT ?) e JOIN sessions s ON s.no = e.session
GROUP BY e.session ORDER BY newest
"""

NEXT_FENCE: Final = "UPDATE sessions SET fence = fence + 1 WHERE id = ?"

FENCE: Final = "SELECT fence FROM sessions WHERE id = ?"

# A page of sessions, newest activity first. Parameters: account; workspace twice; include archived; text three times;
# include children; the cursor's time three times and id. NULL leaves a condition out. Sorts an account's sessions, which is
# quick for tens of thousands; an index on activity would cost every append a page.
SESSIONS: Final = f"""
{_select("sessions", Session)}
WHERE account_id = ?
  AND (? IS NULL OR workspace_id = ?)
  AND (? OR NOT archived)
  AND (? IS NULL OR matches_folded(title, ?) OR matches_folded(id, ?))
  AND (? OR NOT EXISTS (SELECT 1 FROM links WHERE to_session = sessions.id AND type = 'child'))
  AND (? IS NULL OR max(updated_at, created_at) < ? OR (max(updated_at, created_at) = ? AND id < ?))
ORDER BY max(updated_at, created_at) DESC, id DESC
LIMIT ?
"""

# -- events -----------------------------------------------------------------------------------------------------------

ADD_STAMP: Final = "INSERT INTO stamps (kind, actor, producer, engine) VALUES (?, ?, ?, ?)"

STAMPS: Final = "SELECT no, kind, actor, producer, engine FROM stamps"


@cache
def add_events(rows: int, *more: str) -> str:
    """Return the statement that adds events: position, session, seq, at, stamp, id, chain, salt, body and these columns.

    Few events have a run and a native record; binding a NULL costs more than leaving its column out. Several rows in one
    statement are a third cheaper than one each, and other threads are let in between statements only.
    """
    columns = ("pos", "session", "seq", "at", "stamp", "id", "chain", "salt", "body", *more)
    values = f"({', '.join('?' * len(columns))})"
    return f"INSERT INTO events ({', '.join(columns)}) VALUES {', '.join([values] * rows)}"


_EVENT: Final = "SELECT seq, at, stamp, id, chain, salt, digest, run, native_id, place, body"

NO_END: Final = (1 << 63) - 1
"""The bound that lets every sequence number through."""


@cache
def events(stamps: int, newest_first: bool) -> str:
    """Return the statement that reads a range of one session in order, under any stamp or one of this many.

    Parameters: session number, after, up to, the stamps, limit (negative for none). By events_in_session.
    """
    only = f" AND stamp IN ({', '.join('?' * stamps)})" if stamps else ""
    order = "DESC" if newest_first else "ASC"
    return (
        f"{_EVENT} FROM events WHERE session = ? AND seq > ? AND seq <= ?{only} ORDER BY seq {order} LIMIT ?"
    )


# Numbers of one session as a JSON array, so that one statement serves however many there are. By events_in_session.
EVENTS_AT: Final = (
    f"{_EVENT} FROM events WHERE session = ? AND seq IN (SELECT value FROM json_each(?)) ORDER BY seq"
)


@cache
def any_event(count: int) -> str:
    """Return the statement that has a row when any of this many packed ids is in the log. Looks at events_by_id only."""
    return f"SELECT 1 FROM events WHERE id IN ({', '.join('?' * count)}) LIMIT 1"


@cache
def events_by_id(count: int) -> str:
    """Return the statement that reads this many events by their packed ids, with the id of their session in front."""
    return (
        f"{_EVENT.replace('SELECT', 'SELECT s.id,', 1).replace(' id,', ' e.id,', 1)} FROM events e JOIN sessions s ON"
        f" s.no = e.session WHERE e.id IN ({', '.join('?' * count)})"
    )


SESSION_NO: Final = "SELECT no FROM sessions WHERE id = ?"

# -- what an append keeps up to date ----------------------------------------------------------------------------------

OPEN_CALL: Final = """
INSERT INTO open_calls (session, call, event_id, seq) VALUES (?, ?, ?, ?) ON CONFLICT (session, call) DO NOTHING
"""

CLOSE_CALL: Final = "DELETE FROM open_calls WHERE session = ? AND call = ?"

OPEN_CALLS: Final = """
SELECT s.id, c.call, c.event_id, c.seq
FROM open_calls c JOIN sessions s ON s.no = c.session WHERE s.id = ? ORDER BY c.seq
"""
assert shape(OpenCall).names == ("session_id", "call", "event_id", "seq")

SET_STATE: Final = """
INSERT INTO state (session, kind, pos) VALUES (?, ?, ?) ON CONFLICT (session, kind) DO UPDATE SET pos = excluded.pos
"""

STATE: Final = f"""
{_EVENT} FROM events
WHERE pos IN (SELECT pos FROM state WHERE session = (SELECT no FROM sessions WHERE id = ?))
"""

# -- erasing ----------------------------------------------------------------------------------------------------------

TO_ERASE: Final = """
SELECT e.pos, e.session, s.account_id, t.kind, e.salt, e.body
FROM events e JOIN sessions s ON s.no = e.session JOIN stamps t ON t.no = e.stamp WHERE e.id = ?
"""

ERASE: Final = "UPDATE events SET body = ?, salt = NULL, digest = ? WHERE pos = ?"

# -- links ------------------------------------------------------------------------------------------------------------

ADD_LINK: Final = _insert("links", Link)

LINK: Final = f"{_select('links', Link)} WHERE id = ?"

LINKS: Final = f"{_select('links', Link)} WHERE from_session = ? OR to_session = ? ORDER BY created_at, id"

LINK_BY_KEY: Final = f"{_select('links', Link)} WHERE from_session = ? AND key = ?"

LINK_INTO: Final = "SELECT from_session FROM links WHERE to_session = ?"

COUNT_LINKS: Final = "SELECT count(*) FROM links WHERE from_session = ? AND type = ?"

PATCH_LINK: Final = "UPDATE links SET report_to = ?, reported_at = ?, outcome = ? WHERE id = ?"

# Every session above one, itself included. Each has at most one link into it, so this is a path.
_ABOVE: Final = """
above (session, height) AS (
  SELECT ?, 0
  UNION ALL
  SELECT links.from_session, above.height + 1 FROM above JOIN links ON links.to_session = above.session
)
"""

IS_ABOVE: Final = f"WITH RECURSIVE {_ABOVE} SELECT 1 FROM above WHERE session = ? LIMIT 1"

# The tree around a session: up to its root, then level by level down, oldest first within a level.
LINEAGE: Final = f"""
WITH RECURSIVE {_ABOVE},
below (session, depth) AS (
  SELECT session, 0 FROM (SELECT session FROM above ORDER BY height DESC LIMIT 1) AS root
  UNION ALL
  SELECT links.to_session, below.depth + 1 FROM below JOIN links ON links.from_session = below.session
)
SELECT {", ".join(f'links."{name}"' for name in shape(Link).names)}
FROM below JOIN links ON links.to_session = below.session
WHERE below.depth > 0
ORDER BY below.depth, links.created_at, links.id
LIMIT ?
"""

# -- runs -------------------------------------------------------------------------------------------------------------

ADD_RUN: Final = _insert("runs", Run)

RUN: Final = f"{_select('runs', Run)} WHERE id = ?"

REPLACE_RUN: Final = _replace("runs", Run, ("id",))

RUNS: Final = f"{_select('runs', Run)} WHERE session_id = ? ORDER BY created_at DESC, id DESC LIMIT ?"

# Few runs anywhere are unfinished, and a long session has many that are not: the plus keeps runs_unfinished in use.
UNFINISHED_RUNS: Final = (
    f"{_select('runs', Run)} WHERE state IN ('queued', 'running') AND +session_id = ? ORDER BY created_at, id"
)

RUNNING: Final = "SELECT id FROM runs WHERE session_id = ? AND state = 'running'"


def runs_in(state: RunState) -> str:
    """Return the statement for runs in a state. The state is written out, or runs_unfinished would not apply.

    Parameters: the time before which their lease ended, twice (NULL for any); limit.
    """
    if state not in STATES:
        raise ValueError(f"{state!r} is no state of a run")
    return (
        f"{_select('runs', Run)} WHERE state = '{state}' AND (? IS NULL OR lease_until < ?)"
        " ORDER BY created_at, id LIMIT ?"
    )


# Queued runs that a machine may execute. Parameters: account; machine; whether it is the home of the store; its engines as a
# JSON array; limit. What waits in a session waits in the order of ``running.next_queued``; by runs_waiting.
WAITING_FOR: Final = f"""
SELECT {", ".join(f'runs."{name}"' for name in shape(Run).names)}
FROM runs JOIN sessions s ON s.id = runs.session_id LEFT JOIN workspaces w ON w.id = s.workspace_id
WHERE runs.state = 'queued' AND s.account_id = ?
  AND (w.id IS NULL OR w.machine_id = ? OR (? AND w.machine_id IS NULL))
  AND runs.engine IN (SELECT value FROM json_each(?))
  AND NOT EXISTS (
    SELECT 1 FROM runs o
    WHERE o.session_id = runs.session_id AND o.state IN ('queued', 'running') AND o.id <> runs.id
      AND (o.state = 'running' OR
           (o.input IS NOT NULL, o.created_at, o.id) < (runs.input IS NOT NULL, runs.created_at, runs.id))
  )
ORDER BY runs.created_at, runs.id LIMIT ?
"""

# -- the rest ---------------------------------------------------------------------------------------------------------

ADD_WORKSPACE: Final = _insert("workspaces", Workspace)
# By workspaces_by_place; the machine is '' for the one that has the store.
WORKSPACE: Final = (
    f"{_select('workspaces', Workspace)} WHERE account_id = ? AND path = ? AND coalesce(machine_id, '') = ?"
)
WORKSPACE_BY_ID: Final = f"{_select('workspaces', Workspace)} WHERE id = ?"
WORKSPACES: Final = f"{_select('workspaces', Workspace)} WHERE account_id = ? ORDER BY created_at, id"
MOVE_WORKSPACE: Final = "UPDATE workspaces SET machine_id = ?, path = ?, moved_at = ? WHERE id = ?"

SET_MACHINE: Final = _replace("machines", Machine, ("id",))
MACHINE: Final = f"{_select('machines', Machine)} WHERE id = ?"
MACHINES: Final = f"{_select('machines', Machine)} WHERE account_id = ? ORDER BY created_at, id"
MACHINE_BY_NAME: Final = f"{_select('machines', Machine)} WHERE account_id = ? AND name = ?"
MACHINE_SEEN: Final = "UPDATE machines SET seen_at = max(seen_at, ?) WHERE id = ?"

SET_TOKEN: Final = _replace("tokens", Token, ("id",))
TOKEN: Final = f"{_select('tokens', Token)} WHERE id = ?"
TOKENS: Final = f"{_select('tokens', Token)} WHERE account_id = ? ORDER BY created_at, id"
TOKEN_BY_DIGEST: Final = f"{_select('tokens', Token)} WHERE digest = ?"

ADD_MANIFEST: Final = _insert("manifests", StoredManifest)
MANIFEST: Final = f"{_select('manifests', StoredManifest)} WHERE id = ?"

ADD_BLOB: Final = "INSERT INTO blobs (digest, content) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING"
BLOB: Final = "SELECT content FROM blobs WHERE digest = ?"
# The digest, then its bytes four times with a manifest that does not count before the last two: reads every body there is.
DROP_BLOB: Final = """
DELETE FROM blobs WHERE digest = ?
  AND NOT EXISTS (SELECT 1 FROM events WHERE instr(body, ?))
  AND NOT EXISTS (SELECT 1 FROM manifests WHERE instr(body, ?) AND id <> ?)
  AND NOT EXISTS (SELECT 1 FROM runs WHERE instr(coalesce(input, x''), ?) OR instr(coalesce(context, x''), ?))
"""

SET_ENGINE_SESSION: Final = _replace("engine_sessions", EngineSession, ("session_id", "engine"))
ENGINE_SESSIONS: Final = f"{_select('engine_sessions', EngineSession)} WHERE session_id = ? ORDER BY engine"

SET_DRAFT: Final = _replace("drafts", Draft, ("run_id",))
DRAFT: Final = f"{_select('drafts', Draft)} WHERE run_id = ?"
# The sessions as a JSON array. There is a draft for each run that is talking: few.
DRAFTS: Final = (
    f"{_select('drafts', Draft)} WHERE session_id IN (SELECT value FROM json_each(?)) ORDER BY run_id"
)
DROP_DRAFT: Final = "DELETE FROM drafts WHERE run_id = ?"

SET_IMPORT: Final = _replace("imports", ImportedFile, ("account_id", "path"))
IMPORTED_FILE: Final = f"{_select('imports', ImportedFile)} WHERE account_id = ? AND path = ?"

SET_ORIGINAL: Final = _replace("originals", Original, ("file_id", "offset"))
DROP_ORIGINAL: Final = 'DELETE FROM originals WHERE file_id = ? AND "offset" = ?'
ORIGINALS: Final = 'SELECT "offset", length FROM originals WHERE file_id = ? ORDER BY "offset"'
# From the stretch that holds the first byte on.
ORIGINALS_FROM: Final = """
SELECT "offset", length, data FROM originals
WHERE file_id = ? AND "offset" >= (SELECT coalesce(max("offset"), ?) FROM originals WHERE file_id = ? AND "offset" <= ?)
  AND "offset" < ?
ORDER BY "offset"
"""

# Every column of the rows, then the key of their file again. The part that was bound gives way to the next of that file.
ADD_NATIVE_ROWS: Final = f"""
INSERT INTO native_rows ({_columns(NativeRows)})
SELECT {", ".join("coalesce(max(part) + 1, 0 * ?)" if n == "part" else "?" for n in shape(NativeRows).names)}
FROM native_rows WHERE account_id = ? AND engine = ? AND native_id = ? AND scope = ? AND path = ?
"""
NATIVE_ROWS: Final = f"""
{_select("native_rows", NativeRows)}
WHERE account_id = ? AND engine = ? AND native_id = ? AND scope = ? ORDER BY path, part
"""
NATIVE_KEPT: Final = """
SELECT native_id, path, max(at) FROM native_rows
WHERE account_id = ? AND engine = ? AND scope = ? GROUP BY native_id, path ORDER BY native_id, path
"""
# The session, then the key of a conversation and the path of its file twice: NULL takes all of them.
DROP_NATIVE: Final = """
DELETE FROM native_rows WHERE session_id = ?
   OR (account_id = ? AND engine = ? AND native_id = ? AND scope = ? AND (? IS NULL OR path = ?))
"""
