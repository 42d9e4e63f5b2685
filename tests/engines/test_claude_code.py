"""The driver of Claude Code with a program that only says it is one: what the real one does seldom, or never on demand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from onward.engines.claude_code import ClaudeCodeEngine
from onward.engines.contract import Finished, Permission, Permitted, Signal, Started, Turn
from onward.errors import LeaseLost
from onward.testing.engine_contract import run_turn

PROGRAM = """
import json, sys, time
def say(record):
    print(record if isinstance(record, str) else json.dumps(record), flush=True)
def hear():
    return json.loads(sys.stdin.readline())
id = next(word.partition("=")[2] for word in sys.argv if word.startswith("--session-id="))
init = {"type": "system", "subtype": "init", "session_id": id, "model": "m"}
def result(**more):
    return {"type": "result", "subtype": "success", "is_error": False, "result": "x", "session_id": id, **more}
def ask(**request):
    say({"type": "control_request", "request_id": "q", "request": {"subtype": "can_use_tool", **request}})
def greet():
    answer = {"subtype": "success", "request_id": hear()["request_id"], "response": {}}
    say({"type": "control_response", "response": answer})
"""
OTHER = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def _homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))


def play(does: str, *, timeout: float = 30.0, **given: Any) -> list[Signal]:
    """What a turn says when the program greets and then does this."""
    engine = ClaudeCodeEngine(program=[sys.executable, "-c", f"{PROGRAM}\ngreet()\n{does}"], timeout=timeout)
    turn = Turn(**{"session_id": "ses_a", "run_id": "run_a", "input": "Hi.", **given})
    return run_turn(engine, turn, patience=60)


def end(signals: list[Signal]) -> Finished:
    assert isinstance(signals[-1], Finished)
    assert sum(isinstance(one, Finished) for one in signals) == 1
    return signals[-1]


def test_a_result_of_the_conversation_that_was_confirmed_completes_the_turn() -> None:
    signals = play("hear(); say(init); say(result())")
    assert isinstance(signals[0], Started)
    assert end(signals).status == "completed"


@pytest.mark.parametrize(
    ("does", "code"),
    [
        ("hear(); say(init)", "crashed"),
        ("hear()", "crashed"),
        (f"hear(); say(init); say(result(session_id={OTHER!r}))", "protocol"),
        (f"hear(); say({{**init, 'session_id': {OTHER!r}}}); say(result())", "protocol"),
        ("hear(); say(init); say(result(is_error=True)); say(result())", "unknown"),
        ("hear(); say(init); say(result(is_error=None)); say(result())", "protocol"),
    ],
)
def test_nothing_else_does_whatever_the_exit_code(does: str, code: str) -> None:
    found = end(play(does))
    assert (found.status, found.code) == ("failed", code)


def test_what_is_no_record_ends_no_turn() -> None:
    garbage = "say('garbage'); say([1]); say('[' * 100_000); say({'type': ['result']})"
    assert end(play(f"hear(); {garbage}; say(init); {garbage}; say(result())")).status == "completed"


def test_a_program_that_never_reads_what_it_is_asked_has_the_time_of_a_turn_and_no_more() -> None:
    found = end(play("time.sleep(3600)", timeout=1.0, input="x" * 2**20))
    assert (found.status, found.code) == ("failed", "timeout")


@pytest.mark.parametrize("field", ["allowed_tools", "denied_tools"])
def test_the_name_of_a_tool_never_becomes_a_flag(field: str) -> None:
    found = end(
        play("hear(); say(init); say(result())", **{field: ("Read", "--dangerously-skip-permissions")})
    )
    assert (found.status, found.code) == ("failed", "invalid_request")
    assert "--dangerously-skip-permissions" in found.reason


@pytest.mark.requirement("L6")
def test_what_whoever_may_permit_raises_ends_the_turn_and_is_raised() -> None:
    async def lost(_asked: Permission) -> Permitted:
        raise LeaseLost(run="run_a", why="somebody cancelled it")

    with pytest.raises(LeaseLost):
        play("hear(); say(init); ask(tool_name='Bash', input={}); time.sleep(3600)", permit=lost)


@pytest.mark.parametrize("call", [["x"], {}, 7, None])
def test_a_question_about_a_call_that_is_none_is_asked_all_the_same(call: Any) -> None:
    asked = []

    async def permit(question: Permission) -> Permitted:
        asked.append(question)
        return Permitted(granted=True)

    does = f"hear(); say(init); ask(tool_name='Bash', input=7, tool_use_id={call!r}); hear(); say(result())"
    assert end(play(does, permit=permit)).status == "completed"
    assert [(one.tool, one.call) for one in asked] == [("Bash", None)]
