"""Through the command line with the real programs: killed runners, engines that take turns, permissions from elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engines.real.through import PATIENCE, Place, began, bodies, killing, openings, place

from onward.core.bodies import Approval, Message, SessionChange, ToolCall, ToolResult
from onward.core.brief import PREAMBLE
from onward.library import Onward, open_log
from onward.service import running
from onward.service.platform import Platform, wall_clock
from onward.testing.stub_models import Reply, StubModels

ROOT = Path(__file__).resolve().parents[3]
SECRET = "The codeword is walrus."
FREELY = ("--permissions", "dangerously_skip_permissions")


@dataclass(kw_only=True)
class Desk:
    """A person at a command line, with a store."""

    store: str
    log: Onward

    def start(self, *words: str, json: bool = True) -> subprocess.Popen[str]:
        """Begin a command, with its answer as JSON or in words."""
        return subprocess.Popen(
            [sys.executable, "-m", "onward", "--store", self.store, *(["--json"] if json else []), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )

    def ended(self, command: subprocess.Popen[str]) -> tuple[int, Any]:
        """Wait for a command; return its status, and its answer or its error."""
        told, error = command.communicate(timeout=PATIENCE)
        return command.returncode, json.loads(told) if told.startswith("{") else error

    def do(self, *words: str) -> Any:
        """Carry out a command that succeeds; return its answer."""
        status, told = self.ended(self.start(*words))
        assert status == 0, told
        return told

    def run(self, here: Place, session: str, text: str, *words: str) -> Any:
        """Say something, let this engine answer, and return what the command says."""
        here.aged()
        return self.do("run", session, text, "--engine", here.name, *here.settings(), *FREELY, *words)

    def session(self, here: Place) -> str:
        return self.log.start("Words", workspace=str(here.home.workdir)).id


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    url = f"sqlite:///{tmp_path / 'work.db'}"
    with open_log(url) as log:
        yield Desk(store=url, log=log)


@pytest.mark.requirement("L6", "O2")
@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini", "pi"])
def test_where_the_command_itself_is_killed_in_the_middle_of_a_tool_the_run_is_interrupted_and_nothing_works_on(
    name: str, tmp_path: Path, desk: Desk
) -> None:
    pipe = tmp_path / "began"
    script: list[Reply] = []
    with StubModels(lambda _: script.pop(0)) as stub:
        here = place(name, tmp_path / "a", stub, desk.log.platform.store)
        script[:] = [
            Reply(text="I begin.", calls=(here.shell(f"echo begun > {pipe}; sleep 61"),)),
            Reply(text="Still here."),
        ]
        session = desk.session(here)

        def told() -> list[psutil.Process]:
            """The command, once it says that the call is in the log."""
            assert command.stderr is not None
            for line in command.stderr:
                if "[calls" in line:
                    return [psutil.Process(command.pid)]
            return []

        words = ("run", session, f"{SECRET} Begin.", "--engine", name, *here.settings(), *FREELY)
        with began(pipe) as begun, killing(told, begun) as killed:
            command = desk.start(*words, json=False)
        desk.ended(command)
        assert killed == [command.pid]
        (run,) = desk.log.platform.store.runs(session)
        assert run.state == "running", "nobody knows yet"

        later = Platform(store=desk.log.platform.store, clock=lambda: wall_clock() + 3600 * 1_000_000)
        assert [one.id for one in running.expire(later)] == [run.id]
        assert [(r.state, r.attempt) for r in later.store.runs(session)] == [("interrupted", 1)]
        found = bodies(desk.log, session)
        assert "I begin." in [body.text for body in found if isinstance(body, Message)]
        (call,) = [body for body in found if isinstance(body, ToolCall)]
        (closed,) = [body for body in found if isinstance(body, ToolResult)]
        assert (closed.call, closed.status) == (call.call, "outcome_unknown")

        if name == "claude-code":
            assert any("sleep 61" in line for line in here.left()), (
                "it does not notice, and its tool works on"
            )
        after = desk.run(here, session, "Are you there?")
        assert (after["opening"], after["reply"]) == ("seeded", "Still here.")
        assert "cut off" in after["opening_facts"]["reason"]
        assert here.left() == [], "the next command ended what was left running"


@pytest.mark.requirement("O2")
def test_claude_code_is_restored_where_its_home_was_emptied(tmp_path: Path, desk: Desk) -> None:
    with StubModels() as stub:
        here = place("claude-code", tmp_path / "a", stub, desk.log.platform.store)
        session = desk.session(here)
        desk.run(here, session, f"{SECRET} {here.call('echo heard')} [[say Noted.]]")
        config = Path(here.home.env["CLAUDE_CONFIG_DIR"])
        shutil.rmtree(config)
        config.mkdir()
        again = desk.run(here, session, "[[say I know.]]")
        assert (again["opening"], again["reply"]) == ("restored", "I know.")
        assert not here.briefed()
        assert any(SECRET in text for text in stub.asked())
        assert any("heard" in said.text for said in stub.heard() if said.who == "tool")
        assert desk.run(here, session, "[[say Still.]]")["opening"] == "resumed"


@pytest.mark.requirement("O1", "O2")
def test_engines_take_turns_in_one_conversation_and_none_goes_on_in_what_is_out_of_date(
    tmp_path: Path, desk: Desk
) -> None:
    with StubModels() as stub:
        claude, codex, pi = (
            place(name, tmp_path / name, stub, desk.log.platform.store)
            for name in ("claude-code", "codex", "pi")
        )
        session = desk.session(claude)
        assert desk.run(claude, session, f"{SECRET} [[say Claude noted it.]]")["opening"] == "fresh"
        said = [SECRET, "Claude noted it."]
        for there, before in ((codex, claude), (pi, codex), (claude, pi)):
            told = desk.run(there, session, f"[[say So did {there.name}.]]")
            assert told["opening"] == "seeded"
            assert told["opening_facts"]["branch"] in ("nothing_to_resume", "other_engine")
            if there is claude:
                assert f"taken by {before.name}" in told["opening_facts"]["reason"]
            (brief,) = there.briefed()
            assert brief.count(PREAMBLE) == 1
            assert all(text in brief for text in said)
            assert "".join(stub.asked()).count(SECRET) == 1, "what it held itself was left aside"
            said.append(f"So did {there.name}.")
        assert desk.run(claude, session, "[[say Again.]]")["opening"] == "resumed"


def test_a_tool_that_was_denied_stops_claude_code_and_is_not_used(tmp_path: Path, desk: Desk) -> None:
    with StubModels() as stub:
        here = place("claude-code", tmp_path / "a", stub, desk.log.platform.store)
        session = desk.session(here)
        touched = tmp_path / "touched"
        words = ("run", session, f"{here.call(f'touch {touched}')} [[say Done.]]", "--engine", here.name)
        status, error = desk.ended(desk.start(*words, *here.settings(), *FREELY, "--deny", "Bash"))
        assert status == 1
        assert "Bash" in str(error)
        assert not touched.exists()
        (run,) = desk.log.platform.store.runs(session)
        assert run.state == "failed"
        assert here.left() == []


@pytest.mark.parametrize("verb", ["approve", "decline"])
@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_person_elsewhere_allows_a_command_or_does_not(
    name: str, verb: str, tmp_path: Path, desk: Desk
) -> None:
    with StubModels() as stub:
        here = place(name, tmp_path / "a", stub, desk.log.platform.store)
        session = desk.session(here)
        touched = tmp_path / "touched"
        text = f"{here.call(f'touch {touched}', outside=True)} [[say Done.]]"
        waits = desk.start("run", session, text, "--engine", name, *here.settings(), "--ask", "60")
        asked: list[Any] = []
        until = time.monotonic() + PATIENCE
        while not asked and time.monotonic() < until and waits.poll() is None:
            asked = desk.do("approvals", session)["permissions"]
        assert len(asked) == 1, desk.ended(waits)
        assert "touch" in json.dumps(asked[0])
        assert not touched.exists()
        answered = desk.do(verb, asked[0]["id"])
        assert answered["state"] == ("granted" if verb == "approve" else "denied")
        status, told = desk.ended(waits)
        assert status == 0, told
        assert told["reply"] == "Done."
        assert touched.exists() == (verb == "approve")
        found = bodies(desk.log, session)
        assert [b.state for b in found if isinstance(b, Approval)] == ["requested", answered["state"]]
        (result,) = [b for b in found if isinstance(b, ToolResult)]
        assert (result.status == "ok") == (verb == "approve")
        assert [f.outcome for f in openings(desk.log, session)] == ["fresh"]
        assert isinstance(found[0], SessionChange)
