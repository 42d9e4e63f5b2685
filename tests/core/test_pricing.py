"""Pricing: the engine's own figure first, then the closest rate; what has no rate is counted as such."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.bodies import Usage
from onward.core.pricing import Rate, cost_of, rate_of, spent
from onward.errors import InvalidInput

PLAIN = Rate(input=3.0, output=15.0)
CACHED = Rate(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)


def test_the_exact_name_goes_before_the_longest_prefix_before_the_engine() -> None:
    rates = {
        "m": PLAIN,
        "m-large": CACHED,
        "m-large-9": Rate(input=1, output=1),
        "codex": Rate(input=2, output=2),
    }
    assert rate_of(rates, "m-large-9") is rates["m-large-9"]
    assert rate_of(rates, "m-large-10") is CACHED
    assert rate_of(rates, "m-small") is PLAIN
    assert rate_of(rates, "other", "codex") is rates["codex"]
    assert rate_of(rates, None, "codex") is rates["codex"]
    assert rate_of(rates, "other", "pi") is None


def test_what_the_engine_says_goes_before_what_we_compute() -> None:
    assert cost_of(Usage(input_tokens=10**6, cost_usd=0.25), PLAIN) == 0.25
    assert cost_of(Usage(input_tokens=10**6, cost_usd=0.0), PLAIN) == 0.0


def test_tokens_from_a_cache_have_their_own_price_and_are_not_paid_twice() -> None:
    usage = Usage(
        input_tokens=1_000_000, cache_read_tokens=600_000, cache_write_tokens=100_000, output_tokens=10_000
    )
    assert cost_of(usage, CACHED) == pytest.approx(0.9 + 0.18 + 0.375 + 0.15)
    assert cost_of(usage, PLAIN) == pytest.approx(3.0 + 0.15)


def test_without_a_rate_the_cost_is_unknown_and_not_nothing() -> None:
    assert cost_of(Usage(input_tokens=5), None) is None
    total = spent([(Usage(input_tokens=5), None), (None, None), (Usage(output_tokens=2), 0.5)])
    assert (total.runs, total.measured, total.unpriced) == (3, 2, 1)
    assert (total.input_tokens, total.output_tokens, total.cost_usd) == (5, 2, 0.5)


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**7))
def test_a_cost_is_never_below_zero(tokens: int, out: int, read: int, written: int) -> None:
    usage = Usage(input_tokens=tokens, output_tokens=out, cache_read_tokens=read, cache_write_tokens=written)
    cost = cost_of(usage, CACHED)
    assert cost is not None
    assert cost >= 0


def test_a_price_below_zero_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cache_read"):
        Rate(input=1, output=1, cache_read=-0.1)
