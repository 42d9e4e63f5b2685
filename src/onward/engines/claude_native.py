"""Where Claude Code keeps its conversations on this machine: finding them, giving one back, taking one away.

A conversation is ``<config>/projects/<folder>/<id>.jsonl``, its subagents are ``<id>/subagents/agent-….jsonl`` with a
``.meta.json`` beside each. The folder's name is made from the working folder. While a process works in a conversation,
``<config>/sessions/<pid>.json`` says so.

This module writes into a person's configuration folder in one case only: to give a conversation back that is not there
(``restore``). Then it writes the files of that conversation and no others, never over an existing one, and reads back
what it wrote. ``forget`` removes them again. It deliberately does not understand rows beyond what gives them their place.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import shutil
import unicodedata
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec
import psutil

from onward.core.codec import encode, loads
from onward.engines.claude_costs import Spent, spent_in
from onward.engines.contract import Mirrored, NativeFile
from onward.errors import EngineError

NAME_LIMIT: Final = 200
"""Characters of a project folder's name; a longer one is cut and gets a hash."""
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9]")
_METADATA: Final = "agent_metadata"
"""The type of the row that stands for a subagent's ``.meta.json`` among its mirrored rows."""
_STARTED_LATE: Final = 5.0
"""Seconds by which a process may have begun after it says so, clocks being what they are."""


def config_folder(env: Mapping[str, str | None] | None = None) -> Path:
    """Return the configuration folder that the program will use, given what is added to its environment."""
    named = (env or {}).get("CLAUDE_CONFIG_DIR") or os.environ.get("CLAUDE_CONFIG_DIR")
    return Path(unicodedata.normalize("NFC", named)) if named else Path.home() / ".claude"


def project_name(workdir: str) -> str:
    """Return the name of the folder under ``projects`` for a working folder."""
    path = unicodedata.normalize("NFC", os.path.realpath(workdir))
    name = _UNSAFE.sub("-", path)
    return name if len(name) <= NAME_LIMIT else f"{name[:NAME_LIMIT]}-{_hash(path)}"


def _hash(text: str) -> str:
    """Return the 32-bit hash that the program puts behind a name that it cut, in base 36."""
    value = 0
    units = text.encode("utf-16-le", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "little")) & 0xFFFFFFFF
    value = abs(value - (1 << 32) if value >= 1 << 31 else value)
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


def is_id(native_id: str) -> bool:
    """Whether this can be the id of a conversation: a UUID, spelled out. Nothing else becomes part of a path."""
    try:
        return str(uuid.UUID(native_id)) == native_id.lower()
    except ValueError:
        return False


def place_of(file: str) -> tuple[str, str] | None:
    """Return which conversation a file belongs to and which of its files it is; None if it is no such file.

    The second is empty for the conversation itself, else ``subagents/agent-…``: without its ending, and the same on every
    system.
    """
    parts = file.replace("\\", "/").split("/")
    at = len(parts) - 1 - parts[::-1].index("projects") if "projects" in parts else -1
    inside = parts[at + 1 :] if at >= 0 else []
    if len(inside) < 2 or not inside[-1].endswith(".jsonl"):
        return None
    inside[-1] = inside[-1].removesuffix(".jsonl")
    path = "/".join(inside[2:])
    return (inside[1], path) if is_id(inside[1]) and (not path or is_safe(path)) else None


def is_safe(path: str) -> bool:
    """Whether a subpath of ours stays inside the conversation's folder."""
    parts = path.split("/")
    return all(part not in ("", ".", "..") and not set(part) & set('\\:\x00"<>|?*') for part in parts)


def find(config: Path, native_id: str) -> Path | None:
    """Return the file of a conversation, in whatever project it lies; the newest if it lies in several."""
    if not is_id(native_id):
        return None
    found = list((config / "projects").glob(f"*/{native_id}.jsonl"))
    return max(found, key=lambda file: file.stat().st_mtime_ns) if found else None


def rows_of(file: Path) -> list[bytes]:
    """Return the rows of a file, without a last one that is torn."""
    try:
        data = file.read_bytes()
    except OSError:
        return []
    lines = data.split(b"\n")
    torn = lines.pop()
    if torn.strip():
        with contextlib.suppress(ValueError):
            loads(torn)
            lines.append(torn)
    return [line for line in lines if line.strip()]


def spent_before(config: Path, native_id: str) -> Spent:
    """Return what a conversation had cost by the end of its last process, from its own file."""
    file = find(config, native_id)
    if file is None:
        return Spent()
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.rfind(b'"cost-state"')
            if at < 0:
                return Spent()
            start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            return spent_in((data[start : end if end >= 0 else len(data)],))
    except (OSError, ValueError):
        return Spent()


def unmirrored(config: Path, native_id: str, recorded: Sequence[NativeFile]) -> tuple[Mirrored, ...]:
    """Return rows that the conversation's file holds and our record of it lacks.

    They were written while nobody listened: by a turn that was stopped, or by a person who went on by hand. Without them
    what came later would hang on nothing when the conversation is given back. Only rows with an id are told apart. A
    conversation of which nothing is held, or not from its beginning, is not caught up.
    """
    held = next((file for file in recorded if file.native_id == native_id and not file.path), None)
    file = find(config, native_id)
    if held is None or file is None or not _begins(held.rows):
        return ()  # of a record that lost its beginning (an erasure), the file must not bring it back
    known = {_uuid(row) for row in held.rows}
    missing = tuple(row for row in rows_of(file) if (id := _uuid(row)) is not None and id not in known)
    return (Mirrored(native_id=native_id, rows=missing),) if missing else ()


class _Place(msgspec.Struct):
    uuid: str | None = None
    parent: str | None = msgspec.field(name="parentUuid", default=None)


_place: Final = msgspec.json.Decoder(_Place)


def _uuid(row: bytes) -> str | None:
    try:
        return _place.decode(row).uuid
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _begins(rows: Iterable[bytes]) -> bool:
    """Whether rows begin where a conversation does: the first with an id hangs on no other."""
    for row in rows:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            place = _place.decode(row)
            if place.uuid is not None:
                return place.parent is None
    return False


def mended(rows: Iterable[bytes]) -> list[bytes]:
    """Return rows in which every parent is there: one that hangs on a missing row hangs on the one before it instead.

    All other rows stay as they are, to the byte. A row whose parent is missing would be taken for the beginning of the
    conversation, and everything before it would be lost to the model.
    """
    made: list[bytes] = []
    known: set[str] = set()
    before: str | None = None
    for row in rows:
        try:
            place = _place.decode(row)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            made.append(row)
            continue
        if place.uuid is None or place.uuid in known:
            if place.uuid is None:
                made.append(row)
            continue
        if place.parent is not None and place.parent not in known:
            record: dict[str, Any] = loads(row)
            record["parentUuid"] = before
            row = encode(record)
        made.append(row)
        known.add(place.uuid)
        before = place.uuid
    return made


def restore(config: Path, workdir: str, native_id: str, recorded: Sequence[NativeFile]) -> tuple[Path, ...]:
    """Give a conversation back to the program, for this working folder; return the files that were written.

    Raises EngineError when there is nothing to give back, when a file of that name exists (nothing is ever overwritten)
    and when what was written does not read back the same. Then none of ours is left.
    """
    files = [file for file in recorded if file.native_id == native_id and file.rows]
    if not is_id(native_id) or not any(not file.path and _begins(file.rows) for file in files):
        raise _no(f"there is no record of conversation {native_id}, from its beginning, to give back")
    folder = config / "projects" / project_name(workdir)
    written: list[Path] = []
    try:
        for file in files:
            if file.path and not is_safe(file.path):
                raise _no(f"the record of {native_id} names a file outside of it: {file.path!r}")
            target = folder / native_id / PurePosixPath(file.path) if file.path else folder / native_id
            metadata, rows = _parted(file.rows)
            if rows:
                content = b"".join(row + b"\n" for row in mended(rows))
                written.append(_new_file(target.with_name(f"{target.name}.jsonl"), content))
            if metadata is not None:
                written.append(_new_file(target.with_name(f"{target.name}.meta.json"), metadata))
    except OSError as refused:
        take_back(written)
        raise _no(f"conversation {native_id} cannot be written to {folder}: {refused}") from None
    except EngineError:
        take_back(written)
        raise
    return tuple(written)


def take_back(written: Iterable[Path]) -> None:
    """Remove files that ``restore`` wrote."""
    for file in written:
        with contextlib.suppress(OSError):
            file.unlink()


def _parted(rows: Iterable[bytes]) -> tuple[bytes | None, list[bytes]]:
    """Return the newest metadata among a subagent's rows, as its file holds it, and the other rows."""
    metadata: bytes | None = None
    others: list[bytes] = []
    for row in rows:
        if b'"agent_metadata"' in row[:200]:
            with contextlib.suppress(ValueError):
                record = loads(row)
                if isinstance(record, dict) and record.pop("type", None) == _METADATA:
                    metadata = encode(record)
                    continue
        others.append(row)
    return metadata, others


def _new_file(path: Path, content: bytes) -> Path:
    """Write a file that does not exist yet, whole or not at all, and read it back."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        try:
            os.link(draft, path)  # unlike a rename, this never replaces anything
        except FileExistsError:
            raise _no(f"{path} exists already; it is left as it is") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    if path.read_bytes() != content:
        path.unlink()
        raise _no(f"{path} did not read back as it was written")
    return path


def forget(config: Path, native_id: str) -> tuple[Path, ...]:
    """Remove the files of a conversation, wherever they lie; return those that were removed.

    Raises EngineError while a process works in it, and for what is no id.
    """
    if not is_id(native_id):
        raise _no(f"{native_id!r} is no id of a conversation: those are UUIDs")
    if (pid := live_writer(config, native_id)) is not None:
        raise _no(f"process {pid} works in conversation {native_id}; end it first")
    removed: list[Path] = []
    for file in sorted((config / "projects").glob(f"*/{native_id}.jsonl")):
        beside = file.with_suffix("")
        if beside.is_dir():
            removed.extend(sorted(path for path in beside.rglob("*") if path.is_file()))
            shutil.rmtree(beside)
        file.unlink()
        removed.append(file)
    return tuple(removed)


def live_writer(config: Path, native_id: str, *, but: Iterable[int] = ()) -> int | None:
    """Return the pid of a running process that has this conversation open, by the program's own register of them.

    A file of a process that has ended is left over from a crash and tells nothing. Processes of other machines or
    containers that share the folder cannot be asked, and do not count.
    """
    ours = set(but)
    for file in (config / "sessions").glob("*.json"):
        try:
            entry = loads(file.read_bytes())
        except (OSError, ValueError):
            continue
        if not isinstance(entry, dict) or entry.get("sessionId") != native_id:
            continue
        pid = entry.get("pid")
        if isinstance(pid, int) and pid > 0 and pid not in ours and _runs(pid, entry.get("startedAt")):
            return pid
    return None


def _runs(pid: int, since: Any) -> bool:
    """Whether a process with this number runs that had begun by then (milliseconds since 1970)."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        began = process.create_time()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
    return not isinstance(since, int | float) or began <= since / 1000 + _STARTED_LATE


def _no(why: str) -> EngineError:
    return EngineError(engine="claude-code", why=why)
