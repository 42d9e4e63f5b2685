"""What tests with real programs share: no settings of whoever runs them, and a model server that follows directives."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from onward.testing.stub_models import StubModels

SETTINGS = (
    "ANTHROPIC_", "AWS_", "CLAUDE", "CODEX_", "GEMINI_", "GOOGLE_", "OPENAI_", "OPENCODE", "PI_", "VERTEX",
)  # fmt: skip
"""How the variables begin by which the programs and their providers are set up."""


@pytest.fixture(autouse=True)
def _without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the person at this machine has set up decides what a program does, or pays for it."""
    for name in os.environ:
        if name.startswith(SETTINGS):
            monkeypatch.delenv(name)


@pytest.fixture
def stub() -> Iterator[StubModels]:
    """A model server that follows the directives in what it is asked."""
    with StubModels() as server:
        yield server
