"""The driver of pi with a program that misbehaves where pi could: only what was confirmed is believed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from onward.engines.contract import (
    Finished,
    NativeSession,
    Noted,
    Permitted,
    Said,
    Signal,
    Started,
    TextDelta,
    Turn,
)
from onward.engines.pi import PiEngine, decided, subject
from onward.engines.pi_process import EXTENSION, GATE, answer_to, tool_names
from onward.errors import InvalidInput
from onward.testing.engine_contract import run_turn

ANSWER = {"role": "assistant", "content": [{"type": "text", "text": "Hello."}], "stopReason": "stop"}
PLAY: list[Any] = [
    {"type": "message_update", "assistantMessageEvent": {"type": "text_delta", "delta": "Hello."}},
    {"type": "message_end", "message": ANSWER},
    {"type": "agent_settled", "aborted": False},
]
FAKE = """
import json, os, sys
play = json.loads(os.environ["PLAY"])
asked = sys.argv[sys.argv.index("--session") + 1] if "--session" in sys.argv else None
chosen = sys.argv[sys.argv.index("--session-id") + 1] if "--session-id" in sys.argv else "its-own"
if "dies" in play:
    sys.exit(play["dies"])
if asked and play.get("holds") != asked:
    sys.exit(f"No session found matching '{asked}'")
def say(record):
    print(json.dumps(record) if not isinstance(record, str) else record, flush=True)
for line in sys.stdin:
    command = json.loads(line)
    answer = {"type": "response", "id": command.get("id"), "command": command["type"], "success": True}
    if command["type"] == "get_state":
        state = {"sessionId": play.get("says") or asked or chosen, "messageCount": play.get("count", 0)}
        say({"type": "noise_before"})
        say({**answer, "data": {**state, "model": {"id": "m", "contextWindow": 1000}}})
    elif command["type"] == "prompt":
        say({**answer, **play.get("answer", {"data": {"disposition": "started"}})})
        for record in play["plays"]:
            say(record)
        if play.get("leaves"):
            sys.exit(0)
    elif command["type"] == "extension_ui_response":
        say({"type": "message_end", "message": {"role": "assistant", "stopReason": "stop",
             "content": [{"type": "text", "text": json.dumps(command)}]}})
        say({"type": "agent_settled", "aborted": False})
    else:
        say(answer)
"""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def run(turn: Turn | None = None, **play: Any) -> list[Signal]:
    env = {"PLAY": json.dumps({"plays": PLAY, **play})}
    engine = PiEngine(program=[sys.executable, "-c", FAKE], env=env, timeout=20)
    return run_turn(engine, turn or turn_of(), patience=30)


def turn_of(**more: Any) -> Turn:
    return Turn(session_id="ses_a", run_id="run_a", input="Hi.", **more)


def end(signals: list[Signal]) -> Finished:
    assert isinstance(signals[-1], Finished)
    return signals[-1]


def test_a_turn_begins_with_the_conversation_that_pi_confirms() -> None:
    signals = run()
    assert signals[0] == Started(model="m", native_id="its-own")
    assert [one.text for one in signals if isinstance(one, Said)] == ["Hello."]
    assert end(signals).status == "completed"


@pytest.mark.requirement("L4")
def test_what_pi_says_before_it_is_asked_is_kept() -> None:
    raw = [one.body for one in run() if isinstance(one, Noted) and one.kind == "raw"]
    assert raw == [b'{"type": "noise_before"}']


@pytest.mark.requirement("O5")
def test_another_conversation_than_the_one_asked_for_is_not_resumed() -> None:
    given = turn_of(native=NativeSession(id="wanted"), native_only=True)
    signals = run(given, holds="wanted", says="another")
    assert [type(one) for one in signals] == [Finished]
    assert end(signals).code == "resume_refused"
    assert "another" in end(signals).reason


@pytest.mark.parametrize("id", ["../escape", "-x", "a b", ""])
@pytest.mark.requirement("O5")
def test_what_can_be_no_id_is_never_passed_on(id: str) -> None:
    signals = run(turn_of(native=NativeSession(id=id), native_only=True))
    assert end(signals).code == "resume_refused"


def test_a_new_conversation_under_another_id_than_ours_is_not_used() -> None:
    signals = run(turn_of(new_id="ours-1"), says="theirs")
    assert end(signals).status == "failed"
    assert not any(isinstance(one, Started) for one in signals)


def test_a_program_that_dies_at_the_start_is_told_with_its_last_words() -> None:
    signals = run(dies="no model is configured")
    assert (end(signals).status, end(signals).code) == ("failed", "crashed")
    assert "no model is configured" in end(signals).reason


def test_an_exit_code_of_0_is_no_success() -> None:
    signals = run(plays=PLAY[:1], leaves=True)
    assert (end(signals).status, end(signals).code) == ("failed", "crashed")
    assert "exit code 0" in end(signals).reason
    assert any(isinstance(one, TextDelta) for one in signals)


def test_a_message_that_pi_refuses_fails_the_turn() -> None:
    signals = run(answer={"success": False, "error": "Agent is busy"}, plays=[])
    assert (end(signals).code, end(signals).reason) == ("invalid_request", "Agent is busy")


def test_a_message_that_an_extension_took_has_no_answer() -> None:
    signals = run(answer={"data": {"disposition": "handled"}}, plays=[])
    assert end(signals).status == "completed"
    assert "extension" in end(signals).reason


def test_a_question_of_somebody_elses_extension_is_dismissed_and_told() -> None:
    question = {
        "type": "extension_ui_request",
        "id": "q",
        "method": "select",
        "title": "Which?",
        "options": ["a"],
    }
    signals = run(plays=[question])
    (said,) = [one.text for one in signals if isinstance(one, Said)]
    assert json.loads(said) == {"type": "extension_ui_response", "id": "q", "cancelled": True}
    assert "Which?" in str([one.body for one in signals if isinstance(one, Noted) and one.kind == "outcome"])


@pytest.mark.parametrize("granted", [True, False])
def test_a_confirmation_is_asked_of_whoever_may_allow_it(granted: bool) -> None:
    async def permit(permission: Any) -> Permitted:
        assert permission.subject == "Clear?: All of it."
        return Permitted(granted=granted)

    question = {
        "type": "extension_ui_request",
        "id": "q",
        "method": "confirm",
        "title": "Clear?",
        "message": "All of it.",
    }
    signals = run(turn_of(permit=permit), plays=[question])
    (said,) = [one.text for one in signals if isinstance(one, Said)]
    assert json.loads(said) == {"type": "extension_ui_response", "id": "q", "confirmed": granted}


@pytest.mark.parametrize(
    "word", ["--session", "--session-id=x", "--resume", "-c", "--mode", "--fork", "--no-session"]
)
def test_arguments_that_are_ours_to_give_are_refused(word: str) -> None:
    with pytest.raises(InvalidInput, match="Onward says which conversation"):
        PiEngine(args=[word])


@pytest.mark.parametrize(
    ("mode", "tool", "granted"),
    [
        ("default", "read", True),
        ("default", "edit", None),
        ("default", "bash", None),
        ("accept_edits", "edit", True),
        ("accept_edits", "bash", None),
        ("plan", "grep", True),
        ("plan", "edit", False),
        ("plan", "mcp__theirs__do", False),
        ("dangerously_skip_permissions", "bash", True),
    ],
)
def test_the_mode_says_what_runs_and_what_is_asked(mode: Any, tool: str, granted: bool | None) -> None:
    permitted = decided(turn_of(permission_mode=mode), tool)
    assert (permitted.granted if permitted else None) == granted


def test_lists_of_tools_come_before_the_mode() -> None:
    free: Any = {"permission_mode": "dangerously_skip_permissions"}
    for given in (turn_of(denied_tools=("bash",), **free), turn_of(allowed_tools=("read",), **free)):
        permitted = decided(given, "bash")
        assert permitted is not None
        assert not permitted.granted
        assert "bash" in permitted.note


def test_a_subject_is_one_line_that_ends_somewhere() -> None:
    assert subject("bash", {"command": "a\nb"}) == "bash a b"
    assert len(subject("bash", {"command": "x" * 1000})) == 200
    assert subject("other", [1]) == "other"


def test_an_option_that_pi_does_not_know_is_refused_by_name() -> None:
    assert "colour" in end(run(turn_of(options={"colour": "red"}))).reason


def test_where_pi_is_missing_it_says_how_to_get_it() -> None:
    engine = PiEngine(program="/no/such/pi")
    assert "npm install" in (engine.unavailable() or "")
    assert end(run_turn(engine, turn_of())).code == "not_installed"


def test_our_tools_are_known_by_the_names_that_pi_gives_them() -> None:
    assert tool_names(["read_events", "a-b"]) == {
        "mcp__onward__read_events": "read_events",
        "mcp__onward__a_b": "a-b",
    }


def test_only_the_answer_with_its_id_is_taken_for_the_answer() -> None:
    assert answer_to("onward-1", b'{"type":"response","id":"onward-1","success":true}') is not None
    assert answer_to("onward-1", b'{"type":"response","id":"onward-11","success":true}') is None
    assert answer_to("onward-1", b'{"type":"notify","id":"onward-1","message":"\\"response\\""}') is None
    assert answer_to("onward-1", b'{"type":"response","id":"onward-1"') is None


def test_the_extension_is_part_of_the_package() -> None:
    assert EXTENSION.is_file()


def test_half_a_character_in_what_is_asked_and_in_the_answer_ends_no_turn() -> None:
    half = {**ANSWER, "content": [{"type": "text", "text": "Half \ud83d."}]}
    given = Turn(session_id="ses_a", run_id="run_a", input="a \ud83d b")
    signals = run(given, plays=[{"type": "message_end", "message": half}, PLAY[-1]])
    assert [one.text for one in signals if isinstance(one, Said)] == ["Half \ud83d."]
    assert end(signals).status == "completed"


@pytest.mark.parametrize(
    "record",
    [
        '{"extension_ui_request" broken',
        '["extension_ui_request"]',
        {"type": "extension_ui_request", "method": "input", "title": "no id"},
        {"type": "extension_ui_request", "method": ["input"], "id": "1"},
        {"type": "extension_ui_request", "method": "confirm", "id": 1},
    ],
)
def test_a_question_that_is_none_is_not_answered_and_ends_no_turn(record: Any) -> None:
    signals = run(plays=[record, *PLAY])
    assert [one.text for one in signals if isinstance(one, Said)] == ["Hello."]
    assert end(signals).status == "completed"


@pytest.mark.parametrize("asked", [None, "no JSON", "[]", "{}", '{"tool": "bash"}'])
def test_somebody_else_who_asks_under_the_title_of_our_gate_is_dismissed(asked: str | None) -> None:
    question = {"type": "extension_ui_request", "method": "input", "id": "1", "title": GATE}
    signals = run(plays=[{**question, "placeholder": asked}])
    answer = next(json.loads(one.text) for one in signals if isinstance(one, Said))
    assert answer == {"type": "extension_ui_response", "id": "1", "cancelled": True}


@pytest.mark.parametrize("data", ["handled", [1], 7])
def test_an_answer_whose_data_is_no_object_ends_no_turn(data: Any) -> None:
    assert end(run(answer={"data": data})).status == "completed"


def test_a_pi_that_never_reads_what_it_is_asked_has_the_time_of_a_turn_and_no_more() -> None:
    deaf = FAKE.replace(
        '"contextWindow": 1000}}})', '"contextWindow": 1000}}}); import time; time.sleep(3600)'
    )
    engine = PiEngine(program=[sys.executable, "-c", deaf], env={"PLAY": json.dumps({})}, timeout=1.0)
    signals = run_turn(engine, Turn(session_id="ses_a", run_id="run_a", input="x" * 2**20), patience=30)
    assert (end(signals).status, end(signals).code) == ("failed", "timeout")
