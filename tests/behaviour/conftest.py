"""What tests of surfaces share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.behaviour.cli import Program


@pytest.fixture
def onward(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The program, on a store that does not exist yet, for a person with an empty home."""
    home = tmp_path / "home"
    home.mkdir()
    return Program(
        store=tmp_path / "work.db", home=home, bytecode=tmp_path_factory.getbasetemp() / "bytecode"
    )
