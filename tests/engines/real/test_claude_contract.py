"""The engine for Claude Code keeps the engine contract, with the real program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engines.real.cli_homes import Home, claude_home

from onward.engines.claude_code import ClaudeCodeEngine
from onward.testing.engine_contract import Case, EngineContract
from onward.testing.stub_models import StubModels


class TestClaudeCodeEngine(EngineContract):
    deterministic = False  # the id of a conversation is drawn, and what a turn costs follows its length

    home: Home

    @pytest.fixture(autouse=True)
    def _at_home(self, tmp_path: Path, stub: StubModels, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        self.home = claude_home(tmp_path, stub)
        monkeypatch.chdir(self.home.workdir)

    def case(self, text: str) -> Case:
        env = self.home.with_env(CLAUDE_CODE_MAX_RETRIES="0")
        return Case(engine=ClaudeCodeEngine(program=str(self.home.program), env=env), input=text)

    def talking(self) -> Case:
        return self.case("Hello.")

    def calling(self, tool: str, given: dict[str, Any]) -> Case | None:
        if tool == "nowhere":
            return None  # what is not offered, the model is not asked to call
        return self.case(f"[[call mcp__onward__{tool} {json.dumps(given)}]] [[say That was all.]]")

    def lasting(self) -> Case:
        return self.case("[[say One two three four five six seven eight.]] [[slow 8 5]]")

    def failing(self) -> Case:
        return self.case("[[status 400]]")
