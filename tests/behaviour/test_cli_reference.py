"""The catalogue, the help and the docs say the same; and starting costs what was promised."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.behaviour.cli import COMMAND, Program
from tests.needs import ROOT

from onward.core.continuing_command import REASONS
from onward.service.recalling import SCOPES
from onward.service.running import MODES
from onward.surfaces.cli import catalogue, helping, main, reference
from onward.surfaces.cli.catalogue import COMMANDS


def test_the_docs_are_what_the_program_says() -> None:
    assert (ROOT / "docs" / "cli.md").read_text("utf-8") == reference.reference(), (
        "write it anew: python -m onward.surfaces.cli.reference > docs/cli.md"
    )


@pytest.mark.parametrize("name", [n for n, c in COMMANDS.items() if not c.target.startswith("starting")])
def test_every_command_names_a_function_that_exists(name: str) -> None:
    module, _, function = COMMANDS[name].target.partition(":")
    assert callable(getattr(importlib.import_module(f"onward.surfaces.cli.{module}"), function))


def test_choices_are_those_of_the_verbs() -> None:
    # The catalogue repeats them, so that help needs none of these modules.
    assert (catalogue.REASONS, catalogue.SCOPES, catalogue.MODES) == (REASONS, SCOPES, MODES)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_every_argument_and_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([name, "--help"]) == 0
    shown = capsys.readouterr().out
    command = COMMANDS[name]
    for part in (*command.arguments, *command.options):
        assert part.name in shown


@given(text=st.text(st.sampled_from("ab \n")), width=st.integers(1, 30))
def test_wrapped_text_keeps_its_words_and_its_width(text: str, width: int) -> None:
    lines = helping.wrapped(text, width)
    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= width or " " not in line for line in lines)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["--help"], ["-h"]):
        assert main.run(argv) == 0
        shown = capsys.readouterr().out
        assert all(f"  {name} " in shown for name in COMMANDS)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("onward 0.")


def test_help_loads_nothing_heavy_and_a_query_neither_engines_nor_asyncio(onward: Program) -> None:
    onward.new()
    program = (
        "import sys; from onward.surfaces.cli import main; main.run(sys.argv[1:]); "
        "sys.stderr.write(' '.join(m for m in ('msgspec', 'asyncio', 'inspect', 'sqlite3', 'hashlib', 'json', "
        "'typing_extensions', 'onward.runner', 'onward.store.sqlite_writer', 'onward.core.transcript') if m in sys.modules))"
    )

    def loaded(*args: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", program, *args],
            capture_output=True,
            env=onward.environment(),
            timeout=60,
            check=True,
        )
        return set(done.stderr.decode().split())

    assert loaded("--help") == set()
    assert loaded("run", "--help") == set()
    for query in (
        ["list", "--json"],
        ["read", "@last", "--json"],
        ["search", "fails", "--json"],
        ["show", "@last", "--json"],
    ):
        # An event's digest is derived as it is read.
        assert loaded(*query) <= {"msgspec", "sqlite3", "hashlib", "onward.store.sqlite_writer"}
    assert loaded("list", "--json") == {"msgspec", "sqlite3"}


def test_starting_costs_a_few_starts_of_the_interpreter(onward: Program) -> None:
    onward.new()
    environment = onward.environment()

    def start(*command: str) -> float:
        begun = time.perf_counter()
        subprocess.run(command, capture_output=True, env=environment, timeout=60, check=True)
        return time.perf_counter() - begun

    # In turn and the best of each: what else runs on the machine slows all of them. The first round writes the byte code.
    calls = ((sys.executable, "-c", "pass"), (*COMMAND, "--help"), (*COMMAND, "search", "fails", "--json"))
    rounds = [[start(*call) for call in calls] for _ in range(10)][1:]
    bare, helped, asked = (min(times) for times in zip(*rounds, strict=True))
    assert helped <= 4.5 * bare, f"--help took {helped / bare:.1f} starts of the interpreter"
    assert asked <= 6 * bare, f"a search took {asked / bare:.1f} starts of the interpreter"
