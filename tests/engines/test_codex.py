"""The driver against a program that only says it is Codex: what a real one does seldom, or never on demand."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from onward.engines import engine_by_name
from onward.engines.codex import CodexEngine
from onward.engines.contract import (
    Finished,
    NativeSession,
    Noted,
    Permission,
    Permitted,
    Said,
    Signal,
    Started,
    ToolCalled,
    Turn,
)
from onward.errors import EngineError, InvalidInput

ASKED = "01a22a9e-f694-72c3-a48e-16adf3f4ff94"
OTHER = "01a22a9f-0000-72c3-a48e-16adf3f4ff94"

SERVER = """
import json, sys
script = json.loads(open(sys.argv[1]).read())
heard = open(sys.argv[1] + ".heard", "a", buffering=1)
def say(**message):
    print(json.dumps(message), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    heard.write(line)
    if "method" not in message:
        message["method"] = "answer"
    answers = script.get(message["method"], [])
    for told in answers:
        if told == "die":
            sys.exit(0)
        if "result" in told or "error" in told:
            told = {**told, "id": message["id"]}
        say(**told)
"""


def thread(id: str, **more: Any) -> dict[str, Any]:
    return {"result": {"thread": {"id": id, "path": None, **more}, "model": "m"}}


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": OTHER, "turnId": "turn-1", **params}}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return note("item/completed", item={"type": kind, "id": "i1", **fields})


BEGUN = {"result": {"turn": {"id": "turn-1"}}}
COMPLETED = note("turn/completed", turn={"id": "turn-1", "status": "completed"})
ANSWERS: dict[str, Any] = {
    "initialize": [{"result": {}}],
    "thread/start": [thread(OTHER)],
    "turn/start": [BEGUN, item("agentMessage", text="Hello."), COMPLETED],
    "turn/interrupt": [{"result": {}}],
    "thread/unsubscribe": [{"result": {}}, note("thread/closed")],
}


@pytest.fixture(autouse=True)
def _leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Played:
    """An engine over a script of answers, and what was said to the program."""

    def __init__(self, folder: Path, **answers: Any) -> None:
        self._script = folder / "script.json"
        self._script.write_text(
            json.dumps({**ANSWERS, **{k.replace("__", "/"): v for k, v in answers.items()}})
        )
        server = folder / "server.py"
        server.write_text(SERVER)
        start = folder / "codex"
        start.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{server}" "{self._script}"\n')
        start.chmod(0o755)
        self.program = str(start)

    def take(self, **given: Any) -> list[Signal]:
        async def taken() -> list[Signal]:
            codex = CodexEngine(program=self.program)
            turn = Turn(**{"session_id": "ses_a", "run_id": "run_a", "input": "Go on.", **given})
            async with asyncio.timeout(30):
                return [signal async for signal in codex.run(turn)]

        return asyncio.run(taken())

    @property
    def started(self) -> bool:
        """The program was started."""
        return Path(f"{self._script}.heard").exists()

    def heard(self, method: str = "answer") -> list[dict[str, Any]]:
        lines = Path(f"{self._script}.heard").read_text().splitlines()
        return [message for message in map(json.loads, lines) if message.get("method", "answer") == method]


def test_a_turn_from_start_to_end(tmp_path: Path) -> None:
    played = Played(tmp_path)
    assert played.take(brief="THE BRIEF") == [
        Started(model="m", native_id=OTHER, briefed=True),
        Said(text="Hello.", model="m"),
        Finished(status="completed"),
    ]
    (begun,) = played.heard("turn/start")
    assert begun["params"]["input"] == [{"type": "text", "text": "THE BRIEF\n\nGo on."}]
    (started,) = played.heard("thread/start")
    assert (started["params"]["approvalPolicy"], started["params"]["sandbox"]) == ("on-request", "read-only")
    assert "config" not in started["params"], "no tools of ours, so no server of them"


@pytest.mark.requirement("O5")
def test_another_thread_than_the_asked_one_is_not_a_resumption(tmp_path: Path) -> None:
    played = Played(tmp_path, thread__resume=[thread(OTHER)])
    started, *_ = played.take(native=NativeSession(id=ASKED), brief="B")
    assert isinstance(started, Started)
    assert not started.resumed
    assert started.briefed
    assert OTHER in started.why
    (end,) = played.take(native=NativeSession(id=ASKED), native_only=True)
    assert isinstance(end, Finished)
    assert end.code == "resume_refused"


def test_a_fork_that_does_not_say_whose_it_is_is_none(tmp_path: Path) -> None:
    played = Played(tmp_path, thread__fork=[thread(OTHER)])
    with pytest.raises(EngineError, match="does not say"):
        asyncio.run(CodexEngine(program=played.program).fork(ASKED))
    good = Played(tmp_path, thread__fork=[thread(OTHER, forkedFromId=ASKED)])
    assert asyncio.run(CodexEngine(program=good.program).fork(ASKED, after="turn-0")) == OTHER
    assert good.heard("thread/fork")[-1]["params"]["lastTurnId"] == "turn-0"


@pytest.mark.parametrize("after", [[], [item("agentMessage", text="Done, all is well.")]])
def test_a_server_that_ends_without_saying_how_has_failed(after: list[Any], tmp_path: Path) -> None:
    played = Played(tmp_path, turn__start=[BEGUN, *after, "die"])
    end = played.take()[-1]
    assert isinstance(end, Finished)
    assert (end.status, end.code) == ("failed", "crashed")
    assert "exit code 0" in end.reason


def test_the_end_of_another_turn_is_not_the_end_of_ours(tmp_path: Path) -> None:
    stale = note("turn/completed", turn={"id": "turn-0", "status": "completed"})
    end = Played(tmp_path, turn__start=[BEGUN, stale, "die"]).take()[-1]
    assert isinstance(end, Finished)
    assert end.status == "failed"


def test_a_thread_that_somebody_writes_in_is_busy_and_nothing_takes_its_place(tmp_path: Path) -> None:
    refused = {"error": {"code": -32600, "message": f"thread {ASKED} already has an active writer"}}
    played = Played(tmp_path, thread__resume=[refused])
    (end,) = played.take(native=NativeSession(id=ASKED), brief="B")
    assert isinstance(end, Finished)
    assert (end.code, end.retryable) == ("busy", True)
    assert not played.heard("thread/start")


def approval(method: str, **params: Any) -> dict[str, Any]:
    return {"id": 7, **note(method, itemId="i1", **params)}


MCP = {
    "serverName": "web",
    "message": "Allow it?",
    "_meta": {"codex_approval_kind": "mcp_tool_call", "tool_name": "get", "tool_params": {"a": 1}},
}


@pytest.mark.parametrize("granted", [True, False])
@pytest.mark.parametrize(
    ("request_", "tool", "edits", "yes", "no"),
    [
        (
            approval("item/commandExecution/requestApproval", command="rm x", cwd="/w"),
            "exec_command",
            False,
            {"decision": "accept"},
            {"decision": "decline"},
        ),
        (
            approval("item/fileChange/requestApproval", grantRoot="/w"),
            "apply_patch",
            True,
            {"decision": "accept"},
            {"decision": "decline"},
        ),
        (
            approval("item/permissions/requestApproval", permissions={"network": {"enabled": True}}),
            "permissions",
            False,
            {"permissions": {"network": {"enabled": True}}, "scope": "turn"},
            {"permissions": {}, "scope": "turn"},
        ),
        (
            approval("mcpServer/elicitation/request", **MCP),
            "mcp__web__get",
            False,
            {"action": "accept", "content": {}},
            {"action": "decline", "content": None},
        ),
    ],
)
def test_what_codex_asks_goes_to_whoever_may_allow_it(
    request_: dict[str, Any], tool: str, edits: bool, yes: Any, no: Any, granted: bool, tmp_path: Path
) -> None:
    asked: list[Permission] = []

    async def permit(permission: Permission) -> Permitted:
        asked.append(permission)
        return Permitted(granted=granted)

    begins = note("item/started", item={"type": "commandExecution", "id": "i1", "command": "rm x"})
    played = Played(tmp_path, turn__start=[BEGUN, begins, request_], answer=[COMPLETED])
    signals = played.take(permit=permit)
    (permission,) = asked
    assert (permission.tool, permission.edits) == (tool, edits)
    called = next(signal for signal in signals if isinstance(signal, ToolCalled))
    assert permission.call == called.call
    assert permission.subject
    assert [answer["result"] for answer in played.heard()] == [yes if granted else no]
    assert signals[-1] == Finished(status="completed")


@pytest.mark.parametrize(
    "given", [{}, {"denied_tools": ("exec_command",)}, {"allowed_tools": ("apply_patch",)}]
)
def test_without_anybody_to_ask_or_for_a_tool_that_is_denied_the_answer_is_no(
    given: dict[str, Any], tmp_path: Path
) -> None:
    async def permit(permission: Permission) -> Permitted:
        return Permitted(granted=True)

    request = approval("item/commandExecution/requestApproval", command="rm x")
    played = Played(tmp_path, turn__start=[BEGUN, request], answer=[COMPLETED])
    played.take(**({**given, "permit": permit} if given else {}))
    assert [answer["result"] for answer in played.heard()] == [{"decision": "decline"}]


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (approval("item/tool/requestUserInput", questions=[]), {"result": {"answers": {}}}),
        (
            approval("mcpServer/elicitation/request", serverName="web", message="Your name?"),
            {"result": {"action": "decline", "content": None}},
        ),
        (
            approval("attestation/generate"),
            {"error": {"code": -32601, "message": "attestation/generate is not offered here"}},
        ),
    ],
)
def test_a_question_that_is_no_approval_is_refused_and_kept(
    request_: dict[str, Any], answer: dict[str, Any], tmp_path: Path
) -> None:
    played = Played(tmp_path, turn__start=[BEGUN, request_], answer=[COMPLETED])
    signals = played.take()
    kept = next(signal for signal in signals if isinstance(signal, Noted))
    assert request_["method"].encode() in kept.body  # type: ignore[operator]
    assert [{k: v for k, v in said.items() if k in ("result", "error")} for said in played.heard()] == [
        answer
    ]
    assert signals[-1] == Finished(status="completed")


def test_what_whoever_was_asked_raises_passes_through(tmp_path: Path) -> None:
    async def permit(permission: Permission) -> Permitted:
        raise ZeroDivisionError("a closed store")

    request = approval("item/commandExecution/requestApproval", command="rm x")
    played = Played(tmp_path, turn__start=[BEGUN, request], answer=[COMPLETED])
    with pytest.raises(ZeroDivisionError, match="a closed store"):
        played.take(permit=permit)


def test_a_warm_process_that_does_not_let_go_of_its_thread_is_ended(tmp_path: Path) -> None:
    played = Played(tmp_path, thread__unsubscribe=[{"error": {"code": -32601, "message": "unknown"}}])

    async def taken() -> tuple[Any, ...]:
        codex = CodexEngine(program=played.program, warm=True)
        turn = Turn(session_id="ses_a", run_id="run_a", input="Go on.")
        signals = [signal async for signal in codex.run(turn)]
        assert signals[-1] == Finished(status="completed")
        return codex.awake()

    assert asyncio.run(taken()) == ()


def test_the_search_can_be_left_out(tmp_path: Path) -> None:
    played = Played(tmp_path)
    played.take(denied_tools=("web_search",))
    (started,) = played.heard("thread/start")
    assert started["params"]["config"] == {"web_search": "disabled"}


def test_options_of_the_turn_go_to_codex(tmp_path: Path) -> None:
    played = Played(tmp_path)
    assert played.take(options={"effort": "high"})[-1] == Finished(status="completed")
    (begun,) = played.heard("turn/start")
    assert begun["params"]["effort"] == "high"


def test_an_option_that_nobody_knows_fails_the_turn_before_anything_is_sent(tmp_path: Path) -> None:
    played = Played(tmp_path)
    (end,) = played.take(options={"effort": "high", "colour": 1})
    assert isinstance(end, Finished)
    assert end.code == "invalid_request"
    assert "colour" in end.reason
    assert not played.started


def test_it_is_found_by_its_name_and_says_what_it_lacks(tmp_path: Path) -> None:
    codex = engine_by_name("codex", program=str(tmp_path / "none"), mode="exec")
    assert codex.capabilities.memory
    assert not codex.capabilities.permissions, "codex exec asks nobody"
    assert "npm install" in (codex.unavailable() or "")

    async def taken() -> list[Signal]:
        return [signal async for signal in codex.run(Turn(session_id="s", run_id="r", input="x"))]

    (end,) = asyncio.run(taken())
    assert isinstance(end, Finished)
    assert (end.status, end.code) == ("failed", "not_installed")


def test_a_setting_that_cannot_be_said_fails_the_turn(tmp_path: Path) -> None:
    async def taken(**options: Any) -> list[Signal]:
        codex = CodexEngine(program=Played(tmp_path).program, **options)
        return [signal async for signal in codex.run(Turn(session_id="s", run_id="r", input="x"))]

    (tmp_path / "file").touch()
    for options in ({"config": {"model": None}}, {"home": str(tmp_path / "file" / "home")}):
        (end,) = asyncio.run(taken(**options))
        assert isinstance(end, Finished)
        assert end.code == "invalid_request"


@pytest.mark.parametrize("given", [{"mode": "tui"}, {"seed": "file"}])
def test_an_option_has_one_of_its_values(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(given.values()))):
        CodexEngine(**given)


def test_half_a_character_in_what_is_asked_and_in_the_answer_ends_no_turn(tmp_path: Path) -> None:
    played = Played(tmp_path, turn__start=[BEGUN, item("agentMessage", text="Half \ud83d."), COMPLETED])
    signals = played.take(brief="before \ud83d", input="and \ude00 now")
    assert signals[-1] == Finished(status="completed")
    assert [one.text for one in signals if isinstance(one, Said)] == ["Half \ud83d."]
    (begun,) = played.heard("turn/start")
    assert begun["params"]["input"] == [{"type": "text", "text": "before �\n\nand � now"}]


@pytest.mark.parametrize("result", [{}, None, {"turn": "turn-1"}, {"turn": {"id": 1}}])
def test_a_turn_without_an_id_has_failed(tmp_path: Path, result: Any) -> None:
    end = Played(tmp_path, turn__start=[{"result": result}]).take()[-1]
    assert isinstance(end, Finished)
    assert end.status == "failed"
    assert "did not say which" in end.reason
