"""The page about engines is true: its examples run, and no engine or option is missing from it."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from onward.engines import ENGINES, engine_by_name
from onward.engines.script import directives

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engines.md"
TEXT = PAGE.read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs_without_a_complaint(number: int) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[number]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("name", ENGINES)
def test_every_option_of_an_engine_is_described(name: str) -> None:
    section = TEXT.split(f"\n## `{name}`\n", 1)[1].split("\n## ", 1)[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert documented == set(inspect.signature(type(engine_by_name(name))).parameters)


def test_every_directive_that_is_described_exists() -> None:
    section = TEXT.split("\n## `script`\n", 1)[1].split("\n## ", 1)[0]
    described = re.findall(r"^\| `(\[\[.*?\]\])`", section, re.MULTILINE)
    assert len(described) == 7
    for directive in described:
        assert len(list(directives(directive.replace("N]]", "7]]").replace("{json}", "{}")))) == 1
