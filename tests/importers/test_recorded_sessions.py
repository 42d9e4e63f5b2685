"""Every recorded session file, counted by somebody else's script: our account of it has to agree, exactly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests import needs
from tests.importers.conftest import Desk

from onward.core.codec import Unreadable, body_of
from onward.core.events import fault_in
from onward.service.importing import original_record
from onward.store.memory import MemoryStore

ENGINES = ("claude-code", "codex")


@cache
def manifest() -> dict[str, dict[str, Any]]:
    folder = needs.found("sessions")
    if folder is None:
        return {}
    entries = json.loads((folder / "manifest.json").read_bytes())
    return {entry["file"]: entry for entry in entries if entry["engine"] in ENGINES}


def counted(entry: dict[str, Any]) -> dict[str, int]:
    counts = entry["counts"]
    return {
        name: counts.get(key, 0)
        for name, key in {
            "user": "user",
            "assistant": "assistant",
            "tool_calls": "tool_calls",
            "tool_results": "tool_results",
            "broken": "bad_lines",
        }.items()
    }


@pytest.mark.parametrize("name", sorted(manifest()) or ["no recorded sessions"])
def test_the_account_of_a_recorded_file_agrees_with_its_manifest(
    name: str, sessions_folder: Path, tmp_path: Path
) -> None:
    entry = manifest()[name]
    report = Desk(MemoryStore(), tmp_path).one(sessions_folder / name)
    found = {
        "user": report.messages.user,
        "assistant": report.messages.assistant,
        "tool_calls": report.messages.tool_calls,
        "tool_results": report.messages.tool_results,
        "broken": report.records.broken,
    }
    assert found == counted(entry)
    if not name.endswith(".json"):
        lines = (sessions_folder / name).read_bytes().split(b"\n")
        assert report.records.read == sum(bool(line.strip()) for line in lines)
    speaks = any(found[key] for key in ("user", "assistant", "tool_calls", "tool_results"))
    if speaks:
        assert report.status == "imported"
        assert report.sessions
    else:
        assert report.status in ("empty", "failed")
        assert report.reason


def test_a_whole_folder_is_imported_once_and_every_event_is_sound(
    sessions_folder: Path, tmp_path: Path
) -> None:
    desk = Desk(MemoryStore(), tmp_path)
    paths = [sessions_folder / engine for engine in ENGINES]
    report = desk.imports(*paths)
    assert Counter(f.status for f in report.files)["failed"] == 1
    for session in desk.sessions():
        chain = bytes(32)
        for seq, event in enumerate(desk.store.scan(session.id), 1):
            assert fault_in(event, seq, chain) is None
            chain = event.chain
            assert not isinstance(body_of(event), Unreadable)
            if event.source.place:
                original_record(desk.store, event)
    census = desk.census()
    again = desk.imports(*paths)
    assert {f.status for f in again.files} == {"unchanged", "empty", "failed"}
    assert desk.census() == census


def cuts(data: bytes) -> Iterator[int]:
    for part in (1, 2, 3):
        yield len(data) * part // 4


@pytest.mark.parametrize("name", sorted(manifest()) or ["no recorded sessions"])
def test_a_recorded_file_that_grows_gives_the_same_account(
    name: str, sessions_folder: Path, tmp_path: Path
) -> None:
    data = (sessions_folder / name).read_bytes()
    if name.endswith(".json"):
        pytest.skip("a document does not grow line by line")
    path = tmp_path / "native" / Path(name).name
    desk = Desk(MemoryStore(), tmp_path)
    for cut in cuts(data):
        desk.imports(desk.write(path, data[:cut]))
    grown = desk.one(desk.write(path, data))
    reference = Desk(MemoryStore(), tmp_path)
    whole = reference.one(path)
    assert grown.messages == whole.messages
    assert (grown.records.read, grown.records.broken) == (whole.records.read, whole.records.broken)
    closers = {id for id in desk.census() if b'"closer":true' in desk.store.event(id).body}  # type: ignore[union-attr]
    assert len(set(desk.census()) - closers) == len(
        {id for id in reference.census() if b'"closer":true' not in reference.store.event(id).body}  # type: ignore[union-attr]
    )
