"""Claude Code's own files on this machine: found, given back whole, never overwritten, taken away on request."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.engines import claude_native as native
from onward.engines.contract import NativeFile
from onward.errors import EngineError

ID = "5c3ab1de-9a63-4f0e-8a5e-0c8f6a4f1b01"
OTHER = "5c3ab1de-9a63-4f0e-8a5e-0c8f6a4f1b02"


def row(uuid: str | None, parent: str | None, **more: Any) -> bytes:
    fields = {"type": "user", "uuid": uuid, "parentUuid": parent} if uuid else {"type": "mode"}
    return json.dumps(fields | more).encode()


CHAIN = (row("a", None), row(None, None), row("b", "a"), row("c", "b"))


def kept(*rows: bytes, path: str = "", id: str = ID) -> NativeFile:
    return NativeFile(native_id=id, path=path, rows=rows)


def put(config: Path, *rows: bytes, folder: str = "-work", id: str = ID) -> Path:
    file = config / "projects" / folder / f"{id}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(one + b"\n" for one in rows))
    return file


def test_a_project_folder_is_named_after_its_real_path(tmp_path: Path) -> None:
    real = tmp_path / "my project.v2"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    assert native.project_name(str(link)) == native.project_name(str(real))
    assert native.project_name(str(real)).endswith("-my-project-v2")


def test_a_long_name_is_cut_and_gets_a_hash() -> None:
    name = native.project_name("/" + "ab/" * 100)
    assert len(name) > native.NAME_LIMIT
    assert name[native.NAME_LIMIT] == "-"
    assert name != native.project_name("/" + "ab/" * 101)


@pytest.mark.parametrize(
    ("file", "place"),
    [
        (f"/h/.claude/projects/-work/{ID}.jsonl", (ID, "")),
        (f"/h/projects/projects/-work/{ID}.jsonl", (ID, "")),
        (f"C:\\u\\.claude\\projects\\-work\\{ID}.jsonl", (ID, "")),
        (f"/h/.claude/projects/-work/{ID}/subagents/agent-1.jsonl", (ID, "subagents/agent-1")),
        (f"/h/.claude/projects/-work/{ID}/subagents/../../x.jsonl", None),
        ("/h/.claude/projects/-work/notes.jsonl", None),
        (f"/h/.claude/elsewhere/{ID}.jsonl", None),
        (f"/h/.claude/projects/-work/{ID}.txt", None),
        ("", None),
    ],
)
def test_a_file_says_whose_it_is(file: str, place: tuple[str, str] | None) -> None:
    assert native.place_of(file) == place


@pytest.mark.requirement("T1")
def test_what_is_given_back_reads_as_it_was_written(tmp_path: Path) -> None:
    config, work = tmp_path / "config", tmp_path / "work"
    agent = (b'{"type":"agent_metadata","toolUseId":"t1"}', row("x", None, isSidechain=True))
    recorded = (kept(*CHAIN), kept(*agent, path="subagents/agent-1"), kept(row("z", None), id=OTHER))
    written = native.restore(config, str(work), ID, recorded)
    folder = config / "projects" / native.project_name(str(work))
    assert [path.relative_to(folder).as_posix() for path in written] == [
        f"{ID}.jsonl",
        f"{ID}/subagents/agent-1.jsonl",
        f"{ID}/subagents/agent-1.meta.json",
    ]
    assert tuple(native.rows_of(written[0])) == CHAIN
    assert json.loads(written[2].read_bytes()) == {"toolUseId": "t1"}
    assert native.find(config, ID) == written[0]
    assert native.find(config, OTHER) is None
    assert (written[0].stat().st_mode & 0o777) == 0o600
    every = {path for path in config.rglob("*") if path.is_file()}
    assert every == set(written), "nothing else was written, and no draft was left"


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    work = tmp_path / "work"
    file = put(tmp_path, b'{"mine": 1}', folder=native.project_name(str(work)))
    agent = kept(row("x", None), path="subagents/agent-1")
    with pytest.raises(EngineError, match="exists already"):
        native.restore(tmp_path, str(work), ID, (agent, kept(*CHAIN)))
    assert file.read_bytes() == b'{"mine": 1}\n'
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file], "what was begun is taken back"


@pytest.mark.parametrize("path", ["../../../x", "/etc/x", "a/../b", "", "a\\b", "c:x", "a//b"])
def test_a_path_that_leads_out_of_the_conversation_is_refused(path: str, tmp_path: Path) -> None:
    assert not native.is_safe(path)
    if path:
        with pytest.raises(EngineError, match="outside"):
            native.restore(tmp_path, str(tmp_path), ID, (kept(*CHAIN), kept(row("x", None), path=path)))
    assert not [found for found in tmp_path.rglob("*") if found.is_file()]


@pytest.mark.parametrize("rows", [(), (row("c", "b"),), (row(None, None), row("c", "b"))])
def test_a_record_without_its_beginning_is_not_given_back(rows: tuple[bytes, ...], tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        native.restore(tmp_path, str(tmp_path), ID, (kept(*rows),))
    assert not list(tmp_path.iterdir())


def test_a_row_that_hangs_on_a_missing_one_hangs_on_the_one_before() -> None:
    rows = (row("a", None), row("c", "b", n=1), row("d", "c"))
    first, second, third = native.mended(rows)
    assert (first, third) == (rows[0], rows[2])
    assert json.loads(second) == {"type": "user", "uuid": "c", "parentUuid": "a", "n": 1}


IDS = st.none() | st.sampled_from("abcde")


@given(st.lists(st.builds(row, IDS, IDS) | st.binary(max_size=8), max_size=12))
def test_mended_rows_have_their_parents_and_stay_as_they_are(rows: list[bytes]) -> None:
    found = native.mended(rows)
    assert native.mended(found) == found
    known: set[str] = set()
    for one in found:
        try:
            record = json.loads(one)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("uuid"):
            assert record["parentUuid"] is None or record["parentUuid"] in known
            known.add(record["uuid"])


def test_rows_that_nobody_heard_are_found_by_their_ids(tmp_path: Path) -> None:
    put(tmp_path, *CHAIN, row("d", "c"), b'{"torn')
    (missed,) = native.unmirrored(tmp_path, ID, (kept(*CHAIN[:3]),))
    assert missed.native_id == ID
    assert missed.rows == (CHAIN[3], row("d", "c"))
    assert native.unmirrored(tmp_path, ID, (kept(*CHAIN, row("d", "c")),)) == ()
    assert native.unmirrored(tmp_path, ID, ()) == (), "of what was never kept, nothing is missed"


@pytest.mark.requirement("L5")
def test_what_was_erased_from_the_record_is_not_fetched_again(tmp_path: Path) -> None:
    put(tmp_path, *CHAIN, row("d", "c"))
    assert native.unmirrored(tmp_path, ID, (kept(row("d", "c")),)) == ()


def test_what_it_cost_is_in_its_last_row_of_that_kind(tmp_path: Path) -> None:
    assert native.spent_before(tmp_path, ID).cost_usd == 0
    costs = [b'{"type":"cost-state","totalCostUSD":%d,"modelUsage":{}}' % cost for cost in (1, 2)]
    put(tmp_path, costs[0], row("a", None), costs[1], row("b", "a"))
    assert native.spent_before(tmp_path, ID).cost_usd == 2


def registered(config: Path, pid: int, since: float, id: str = ID) -> None:
    folder = config / "sessions"
    folder.mkdir(exist_ok=True)
    entry = {"pid": pid, "sessionId": id, "startedAt": since * 1000}
    (folder / f"{pid}.json").write_text(json.dumps(entry))


@pytest.mark.requirement("L6")
def test_a_process_that_works_in_a_conversation_is_found(tmp_path: Path) -> None:
    mine = psutil.Process()
    registered(tmp_path, mine.pid, mine.create_time() + 1)
    assert native.live_writer(tmp_path, ID) == mine.pid
    assert native.live_writer(tmp_path, OTHER) is None
    assert native.live_writer(tmp_path, ID, but=(mine.pid,)) is None


def test_what_a_crash_left_behind_keeps_nobody_out(tmp_path: Path) -> None:
    mine = psutil.Process()
    registered(tmp_path, mine.pid, mine.create_time() - 3600)
    assert native.live_writer(tmp_path, ID) is None, "the number was given to another process since"
    (tmp_path / "sessions" / "torn.json").write_text("{")
    registered(tmp_path, _no_process(), 0)
    assert native.live_writer(tmp_path, ID) is None


def _no_process() -> int:
    return next(pid for pid in range(4_000_000, 100, -1) if not psutil.pid_exists(pid))


def test_forgetting_takes_the_conversation_and_its_subagents_and_no_other(tmp_path: Path) -> None:
    work = str(tmp_path / "work")
    native.restore(tmp_path, work, ID, (kept(*CHAIN), kept(row("x", None), path="subagents/agent-1")))
    other = put(tmp_path, *CHAIN, id=OTHER)
    assert len(native.forget(tmp_path, ID)) == 2
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]
    assert native.forget(tmp_path, ID) == ()
    with pytest.raises(EngineError, match="UUID"):
        native.forget(tmp_path, "../x")
    registered(tmp_path, os.getpid(), psutil.Process().create_time(), OTHER)
    with pytest.raises(EngineError, match="works in"):
        native.forget(tmp_path, OTHER)
    assert other.exists()
