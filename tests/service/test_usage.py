"""Usage: what runs say they used is added up, and what they did not say is not made up."""

from __future__ import annotations

import pytest
from tests.service.conversations import World

from onward.core.bodies import Usage
from onward.core.pricing import Rate
from onward.engines.script import Measure, Say, ScriptEngine
from onward.errors import SessionNotFound
from onward.service import usage


def spending(tokens: int, cost: float | None = None) -> ScriptEngine:
    measured = Measure(usage=Usage(input_tokens=tokens, output_tokens=10, cost_usd=cost))
    return ScriptEngine(script=[Say(text="done"), measured])


def test_the_runs_of_a_session_are_added_up(world: World) -> None:
    session = world.log.start("x").id
    world.log.run(session, "one", engine=spending(100, 0.25))
    world.log.run(session, "two", engine=spending(200))
    world.log.run(session, "three", engine=ScriptEngine(script=[Say(text="silent")]))
    found = usage.of_session(world.platform, session)
    assert (found.total.runs, found.total.measured, found.total.unpriced) == (3, 2, 1)
    assert (found.total.input_tokens, found.total.output_tokens) == (300, 20)
    assert found.total.cost_usd == 0.25
    assert found.engines["script"] == found.total
    assert found.complete
    assert [run.cost_usd for run in found.runs] == [None, None, 0.25]


def test_a_rate_prices_what_the_engine_did_not(world: World) -> None:
    session = world.log.start("x").id
    world.log.run(session, "one", engine=spending(1_000_000))
    rates = {"script": Rate(input=2.0, output=0.0)}
    assert usage.of_session(world.platform, session, rates).total.cost_usd == 2.0
    priced = usage.of_session(world.platform, session, {"other": Rate(input=2.0, output=0.0)})
    assert (priced.total.cost_usd, priced.total.unpriced) == (0.0, 1)


def test_a_rate_is_looked_up_by_the_model_that_was_asked_for(world: World) -> None:
    session = world.log.start("x").id
    world.log.run(session, "one", engine=spending(1_000_000), continuation_opts={"model": "m-large-9"})
    rates = {"m": Rate(input=1.0, output=0.0), "m-large": Rate(input=5.0, output=0.0)}
    assert usage.of_session(world.platform, session, rates).total.cost_usd == 5.0


def test_the_usage_of_another_account_is_not_there(world: World) -> None:
    session = world.log.start("x").id
    with pytest.raises(SessionNotFound):
        usage.of_session(world.acting("acc_other").platform, session)
