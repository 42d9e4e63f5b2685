"""Routing: who is tried first, who rests, whose circuit is open, and with whom a conversation stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.routing import Route, Router, Routing, routing_of
from onward.errors import InvalidInput

SES = "ses_a"


def router(**options: object) -> Router:
    routes = tuple(Route(engine=name) for name in ("a", "b", "c"))
    return Router(Routing(routes=routes, **options))  # type: ignore[arg-type]


def test_preferred_engines_come_in_the_order_given() -> None:
    assert router().order(SES, 0.0) == ("a", "b", "c")
    assert router(attempts=2).order(SES, 0.0) == ("a", "b")
    assert router().order(SES, 0.0, exclude=("a",)) == ("b", "c")


def test_weights_decide_and_each_failure_costs_half_a_point() -> None:
    routing = routing_of(["a=1", "b=1.2", "c=1.2"])
    found = Router(routing)
    assert found.order(SES, 0.0) == ("b", "c", "a")
    found.failed("b", 0.0)
    assert found.order(SES, 1000.0) == ("c", "a", "b")


def test_an_engine_that_failed_rests_and_comes_last_meanwhile() -> None:
    found = router(cooldown=30.0)
    found.failed("a", 100.0)
    assert found.order(SES, 129.9) == ("b", "c", "a")
    assert found.order(SES, 130.0) == ("a", "b", "c")


def test_a_circuit_opens_after_failures_in_a_row_and_lets_one_attempt_through_later() -> None:
    found = router(breaker=2, open_for=60.0, cooldown=0.0)
    found.failed("a", 0.0)
    assert found.state("a", 0.0) == "closed"
    found.failed("a", 1.0)
    assert found.state("a", 1.0) == "open"
    assert found.order(SES, 2.0) == ("b", "c")
    assert found.state("a", 61.0) == "half_open"
    assert found.order(SES, 61.0) == ("a", "b", "c")
    found.trying("a", 61.0)
    assert found.order("ses_b", 62.0) == ("b", "c")
    found.succeeded("a", SES, 63.0)
    assert found.state("a", 63.0) == "closed"


def test_when_every_circuit_is_open_somebody_is_tried_all_the_same() -> None:
    found = router(breaker=1)
    for engine in ("a", "b", "c"):
        found.failed(engine, 0.0)
    assert found.order(SES, 1.0) == ("a", "b", "c")


def test_a_conversation_stays_with_the_engine_that_answered_it_for_a_while() -> None:
    found = router(sticky=300.0)
    found.succeeded("c", SES, 0.0)
    assert found.order(SES, 299.0) == ("c", "a", "b")
    assert found.order("ses_b", 299.0) == ("a", "b", "c")
    assert found.order(SES, 300.0) == ("a", "b", "c")


def test_a_success_forgets_the_failures_before_it() -> None:
    found = router(breaker=2)
    found.failed("a", 0.0)
    found.succeeded("a", SES, 1.0)
    found.failed("a", 2.0)
    assert found.state("a", 2.0) == "closed"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40))
def test_somebody_is_always_tried_and_nobody_twice(history: list[tuple[str, bool]]) -> None:
    found = router(breaker=2)
    for now, (engine, well) in enumerate(history):
        if well:
            found.succeeded(engine, SES, float(now))
        else:
            found.failed(engine, float(now))
        order = found.order(SES, float(now))
        assert order
        assert len(set(order)) == len(order)


@pytest.mark.parametrize("names", [[], ["a", "a"], ["a=heavy"]])
def test_a_routing_that_leads_nowhere_is_refused(names: list[str]) -> None:
    with pytest.raises(InvalidInput):
        routing_of(names)
