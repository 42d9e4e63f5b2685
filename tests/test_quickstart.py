"""What a newcomer copies first does what the text beside it says: the README's Python and the library's own example."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from onward import library
from tests.needs import ROOT

README = ROOT / "README.md"


def blocks(text: str) -> list[str]:
    """The Python blocks of a Markdown text."""
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def example(docstring: str) -> str:
    """The indented example of a module's docstring."""
    lines = [line for line in docstring.splitlines() if line.startswith("    ")]
    return textwrap.dedent("\n".join(lines)) + "\n"


def run(code: str, folder: Path) -> str:
    """Run a program in a process of its own, with warnings as errors. Return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env={"PATH": "", "HOME": str(folder), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_five_lines_of_the_library_run_as_they_are(tmp_path: Path) -> None:
    code = example(library.__doc__ or "")
    assert len(code.splitlines()) == 5
    told = run("import onward\n" + code, tmp_path)
    assert "What fails?" in told, "the script engine repeats what it was asked"
    assert "['session', 'context', 'message']" in told
    assert (tmp_path / "work.db").exists()


@pytest.mark.parametrize(
    "code", blocks(README.read_text()) if README.exists() else [], ids=lambda code: f"{len(code)} characters"
)
def test_the_python_of_the_readme_runs_as_it_is_and_twice(tmp_path: Path, code: str) -> None:
    assert run(code, tmp_path)
    assert run(code, tmp_path), "a newcomer tries it again"


def test_the_readme_shows_python() -> None:
    assert blocks(README.read_text())


def test_a_block_and_an_example_are_found_where_they_are() -> None:
    assert blocks("a\n```python\nx = 1\n```\n```\nnot this\n```\n```python\ny\n```\n") == ["x = 1\n", "y\n"]
    assert example("What.\n\n    a = 1\n    if a:\n        b\n\nMore.\n") == "a = 1\nif a:\n    b\n"
