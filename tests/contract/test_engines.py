"""Every engine passes the one suite: the script, the model engine against a stub of each API, and the local model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from onward.engines.local import LocalEngine
from onward.engines.model import ModelEngine
from onward.engines.script import Hang, Mutter, ScriptEngine
from onward.testing.engine_contract import Case, EngineContract
from onward.testing.stub_models import Reply, StubModels


class TestScriptEngine(EngineContract):
    def talking(self) -> Case:
        return Case(engine=ScriptEngine(), input="Hello there.")

    def calling(self, tool: str, given: dict[str, Any]) -> Case:
        return Case(engine=ScriptEngine(), input=f"[[call {tool} {json.dumps(given)}]] [[say done]]")

    def lasting(self) -> Case:
        return Case(engine=ScriptEngine(script=[Mutter(text="well"), Hang()]), input="Wait.")

    def failing(self) -> Case:
        return Case(engine=ScriptEngine(), input="[[fail out of order]]")


class ModelContract(EngineContract):
    api: Literal["openai", "anthropic"]

    @pytest.fixture(autouse=True)
    def _stubs(self) -> Iterator[None]:
        lasting = Reply(text="once upon a time there was", chunks=6, gate=threading.Event())
        with StubModels() as obedient, StubModels(lambda _: lasting) as slow:
            self._obedient, self._slow = obedient, slow
            yield

    def talking(self) -> Case:
        return Case(engine=self._engine(self._obedient), input="Hello there.")

    def calling(self, tool: str, given: dict[str, Any]) -> Case:
        text = f"[[call {tool} {json.dumps(given)}]] [[say done]]"
        return Case(engine=self._engine(self._obedient), input=text)

    def lasting(self) -> Case:
        return Case(engine=self._engine(self._slow), input="Tell a story.")

    def failing(self) -> Case:
        return Case(engine=self._engine(self._obedient), input="[[status 400]]")

    def _engine(self, stub: StubModels) -> ModelEngine:
        return ModelEngine(base_url=stub.base_url(self.api), api=self.api, model="stub-model", environment={})


class TestModelEngineWithOpenAI(ModelContract):
    api = "openai"


class TestModelEngineWithAnthropic(ModelContract):
    api = "anthropic"


class TestLocalEngine(EngineContract):
    @pytest.fixture(autouse=True)
    def _model(self, model_file: Path) -> None:
        self._file = model_file

    def talking(self) -> Case:
        return Case(engine=LocalEngine(model_path=self._file, max_tokens=12), input="Say hello.")

    def lasting(self) -> Case:
        return Case(
            engine=LocalEngine(model_path=self._file, max_tokens=2000), input="Tell me a very long story."
        )

    def failing(self) -> Case:
        return Case(engine=LocalEngine(model_path=self._file), input="word " * 5000)
