"""Several engines for one message: the next one is tried only when nothing was done, and the log shows who answered."""

from __future__ import annotations

from typing import Any

import pytest
from tests.service.conversations import World, texts

from onward import engines
from onward.core.routing import Router, routing_of
from onward.engines.contract import Capabilities, Engine
from onward.engines.script import Call, Fail, Mutter, Say, ScriptEngine
from onward.errors import EngineUnavailable
from onward.runner import conversing


class Named(ScriptEngine):
    """A script under a name of its own."""

    def __init__(self, name: str, *steps: Any, why: str | None = None) -> None:
        super().__init__(script=steps, capabilities=Capabilities(tools=True))
        self.name = name  # type: ignore[misc]
        self._why = why

    def unavailable(self) -> str | None:
        return self._why


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Engine]:
    """Engines by name, as many as a test wants."""
    there: dict[str, Engine] = {}

    def by_name(name: str, **_options: Any) -> Engine:
        return there[name]

    monkeypatch.setattr(engines, "engine_by_name", by_name)
    monkeypatch.setattr(conversing, "engine_by_name", by_name)
    return there


BUSY = Fail(reason="the provider is overloaded", retryable=True)


def test_the_next_engine_answers_when_the_first_cannot(world: World, known: dict[str, Engine]) -> None:
    known.update(a=Named("a", BUSY), b=Named("b", Say(text="From b.")))
    session = world.log.start("x").id
    result = world.log.run(session, "Go.", engine=Router(routing_of(["a", "b"])))
    assert (result.state, result.reply) == ("completed", "From b.")
    second, first = world.store.runs(session)
    assert [(run.engine, run.state) for run in (first, second)] == [("a", "failed"), ("b", "completed")]
    assert second.retry_of == first.id
    assert texts(world.events(session)) == ["Go.", "From b."]


def test_a_failure_that_will_not_pass_is_the_answer(world: World, known: dict[str, Engine]) -> None:
    known.update(a=Named("a", Fail(reason="wrong key")), b=Named("b", Say(text="From b.")))
    session = world.log.start("x").id
    result = world.log.run(session, "Go.", engine=Router(routing_of(["a", "b"])))
    assert (result.state, result.reason) == ("failed", "wrong key")
    assert len(world.store.runs(session)) == 1


def test_an_engine_that_called_a_tool_is_not_followed_by_another(
    world: World, known: dict[str, Engine]
) -> None:
    known.update(a=Named("a", Call(name="make"), BUSY), b=Named("b", Say(text="From b.")))
    session = world.log.start("x").id
    result = world.log.run(session, "Go.", engine=Router(routing_of(["a", "b"])))
    assert (result.state, result.retryable) == ("failed", False)
    assert len(world.store.runs(session)) == 1


def test_what_the_first_had_begun_to_say_stays_in_the_log_as_interrupted(
    world: World, known: dict[str, Engine]
) -> None:
    known.update(a=Named("a", Mutter(text="I think"), BUSY), b=Named("b", Say(text="From b.")))
    session = world.log.start("x").id
    world.log.run(session, "Go.", engine=Router(routing_of(["a", "b"])))
    assert texts(world.events(session)) == ["Go.", "I think", "From b."]


def test_one_that_cannot_run_here_is_passed_over(world: World, known: dict[str, Engine]) -> None:
    known.update(a=Named("a", why="it is not installed"), b=Named("b", Say(text="From b.")))
    session = world.log.start("x").id
    router = Router(routing_of(["a", "b"]))
    assert world.log.run(session, "Go.", engine=router).reply == "From b."
    assert [run.engine for run in world.store.runs(session)] == ["b"]


def test_when_none_can_run_the_reason_is_told_and_nothing_is_stored(
    world: World, known: dict[str, Engine]
) -> None:
    known.update(a=Named("a", why="it is not installed"))
    session = world.log.start("x").id
    with pytest.raises(EngineUnavailable, match="it is not installed"):
        world.log.run(session, "Go.", engine=Router(routing_of(["a"])))
    assert not world.store.runs(session)


def test_when_all_fail_the_last_failure_is_the_answer(world: World, known: dict[str, Engine]) -> None:
    known.update(a=Named("a", BUSY), b=Named("b", BUSY), c=Named("c", BUSY), d=Named("d", Say(text="d")))
    session = world.log.start("x").id
    result = world.log.run(session, "Go.", engine=Router(routing_of(["a", "b", "c", "d"])))
    assert (result.state, len(world.store.runs(session))) == ("failed", 3)


def test_the_conversation_stays_with_whoever_answered(world: World, known: dict[str, Engine]) -> None:
    known.update(a=Named("a", BUSY), b=Named("b", Say(text="From b.")))
    session = world.log.start("x").id
    router = Router(routing_of(["a", "b"]))
    world.log.run(session, "one", engine=router)
    world.log.run(session, "two", engine=router)
    assert [run.engine for run in reversed(world.store.runs(session))] == ["a", "b", "b"]
