"""The meter: what was measured over what fits, and two notices that say so in plain words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onward.core import pressure
from onward.core.bodies import NOTICE_LIMIT, Usage
from onward.core.pressure import Pressure

TOKENS = st.integers(0, 10**9)


def test_without_a_measurement_or_a_window_there_is_no_reading() -> None:
    for usage in (
        None,
        Usage(),
        Usage(window=1000),
        Usage(context_tokens=700),
        Usage(context_tokens=700, window=0),
        Usage(input_tokens=700, window=1000),
    ):
        assert pressure.reading(usage) is None


def test_the_newest_request_is_read_and_not_the_sum_of_all() -> None:
    usage = Usage(input_tokens=1900, context_tokens=650, window=1000)
    assert pressure.reading(usage, one_request=True) == Pressure(tokens=650, window=1000, share=0.65)


def test_a_sum_counts_where_there_was_a_single_request() -> None:
    usage = Usage(input_tokens=700)
    assert pressure.reading(usage, window=1000, one_request=True) == Pressure(
        tokens=700, window=1000, share=0.7
    )


@given(tokens=TOKENS, window=st.integers(1, 10**9))
def test_a_threshold_is_reached_exactly_where_its_share_is(tokens: int, window: int) -> None:
    found = pressure.reading(Usage(context_tokens=tokens, window=window))
    assert found is not None
    expected = 0.85 if tokens >= 0.85 * window else 0.70 if tokens >= 0.70 * window else None
    assert pressure.reached(found) == expected


@given(tokens=TOKENS, window=st.integers(1, 10**9))
def test_whatever_was_measured_a_notice_shows_collapsed(tokens: int, window: int) -> None:
    found = pressure.reading(Usage(context_tokens=tokens, window=window))
    assert found is not None
    for threshold in pressure.THRESHOLDS:
        said = pressure.notice(found, threshold)
        assert len(said.summary) <= NOTICE_LIMIT
        assert f"{found.tokens:,} of {found.window:,}" in said.text
    assert pressure.notice(found, 0.70).summary != pressure.notice(found, 0.85).summary


def test_each_threshold_of_each_session_has_one_id() -> None:
    ids = {pressure.notice_id(session, 5, t) for session in ("ses_a", "ses_b") for t in pressure.THRESHOLDS}
    assert len(ids) == 4
    assert pressure.notice_id("ses_a", 5, 0.85) in ids
