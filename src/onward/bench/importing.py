"""Goal 5: importing native files, full text included, and importing them again when nothing has changed.

The baseline is what one would write by hand for exactly these files: split into lines, decode each into a typed record that
has only what is needed, put the line into a table and its text into the same full-text table, one transaction a file, with
the same durability. Its full text finds the same things, so its texts are prepared in the same way. It keeps no chain, no
originals and no account of what it read, pairs no call with a result and follows no tree.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from onward.bench import native
from onward.bench.measure import Figure, absolute, compared, in_turns, seconds
from onward.bench.setting import Setting, open_at
from onward.core.ids import LOCAL_ACCOUNT
from onward.errors import StoreError
from onward.library import Onward
from onward.store.sqlite_search import document

_DDL: Final = """
CREATE TABLE events (
  id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, seq INTEGER NOT NULL, native_id TEXT, parent TEXT, at TEXT, kind TEXT,
  line BLOB NOT NULL, UNIQUE (session_id, seq)
)
"""
_ADD: Final = "INSERT INTO events (id, session_id, seq, native_id, parent, at, kind, line) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_TEXT: Final = "INSERT INTO search (rowid, said) VALUES (?, ?)"
_SEARCH_DDL: Final = "SELECT sql FROM sqlite_schema WHERE name = 'search'"


class _Message(msgspec.Struct):
    role: str
    content: Any


class _Row(msgspec.Struct, rename="camel"):
    type: str
    uuid: str
    timestamp: str
    session_id: str
    message: _Message
    parent_uuid: str | None = None


_decode: Final = msgspec.json.Decoder(_Row).decode


def imports(setting: Setting) -> Iterator[Figure]:
    """Measure both, on the same files."""
    files = setting.size(8, 3, 2)
    with setting.place() as folder:
        projects = folder / "projects"
        size = native.write(
            projects, setting.prose, files=files, size=setting.size(2_500_000, 1_000_000, 30_000)
        )
        megabytes = size / 1e6
        definition = _full_text_table(folder)

        def ours() -> float:
            with setting.place() as place, open_at(place / "ours.db") as log:
                return megabytes / seconds(lambda: _import(log, projects))

        def by_hand() -> float:
            with setting.place() as place:
                return megabytes / seconds(lambda: _bare(place / "raw.db", projects, definition))

        rates = in_turns(ours, by_hand, setting.size(5, 3, 1))
        yield compared(
            5,
            f"import of {megabytes:.0f} MB with full text, against a bare loop",
            ours=[a for a, _ in rates],
            baseline=[b for _, b in rates],
            target=0.75,
            bound=">=",
            unit="MB/s",
        )
        yield _refresh(setting, projects)


def _import(log: Onward, projects: Path) -> None:
    report = log.import_files([projects])
    if not report.ok:
        raise StoreError(why=f"the import that was to be measured failed: {report.files}")
    while log.platform.store.index_lag():
        # A search reads on within a bound, so a long import may need a few; each is on the clock.
        log.search("anything")


def _bare(path: Path, projects: Path, definition: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL").fetchone()
    db.execute("PRAGMA synchronous = FULL")
    db.execute(_DDL)
    db.execute(definition)
    number = 0
    for file in sorted(projects.rglob("*.jsonl")):
        rows, said = [], []
        for seq, line in enumerate(file.read_bytes().splitlines(), 1):
            row = _decode(line)
            number += 1
            rows.append(
                (number, row.session_id, seq, row.uuid, row.parent_uuid, row.timestamp, row.type, line)
            )
            said.append((number, document(_text_of(row.message.content), 1, LOCAL_ACCOUNT)))
        db.execute("BEGIN IMMEDIATE")
        db.executemany(_ADD, rows)
        db.executemany(_ADD_TEXT, said)
        db.execute("COMMIT")
    db.close()


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    found: list[str] = []
    for block in content:
        match block["type"]:
            case "text":
                found.append(block["text"])
            case "thinking":
                found.append(block["thinking"])
            case "tool_use":
                found.append(block["name"])
                found += block["input"].values()
            case "tool_result":
                found.append(block["content"])
    return "\n".join(found)


def _full_text_table(folder: Path) -> str:
    """Return how the store defines its full-text table, read from one."""
    path = folder / "empty.db"
    open_at(path).close()
    db = sqlite3.connect(path)
    (definition,) = db.execute(_SEARCH_DDL).fetchone()
    db.close()
    return str(definition)


def _refresh(setting: Setting, projects: Path) -> Figure:
    """Import twice and count how often each native file is opened the second time."""
    with setting.place() as place, open_at(place / "ours.db") as log:
        log.import_files([projects])
        with _Opened(projects) as opened:
            spent = seconds(lambda: log.import_files([projects]))
    return absolute(
        5,
        "opens of a native file by a refresh without changes, at most",
        values=[max(opened.times.values(), default=0)],
        target=0,
        bound="<=",
        unit="opens",
        note=f"took {spent * 1000:.2g} ms for {len(list(projects.rglob('*.jsonl')))} files",
    )


class _Opened:
    """Counts how often each native file below a folder is opened, through the interpreter's own audit events."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.times: Counter[str] = Counter()

    def __enter__(self) -> Self:
        if not _listening:
            sys.addaudithook(_hear)  # for good: the interpreter offers no way to take one back
        _listening.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _listening[_listening.index(self)] = None

    def hear(self, path: str) -> None:
        """Count a file, if it is one of those."""
        if path.startswith(self._folder) and path.endswith(".jsonl"):
            self.times[path] += 1


_listening: Final[list[_Opened | None]] = []


def _hear(event: str, given: tuple[Any, ...]) -> None:
    if event == "open":
        for counter in _listening:
            if counter is not None:
                counter.hear(str(given[0]))
