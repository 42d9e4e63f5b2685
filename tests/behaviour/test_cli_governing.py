"""What a run may do, from the command line: policies, permissions, capabilities, and several engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.behaviour.cli import Program


def test_a_run_beyond_its_limit_is_stopped_and_the_error_says_which(onward: Program) -> None:
    session = onward.new()
    answer = onward(
        "run",
        session,
        "[[call a {}]] [[call b {}]] [[say done]]",
        "--engine",
        "script",
        "--limit",
        "calls=1",
        "--json",
    )
    assert answer.status == 1
    details = answer.document["error"]["details"]
    assert (details["state"], details["code"]) == ("failed", "policy")
    assert "allows 1 tool call;" in answer.document["error"]["message"]


def test_what_goes_beyond_a_policy_that_asks_is_approved_and_taken_up_again(onward: Program) -> None:
    session = onward.new()
    text = "[[call Bash {}]] [[say done]]"
    asked = onward("run", session, text, "--engine", "script", "--deny", "Bash", "--beyond", "ask")
    assert asked.status == 1
    listed = onward("approvals", "--json").document
    (waiting,) = listed["permissions"]
    assert (waiting["beyond"], waiting["tool"], waiting["state"]) == ("command line", "Bash", "requested")
    assert waiting["id"] in onward("approvals", session).text
    granted = onward("approve", waiting["id"], "--json").document
    assert granted["state"] == "granted"
    again = onward("run", session, "--json").document
    assert (again["run"], again["reply"]) == (granted["retried"], "done")
    assert onward("decline", waiting["id"]).code == "invalid_transition"


def test_policies_come_from_files_and_what_they_say_is_checked_first(onward: Program, tmp_path: Path) -> None:
    session = onward.new()
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps([{"name": "careful", "rules": [{"effect": "deny", "tools": ["B*"]}]}]))
    stopped = onward("run", session, "[[call Bash {}]]", "--engine", "script", "--policy", str(policy))
    assert "Policy “careful” does not allow the tool Bash." in stopped.told
    policy.write_text('{"max_tool_calls": "many"}')
    runs = len(onward("show", session, "--json").document["runs"])
    refused = onward("run", session, "hello", "--engine", "script", "--policy", str(policy))
    assert refused.code == "invalid_input"
    assert len(onward("show", session, "--json").document["runs"]) == runs


@pytest.mark.parametrize(
    "words",
    [
        ("--limit", "calls=some"),
        ("--limit", "hours=3"),
        ("--beyond", "warn"),
        ("--permissions", "whatever"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(onward: Program, words: tuple[str, ...]) -> None:
    assert onward("run", "--new", "X", "hello", "--engine", "script", *words).status == 2


def test_what_is_required_and_missing_begins_nothing(onward: Program) -> None:
    session = onward.new()
    answer = onward("run", session, "hello", "--engine", "script", "--require", "code_execution")
    assert answer.code == "missing_capability"
    wished = onward("run", session, "hello", "--engine", "script", "--wish", "code_execution")
    assert "script has no code_execution; the run goes on without it." in wished.told
    assert onward("run", session, "hello", "--engine", "script", "--wish", "magic").code == "invalid_input"


def test_of_several_engines_one_that_cannot_run_here_is_passed_over(onward: Program) -> None:
    answer = onward("run", "--new", "X", "[[say From the script.]]", "--engine", "model,script", "--json")
    assert answer.status == 0, answer.told
    assert answer.document["reply"] == "From the script."
    assert onward("run", "--new", "X", "hello", "--engine", "script,nobody").code == "invalid_input"
