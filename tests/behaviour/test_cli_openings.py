"""Going on from the command line: a folder is enough, how it came out is told, and the dials mean what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.behaviour.cli import Program

SCRIPT = {"ONWARD_ENGINE": "script"}


def test_a_folder_is_enough_to_begin_and_to_go_on(onward: Program, tmp_path: Path) -> None:
    folder, other = tmp_path / "repo", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    first = onward("run", "--workspace", str(folder), "The codeword is walrus.", "--json", env=SCRIPT)
    assert (first.status, first.document["opening"]) == (0, "fresh")
    second = onward("run", "--workspace", ".", "What is it?", "--json", env=SCRIPT, cwd=folder)
    assert second.document["session"] == first.document["session"]
    assert second.document["opening"] == "seeded"
    elsewhere = onward("run", "--workspace", str(other), "Hello.", "--json", env=SCRIPT)
    assert elsewhere.document["session"] != first.document["session"]
    titles = {s["title"] for s in onward("list", "--json").document["sessions"]}
    assert titles == {"The codeword is walrus.", "Hello."}


def test_a_folder_leads_to_where_its_conversation_went_on_and_a_named_session_is_still_refused(
    onward: Program, tmp_path: Path
) -> None:
    begun = onward("run", "--workspace", str(tmp_path), "Begin.", "--json", env=SCRIPT).document["session"]
    made = onward(
        "continue",
        begun,
        "--reason",
        "other",
        "--title",
        "Next",
        "--purpose",
        "Go on",
        "--engine",
        "script",
        "--json",
    )
    successor = made.document["successor"]
    went_on = onward("run", "--workspace", str(tmp_path), "And now?", "--json", env=SCRIPT)
    assert went_on.document["session"] == successor
    refused = onward("run", begun, "And here?", "--json", env=SCRIPT)
    assert refused.document["error"]["code"] == "session_continued"
    assert refused.document["error"]["details"]["offers"] == [{"open": successor}, {"branch": begun}]


def test_a_folder_without_a_record_and_without_a_text_says_what_is_missing(
    onward: Program, tmp_path: Path
) -> None:
    onward.new()
    asked = onward("run", "--workspace", str(tmp_path), env=SCRIPT)
    assert asked.code == "invalid_input"
    named = onward("run", "@last", "--workspace", str(tmp_path), "--engine", "script")
    assert (named.code, "nothing waits" in named.told) == ("invalid_input", True)


def test_how_it_opened_is_told_with_its_reason_and_in_json_with_its_facts(onward: Program) -> None:
    session = onward.new()
    told = onward("run", session, "Go on.").told
    assert "written reconstruction from the record (2 messages)" in told
    assert "The engine script keeps no conversation of its own." in told
    facts = onward("run", session, "Go on.", "--json").document["opening_facts"]
    assert facts["told"].endswith(facts["reason"])
    assert (facts["opening"], facts["branch"], facts["tone"]) == ("seeded", "cannot_resume", "warning")
    assert facts["seed"]["given"] == "messages"


def test_a_clean_slate_is_a_clean_slate_by_either_name(onward: Program) -> None:
    session = onward.new()
    for words in (["--clean-slate"], ["--continuation", "none"], ["--clean-slate", "--continuation", "none"]):
        ran = onward("run", session, "Anew.", *words, "--json").document
        assert (ran["opening"], ran["opening_facts"]["branch"]) == ("fresh", "clean_slate")
    assert onward("run", session, "Anew.", "--clean-slate", "--continuation", "replay").status == 2


@pytest.mark.parametrize(
    ("words", "env", "status"),
    [
        (["--window", "four days"], {}, 1),
        (["--memory", "mine"], {}, 2),
        ([], {"ONWARD_WINDOW": "soon"}, 1),
        ([], {"ONWARD_MEMORY": "mine"}, 1),
    ],
)
def test_a_dial_that_means_nothing_is_refused_before_anything_is_made(
    onward: Program, words: list[str], env: dict[str, str], status: int
) -> None:
    session = onward.new()
    before = onward("read", session, "--json").document
    refused = onward("run", session, "Now?", *words, env=env)
    assert (refused.status, refused.out) == (status, b"")
    assert onward("read", session, "--json").document == before


@pytest.mark.parametrize("words", [["--window", "36h"], ["--window", "unlimited"], ["--memory", "platform"]])
def test_the_dials_are_kept_with_the_run(onward: Program, words: list[str]) -> None:
    assert onward("run", onward.new(), "Now?", *words, "--json").status == 0
