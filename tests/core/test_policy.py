"""Policies: limits are exceeded only by more, each violation is told once, and several policies become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.bodies import Usage
from onward.core.policy import ACTIONS, Policy, ToolRule, Watch, merged
from onward.errors import InvalidInput


def allow(*tools: str) -> ToolRule:
    return ToolRule(effect="allow", tools=tools)


def deny(*tools: str) -> ToolRule:
    return ToolRule(effect="deny", tools=tools)


def test_a_limit_is_exceeded_only_by_more_than_it_allows() -> None:
    watch = Watch(Policy(max_tool_calls=2))
    assert watch.called("a") == ()
    assert watch.called("a") == ()
    (over,) = watch.called("a")
    assert (over.rule, over.limit, over.found) == ("max_tool_calls", 2, 3)


@given(st.lists(st.integers(0, 500), max_size=30), st.integers(1, 400))
def test_a_limit_is_told_once_and_exactly_when_it_is_first_exceeded(counts: list[int], limit: int) -> None:
    watch = Watch(Policy(max_total_tokens=limit))
    told = [bool(watch.measured(Usage(input_tokens=n))) for n in counts]
    expected = [n > limit and all(before <= limit for before in counts[:at]) for at, n in enumerate(counts)]
    assert told == expected


def test_a_denied_tool_is_told_at_each_call_of_it() -> None:
    watch = Watch(Policy(name="careful", rules=(deny("Bash", "mcp__*"),)))
    assert watch.called("Read") == ()
    assert [v.tool for v in watch.called("Bash")] == ["Bash"]
    assert [v.tool for v in watch.called("mcp__files__write")] == ["mcp__files__write"]
    assert watch.called("Bash")[0].told() == "Policy “careful” does not allow the tool Bash."


def test_an_allow_rule_refuses_whatever_it_does_not_name() -> None:
    policy = Policy(rules=(allow("Read", "Grep"), allow("Read", "Edit"), deny("Edit")))
    assert policy.permits("Read")
    assert not policy.permits("Grep")
    assert not policy.permits("Edit")
    assert policy.allowed() == ("Read",)
    assert policy.denied() == ("Edit",)


def test_without_an_allow_rule_any_tool_may_be_used() -> None:
    assert Policy(rules=(deny("x"),)).allowed() is None


def test_tokens_and_cost_are_judged_from_what_was_measured() -> None:
    watch = Watch(Policy(max_total_tokens=100, max_cost_usd=0.5))
    over = watch.measured(Usage(input_tokens=90, output_tokens=11, cost_usd=0.6))
    assert [v.rule for v in over] == ["max_total_tokens", "max_cost_usd"]
    assert "100 tokens" in over[0].told()
    assert "$0.6000" in over[1].told()


def test_a_cost_that_nobody_knows_exceeds_no_limit() -> None:
    assert Watch(Policy(max_cost_usd=0.0)).measured(Usage(input_tokens=10**9)) == ()
    assert Watch(Policy(max_cost_usd=0.0)).measured(Usage(input_tokens=1), cost=0.01) != ()


def test_time_is_judged_from_the_seconds_that_were_told() -> None:
    watch = Watch(Policy(max_seconds=5.0))
    assert watch.elapsed(5.0) == ()
    assert [v.rule for v in watch.elapsed(5.1)] == ["max_seconds"]
    assert watch.elapsed(60.0) == ()


@pytest.mark.parametrize(
    "given",
    [
        {"max_total_tokens": 0},
        {"max_tool_calls": 0},
        {"max_seconds": -1.0},
        {"max_cost_usd": -0.1},
        {"max_seconds": float("nan")},
        {"max_cost_usd": float("nan")},
        {"rules": (allow(),)},
        {"rules": (allow("Bash"), deny("Bash"))},
    ],
)
def test_a_policy_that_nothing_could_satisfy_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Policy(**given)  # type: ignore[arg-type]


def test_merging_joins_names_adds_rules_and_takes_the_strictest_action_and_the_later_limit() -> None:
    first = Policy(name="a", max_tool_calls=5, max_seconds=9, rules=(allow("x", "y"),), action="warn")
    second = Policy(name="b", max_tool_calls=3, rules=(deny("y"),), action="ask")
    both = merged([first, second])
    assert both is not None
    assert (both.name, both.max_tool_calls, both.max_seconds, both.action) == ("a + b", 3, 9, "ask")
    assert both.permits("x")
    assert not both.permits("y")
    assert merged([]) is None


def test_merging_refuses_what_together_allows_nothing() -> None:
    with pytest.raises(InvalidInput, match="allows and denies Bash"):
        merged([Policy(rules=(allow("Bash"),)), Policy(rules=(deny("Bash"),))])


@given(st.lists(st.sampled_from(ACTIONS), min_size=1))
def test_the_merged_action_is_never_milder_than_any(actions: list[str]) -> None:
    both = merged([Policy(action=action) for action in actions])  # type: ignore[arg-type]
    assert both is not None
    assert ACTIONS.index(both.action) == max(ACTIONS.index(action) for action in actions)
