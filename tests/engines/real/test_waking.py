"""The real Claude Code is killed in the middle of its work, its files are deleted; another engine takes over, then itself.

What ``onward bench --quality waking`` does with an agent of its own, here with the program that people use: the log is
written by its runs, and nothing else of the conversation is left.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.real.cli_homes import Home, claude_home

from onward.bench.quality_asking import Instructed
from onward.core.bodies import ToolResult
from onward.core.brief import PREAMBLE
from onward.core.codec import body_of
from onward.core.records import Run
from onward.engines.claude_code import ClaudeCodeEngine
from onward.engines.contract import Capabilities, Signal, ToolCalled, Turn
from onward.engines.local import LocalEngine, chat_messages
from onward.engines.script import Say, ScriptEngine, Step
from onward.library import Onward, open_log
from onward.testing.stub_models import Reply, StubModels

PATIENCE = 60.0
PORT = "The tracker listens on port 7443."
QUESTION = "On which port does the tracker listen?"
MODE = {"permission_mode": "dangerously_skip_permissions"}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Onward, str, Home, StubModels]]:
    """A conversation of Claude Code that was cut off, its files being gone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    pipe = tmp_path / "began"
    os.mkfifo(pipe)
    working = f"echo begun > {pipe}; tail -f /dev/null"
    script = (
        Reply(text="Noted."),
        Reply(calls=(("Bash", {"command": "echo port = 7443", "description": "Looks it up."}),)),
        Reply(text=PORT),
        Reply(text="I run the tests.", calls=(("Bash", {"command": working, "description": "Runs them."}),)),
        Reply(text="I hold only what I was told."),
    )
    with StubModels(script) as stub, open_log(f"sqlite:///{tmp_path / 'work.db'}") as log:
        home = claude_home(tmp_path, stub)
        session = log.start("Parcel tracker", workspace=str(home.workdir)).id
        claude = ClaudeCodeEngine(program=str(home.program), env=dict(home.env))
        for text in ("Staging runs on heron-2.", "Find out where the tracker listens."):
            assert log.run(session, text, engine=claude, continuation_opts=MODE).state == "completed"

        def kill(run: Run, said: Signal) -> None:
            if isinstance(said, ToolCalled):
                opened = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
                assert select.select([opened], [], [], PATIENCE)[0], "its tool never began"
                os.close(opened)
                (entry,) = (Path(home.env["CLAUDE_CONFIG_DIR"]) / "sessions").glob("*.json")
                os.kill(int(entry.stem), signal.SIGKILL)

        cut = log.run(session, "Run all the tests.", engine=claude, continuation_opts=MODE, listener=kill)
        assert cut.state == "failed"
        assert home.native_files()
        shutil.rmtree(home.natives)
        yield log, session, home, stub


@pytest.mark.requirement("O2")
@pytest.mark.parametrize("as_text", [False, True], ids=["transcript", "brief"])
def test_another_engine_is_seeded_and_holds_what_claude_code_found_out(
    as_text: bool, work: tuple[Onward, str, Home, StubModels]
) -> None:
    log, session, _, stub = work
    given: list[str] = []

    def look(turn: Turn) -> Iterator[Step]:
        told = chat_messages("", turn.history)
        given.append("\n".join([*(message["content"] for message in told), turn.input]))
        yield Say(text="7443" if PORT in given[-1] else "That is not in the notes.")

    able = Capabilities(window=4096)
    other = Instructed(ScriptEngine(script=look, capabilities=able), "Answer.", as_text=as_text)
    requests = len(stub.requests)
    result = log.run(log.fork(session).id, QUESTION, engine=other)

    assert (result.opening, result.reply) == ("seeded", "7443")
    assert given[0].endswith(QUESTION)
    assert given[0].count(PREAMBLE) == as_text
    assert "Staging runs on heron-2." in given[0]
    assert len(stub.requests) == requests, "Claude Code was not asked"
    closed = [body for event in log.read(session).events if isinstance(body := body_of(event), ToolResult)]
    assert [result.status for result in closed] == ["ok", "outcome_unknown"]


def test_the_local_model_answers_from_the_brief_what_it_never_saw(
    work: tuple[Onward, str, Home, StubModels], model_file: Path
) -> None:
    log, session, _, _ = work
    local = LocalEngine(model_path=model_file, max_tokens=30, stop=["\n\n"])
    reader = Instructed(local, "Answer the question from the notes, in a few words.", as_text=True)

    cold = log.run(log.start().id, QUESTION, engine=reader, continuation="none")
    seeded = log.run(log.fork(session).id, QUESTION, engine=reader)

    assert (cold.opening, seeded.opening) == ("fresh", "seeded")
    assert "7443" not in cold.reply
    assert "7443" in seeded.reply


@pytest.mark.requirement("O5")
@pytest.mark.requirement("O2")
def test_claude_code_itself_is_seeded_and_not_taken_to_remember(
    work: tuple[Onward, str, Home, StubModels],
) -> None:
    log, session, home, stub = work
    claude = ClaudeCodeEngine(program=str(home.program), env=dict(home.env))

    result = log.run(session, QUESTION, engine=claude, continuation_opts=MODE)

    assert (result.state, result.opening) == ("completed", "seeded")
    assert "failed" in result.opening_told
    (told,) = [text for text in stub.asked() if QUESTION in text]
    assert told.count(PREAMBLE) == 1
    assert told.index(PREAMBLE) < told.index(PORT) < told.index(QUESTION)
