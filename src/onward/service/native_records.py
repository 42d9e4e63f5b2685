"""Native records: the rows of engines' own files, kept beside the log so that a conversation can be given back.

A runner adds what an engine mirrors while it works (``append``), and an opening reads it back (``load``). Rows are kept
exactly, in the order in which they came. A client of the engine's own kit can keep its conversations here too, without a
session of ours (``keep``); ``scope`` tells such clients' projects apart.

They are deliberately no part of the log: nothing of ours is ever derived from them, and taking them away (``delete``, or an
erasure in their session, invariant L5) costs nothing but the exact way back into the engine. What is read back is a
reconstruction for nobody: it is what the engine itself had written, or nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import msgspec

from onward.core.records import NativeKept, NativeRows, Run
from onward.engines.contract import Mirrored, NativeFile
from onward.errors import Conflict, InvalidInput, LeaseLost
from onward.service.platform import Platform
from onward.store.contract import Batch, DropNative, RunIs


def append(platform: Platform, run: Run, engine: str, mirrored: Mirrored) -> None:
    """Keep rows that an engine added to one of its files during a run.

    Raises LeaseLost when the run is no longer held under its fencing number (invariant L6); then nothing is kept.
    """
    rows = _pack(
        platform, engine, mirrored.native_id, mirrored.rows, path=mirrored.path, session_id=run.session_id
    )
    if rows is None:
        return
    held = RunIs(run.id, "running", run.fence)
    try:
        platform.store.commit(Batch(guards=(held,), native_rows=(rows,)))
    except Conflict:
        raise LeaseLost(run=run.id, why="its rows came when it was no longer ours") from None


def keep(
    platform: Platform, engine: str, native_id: str, rows: Sequence[bytes], *, path: str = "", scope: str = ""
) -> None:
    """Keep rows of an engine's own file that no session of ours knows of. None of them is no change."""
    packed = _pack(platform, engine, native_id, rows, path=path, scope=scope)
    if packed is not None:
        platform.store.commit(Batch(native_rows=(packed,)))


def load(platform: Platform, session_id: str, engine: str, native_id: str) -> tuple[NativeFile, ...]:
    """Return what is kept of the files of a session's conversation with an engine, the main one first; empty for none.

    Raises SessionNotFound for a session that this account may not read. Rows that another session kept are left out: an
    engine's conversation belongs to one.
    """
    platform.session(session_id)
    return _files(
        rows
        for rows in platform.store.native_rows(platform.account_id, engine, native_id)
        if rows.session_id == session_id
    )


def kept(platform: Platform, engine: str, native_id: str, *, scope: str = "") -> tuple[NativeFile, ...]:
    """Return what ``keep`` has kept of the files of a conversation, the main one first."""
    return _files(platform.store.native_rows(platform.account_id, engine, native_id, scope=scope))


def listed(platform: Platform, engine: str, *, scope: str = "") -> list[NativeKept]:
    """Return the files of which rows are kept, by conversation and path, each with the time of its newest row."""
    return platform.store.native_kept(platform.account_id, engine, scope=scope)


def delete(
    platform: Platform, engine: str, native_id: str, *, path: str | None = None, scope: str = ""
) -> None:
    """Take away what is kept of a conversation: all of its files, or one. What is not there is gone already."""
    gone = DropNative(
        account_id=platform.account_id, engine=engine, native_id=native_id, scope=scope, path=path
    )
    platform.store.commit(Batch(drop_native=(gone,)))


def _pack(
    platform: Platform,
    engine: str,
    native_id: str,
    rows: Sequence[bytes],
    *,
    path: str = "",
    scope: str = "",
    session_id: str | None = None,
) -> NativeRows | None:
    if not rows:
        return None
    for row in rows:
        if b"\n" in row:
            raise InvalidInput(
                what=f"a row of {engine}'s conversation {native_id}", why="it has a line feed in it"
            )
    return NativeRows(
        account_id=platform.account_id,
        engine=engine,
        native_id=native_id,
        scope=scope,
        path=path,
        session_id=session_id,
        at=platform.clock(),
        count=len(rows),
        data=zlib.compress(b"\n".join(rows), 1),
    )


def _files(parts: Iterable[NativeRows]) -> tuple[NativeFile, ...]:
    files: dict[str, list[bytes]] = {}
    native_id = ""
    for part in parts:
        native_id = part.native_id
        files.setdefault(part.path, []).extend(zlib.decompress(part.data).split(b"\n"))
    return tuple(
        NativeFile(native_id=native_id, path=path, rows=_once(rows)) for path, rows in sorted(files.items())
    )


class _Id(msgspec.Struct):
    uuid: str | None = None


_id = msgspec.json.Decoder(_Id)


def _once(rows: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return rows without those whose ``uuid`` came before: a batch that was sent again is there twice."""
    known: set[str] = set()
    found: list[bytes] = []
    for row in rows:
        try:
            uuid = _id.decode(row).uuid
        except (msgspec.MsgspecError, UnicodeDecodeError):
            uuid = None
        if uuid is None or uuid not in known:
            found.append(row)
        if uuid is not None:
            known.add(uuid)
    return tuple(found)
