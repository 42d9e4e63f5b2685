"""The small parts under the readers: lines, times, identities, calls, and telling what a file is."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.importers.natives import SESSION, THREAD, Claude, Codex

from onward.core.codec import loads
from onward.importers import discover
from onward.importers.calls import REMEMBERED, closers, open_call, take_result
from onward.importers.contract import TITLE_LIMIT, Strand
from onward.importers.discover import Candidate, NotRead, default_paths, sniff
from onward.importers.harness import ask_in, command_title, is_harness, title_from
from onward.importers.idents import Idents
from onward.importers.lines import lines_of
from onward.importers.moments import moment_in_uuid7, moment_of
from onward.importers.parts import part_of_url


@given(
    parts=st.lists(st.binary(max_size=20), max_size=12),
    ending=st.sampled_from([b"\n", b"\r\n"]),
    last=st.binary(max_size=9),
    longest=st.integers(5, 30),
)
def test_lines_cover_every_byte_once_and_in_order(
    parts: list[bytes], ending: bytes, last: bytes, longest: int
) -> None:
    data = ending.join(part.replace(b"\n", b"") for part in parts) + ending + last.replace(b"\n", b"")
    found = list(lines_of(io.BytesIO(data), offset=0, limit=len(data), longest=longest))
    at = 0
    for number, (seen, offset, line, size) in enumerate(found, 1):
        assert (seen, offset) == (number, at)
        if line is None:
            assert size > longest
        else:
            assert data[offset : offset + len(line)] == line
            assert data[offset : offset + size].rstrip(b"\r\n") == line.rstrip(b"\r\n")
        at += size
    assert at == len(data)


def test_lines_stop_at_the_limit_that_was_seen_when_the_file_was_opened() -> None:
    data = b"one\ntwo\nthree\n"
    assert [line[2] for line in lines_of(io.BytesIO(data), offset=4, limit=10, number=2)] == [b"two", b"th"]


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ("2026-02-12T14:48:36.922Z", 1770907716922000),
        ("2026-02-12T15:48:36+01:00", 1770907716000000),
        ("2026-02-12", 1770854400000000),
        (1770907716, 1770907716000000),
        (1770907716.5, 1770907716500000),
        (1770907716922, 1770907716922000),
        (1770907716922000, 1770907716922000),
        ("soon", None),
        ("", None),
        (None, None),
        (True, None),
        (-5, None),
        (float("nan"), None),
        (float("inf"), None),
        (1e300, None),
    ],
)
def test_times_are_understood_in_every_spelling(value: object, at: int | None) -> None:
    assert moment_of(value) == at


def test_a_uuid_of_version_7_holds_a_time_and_others_do_not() -> None:
    assert moment_in_uuid7("019fc8be-3658-7ca3-9e29-000000000000") == 0x019FC8BE3658 * 1000
    assert moment_in_uuid7("cf4def41-21e0-4b91-adb4-5397c1492084") is None
    assert moment_in_uuid7("zzzzzzzz-zzzz-7zzz-zzzz-zzzzzzzzzzzz") is None


@given(records=st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=30), cut=st.integers(0, 30))
def test_equal_records_get_different_identities_that_survive_an_interruption(
    records: list[bytes], cut: int
) -> None:
    whole = Idents()
    wanted = [whole.of(record, "x") for record in records]
    assert len(set(wanted)) == len(wanted)
    first = Idents()
    found = [first.of(record, "x") for record in records[:cut]]
    second = Idents(first.latest())
    assert found + [second.of(record, "x") for record in records[cut:]] == wanted


@given(calls=st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.booleans()), max_size=30))
def test_our_call_ids_never_repeat_and_every_call_ends(calls: list[tuple[str, bool]]) -> None:
    strand = Strand(key="")
    ours: list[str] = []
    ended: list[str] = []
    for number, (provider, answered) in enumerate(calls):
        ours.append(open_call(strand, provider, "tool", f"row {number}"))
        if answered:
            ended.append(take_result(strand, provider)[0])
    ended += [loads(draft.body)["call"] for draft in closers(strand, 0) if isinstance(draft.body, bytes)]
    assert len(set(ours)) == len(ours)
    assert sorted(ended) == sorted(ours)


def test_more_calls_than_can_be_remembered_stay_apart() -> None:
    strand = Strand(key="")
    ours = {
        open_call(strand, f"call_{n % (REMEMBERED + 10)}", "tool", f"row {n}") for n in range(REMEMBERED + 50)
    }
    assert len(ours) == REMEMBERED + 50


@given(st.text(max_size=400))
def test_a_title_is_one_line_of_words_and_never_markup(text: str) -> None:
    title = title_from(text)
    assert len(title) <= TITLE_LIMIT
    assert "\n" not in title
    assert not title.startswith("<")
    assert title == title.strip()


def test_an_ask_is_found_behind_the_editors_context() -> None:
    text = "# Context from my IDE setup:\n\n## Active file: a.py\n\n## My request for Codex:\nRename it"
    assert ask_in(text) == "Rename it"
    assert ask_in("## My request: as I said") == "## My request: as I said"


def test_a_tag_of_the_persons_own_is_no_harness_text() -> None:
    assert not is_harness("<div>why is this red?</div>")
    assert is_harness("  <environment_context>\n")
    assert command_title("<command-name>/x</command-name>") == "/x"
    assert command_title("plain") == ""


def test_only_base64_data_urls_hold_content() -> None:
    found = part_of_url("data:image/png;base64,aGk=")
    assert found is not None
    assert (found[1], found[0].media_type) == (b"hi", "image/png")
    assert part_of_url("data:text/plain,hi") is None
    assert part_of_url("https://example.com/a.png") is None
    assert part_of_url("data:image/png;base64,!!!") is None


@pytest.mark.parametrize(
    ("rows", "engine"),
    [
        ([{"type": "summary", "summary": "x", "leafUuid": "y"}], "claude-code"),
        ([{"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}], "claude-code"),
        ([{"type": "user", "message": {"role": "user", "content": "hi"}, "timestamp": "x"}], "claude-code"),
        ([{"type": "session_meta", "payload": {"id": "x"}}], "codex"),
        ([{"record_type": "state"}], "codex"),
        ([{"type": "message", "role": "user", "content": []}], "codex"),
        ([{"type": "session", "id": "x"}, {"type": "message", "id": "y", "message": {"role": "user"}}], None),
        (
            [{"type": "user", "sessionId": "s", "uuid": "u", "parentUuid": None, "message": {"parts": []}}],
            None,
        ),
        (
            [{"type": "system", "subtype": "init", "session_id": "s"}, {"type": "result", "session_id": "s"}],
            None,
        ),
        ([{"type": "session.start", "data": {}}], None),
        ([{"sessionId": "s", "projectHash": "h"}, {"id": "1", "type": "user", "content": "hi"}], None),
    ],
)
def test_a_file_is_known_by_what_it_holds(rows: list[dict[str, object]], engine: str | None) -> None:
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    found = sniff(data, "any.jsonl")
    assert found.engine == engine
    assert bool(found.reason) == (engine is None)


def test_main_sessions_come_before_the_subagents_that_hang_on_them(tmp_path: Path) -> None:
    Claude().user("u1", "Hi").write(tmp_path / "z.jsonl")
    Claude(isSidechain=True, agentId="a").user("s1", "Sub").write(
        tmp_path / "a" / "subagents" / "agent-a.jsonl"
    )
    Codex().user("Hi").write(tmp_path / "b" / f"rollout-2026-{THREAD}.jsonl")
    found = [f for f in discover.find([tmp_path, tmp_path / "z.jsonl"]) if isinstance(f, Candidate)]
    assert [f.agent_file for f in found] == [False, False, True]
    assert [f.native_id for f in found if f.engine == "codex"] == [THREAD]


def test_a_subagents_file_is_known_by_its_rows_whatever_it_is_called(tmp_path: Path) -> None:
    Claude(isSidechain=True, agentId="a").user("s1", "Sub").write(tmp_path / "copied.jsonl")
    (found,) = discover.find([tmp_path])
    assert isinstance(found, Candidate)
    assert found.agent_file


def test_a_file_that_cannot_be_opened_is_a_failure_with_the_systems_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Claude().user("u1", "Hi").write(tmp_path / "a.jsonl")

    def refuse(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refuse)
    (found,) = discover.find([path])
    assert isinstance(found, NotRead)
    assert (found.failed, found.reason) == (True, "cannot be read: Permission denied")


def test_the_engines_own_folders_are_found_where_the_environment_says(tmp_path: Path) -> None:
    for folder in (".claude/projects", "elsewhere/sessions"):
        (tmp_path / folder).mkdir(parents=True)
    found = default_paths({"CODEX_HOME": str(tmp_path / "elsewhere")}, tmp_path)
    assert found == [tmp_path / ".claude" / "projects", tmp_path / "elsewhere" / "sessions"]
    assert SESSION


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
fields_looked_at = st.sampled_from(
    (
        "type",
        "payload",
        "message",
        "sessionId",
        "uuid",
        "parentUuid",
        "record_type",
        "id",
        "call_id",
        "role",
        "content",
    )
)


@given(rows=st.lists(st.dictionaries(fields_looked_at, json_values, max_size=6), max_size=4))
def test_telling_what_a_file_is_fails_for_no_type_of_any_field(rows: list[dict[str, object]]) -> None:
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    found = sniff(data, "any.jsonl")
    assert (found.engine is None) == bool(found.reason)


def test_a_first_line_longer_than_what_is_looked_at_does_not_hide_what_a_file_is(tmp_path: Path) -> None:
    long = "x" * (2 * discover.SNIFFED)
    Claude().user("u1", long).says("a1", "Ok").write(tmp_path / "claude.jsonl")
    Codex().row("session_meta", id=THREAD, base_instructions=long).user("Hi").write(tmp_path / "codex.jsonl")
    found = [entry.engine for entry in discover.find([tmp_path]) if isinstance(entry, Candidate)]
    assert found == ["claude-code", "codex"]


def test_a_name_that_no_file_can_have_is_a_failure_like_any_other() -> None:
    (found,) = discover.find([Path("a\0b")])
    assert isinstance(found, NotRead)
    assert found.failed


def test_a_folder_that_vanishes_while_it_is_walked_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Claude().user("u1", "Hi").write(tmp_path / "z" / "b.jsonl")
    (tmp_path / "gone").mkdir()
    look = os.stat

    def stat(path: object, *args: object, **options: object) -> os.stat_result:
        if str(path).endswith("gone"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return look(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(discover.os, "stat", stat)
    found = list(discover.find([tmp_path]))
    assert [Path(f.path).name for f in found if isinstance(f, NotRead) and f.failed] == ["gone"]
    assert [Path(f.path).name for f in found if isinstance(f, Candidate)] == ["b.jsonl"]
