"""Which files are native sessions, told by what they hold and not by what they are called.

A folder is walked in order of names, links to folders followed once. A file named outright always gets an answer; inside a
folder, what plainly is no session (a README, an image, an engine's index) is listed as ignored, with the reason, while a
file of JSON lines that nobody here can read is a failure: it may well be a conversation.

It reads at most ``SNIFFED`` bytes of a file, or its first line where that is longer (a prompt with pictures in it), and only
of regular files: a pipe would never end.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from onward.core.codec import loads
from onward.errors import InvalidInput
from onward.importers import claude_code, codex
from onward.importers.codex_items import is_call, is_result

SNIFFED: Final = 256 * 1024
"""Bytes of a file that are looked at to tell what it is."""

FIRST_LINE: Final = 32 * 1024 * 1024
"""Bytes of a first line that are looked at when it alone is longer than ``SNIFFED``."""

EMPTY: Final = "the file is empty"
"""The reason of a file without a byte in it, or with blank ones only."""

ENGINES: Final = (claude_code.ENGINE, codex.ENGINE)
"""Engines whose native files can be read."""

_LINES_LOOKED_AT: Final = 60
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A file that one of the readers can read."""

    path: str
    engine: str
    document: bool = False
    """One JSON document instead of lines."""
    agent_file: bool = False
    """A subagent's own file."""
    native_id: str = ""
    """What the file's name says the session is called; the file's own word counts more."""
    size: int = 0
    untouched: bool = False
    """It was imported before and looked the same when it was found, so it was not looked into."""


class NotRead(msgspec.Struct, frozen=True, kw_only=True):
    """A file that no reader reads: ``failed`` when it should have been read, else to be ignored."""

    path: str
    reason: str
    failed: bool = False
    engine: str | None = None
    lines: bool = False
    """Its lines are no JSON objects, but it claims to be made of them: they are counted."""


Found = Candidate | NotRead

Known = Callable[[str, os.stat_result], str | None]
"""Tells, by its path and status, the engine of a file that was imported and has not changed since; None for any other."""


class Sniffed(msgspec.Struct, frozen=True, kw_only=True):
    """What the first bytes of a file tell."""

    engine: str | None = None
    document: bool = False
    agent_file: bool = False
    reason: str = ""
    no_objects: bool = False
    looks_like_lines: bool = False
    """Lines of JSON (or broken ones): a log of some kind, if not one that is known here."""


def default_paths(environ: Mapping[str, str], home: Path) -> list[Path]:
    """Return the folders where the engines on this machine keep their sessions, those that exist."""
    claude = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    codex_home = Path(environ.get("CODEX_HOME") or home / ".codex")
    folders = [claude / "projects", codex_home / "sessions", codex_home / "archived_sessions"]
    return [folder for folder in folders if folder.is_dir()]


def find(paths: Sequence[Path], engine: str | None = None, *, known: Known | None = None) -> Iterator[Found]:
    """Yield every file under these paths once, main sessions before the subagents that hang on them.

    With ``engine``, named files are read as that engine's whatever they look like, and in folders other engines' files are
    ignored. A file that ``known`` answers for is not opened. Raises InvalidInput for an engine whose files cannot be read.
    """
    if engine is not None and engine not in ENGINES:
        raise InvalidInput(
            what=f"engine {engine!r}", why=f"native files can be read of: {', '.join(ENGINES)}"
        )
    seen: set[str] = set()
    for path in paths:
        if path.is_dir():
            yield from _walk(path, engine, seen, known)
        elif (name := os.path.abspath(path)) not in seen:
            seen.add(name)
            yield _named(name, engine, known)


def _walk(root: Path, engine: str | None, seen: set[str], known: Known | None) -> Iterator[Found]:
    visited: set[tuple[int, int]] = set()
    troubles: list[OSError] = []
    later: list[Found] = []
    for folder, folders, files in os.walk(os.path.abspath(root), onerror=troubles.append, followlinks=True):
        folders.sort()
        try:
            status = os.stat(folder)
        except OSError as gone:  # it was there a moment ago
            folders.clear()
            troubles.append(gone)
            continue
        if (status.st_dev, status.st_ino) in visited:
            folders.clear()
            yield NotRead(path=folder, reason="a link back to a folder that was visited already")
            continue
        visited.add((status.st_dev, status.st_ino))
        for name in sorted(files):
            path = os.path.join(folder, name)
            if path in seen:
                continue
            seen.add(path)
            found = _inside(path, engine, known)
            if isinstance(found, Candidate) and found.agent_file:
                later.append(found)
            else:
                yield found
    yield from later
    for error in troubles:
        yield NotRead(path=str(error.filename), reason=f"cannot be listed: {error.strerror}", failed=True)


def _untouched(path: str, engine: str | None, known: Known | None) -> Candidate | None:
    """Return a file that was imported before and looks the same since."""
    if known is None:
        return None
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    found = known(path, status)
    if found is None or engine not in (None, found):
        return None
    return Candidate(path=path, engine=found, size=status.st_size, untouched=True)


def _named(path: str, engine: str | None, known: Known | None) -> Found:
    if untouched := _untouched(path, engine, known):
        return untouched
    head, size, trouble = _head(path)
    if trouble:
        return NotRead(path=path, reason=trouble, failed=True, engine=engine)
    if not head.strip():
        return NotRead(path=path, reason=EMPTY, failed=False, engine=engine)
    sniffed = sniff(head, path, whole=size <= len(head))
    if engine is not None:
        return _candidate(path, engine, sniffed, size)
    if sniffed.engine is None:
        return NotRead(path=path, reason=sniffed.reason, failed=True, lines=sniffed.no_objects)
    return _candidate(path, sniffed.engine, sniffed, size)


def _inside(path: str, engine: str | None, known: Known | None) -> Found:
    if untouched := _untouched(path, engine, known):
        return untouched
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in (".jsonl", ".json", ".ndjson", ""):
        return NotRead(path=path, reason=f"not a session file: {suffix} is no format of sessions")
    if path.endswith(".meta.json"):
        return NotRead(path=path, reason="read together with the session file beside it")
    head, size, trouble = _head(path)
    if trouble:
        return NotRead(path=path, reason=trouble, failed=not trouble.startswith("not a regular"))
    lines = suffix in (".jsonl", ".ndjson")
    if not head.strip():
        return NotRead(path=path, reason=EMPTY, engine=None)
    sniffed = sniff(head, path, whole=size <= len(head))
    if sniffed.engine is None:
        failed = lines and sniffed.looks_like_lines
        return NotRead(path=path, reason=sniffed.reason, failed=failed, lines=failed and sniffed.no_objects)
    if engine is not None and sniffed.engine != engine:
        return NotRead(path=path, reason=f"a {sniffed.engine} session; only {engine} was asked for")
    return _candidate(path, sniffed.engine, sniffed, size)


def _candidate(path: str, engine: str, sniffed: Sniffed, size: int) -> Candidate:
    stem = os.path.splitext(os.path.basename(path))[0]
    uuids = _UUID.findall(stem)
    native = uuids[0] if engine == codex.ENGINE and uuids else stem
    agent = engine == claude_code.ENGINE and (stem.startswith("agent-") or sniffed.agent_file)
    return Candidate(
        path=path,
        engine=engine,
        document=sniffed.document and engine == codex.ENGINE,
        agent_file=agent,
        native_id=stem.removeprefix("agent-") if agent else native,
        size=size,
    )


def _head(path: str) -> tuple[bytes, int, str]:
    """Return the first bytes of a file, its size, and what is wrong with it, if anything."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return b"", 0, "not a regular file"
        with open(path, "rb") as file:
            head = file.read(SNIFFED)
            if len(head) == SNIFFED and b"\n" not in head.lstrip():
                head += file.readline(FIRST_LINE)
            return head, status.st_size, ""
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        return b"", 0, f"cannot be read: {getattr(error, 'strerror', None) or error}"


def sniff(head: bytes, path: str = "", *, whole: bool = True) -> Sniffed:
    """Tell what a file is by its first bytes. ``whole``: there are no others."""
    head = head.removeprefix(codecs.BOM_UTF8)
    if document := _document(head, path, whole=whole):
        return document
    votes: dict[str, int] = {}
    broken = objects = rows = side = 0
    lines = head.split(b"\n")
    if not whole and len(lines) > 1:
        lines.pop()
    types: dict[str, None] = {}
    for line in lines[:_LINES_LOOKED_AT]:
        if not line.strip():
            continue
        try:
            found = loads(line)
        except ValueError:
            broken += 1
            continue
        if not isinstance(found, dict):
            continue
        objects += 1
        if isinstance(kind := found.get("type"), str) and len(types) < 4:
            types[kind] = None
        if name := _engine_of(found):
            votes[name] = votes.get(name, 0) + 1
        if found.get("uuid") or "message" in found:
            rows += 1
            side += found.get("isSidechain") is True
    if votes and not votes.get("other"):
        best = max(votes, key=lambda name: votes[name])
        return Sniffed(engine=best, agent_file=0 < rows == side, looks_like_lines=True)
    if objects:
        named = f" (types: {', '.join(types)})" if types else ""
        return Sniffed(
            reason=f"JSON lines, but none of an engine known here{named}",
            looks_like_lines=not _is_index(_first_keys(lines)),
        )
    if path.lower().endswith(".json"):
        return Sniffed(reason="a JSON document, but not a session of an engine known here")
    if broken:
        spread = head.lstrip()[:1] in (b"{", b"[")
        hint = "; its records seem to be spread over several lines each" if spread else ""
        reason = f"no line of it is a JSON object{hint}"
        return Sniffed(reason=reason, looks_like_lines=True, no_objects=True)
    return Sniffed(reason="no line of it is a JSON object")


def _first_keys(lines: list[bytes]) -> set[str]:
    """Return the keys of the first line that is a JSON object."""
    for line in lines:
        try:
            found = loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return set(found)
    return set()


def _is_index(keys: set[str]) -> bool:
    """Whether these are the keys of the prompt histories and thread indexes that engines keep beside sessions."""
    return (
        keys >= {"display", "timestamp"}
        or keys >= {"session_id", "ts", "text"}
        or keys >= {"id", "thread_name"}
    )


def _document(head: bytes, path: str, *, whole: bool) -> Sniffed | None:
    start = head.lstrip()[:1]
    if start not in (b"{", b"["):
        return None
    if whole:
        try:
            found = loads(head)
        except ValueError:
            return None
        if isinstance(found, dict):
            if _engine_of(found):
                return None  # a file of one line
            if isinstance(found.get("session"), dict) and isinstance(found.get("items"), list):
                return Sniffed(engine=codex.ENGINE, document=True)
            if path.lower().endswith((".jsonl", ".ndjson")):
                return None
        return Sniffed(reason="a JSON document, but not a session of an engine known here")
    if b"\n" not in head.strip() and re.match(rb'\s*\{\s*"session"\s*:\s*\{', head):
        return Sniffed(engine=codex.ENGINE, document=True)
    return None


def _engine_of(found: dict[str, Any]) -> Literal["claude-code", "codex", "other"] | None:
    """Return the engine that writes rows like this one."""
    kind = found.get("type")
    if kind is not None and not isinstance(kind, str):
        return None
    if isinstance(found.get("payload"), dict) and kind in codex.ENVELOPES:
        return "codex"
    if "record_type" in found or (
        "instructions" in found and "timestamp" in found and "id" in found and kind is None
    ):
        return "codex"
    message = found.get("message")
    if isinstance(message, dict) and "parts" in message:
        return "other"  # a relative of Claude Code's format, with another one's messages
    if kind in claude_code.KNOWN_TYPES:
        if (
            "sessionId" in found
            or "parentUuid" in found
            or "leafUuid" in found
            or kind == "file-history-snapshot"
        ):
            return "claude-code"
        if kind in ("user", "assistant") and isinstance(message, dict) and "content" in message:
            return None if "session_id" in found else "claude-code"
    if kind is not None and message is None:
        if is_call(kind) and ("arguments" in found or "action" in found or "call_id" in found):
            return "codex"
        if is_result(kind) and "call_id" in found:
            return "codex"
        if kind == "reasoning" and "summary" in found:
            return "codex"
        if kind == "message" and "role" in found and isinstance(found.get("content"), list):
            return "codex"
    if (
        kind is not None
        and isinstance(found.get("sessionId"), str)
        and "uuid" in found
        and "parentUuid" in found
    ):
        return "claude-code"
    return None
