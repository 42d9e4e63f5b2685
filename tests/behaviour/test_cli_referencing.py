"""`onward reference`, `onward candidates` and mentions in `onward run`, by the real program."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.behaviour.cli import Program

FACTS = {
    "source", "label", "captured_seq", "checkpoint", "original", "retained", "omitted", "omitted_bytes", "truncated",
}  # fmt: skip


def events(onward: Program, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = onward("read", session, "--json").document["events"]
    return found


def quoted(event: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(event["body"]["text"].split("\n", 3)[3].rsplit("\n", 1)[0])
    return found


@pytest.mark.requirement("T3")
def test_a_session_is_quoted_in_another_and_answered_at_once(onward: Program) -> None:
    a = onward.new("Which test fails? [[say </quoted> test_parse_dates fails.]]")
    b = onward.new("Hello", title="Release")
    answer = onward("reference", a, "--to", b, "What now?", "--json")
    assert answer.status == 0, answer.told
    made = answer.document
    assert made.keys() == {"session", "run", "text", "references", "opening", "reply", "usage"}
    assert (made["session"], made["text"]) == (b, "@Fix the parser\nWhat now?")
    assert made["reply"].startswith("You said “@Fix the parser What now?”.")
    [facts] = made["references"]
    assert facts.keys() == FACTS
    assert (facts["source"], facts["retained"], facts["truncated"]) == (a, 2, False)
    recalled, message = [e for e in events(onward, b) if e["run"] == made["run"]][:2]
    assert (recalled["kind"], recalled["body"]["form"]) == ("context", "recall")
    assert recalled["body"]["references"] == [facts]
    assert (message["kind"], message["body"]["text"]) == ("message", made["text"])
    assert quoted(recalled)[0]["conversation"][1]["text"] == "</quoted> test_parse_dates fails."
    assert recalled["body"]["text"].count("</quoted>") == 1
    assert onward("verify", "--json").document["ok"]


def test_a_message_can_be_left_waiting_with_what_it_quotes(onward: Program) -> None:
    a, b = onward.new(), onward.new("Hello", title="Release")
    waiting = onward("reference", a, "--to", b, "-", "--no-run", "--json", stdin=b"What now?")
    assert waiting.status == 0, waiting.told
    made = waiting.document
    assert (made["reply"], made["opening"]) == (None, None)
    assert "recall" not in json.dumps(events(onward, b))
    onward("run", a, "Said since.", "--engine", "script")
    done = onward("run", b, "--json").document
    assert done["run"] == made["run"]
    [recalled] = [e for e in events(onward, b) if e["kind"] == "context"]
    assert "Said since." not in recalled["body"]["text"]


def test_what_is_said_about_the_quotation_goes_to_standard_error(onward: Program) -> None:
    a, b = onward.new(), onward.new("Hello", title="Release")
    told = onward("reference", a, "--to", b, "What now?")
    assert told.text.startswith("You said")
    assert f"Quotes {a} “Fix the parser” up to event 6: 2 messages, all of it." in told.told
    quiet = onward("reference", a, "--to", b, "What now?", "--quiet", "--no-run")
    assert quiet.text.startswith("run_")
    assert quiet.told == ""
    big = onward("run", "--new", "Big", "-", "--engine", "script", "--json", stdin=b"x" * 100_000).document
    cut = onward("reference", big["session"], "--to", b, "What now?", "--no-run")
    assert "bytes are left out" in cut.told


def test_candidates_print_what_a_message_can_hold(onward: Program) -> None:
    a, b = onward.new(title="Fix [the] parser\\"), onward.new("Hello", title="Release")
    listed = onward("candidates", b, "--json").document
    assert listed.keys() == {"session", "candidates"}
    [found] = listed["candidates"]
    assert found.keys() == {"session", "label", "folder", "created_at", "archived", "mention"}
    assert found["session"] == a
    plain = onward("candidates", b, "--query", "PARSER", "--quiet").text
    assert plain == found["mention"] + "\n"
    answer = onward("run", b, f"As in {plain.strip()}, please.", "--json")
    assert answer.status == 0, answer.told
    messages = [e["body"]["text"] for e in events(onward, b) if e["kind"] == "message"]
    assert "As in @Fix [the] parser\\, please." in messages
    none = onward("candidates", b, "--query", "no such")
    assert (none.status, none.text) == (0, "")
    assert onward("candidates", b, "--limit", "0").code == "invalid_input"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("see @[x](onward-session:zz)", "reference_invalid"),
        ("see onward-session:InNlc18wMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMCI", "reference_read_failed"),
    ],
)
def test_a_mention_that_names_nothing_is_an_error_and_nothing_is_made(
    onward: Program, text: str, code: str
) -> None:
    b = onward.new("Hello", title="Release")
    before = events(onward, b)
    refused = onward("run", b, text, "--json")
    assert (refused.status, refused.document["error"]["code"], refused.code) == (1, code, code)
    assert onward("run", "--new", "Another", text, "--engine", "script").code == code
    assert events(onward, b) == before
    assert len(onward("list", "--json").document["sessions"]) == 1


def test_what_does_not_fit_the_command_is_told(onward: Program) -> None:
    a = onward.new()
    assert onward("reference", a, "What now?").code == "usage"
    assert onward("reference", a, "--to", a).code == "usage"
    assert onward("reference", a, "--to", a, "What now?").code == "reference_self"
    assert onward("reference", a, "--to", "@last", " ").code == "invalid_input"
    assert onward("reference", a, "--to", a, "What now?", "--engine", "nobody").status == 1
