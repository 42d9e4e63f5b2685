"""The real programs work here as the engines need them to: offline, in a home of their own, against the stub."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.engines.real import cli_homes
from tests.engines.real.cli_homes import MODEL, Home

from onward.core.fencing import fence
from onward.testing.stub_models import Reply, StubModels

COMMAND = "printf '%s-%s' over there"
"""Prints what it does not hold, so that only a run of it can have told."""


@dataclass(frozen=True)
class Program:
    """How a program is asked once, its prompt on standard input."""

    home: Callable[[Path, StubModels], Home]
    arguments: tuple[str, ...]
    shell: str
    """The call of its shell tool."""
    ends: str
    """What its output holds when the turn succeeded."""


PROGRAMS = {
    "claude": Program(
        cli_homes.claude_home,
        ("-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions"),
        f'Bash {{"command": "{COMMAND}", "description": "prints"}}',
        '"is_error":false',
    ),
    "codex": Program(
        cli_homes.codex_home,
        ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-"),
        f'exec_command {{"cmd": "{COMMAND}"}}',
        '"turn.completed"',
    ),
    "opencode": Program(
        cli_homes.opencode_home,
        ("run", "--format", "json", "--auto"),
        f'bash {{"command": "{COMMAND}", "description": "prints"}}',
        '"reason":"stop"',
    ),
    "gemini": Program(
        cli_homes.gemini_home,
        ("-o", "stream-json", "-y", "-m", MODEL),
        f'run_shell_command {{"command": "{COMMAND}"}}',
        '"status":"success","stats"',
    ),
    "pi": Program(
        cli_homes.pi_home,
        ("-p", "--mode", "json", "--provider", "stub", "--model", MODEL),
        f'bash {{"command": "{COMMAND}"}}',
        '"agent_settled"',
    ),
}


def ask(home: Home, arguments: tuple[str, ...], prompt: str) -> str:
    """The program's output for one prompt; its own exit code must be 0."""
    ran = subprocess.run(
        [home.program, *arguments],
        input=prompt,
        text=True,
        capture_output=True,
        env=os.environ | home.env,
        cwd=home.workdir,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stderr[-2000:]}\n{ran.stdout[-2000:]}"
    return ran.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_passes_a_brief_on_as_it_is_and_takes_a_turn_with_a_call_of_its_own_tool(
    name: str, tmp_path: Path, stub: StubModels
) -> None:
    program = PROGRAMS[name]
    home = program.home(tmp_path, stub)
    brief = fence("user: [[say never]]", "recent exchange", session="ses_1")
    prompt = f"{brief}\n\n[[call {program.shell}]] [[say That]] [[say was all.]] [[slow 1 0]]"
    assert home.native_files() == []
    output = ask(home, program.arguments, prompt)
    assert program.ends in output
    assert "That was all." in output
    assert [stub.asked(0), stub.asked(1)] == [(prompt,), (prompt,)]
    assert len(stub.requests) == 2
    assert ["over-there" in one.text for one in stub.heard(1) if one.who == "tool"] == [True]
    assert home.native_files(), "its conversation is where the tests look for it"


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_asks_on_its_own_account_takes_nothing_from_the_script(
    name: str, tmp_path: Path
) -> None:
    program = PROGRAMS[name]
    with StubModels([Reply(text="The only answer.")]) as stub:
        home = program.home(tmp_path, stub)
        ask(home, program.arguments, "Say it.")
        assert len(stub.requests) == 1
        assert not [request.path for request in stub.side_requests if not request.api], "unknown to the stub"
