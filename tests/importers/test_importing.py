"""The verb: what is read again, what is not, what a kill leaves, and what is told about files that cannot be read."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.importers.conftest import Desk
from tests.importers.natives import SESSION, Claude, Codex

from onward.core.events import fault_in
from onward.core.ids import LOCAL_ACCOUNT
from onward.errors import InvalidInput, NotFound, StoreFull
from onward.importers.discover import find
from onward.service import importing, sessions
from onward.service.importing import import_paths, original_file, original_record
from onward.service.importing_originals import files_of
from onward.service.platform import Platform
from onward.store.contract import Batch, Committed
from onward.store.memory import MemoryStore
from onward.testing.clock import FakeClock, FakeIds


def story() -> Claude:
    told = (
        Claude().user("u1", "Rename the parser").calls("a1", "t1").result("r1", "t1").says("a2", "Renamed.")
    )
    return told.side("mode", mode="normal").user("u2", "And the tests?").says("a3", "Those too.")


def test_a_session_becomes_a_session_with_its_dialogue_in_order(desk: Desk) -> None:
    report = desk.one(story().write(desk.folder / f"{SESSION}.jsonl"))
    assert (report.status, report.engine, report.version) == ("imported", "claude-code", "2.1.40")
    assert report.records.read == 7
    assert report.messages.user == 2
    assert (report.messages.assistant, report.messages.tool_calls, report.messages.tool_results) == (3, 1, 1)
    (session,) = desk.sessions()
    assert report.sessions == (session.id,)
    assert session.imported
    assert session.title == "Rename the parser"
    assert session.engine == "claude-code"
    assert session.workspace_id is not None
    workspace = desk.store.workspace_by_id(session.workspace_id)
    assert workspace is not None
    assert workspace.path == "/srv/shop"
    assert desk.said(session.id) == ["Rename the parser", "Renamed.", "And the tests?", "Those too."]


def test_a_folder_that_only_later_rows_name_is_the_sessions_workspace_all_the_same(desk: Desk) -> None:
    told = Claude().side("queue-operation", operation="enqueue", content="Rename the parser")
    told = told.side("file-history-snapshot").user("u1", "Rename the parser").says("a1", "Renamed.")
    desk.one(told.write(desk.folder / "late.jsonl"))
    (session,) = desk.sessions()
    assert session.workspace_id is not None


def test_a_title_that_a_person_gave_outlasts_what_the_file_says_later(desk: Desk) -> None:
    path = story().write(desk.folder / f"{SESSION}.jsonl")
    (session_id,) = desk.one(path).sessions
    sessions.rename(Platform(store=desk.store, clock=desk.clock, ids=desk.ids), session_id, "Mine")
    story().side("custom-title", customTitle="The engine's").user("u3", "More?").write(path)
    assert desk.one(path).status == "imported"
    (session,) = desk.sessions()
    assert session.title == "Mine"


@pytest.mark.requirement("L3")
def test_importing_again_reads_nothing_and_adds_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = story().write(desk.folder / "a.jsonl")
    first = desk.one(path)
    census = desk.census()
    import builtins

    opened: list[str] = []
    real = builtins.open
    monkeypatch.setattr(
        builtins, "open", lambda name, *a, **k: opened.append(str(name)) or real(name, *a, **k)
    )
    again = desk.one(path)
    assert again.status == "unchanged"
    assert (again.records, again.messages, again.sessions) == (first.records, first.messages, first.sessions)
    assert desk.census() == census
    assert str(path) not in opened


@pytest.mark.requirement("L3")
def test_a_file_that_grew_is_read_from_where_it_ended(desk: Desk) -> None:
    path = desk.folder / "a.jsonl"
    whole = story().bytes()
    lines = whole.splitlines(keepends=True)
    desk.write(path, b"".join(lines[:3]))
    desk.one(path)
    before = desk.census()
    desk.write(path, whole)
    report = desk.one(path)
    assert report.status == "imported"
    assert report.records.read == 7
    assert len(report.sessions) == 1
    assert before.items() <= desk.census().items()
    assert desk.said(report.sessions[0]) == ["Rename the parser", "Renamed.", "And the tests?", "Those too."]


def test_a_torn_last_line_is_broken_and_read_again_when_it_is_whole(desk: Desk) -> None:
    path = desk.folder / "a.jsonl"
    whole = story().bytes()
    desk.write(path, whole[:-40])
    report = desk.one(path)
    assert report.records.broken == 1
    assert report.reason == "broken: line 7 (cut off, no line end)"
    assert desk.one(path).status == "unchanged"
    assert desk.one(path).records.broken == 1
    desk.write(path, whole)
    report = desk.one(path)
    assert (report.records.broken, report.records.read, report.reason) == (0, 7, None)
    assert desk.said(report.sessions[0])[-1] == "Those too."


def test_a_last_line_without_a_line_end_that_is_whole_is_a_record(desk: Desk) -> None:
    path = desk.write(desk.folder / "a.jsonl", story().bytes().rstrip(b"\n"))
    assert desk.one(path).records.broken == 0
    desk.write(path, story().bytes() + Claude().user("u9", "More", on="a3").bytes())
    report = desk.one(path)
    assert (report.records.read, report.records.broken) == (8, 0)
    assert desk.said(report.sessions[0])[-1] == "More"


def test_broken_lines_are_named_and_the_rest_is_imported(desk: Desk) -> None:
    told = (
        Claude().user("u1", "Hello").line(b"not json").line(b'"\xff"').says("a1", "Hi").line(b"").line(b"7")
    )
    report = desk.one(told.write(desk.folder / "a.jsonl"))
    assert report.status == "imported"
    assert (report.records.read, report.records.broken, report.records.raw) == (5, 2, 1)
    assert report.reason == "broken: line 2 (not JSON), line 3 (not UTF-8)"
    assert desk.said(report.sessions[0]) == ["Hello", "Hi"]
    more = told.line(b"nor this").says("a2", "Still here").bytes()
    report = desk.one(desk.write(desk.folder / "a.jsonl", more))
    assert report.reason == "broken: line 2 (not JSON), line 3 (not UTF-8), line 7 (not JSON)"


@pytest.mark.requirement("L4")
def test_what_has_no_counterpart_stays_whole_and_broken_lines_show(desk: Desk) -> None:
    told = Claude().user("u1", "Hello").side("brand-new-type", payload={"deep": [1, None]}).line(b'{"cut')
    report = desk.one(told.write(desk.folder / "a.jsonl"))
    raw = desk.events(report.sessions[0], "raw")
    assert [json.loads(event.body) for event in raw] == [
        {"type": "brand-new-type", "payload": {"deep": [1, None]}},
        {"broken": "not JSON", "text": '{"cut'},
    ]
    assert original_record(desk.store, raw[1]) == b'{"cut'


def test_every_event_leads_to_the_bytes_of_its_record(desk: Desk) -> None:
    data = story().bytes().replace(b"\n", b"\r\n")
    path = desk.write(desk.folder / "a.jsonl", data)
    report = desk.one(path)
    lines = data.split(b"\r\n")
    for event in desk.events(report.sessions[0]):
        if event.source.place:
            number = int(event.source.place.split("@")[0].split(":")[1])
            assert original_record(desk.store, event) == lines[number - 1]
    ((named, file_id),) = files_of(desk.store, report.sessions[0])
    assert named == str(path)
    assert b"".join(original_file(desk.store, file_id)) == data


@pytest.mark.requirement("L3")
def test_a_rewritten_file_adds_what_is_new_and_nothing_twice(desk: Desk) -> None:
    path = desk.folder / "a.jsonl"
    first = desk.one(desk.write(path, story().bytes()))
    before = desk.census()
    rewritten = Claude().side("summary", summary="x", leafUuid="nowhere").rows + story().rows
    told = Claude()
    told.rows = rewritten
    told.last = "a3"
    told.user("u3", "One more")
    report = desk.one(desk.write(path, told.bytes()))
    assert "rewritten" in (report.reason or "")
    assert report.sessions == first.sessions
    assert report.records.read == 9
    after = desk.census()
    assert before.items() <= after.items()
    assert sorted(kind for id, (_, kind) in after.items() if id not in before) == ["message", "raw"]
    new = next(e for e in desk.events(report.sessions[0], "message") if e.body.find(b"One more") >= 0)
    assert b"One more" in original_record(desk.store, new)
    old = desk.events(report.sessions[0], "message")[0]
    assert b"Rename the parser" in original_record(desk.store, old), "old places still lead to the old bytes"


@pytest.mark.requirement("L3")
def test_a_moved_file_is_the_same_session_and_goes_on_there(desk: Desk) -> None:
    first = desk.one(desk.write(desk.folder / "old" / f"{SESSION}.jsonl", story().bytes()))
    told = story().user("u3", "From the new place")
    report = desk.one(desk.write(desk.folder / "new" / f"{SESSION}.jsonl", told.bytes()))
    assert report.sessions == first.sessions
    assert "copy" in (report.reason or "")
    assert desk.said(report.sessions[0])[-1] == "From the new place"
    new = desk.events(report.sessions[0], "message")[-1]
    assert b"From the new place" in original_record(desk.store, new)


def test_two_copies_that_went_different_ways_do_not_mix(desk: Desk) -> None:
    left = desk.one(desk.write(desk.folder / "a.jsonl", story().user("u3", "Left").bytes()))
    right = desk.one(desk.write(desk.folder / "b.jsonl", story().user("u4", "Right").bytes()))
    assert left.sessions != right.sessions
    assert "differs" in (right.reason or "")
    assert desk.said(left.sessions[0])[-1] == "Left"
    assert desk.said(right.sessions[0])[-1] == "Right"
    assert len(desk.said(right.sessions[0])) == 5
    more = desk.one(desk.write(desk.folder / "b.jsonl", story().user("u4", "Right").user("u5", "On").bytes()))
    assert more.sessions == right.sessions
    assert desk.said(right.sessions[0])[-2:] == ["Right", "On"]


class Dying(MemoryStore):
    """A store whose process dies when a commit begins: before or after it is safe."""

    def __init__(self) -> None:
        super().__init__()
        self.commits_left = -1
        self.after = False

    def commit(self, batch: Batch) -> Committed:
        if self.commits_left == 0 and not self.after:
            raise KeyboardInterrupt
        done = super().commit(batch)
        if self.commits_left == 0:
            raise KeyboardInterrupt
        self.commits_left -= 1
        return done


def long_story(turns: int) -> bytes:
    told = Claude()
    for n in range(turns):
        told.user(f"u{n}", f"Turn {n}").calls(f"a{n}", f"t{n % 7}").result(f"r{n}", f"t{n % 7}")
        if n % 5 == 4:
            told.user(f"x{n}", "Left behind", on=f"r{n - 2}").says(f"y{n}", "Yes?")
            told.last = f"r{n}"
        if n % 6 == 5:
            told.row("system", f"b{n}", on=None, subtype="compact_boundary", logicalParentUuid=f"r{n}")
            told.user(f"k{n}", "Summary", isCompactSummary=True)
        told.side("mode", mode="normal")
    return told.bytes()


@settings(max_examples=25)
@given(commits=st.integers(0, 40), after=st.booleans(), grow=st.booleans())
def test_dying_at_any_commit_changes_nothing_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, commits: int, after: bool, grow: bool
) -> None:
    folder = tmp_path_factory.mktemp("native")
    path = folder / "a.jsonl"
    data = long_story(40)
    path.write_bytes(data)
    small = 9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onward.service.importing_writer.EVENTS_A_BATCH", small)
        reference = Desk(MemoryStore(), folder)
        wanted = reference.one(path)
        store = Dying()
        desk = Desk(store, folder)
        store.commits_left, store.after = commits, after
        with contextlib.suppress(KeyboardInterrupt):  # beyond its last commit the import is simply done
            desk.one(path)
        store.commits_left = -1
        if grow:
            more = data + Claude().user("z1", "Later", on="nowhere").bytes()
            desk.write(path, more)
            reference.write(path, more)
            wanted = reference.one(path)
        report = desk.one(path)
    assert report.records == wanted.records
    assert report.messages == wanted.messages
    assert report.sessions == wanted.sessions
    assert desk.census() == reference.census()
    for session in wanted.sessions:
        mine, theirs = desk.events(session), reference.events(session)
        assert [(e.id, e.kind, e.body, e.source) for e in mine] == [
            (e.id, e.kind, e.body, e.source) for e in theirs
        ]
        assert desk.link_to(session) == reference.link_to(session)


@settings(max_examples=40)
@given(cuts=st.lists(st.integers(1, 100), min_size=1, max_size=4))
def test_growing_by_any_steps_gives_the_same_account_and_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("native")
    data = story().user("u5", "Once more", on="a2").says("a5", "Gladly.").bytes()
    reference = Desk(MemoryStore(), folder)
    wanted = reference.one(reference.write(folder / "a.jsonl", data))
    desk = Desk(MemoryStore(), folder)
    for cut in sorted(cuts):
        report = desk.imports(desk.write(folder / "a.jsonl", data[: len(data) * cut // 100])).files[0]
        assert report.status in ("imported", "unchanged", "failed", "empty")
    report = desk.one(desk.write(folder / "a.jsonl", data))
    assert (report.records, report.messages) == (wanted.records, wanted.messages)
    without_closers = {
        id: kind
        for id, (session, kind) in desk.census().items()
        if b'"closer":true' not in desk.store.event(id).body  # type: ignore[union-attr]
    }
    assert without_closers == {id: kind for id, (_, kind) in reference.census().items()}


@pytest.mark.requirement("L1", "L2")
def test_an_imported_log_verifies(desk: Desk) -> None:
    desk.one(desk.write(desk.folder / "a.jsonl", long_story(30)))
    for session in desk.sessions():
        chain = bytes(32)
        for seq, event in enumerate(desk.store.scan(session.id), 1):
            assert fault_in(event, seq, chain) is None
            chain = event.chain


def test_a_call_without_a_result_is_closed_and_a_late_result_still_comes_in(desk: Desk) -> None:
    path = desk.folder / "a.jsonl"
    told = Claude().user("u1", "Run it").calls("a1", "t1")
    report = desk.one(desk.write(path, told.bytes()))
    (closer,) = desk.bodies(report.sessions[0], "tool_result")
    assert (closer.call, closer.status, closer.closer) == ("t1", "outcome_unknown", True)  # type: ignore[attr-defined]
    desk.one(desk.write(path, told.result("r1", "t1", "late").bytes()))
    _, real = desk.bodies(report.sessions[0], "tool_result")
    assert (real.call, real.output, real.closer) == ("t1", "late", False)  # type: ignore[attr-defined]


def test_a_file_in_which_nobody_speaks_is_empty_until_somebody_does(desk: Desk) -> None:
    path = desk.folder / "a.jsonl"
    told = (
        Claude()
        .side("file-history-snapshot", messageId="m", snapshot={})
        .side("mode", mode="x", sessionId=SESSION)
    )
    report = desk.one(desk.write(path, told.bytes()))
    assert (report.status, report.records.read, report.records.raw, report.sessions) == ("empty", 2, 2, ())
    assert "no message" in (report.reason or "")
    assert desk.one(path).status == "empty"
    assert desk.sessions() == []
    report = desk.one(desk.write(path, told.user("u1", "Hello").bytes()))
    assert (report.status, report.records.read) == ("imported", 3)
    assert len(desk.events(report.sessions[0], "raw")) == 2


def test_files_that_are_no_sessions_get_a_reason_each(desk: Desk) -> None:
    (desk.folder / "README.md").write_text("# Sessions\n")
    (desk.folder / "picture.png").write_bytes(b"\x89PNG")
    (desk.folder / "settings.json").write_text('{"theme": "dark"}')
    (desk.folder / "history.jsonl").write_text('{"display": "hi", "timestamp": 1, "project": "/x"}\n')
    (desk.folder / "nothing.jsonl").write_bytes(b"")
    (desk.folder / "pretty.jsonl").write_text('{\n  "type": "user",\n  "message": {}\n}\n')
    (desk.folder / "other.jsonl").write_text(
        '{"type": "session", "id": "x"}\n{"type": "message", "id": "y"}\n'
    )
    report = desk.imports(desk.folder)
    assert {Path(i.path).name for i in report.ignored} == {
        "README.md", "picture.png", "settings.json", "history.jsonl", "nothing.jsonl"
    }  # fmt: skip
    assert all(ignored.reason for ignored in report.ignored)
    failed = {Path(f.path).name: f for f in report.files}
    assert set(failed) == {"pretty.jsonl", "other.jsonl"}
    assert failed["pretty.jsonl"].status == "failed"
    assert failed["pretty.jsonl"].records.broken == 4
    assert "spread over several lines" in (failed["pretty.jsonl"].reason or "")
    assert "session, message" in (failed["other.jsonl"].reason or "")
    assert not report.ok


def test_a_named_path_always_gets_an_answer(desk: Desk) -> None:
    (desk.folder / "README.md").write_text("# Sessions\n")
    (desk.folder / "nothing.jsonl").write_bytes(b"\n \n")
    statuses = {
        "README.md": "failed",
        "nothing.jsonl": "empty",
        "missing.jsonl": "failed",
    }
    for name, status in statuses.items():
        report = desk.one(desk.folder / name)
        assert (report.status, bool(report.reason)) == (status, True), name


def test_a_pipe_is_not_waited_for(desk: Desk) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes here")
    os.mkfifo(desk.folder / "pipe.jsonl")
    done = threading.Event()
    found: list[str | None] = []

    def run() -> None:
        found.append(desk.one(desk.folder / "pipe.jsonl").reason)
        done.set()

    threading.Thread(target=run, daemon=True).start()
    assert done.wait(10)
    assert found == ["not a regular file"]


def test_links_in_a_circle_are_walked_once(desk: Desk) -> None:
    story().write(desk.folder / "deep" / "a.jsonl")
    (desk.folder / "deep" / "again").symlink_to(desk.folder, target_is_directory=True)
    report = desk.imports(desk.folder)
    assert [f.status for f in report.files] == ["imported"]
    assert any("visited" in ignored.reason for ignored in report.ignored)


def test_a_file_that_cannot_be_read_does_not_stop_the_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    story().write(desk.folder / "a.jsonl")
    Codex().user("Hi").says("Hello").write(desk.folder / "b.jsonl")

    def fall(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("onward.importers.claude_code.ClaudeReader.survey", fall)
    report = desk.imports(desk.folder)
    assert [f.status for f in report.files] == ["failed", "imported"]
    assert "a fault of ours" in (report.files[0].reason or "")


def test_a_folder_that_cannot_be_listed_is_a_failure(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    story().write(desk.folder / "open" / "a.jsonl")
    closed = desk.folder / "closed"
    closed.mkdir()
    real = os.scandir

    def scandir(path: str) -> object:
        if os.fspath(path) == str(closed):
            raise PermissionError(13, "Permission denied", str(closed))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    report = desk.imports(desk.folder)
    files = {Path(f.path).name: f for f in report.files}
    assert {name: f.status for name, f in files.items()} == {"a.jsonl": "imported", "closed": "failed"}
    assert "Permission denied" in (files["closed"].reason or "")


def test_a_file_that_vanishes_between_finding_and_reading_is_a_failure(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = story().write(desk.folder / "a.jsonl")
    found = list(find([path]))
    path.unlink()
    monkeypatch.setattr("onward.service.importing.find", lambda *_, **__: found)
    report = desk.one(path)
    assert (report.status, report.reason) == ("failed", "No such file or directory")


def test_a_file_that_changes_between_finding_and_reading_is_looked_at_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = story().write(desk.folder / "a.jsonl")
    desk.one(path)
    real = importing.find

    def late(paths: list[Path], engine: str | None = None, **more: Any) -> list[Any]:
        entries = list(real(paths, engine, **more))
        if more:
            desk.write(path, story().says("a9", "And more").bytes())
        return entries

    monkeypatch.setattr(importing, "find", late)
    report = desk.one(path)
    assert (report.status, report.records.read) == ("imported", 8)


def test_a_full_store_ends_the_import_and_keeps_what_was_committed(tmp_path: Path) -> None:
    class Full(MemoryStore):
        def commit(self, batch: Batch) -> Committed:
            raise StoreFull(path="log.db", why="no space left")

    with pytest.raises(StoreFull):
        Desk(Full(), tmp_path).one(story().write(tmp_path / "a.jsonl"))


def test_an_engine_that_has_no_reader_is_refused_and_one_that_has_takes_only_its_own(desk: Desk) -> None:
    story().write(desk.folder / "a.jsonl")
    Codex().user("Hi").says("Hello").write(desk.folder / "b.jsonl")
    with pytest.raises(InvalidInput, match="claude-code, codex"):
        desk.imports(desk.folder, engine="telepathy")
    report = desk.imports(desk.folder, engine="codex")
    assert [f.engine for f in report.files] == ["codex"]
    assert "only codex was asked for" in report.ignored[0].reason


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    story().write(tmp_path / "a.jsonl")
    story().write(tmp_path / "b.jsonl")
    steps: list[tuple[int, int, str]] = []
    clock = FakeClock()
    import_paths(
        MemoryStore(),
        LOCAL_ACCOUNT,
        [tmp_path],
        now=clock,
        ids=FakeIds(clock),
        progress=lambda *step: steps.append(step),
    )
    total = sum(f.stat().st_size for f in tmp_path.iterdir())
    assert {step[1] for step in steps} == {total}
    assert [step[0] for step in steps] == sorted(step[0] for step in steps)
    assert steps[-1][0] == total


def test_totals_add_up(desk: Desk) -> None:
    story().write(desk.folder / "a.jsonl")
    Codex().user("Hi").says("Hello").write(desk.folder / "b.jsonl")
    report = desk.imports(desk.folder)
    assert report.ok
    assert (report.totals.files, report.totals.imported, report.totals.sessions) == (2, 2, 2)
    assert report.totals.records.read == sum(f.records.read for f in report.files)
    assert report.totals.messages.user == sum(f.messages.user for f in report.files)


@pytest.mark.requirement("L5")
def test_erasing_an_imported_event_blanks_the_record_it_came_from(desk: Desk) -> None:
    data = story().bytes()
    report = desk.one(desk.write(desk.folder / "a.jsonl", data))
    platform = Platform(store=desk.store, clock=desk.clock, ids=desk.ids)
    secret = next(e for e in desk.events(report.sessions[0], "message") if b"And the tests?" in e.body)
    sessions.erase(platform, secret.id)
    with pytest.raises(NotFound):
        original_record(desk.store, secret)
    ((_, file_id),) = files_of(desk.store, report.sessions[0])
    kept = b"".join(original_file(desk.store, file_id))
    line = next(line for line in data.splitlines() if b"And the tests?" in line)
    assert kept == data.replace(line, b" " * len(line))
    for event in desk.events(report.sessions[0], "message"):
        if event.id != secret.id:
            assert original_record(desk.store, event)
    assert desk.one(desk.folder / "a.jsonl").status == "unchanged"


@pytest.mark.parametrize("engine", ["claude-code", "codex", "codex document"])
def test_a_byte_order_mark_costs_no_record_and_the_original_keeps_it(desk: Desk, engine: str) -> None:
    told = {
        "claude-code": story().bytes(),
        "codex": Codex().user("Hi").says("Hello").bytes(),
        "codex document": json.dumps(
            {
                "session": {"id": "s", "timestamp": "2025-04-16T10:00:00Z"},
                "items": [
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
                ],
            }
        ).encode(),
    }[engine]
    clean = desk.one(desk.write(desk.folder / "clean", told))
    marked = Desk(MemoryStore(), desk.folder)
    report = marked.one(marked.write(desk.folder / "marked", b"\xef\xbb\xbf" + told))
    assert (report.status, report.records, report.messages) == ("imported", clean.records, clean.messages)
    (_, file_id), *_ = files_of(marked.store, report.sessions[0])
    if engine != "codex document":
        assert b"".join(original_file(marked.store, file_id)) == b"\xef\xbb\xbf" + told


def test_a_last_line_that_is_the_only_one_is_whole_behind_a_byte_order_mark(desk: Desk) -> None:
    (line,) = Claude().user("u1", "Hi").bytes().splitlines()
    report = desk.one(desk.write(desk.folder / "a.jsonl", b"\xef\xbb\xbf" + line))
    assert (report.status, report.records.broken) == ("imported", 0)
