"""The contract of the command line, held by the real program: exit status, one document, one line of error."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.cli import COMMAND, Program

posix = pytest.mark.skipif(os.name != "posix", reason="file modes and signals are those of POSIX")
not_root = pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everything"
)

EVENT = {"id", "session", "seq", "at", "kind", "actor", "run", "source", "body", "digest", "chain"}


def test_each_command_prints_one_document_with_exactly_its_fields(onward: Program) -> None:
    session = onward.new()
    assert onward("run", session, "go on", "--json").document.keys() == {
        "session", "run", "opening", "opening_facts", "reply", "usage", "pressure", "approval", "code", "retryable",
        "warnings",
    }  # fmt: skip
    listed = onward("list", "--json").document
    assert listed.keys() == {"sessions", "next"}
    assert [s["id"] for s in listed["sessions"]] == [session]
    assert onward("show", session, "--json").document.keys() == {
        "session", "links", "state", "runs", "pressure",
    }  # fmt: skip
    page = onward("read", session, "--json").document
    assert page.keys() == {"session", "events", "next"}
    assert all(event.keys() == EVENT for event in page["events"])
    assert [event["seq"] for event in page["events"]] == list(range(1, len(page["events"]) + 1))
    assert all(event["chain"].startswith("sha256:") for event in page["events"])
    found = onward("search", "test_parse_dates", "--json").document
    assert found.keys() == {"hits", "complete"}
    assert found["hits"][0].keys() == {
        "session",
        "seq",
        "event",
        "at",
        "who",
        "text",
        "score",
        "superseded_by",
    }
    draft = onward("draft", session, "--purpose", "Release notes", "--json")
    assert {"handoff", "sources", "estimated_tokens"} <= draft.document.keys()
    made = onward("continue", session, "--handoff", "-", "--json", stdin=draft.out)
    assert made.status == 0, made.told
    assert made.document.keys() == {"successor", "predecessor", "origin", "link", "manifest", "run", "reply"}
    successor = made.document["successor"]
    assert made.document["reply"]
    manifest = onward("manifest", successor, "--json").document
    assert (manifest["id"], manifest["predecessor"]) == (made.document["manifest"], session)
    assert onward("manifest", made.document["manifest"], "--verify", "--json").document["ok"] is True
    lineage = onward("lineage", successor, "--json").document
    assert lineage["path"] == [session, successor]
    assert onward("recalls", successor, "--json").document["recalls"] == 0
    branch = onward("fork", f"{session}:2", "--json").document
    assert branch["link"]["seq"] == 2
    erased = onward("erase", f"{session}:2", "--yes", "--json").document
    assert erased.keys() == {"session", "seq", "event", "erasure"}
    assert onward("verify", "--json").document == {
        "sessions": 3, "events": onward("verify", "--json").document["events"], "ok": True, "first_failure": None,
    }  # fmt: skip
    assert onward("doctor", "--json").document["ok"] is True


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("show", "ses_00000000000000000000000000"), "session_not_found"),
        (("show", "nonsense!"), "invalid_id"),
        (("show", "hello"), "invalid_id"),
        (("show", "evt_00000000000000000000000000"), "invalid_id"),
        (("read", "@last:99"), "event_not_found"),
        (("read", "@last:0"), "invalid_input"),
        (("read", "@last:3-1"), "invalid_input"),
        (("read", "@last:x"), "invalid_input"),
        (("read", "@last:99999999999999999999"), "invalid_input"),
        (("read", "@last", "--limit", "1001"), "limit_exceeded"),
        (("list", "--limit", "0"), "limit_exceeded"),
        (("list", "--cursor", "nonsense"), "invalid_input"),
        (("search", "!?"), "invalid_input"),
        (("search", "x", "--scope", "lineage"), "invalid_input"),
        (("run", "@last", " "), "invalid_input"),
        (("run", "@last"), "invalid_input"),
        (("run", "@last", "x", "--engine", "nobody"), "invalid_input"),
        (("run", "@last", "x", "--engine-option", "nobody=1"), "invalid_input"),
        (("run", "@last", "x", "--workspace", "/nowhere/at/all"), "invalid_input"),
        (("run", "--new", "t" * 10_000, "x", "--engine", "script"), "limit_exceeded"),
        (("run", "@last", "[[fail no]]"), "engine_error"),
        (("run", "@last", "[[stop]]"), "engine_error"),
        (("draft", "@last", "--purpose", "p", "--budget", "10"), "budget_too_small"),
        (("draft", "@last", "--purpose", "p", "--tokens", "nobody"), "invalid_input"),
        (("continue", "@last", "--reason", "other", "--title", "t" * 10_000, "--purpose", "p"), "limit_exceeded"),
        (("continue", "@last", "--reason", "other", "--title", "t", "--purpose", "p", "--source", "3-1"), "invalid_continuation"),  # noqa: E501
        (("continue", "@last", "--reason", "other", "--title", "t", "--purpose", "p", "--source", "900"), "source_not_found"),  # noqa: E501
        (("continue", "@last", "--handoff", "/nowhere/at/all.json"), "invalid_input"),
        (("fork", "@last:77"), "event_not_found"),
        (("fork", "@last:1-2"), "invalid_input"),
        (("manifest", "@last"), "manifest_not_found"),
        (("manifest", "man_00000000000000000000000000"), "manifest_not_found"),
        (("erase", "@last:77", "--yes"), "event_not_found"),
        (("erase", "@last", "--yes"), "invalid_input"),
        (("import", "--from", "nobody", "/tmp"), "invalid_input"),
        (("list", "--store", "ftp://example.org/x"), "invalid_input"),
        (("list", "--store", "nowhere.db"), "not_found"),
    ],
    ids=lambda value: " ".join(v[:30] for v in value) if isinstance(value, tuple) else value,
)  # fmt: skip
def test_an_error_is_one_line_that_starts_with_its_code_and_with_json_one_document(
    onward: Program, args: tuple[str, ...], code: str
) -> None:
    onward.new()
    plain, told = onward(*args), onward(*args, "--json")
    assert (plain.status, plain.code) == (1, code)
    assert (told.status, told.code) == (1, code)
    assert told.document.keys() == {"error"}
    assert told.document["error"].keys() == {"code", "message", "details"}
    assert told.document["error"]["code"] == code


@pytest.mark.parametrize(
    "args",
    [
        ("nonsense",),
        ("show",),
        ("show", "@last", "too", "many"),
        ("list", "--nonsense"),
        ("list", "--limit", "many"),
        ("search",),
        ("run",),
        ("run", "--new", "title", "text", "more"),
        ("run", "@last", "x", "--engine-option", "novalue"),
        ("run", "@last", "x", "--continuation", "sometimes"),
        ("draft", "@last"),
        ("continue", "@last"),
        ("continue", "@last", "--purpose", "p", "--handoff", "f"),
        ("continue", "@last", "--purpose", "p"),
        ("erase", "@last:1"),
    ],
    ids=" ".join,
)
def test_arguments_that_do_not_fit_are_status_two(onward: Program, args: tuple[str, ...]) -> None:
    onward.new()
    plain, told = onward(*args), onward(*args, "--json")
    assert (plain.status, plain.code, plain.out) == (2, "usage", b"")
    assert (told.status, told.document["error"]["code"]) == (2, "usage")


def test_text_that_is_not_utf_8_is_refused_where_it_is_no_path(onward: Program) -> None:
    onward.new()
    assert onward(b"search", b"\xff").status == 2
    failed = onward(b"import", b"/nowhere/\xff.jsonl", b"--json")
    assert failed.status == 1
    assert failed.document["files"][0]["status"] == "failed"


def test_nothing_is_made_by_a_command_that_only_reads(onward: Program, tmp_path: Path) -> None:
    env = {"ONWARD_STORE": "", "XDG_DATA_HOME": str(tmp_path / "data")}
    empty = onward("list", "--json", env=env)
    assert (empty.status, empty.document) == (0, {"sessions": [], "next": None})
    assert onward("show", "@last", env=env).code == "session_not_found"
    assert not (tmp_path / "data").exists()
    assert onward("list").code == "not_found"
    assert not onward.store.exists()


@posix
def test_a_persons_own_store_is_theirs_alone(onward: Program, tmp_path: Path) -> None:
    env = {"ONWARD_STORE": "", "XDG_DATA_HOME": str(tmp_path / "data")}
    assert onward("run", "--new", "t", "hello", "--engine", "script", env=env).status == 0
    folder = tmp_path / "data" / "onward"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "onward.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["plain.db", "with space.db", "100%41.db", "été#?.db"])
def test_any_file_name_is_a_store_however_it_is_named(onward: Program, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    made = onward("--store", str(path), "run", "--new", "t", "hello", "--engine", "script", "--json")
    assert made.status == 0, made.told
    assert path.is_file()
    for spelled in (name, f"./{name}"):
        seen = onward("list", "--json", "--store", spelled, cwd=tmp_path)
        assert [s["id"] for s in seen.document["sessions"]] == [made.document["session"]]


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"this is no database at all, it is a text file", "not_a_store"), (None, "not_a_store")],
)
def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(
    onward: Program, content: bytes | None, code: str
) -> None:
    if content is None:
        with sqlite3.connect(onward.store) as other:
            other.execute("CREATE TABLE recipes (name TEXT)")
        other.close()
    else:
        onward.store.write_bytes(content)
    before = onward.store.read_bytes()
    assert onward("list").code == code
    assert onward("run", "--new", "t", "x", "--engine", "script").code == code
    assert onward.store.read_bytes() == before
    assert onward("doctor").status == 1


def test_a_store_of_a_newer_version_is_refused(onward: Program) -> None:
    onward.new()
    with sqlite3.connect(onward.store) as store:
        store.execute("INSERT INTO migrations (version, name) VALUES (9999, 'from the future')")
    store.close()
    assert onward("list").code == "store_too_new"


@posix
@not_root
def test_a_store_that_cannot_be_written_is_read_and_says_so(onward: Program) -> None:
    onward.new()
    onward.store.chmod(0o400)
    assert onward("read", "@last").status == 0
    assert onward("fork", "@last").code == "store_read_only"


@posix
def test_a_full_disk_is_told_in_one_line_and_loses_nothing(onward: Program) -> None:
    session = onward.new()
    size = sum(p.stat().st_size for p in onward.store.parent.glob("work.db*"))

    def no_more_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    text = "[[say yes]] " + "all work and no play " * 100_000
    full = onward("run", session, "-", stdin=text.encode(), preexec_fn=no_more_room)
    assert full.status == 1
    assert full.code in ("store_full", "store_error")
    assert onward("verify").status == 0
    assert onward("run", session, "and now?").status == 0


@posix
def test_output_that_cannot_be_written_is_an_error(onward: Program) -> None:
    onward.new()
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=onward.environment(),
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"os_error: ")


@posix
def test_nobody_reading_is_no_reason_to_complain(onward: Program) -> None:
    session = onward.new()
    assert (
        onward("run", session, "-", "--quiet", stdin=b"[[say " + b"many words " * 30_000 + b"]]").status == 0
    )
    for args in (("read", session), ("read", session, "--json")):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [*COMMAND, *args],
            stdout=writer,
            stderr=subprocess.PIPE,
            env=onward.environment(),
            timeout=60,
            check=False,
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (141, b"")


@posix
def test_an_interrupt_ends_the_run_as_cancelled_and_says_nothing(onward: Program) -> None:
    session = onward.new()
    process = subprocess.Popen(
        [*COMMAND, "run", session, "[[say working]] [[hang]]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=onward.environment(PYTHONUNBUFFERED="1"),
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b"w"  # it has begun
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, b"")
    assert onward("show", session, "--json").document["runs"][0]["state"] == "cancelled"


@pytest.mark.requirement("L2")
def test_verify_names_the_first_event_that_was_changed(onward: Program) -> None:
    session = onward.new()
    with sqlite3.connect(onward.store) as store:
        (rows,) = store.execute("SELECT count(*) FROM events").fetchone()
        store.execute("UPDATE events SET body = replace(CAST(body AS TEXT), 'test', 'best') WHERE seq = 2")
    store.close()
    assert rows > 2
    failed = onward("verify", "--json")
    assert failed.status == 1
    assert failed.code == "verification_failed"
    assert (failed.document["ok"], failed.document["first_failure"]["session"], failed.document["first_failure"]["seq"]) == (
        False, session, 2,
    )  # fmt: skip
    assert f"session {session}, event 2" in onward("verify").told


@pytest.mark.requirement("L5")
def test_an_erased_text_is_nowhere_on_any_screen_and_the_chain_still_verifies(onward: Program) -> None:
    session = onward.new(text="The key is hunter2 [[say noted]]")
    assert onward("search", "hunter2", "--json").document["hits"]
    assert onward("erase", f"{session}:2", "--yes", "--reason", "a leaked key").status == 0
    for args in (
        ("read", session),
        ("read", session, "--json"),
        ("search", "hunter2", "--json"),
        ("list", "--json"),
    ):
        assert b"hunter2" not in onward(*args).out
    assert onward("read", f"{session}:2", "--json").document["events"][0]["body"] == {
        "erased": True, "reason": "a leaked key",
    }  # fmt: skip
    assert onward("verify").status == 0


def _handoff(onward: Program, name: str, content: bytes) -> str:
    path = onward.home / name
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"purpose": "p",\n  oops}', "line 2, column 3"),
        (b"[1, 2]", "expected an object, found list"),
        (b"\xff\xfe{}", "byte 0 is not UTF-8"),
        (b"", "line 1, column 1"),
        (b"[" * 100_000, ""),
        (
            b'{"purpose": "p", "session": "ses_00000000000000000000000001", "handoff": {}}',
            "it was drafted for",
        ),
        (b'{"handoff": {"purpose": "p"}, "sources": 3, "title": "t", "reason": "other"}', ""),
    ],
    ids=["syntax", "list", "encoding", "empty", "deep", "another session", "sources"],
)
def test_a_handoff_that_cannot_be_read_says_where(onward: Program, content: bytes, told: str) -> None:
    onward.new()
    answer = onward(
        "continue",
        "@last",
        "--handoff",
        _handoff(onward, "h.json", content),
        "--source",
        "1",
        "--reason",
        "other",
        "--title",
        "t",
    )
    assert answer.status == 1
    assert answer.code in ("invalid_input", "invalid_continuation")
    assert told in answer.told


@pytest.mark.requirement("C3")
def test_one_process_a_time_or_many_the_same_key_makes_one_successor(onward: Program) -> None:
    session = onward.new()
    args = (
        "continue",
        session,
        "--reason",
        "refocus",
        "--title",
        "Next",
        "--purpose",
        "p",
        "--key",
        "k1",
        "--json",
    )
    waiting = [
        subprocess.Popen(
            [*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=onward.environment()
        )
        for _ in range(4)
    ]
    made: list[dict[str, Any]] = []
    for process in waiting:
        out, told = process.communicate(timeout=60)
        assert process.returncode == 0, told
        made.append(json.loads(out))
    assert len({m["successor"] for m in made}) == 1
    again = onward(*args).document
    assert again["successor"] == made[0]["successor"]
    assert again["reply"]


@pytest.mark.requirement("C7")
def test_a_successor_whose_run_fails_stays_and_can_be_tried_again(onward: Program) -> None:
    session = onward.new(text="hello")
    assert onward("run", session, "[[fail the provider is away]] now").code == "engine_error"
    failed = onward("continue", session, "--reason", "other", "--title", "Next", "--purpose", "p", "--json")
    assert (failed.status, failed.code) == (1, "engine_error")
    details = failed.document["error"]["details"]
    successor = details["successor"]
    assert successor in failed.told
    assert [link["to"] for link in onward("show", session, "--json").document["links"]] == [successor]
    assert onward("run", successor, "[[say now it works]]").status == 0


def test_a_terminal_escape_in_a_log_cannot_act(onward: Program) -> None:
    session = onward.new(text="evil \x1b]0;owned\x07\x1b[2J text [[say \x9b31m red]]", title="t\x1b[5m")
    for args in (
        ("list",),
        ("show", session),
        ("read", session),
        ("search", "evil"),
        ("draft", session, "--purpose", "\x1b[1m"),
    ):
        shown = onward(*args)
        assert shown.status == 0, shown.told
        assert not any(
            (ord(c) < 0x20 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in shown.text + shown.told
        )
        assert "\\x1b" in shown.text or args[0] == "search"


def test_the_answer_is_on_standard_output_and_the_rest_beside_it(onward: Program) -> None:
    session = onward.new()
    answer = onward("run", session, '[[say one]] [[call search {"query": "dates"}]] [[say two]]')
    assert answer.status == 0
    assert answer.text == "one\ntwo\n"
    assert "calls search" in answer.told
    assert onward("run", session, "[[say three]]", "--quiet").err == b""


def test_standard_input_is_the_message_for_a_dash(onward: Program) -> None:
    session = onward.new()
    assert onward("run", session, "-", stdin="[[say grüezi]]".encode()).text == "grüezi\n"
    refused = onward("run", session, "-", stdin=b"\xff\xfe")
    assert (refused.status, refused.code) == (1, "invalid_input")


def test_output_is_utf_8_json_under_any_locale(onward: Program) -> None:
    session = onward.new(text="[[say grüezi 你好]]")
    env = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "LANG": "C"}
    replies = [e["body"].get("text") for e in onward("read", session, "--json", env=env).document["events"]]
    assert "grüezi 你好" in replies
    assert onward("read", session, env=env).status == 0


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("asked", [("list",), ("read", "nothing", "--json"), ("--help",)])
def test_streams_that_were_closed_before_it_began_are_nothing_to_stumble_over(
    onward: Program, closed: tuple[int, ...], asked: tuple[str, ...]
) -> None:
    onward.new()
    answer = onward(*asked, preexec_fn=lambda: [os.close(number) for number in closed])
    assert answer.status == (1 if asked[0] == "read" else 0)
    assert b"Traceback" not in answer.err
    assert bool(answer.out) == (1 not in closed)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device here is always full")
def test_an_error_that_cannot_be_told_leaves_its_status(onward: Program) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "read", "nothing", "--json"],
            stdout=subprocess.PIPE,
            stderr=full,
            env=onward.environment(),
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"]
