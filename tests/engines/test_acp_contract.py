"""The engine for agents of the Agent Client Protocol keeps the contract, with an agent that does what it is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from onward.engines.acp import AcpEngine
from onward.testing.engine_contract import Case, EngineContract


class TestAcpEngine(EngineContract):
    deterministic = False  # the id of a conversation is the agent's

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        self.store = tmp_path

    def engine(self) -> AcpEngine:
        command = [sys.executable, "-m", "onward.testing.acp_agent", "--store", str(self.store)]
        return AcpEngine(command=command, timeout=40)

    def talking(self) -> Case:
        return Case(engine=self.engine(), input="Hello.")

    def calling(self, tool: str, given: dict[str, Any]) -> Case:
        return Case(engine=self.engine(), input=f"[[call {tool} {json.dumps(given)}]] [[say That was all.]]")

    def lasting(self) -> Case:
        return Case(engine=self.engine(), input="[[hang]]")

    def failing(self) -> Case:
        return Case(engine=self.engine(), input="[[fail there is no model today]]")
