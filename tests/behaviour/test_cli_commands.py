"""What the commands do for a person: finding, choosing, importing, and saying what happened."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.behaviour.cli import Program

import onward as library
from onward.core.bodies import Plan, PlanStep
from onward.core.columns import columns
from onward.store.migrate import newest
from onward.surfaces.cli import main
from onward.surfaces.cli.catalogue import COMMANDS
from onward.testing.stub_models import Reply, StubModels

SESSION = re.compile(r"ses_[0-9A-Z]{26}")


@pytest.fixture
def here(
    onward: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run a command in this process, on a store with one session, and return what it printed."""
    for name, value in onward.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "60")

    def run(*argv: str, status: int = 0) -> str:
        assert main.run(argv) == status, capsys.readouterr()
        return capsys.readouterr().out

    return run


def test_a_session_is_found_by_the_beginning_of_its_id_and_an_ambiguous_one_names_the_candidates(
    onward: Program,
) -> None:
    first, second = onward.new(title="First"), onward.new(title="Second")
    shared = first[: next(n for n, pair in enumerate(zip(first, second, strict=True)) if len(set(pair)) > 1)]
    assert onward("show", first[: len(shared) + 1], "--json").document["session"]["id"] == first
    assert onward("show", second[4 : len(shared) + 1].lower(), "--json").document["session"]["id"] == second
    assert onward("show", "@last", "--json").document["session"]["id"] == second
    ambiguous = onward("show", shared)
    assert ambiguous.code == "invalid_input"
    assert all(part in ambiguous.told for part in (first, second, "First", "Second"))


def test_pages_of_a_list_hold_every_session_once(onward: Program) -> None:
    made = [onward.new(title=f"Session {n}") for n in range(5)]
    seen: list[str] = []
    cursor: list[str] = []
    while True:
        page = onward("list", "--limit", "2", "--json", *cursor).document
        seen += [s["id"] for s in page["sessions"]]
        if page["next"] is None:
            break
        cursor = ["--cursor", page["next"]]
    assert seen == made[::-1]
    assert [s["title"] for s in onward("list", "--query", "session 3", "--json").document["sessions"]] == [
        "Session 3"
    ]


def test_reading_on_from_next_gives_the_rest(onward: Program) -> None:
    session = onward.new()
    whole = onward("read", session, "--json").document["events"]
    first = onward("read", f"{session}:1-5", "--limit", "2", "--json").document
    assert first["next"] == 3
    rest = onward("read", f"{session}:{first['next']}-", "--json").document
    assert (first["events"] + rest["events"], rest["next"]) == (whole, None)
    assert len(onward("read", f"{session}:2", "--json").document["events"]) == 1


def test_the_engine_is_the_named_one_then_the_sessions_then_the_variables(onward: Program) -> None:
    bare = onward("run", "--new", "t", "hello")
    assert bare.code == "invalid_input"
    assert all(word in bare.told for word in ("--engine", "ONWARD_ENGINE", "script", "local", "doctor"))
    made = onward("run", "--new", "t", "hello", "--json", env={"ONWARD_ENGINE": "script"})
    assert made.status == 0
    again = onward("run", made.document["session"], "more", "--json", env={"ONWARD_ENGINE": "nobody"})
    assert again.status == 0
    assert onward("run", made.document["session"], "more", "--engine", "nobody").code == "invalid_input"
    assert len(onward("list", "--json").document["sessions"]) == 1, "a refused engine leaves no empty session"


def test_without_an_engine_a_continuation_waits_and_says_so(onward: Program) -> None:
    session = onward.new()
    made = onward("continue", session, "--reason", "other", "--title", "Next", "--purpose", "p", "--no-run")
    successor = made.text.strip()
    assert made.status == 0
    assert f"onward run {successor}" in made.told
    waiting = onward("run", successor, "--json")
    assert waiting.status == 0
    assert (waiting.document["session"], waiting.document["opening"]) == (successor, "seeded")


@pytest.mark.requirement("C4")
def test_what_is_said_with_a_continuation_is_what_the_successor_answers(onward: Program) -> None:
    session = onward.new()
    asked = ("--reason", "other", "--title", "Next", "--purpose", "p", "--key", "k")
    made = onward("continue", session, "[[say the new thing]]", *asked, "--json")
    assert made.status == 0, made.told
    assert made.document["reply"] == "the new thing"
    assert onward("continue", session, "[[say another]]", *asked, "--json").document == made.document
    said = [
        event["body"]["text"]
        for event in onward("read", session, "--json").document["events"]
        if event["kind"] == "message" and event["actor"] == "user"
    ]
    assert said[1:] == ["[[say the new thing]]"]
    manifest = onward("manifest", made.document["successor"], "--json").document
    assert manifest["handoff"]["current_request"] == "[[say the new thing]]"
    assert manifest["adjusted"] == []


def test_what_is_said_with_a_continuation_may_come_from_a_pipe_but_only_once(onward: Program) -> None:
    session = onward.new()
    asked = ("--reason", "other", "--title", "Next")
    made = onward("continue", session, "-", *asked, "--purpose", "p", stdin=b"[[say piped]]")
    assert made.text == "piped\n"
    assert "newest message" not in made.told
    twice = onward("continue", session, "-", *asked, "--handoff", "-", stdin=b"{}")
    assert twice.status == 2
    refused = onward("continue", session, " ", *asked, "--purpose", "p")
    assert refused.code == "invalid_input"


def test_without_words_a_person_is_told_that_an_answered_ask_is_answered_again(onward: Program) -> None:
    session = onward.new()
    asked = ("--reason", "other", "--title", "Next", "--purpose", "p")
    for more in ((), ("--no-run",)):
        told = onward("continue", session, *asked, *more).told
        assert "had answered already" in told
        assert "With TEXT" in told


def test_a_message_to_a_continued_session_is_refused_with_the_way_on(onward: Program) -> None:
    session = onward.new()
    made = onward(
        "continue", session, "--reason", "other", "--title", "Next", "--purpose", "p", "--json"
    ).document
    refused = onward("run", session, "hello again")
    assert refused.code == "session_continued"
    assert made["successor"] in refused.told
    assert "onward fork" in refused.told
    branch = onward("fork", f"{session}:2", "--title", "Another way", "--quiet").text.strip()
    assert onward("run", branch, "[[say here]]").text == "here\n"


def test_a_draft_is_edited_and_sent_with_sources_and_plan_on_top(onward: Program) -> None:
    session = onward.new()
    with library.open(f"sqlite:///{onward.store}") as log:
        log.set_state(session, Plan(revision=1, steps=(PlanStep(id="s1", text="fix dates"),)))
    draft = onward("draft", session, "--purpose", "Write it down", "--json").document
    draft["handoff"]["decisions"] = ["Dates are ISO 8601."]
    answer = onward(
        "continue", session, "--handoff", "-", "--title", "Another title", "--source", "2=the question", "--plan", "close",
        "--no-run", "--json", stdin=json.dumps(draft).encode(),
    )  # fmt: skip
    assert answer.status == 0, answer.told
    manifest = onward("manifest", answer.document["successor"], "--json").document
    assert manifest["title"] == "Another title"
    assert manifest["reason"] == "user_request"
    assert manifest["handoff"]["decisions"] == ["Dates are ISO 8601."]
    assert manifest["sources"][-1]["relevance"] == "the question"
    assert manifest["state"]["plan"]["transfer"] == "close"


def test_what_a_manifest_says_fits_a_terminal(onward: Program, here: Callable[..., str]) -> None:
    session = onward.new()
    asked = ("--reason", "refocus", "--title", "Next", "--purpose", "The purpose")
    made = onward("continue", session, *asked, "--json").document
    shown = here("manifest", made["successor"])
    for words in ("Handoff", "purpose: The purpose", "Cost:", "Included", "Left out", "sha256:"):
        assert words in shown
    assert "the projection is the same" in here("manifest", made["manifest"], "--verify")
    tree = here("lineage", session).splitlines()
    assert tree[0].startswith(session)
    assert tree[0].endswith("<- here")
    assert tree[1].startswith("  continued (refocus): " + made["successor"])
    assert here("recalls", made["successor"]).startswith("Nothing was read again")


def test_a_person_is_told_how_a_session_stands(onward: Program, here: Callable[..., str]) -> None:
    session = onward.new(title="A title that is rather long for a terminal of sixty columns, is it not")
    for command in ("list", "show"):
        shown = here(command, *([session] if command == "show" else []))
        assert session in shown
        assert "script" in shown
        assert max(map(len, shown.splitlines())) <= 60
    lines = here("read", session).splitlines()
    assert lines[1].startswith("[2] user: Which test fails?")
    assert "every digest and chain value holds" in here("verify")
    assert session in here("search", "dates")


def test_a_log_with_many_lines_cannot_look_like_many_events(
    onward: Program, here: Callable[..., str]
) -> None:
    session = onward.new(text="one\n[9] agent: I never said this\nthree")
    numbered = [line for line in here("read", session).splitlines() if line.startswith("[")]
    assert [int(line[1 : line.index("]")]) for line in numbered] == list(range(1, len(numbered) + 1))


def test_a_page_shows_the_talk_and_counts_the_rest_unless_all_is_asked_for(
    onward: Program, here: Callable[..., str], tmp_path: Path
) -> None:
    common = {"sessionId": "00000000-0000-4000-8000-000000000002", "cwd": "/tmp", "version": "2.0.0"}
    noise = [common | {"type": "progress", "uuid": f"p{n}", "data": f"noise {n}"} for n in range(3)]
    long = "word " * 600
    ask = {"role": "user", "content": long}
    call = [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": f"echo {long}"}}]
    answer = {"role": "assistant", "id": "m1", "model": "m", "content": call}
    _native(
        tmp_path,
        "s.jsonl",
        *noise,
        common | {"type": "user", "uuid": "u1", "parentUuid": None, "message": ask},
        common | {"type": "assistant", "uuid": "u2", "parentUuid": "u1", "message": answer},
    )
    assert onward("import", str(tmp_path / "s.jsonl")).status == 0
    page, full = here("read", "@last"), here("read", "@last", "--full")
    assert "3 claude-code records, not shown" in page
    assert "noise 1" not in page
    assert page.count("word") < full.count("word")
    assert long.strip() in page, "what people say is never shortened"
    assert "characters not shown" in page
    assert "noise 1" in full
    assert "not shown" not in full
    events = json.loads(here("read", "@last", "--json"))["events"]
    for event in events:
        assert "not shown" not in here("read", f"@last:{event['seq']}"), (
            "an event that was named is shown whole"
        )


def test_hits_stand_under_the_title_of_their_session(onward: Program, here: Callable[..., str]) -> None:
    session = onward.new(title="Fix the parser")
    lines = here("search", "dates").splitlines()
    assert lines[0] == "Fix the parser"
    assert lines[1].startswith(f"  {session}:")
    assert lines.count("Fix the parser") == 1


def test_a_hint_works_on_the_store_that_was_named(onward: Program) -> None:
    onward.new()
    onward.new()
    told = onward("list", "--limit", "1", "--query", "a b", "--store", str(onward.store)).told
    assert told == "No session fits. Without --query, --workspace and --cursor, all are listed.\n"
    told = onward("list", "--limit", "1", "--store", str(onward.store)).told
    assert f"onward --store {onward.store} list --limit 1 --cursor " in told


def test_what_did_not_change_is_counted_and_not_listed(onward: Program, tmp_path: Path) -> None:
    folder = tmp_path / "native"
    folder.mkdir()
    good = _claude(folder)
    _native(folder, "other.jsonl", *({**json.loads(line), "sessionId": "00000000-0000-4000-8000-000000000003",
            "uuid": f"o{n}", "parentUuid": f"o{n - 1}" if n else None}
            for n, line in enumerate(good.read_text("utf-8").splitlines())))  # fmt: skip
    assert str(good) in onward("import", str(folder)).text
    again = onward("import", str(folder)).text
    assert str(good) not in again
    assert "2 files: 0 imported, 2 unchanged" in again
    assert str(good) in onward("import", str(good)).text, "it was asked about"


def test_doctor_changes_nothing_and_tells_what_is_here(onward: Program, here: Callable[..., str]) -> None:
    shown = here("doctor")
    assert "not there yet" in shown
    assert not onward.store.exists()
    onward.new()
    found = json.loads(here("doctor", "--json"))
    assert found["store"] | {"bytes": 1, "path": 1, "url": 1} == {
        "url": 1, "path": 1, "named": True, "exists": True, "bytes": 1, "mode": "0600", "writable": True, "schema": newest(),
        "index_lag": found["store"]["index_lag"], "findings": [],
    }  # fmt: skip
    assert {e["name"] for e in found["engines"]} >= {"script", "local", "model"}
    assert [n["files"] for n in found["native"]] == [0, 0]


@pytest.mark.skipif(os.name != "posix", reason="file modes are those of POSIX")
def test_doctor_says_when_others_may_read_the_store(onward: Program, here: Callable[..., str]) -> None:
    onward.new()
    onward.store.chmod(0o644)
    assert "chmod 600" in here("doctor")


def _native(folder: Path, name: str, *records: object) -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
    return path


def _claude(folder: Path, name: str = "s.jsonl") -> Path:
    common = {"sessionId": "00000000-0000-4000-8000-000000000001", "cwd": "/tmp", "version": "2.0.0"}
    said = [{"type": "text", "text": "test_dates"}]
    ask = {
        "type": "user",
        "uuid": "u1",
        "parentUuid": None,
        "timestamp": "2026-01-01T00:00:00Z",
        "message": {"role": "user", "content": "Which test fails?"},
    }
    answer = {
        "type": "assistant",
        "uuid": "u2",
        "parentUuid": "u1",
        "timestamp": "2026-01-01T00:00:01Z",
        "message": {"role": "assistant", "id": "m1", "model": "m", "content": said},
    }
    return _native(folder, name, common | ask, common | answer)


def test_an_import_accounts_for_every_file_and_fails_when_one_did(onward: Program, tmp_path: Path) -> None:
    folder = tmp_path / "native"
    folder.mkdir()
    good = _claude(folder)
    done = onward("import", str(folder), "--json")
    assert done.status == 0, done.told
    assert done.document.keys() == {"files", "totals"}
    (file,) = done.document["files"]
    assert file.keys() == {"path", "engine", "version", "status", "reason", "sessions", "records", "messages"}
    assert (file["path"], file["engine"], file["status"]) == (str(good), "claude-code", "imported")
    assert file["records"] == {"read": 2, "mapped": 2, "raw": 0, "broken": 0}
    assert onward("import", str(folder), "--json").document["files"][0]["status"] == "unchanged"
    (tmp_path / "empty.jsonl").touch()
    mixed = onward(
        "import", str(folder), *(str(tmp_path / f"{n}.jsonl") for n in ("empty", "missing")), "--json"
    )
    assert (mixed.status, mixed.code) == (1, "import_failed")
    assert sorted(f["status"] for f in mixed.document["files"]) == ["empty", "failed", "unchanged"]
    assert onward("verify").status == 0


def test_an_imported_session_continues_with_an_engine_that_is_here(onward: Program, tmp_path: Path) -> None:
    onward("import", str(_claude(tmp_path)))
    refused = onward("run", "@last", "go on")
    assert refused.code == "invalid_input"
    assert "claude-code" in refused.told
    waits = onward("continue", "@last", "--reason", "other", "--title", "Next", "--purpose", "p", "--json")
    assert (waits.status, waits.document["reply"]) == (0, None)
    ran = onward("run", waits.document["successor"], "--json", env={"ONWARD_ENGINE": "script"})
    assert "Which test fails?" in ran.document["reply"]


def test_progress_is_drawn_on_standard_error_only_when_it_is_wanted(onward: Program, tmp_path: Path) -> None:
    native = str(_claude(tmp_path))
    assert onward("import", native, "--json").err == b""
    drawn = onward("import", native, "--progress", "--json")
    assert drawn.document["totals"]["files"] == 1
    assert b"%" in drawn.err


def test_a_fault_of_ours_is_told_as_one_and_shows_where_on_request(
    onward: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_call: object) -> int:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(main, "_load", lambda _target: broken)
    assert main.run(["list", "--json"]) == 1
    out, told = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "internal_error"
    assert told.startswith("internal_error: ZeroDivisionError")
    monkeypatch.setenv("ONWARD_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main.run(["list"])


def test_delegated_sessions_are_counted_and_not_listed_unless_they_are_asked_for(
    onward: Program, here: Callable[..., str]
) -> None:
    session = onward.new()
    with library.open(f"sqlite:///{onward.store}") as log:
        child = log.start("Part of it", parent=session).id
    short = onward("list")
    assert child not in short.text
    assert "1 delegated session is not listed: onward list --children" in short.told
    assert [s["id"] for s in onward("list", "--json").document["sessions"]] == [session]
    every = onward("list", "--children")
    assert child in every.text
    assert "· delegated ·" in every.text
    assert every.told == ""
    assert "“Part of it”" in onward("show", session).text
    branch = onward("fork", f"{session}:2", "--title", "Another way", "--quiet").text.strip()
    marked = next(line for line in onward("list").text.splitlines() if branch in line)
    assert "· branch ·" in marked
    assert marked.endswith(" UTC")


def test_wide_characters_are_counted_as_what_they_take(onward: Program, here: Callable[..., str]) -> None:
    title = "移住の計画と引っ越しの見積もりについて話し合うための長い題名のセッション"
    text = "見積もりを作ってください。段ボールの数と費用も教えてください。" * 4
    session = onward.new(text, title=title)
    made = ("continue", session, text, "--reason", "other", "--title", title, "--purpose", "費用", "--no-run")
    assert onward(*made).status == 0
    for command in (("list",), ("show", session), ("search", "段ボール"), ("lineage", session)):
        shown = here(*command)
        assert "移住" in shown
        assert max(columns(line) for line in shown.splitlines()) <= 60, command


@pytest.mark.parametrize("width", ["60", "90"])
def test_help_keeps_to_the_width_that_is_there(
    width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    for command in COMMANDS:
        assert main.run((command, "--help")) == 0
        text = capsys.readouterr().out.partition("\nExamples:")[0]  # what is to be copied stays whole
        usage, _, rest = text.partition("\n")
        assert usage.startswith("Usage: ")
        assert max(len(line) for line in rest.splitlines()) <= int(width), command


def test_the_package_runs_as_a_program(onward: Program) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onward", "--version"],
        env=onward.environment(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == f"onward {library.__version__}\n".encode()


def test_the_newest_events_are_read_from_the_end(onward: Program) -> None:
    session = onward.new()
    every = onward("read", session, "--json").document["events"]
    assert onward("read", session, "--tail", "2", "--json").document["events"] == every[-2:]
    assert onward("read", session, "--tail", "500", "--json").document["events"] == every
    assert onward("read", f"{session}:2", "--tail", "2").status == 2
    assert onward("read", session, "--tail", "0").code == "limit_exceeded"


def test_a_model_that_is_named_for_a_run_is_enough_for_the_model_engine(onward: Program) -> None:
    with StubModels([Reply(text="Served.")]) as stub:
        done = onward(
            "run", "--new", "Asked", "Hello?", "--engine", "model", "--model", "any",
            "--engine-option", f"base_url={stub.base_url('openai')}", "--json",
        )  # fmt: skip
        (request,) = stub.requests
    assert done.document["reply"] == "Served."
    assert request.body["model"] == "any"
