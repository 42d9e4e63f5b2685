"""Ids: what is packed is unpacked, order is time, derived ones repeat, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core import ids
from onward.errors import InvalidId

PREFIXES = st.sampled_from((ids.SESSION, ids.EVENT, ids.RUN, ids.LINK, ids.MANIFEST, "key"))
TIMES = st.integers(0, (1 << 48) * 1000 - 1)
ENTROPY = st.binary(min_size=10, max_size=10)


@given(PREFIXES, st.binary(min_size=16, max_size=16))
def test_sixteen_bytes_come_back_from_the_id_they_make(prefix: str, raw: bytes) -> None:
    id = ids.unpack_id(prefix, raw)
    assert ids.pack_id(id) == raw
    assert ids.check_id(id, prefix) == id
    assert len(id) == len(prefix) + 27


@given(TIMES, TIMES, ENTROPY, ENTROPY)
def test_ids_sort_by_the_millisecond_in_which_they_were_made(
    a: int, b: int, first: bytes, second: bytes
) -> None:
    one, two = ids.make_id("evt", a, first), ids.make_id("evt", b, second)
    if a // 1000 != b // 1000:
        assert (one < two) == (a < b)
    assert ids.time_of(one) == a // 1000 * 1000


@given(st.integers(-(1 << 70), -1) | st.integers((1 << 48) * 1000, 1 << 80), ENTROPY)
def test_a_time_that_no_id_can_hold_is_kept_at_the_edge(at: int, entropy: bytes) -> None:
    assert ids.time_of(ids.make_id("evt", at, entropy)) == (0 if at < 0 else ((1 << 48) - 1) * 1000)


PARTS = st.lists(st.text(st.characters(), max_size=8) | st.binary(max_size=8) | st.integers(), max_size=4)


@pytest.mark.requirement("L3")
@given(TIMES, PARTS)
def test_the_same_parts_always_derive_the_same_id(at: int, parts: list[str | bytes | int]) -> None:
    assert ids.derived_id("evt", at, *parts) == ids.derived_id("evt", at, *parts)


@given(st.lists(st.text(max_size=4), min_size=2, max_size=4))
def test_parts_that_only_read_the_same_when_joined_derive_different_ids(parts: list[str]) -> None:
    joined = ["".join(parts)]
    assert ids.derived_id("evt", 0, *parts) != ids.derived_id("evt", 0, *joined)


def test_entropy_of_another_length_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="10 bytes"):
        ids.make_id("evt", 0, b"short")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "evt",
        "evt_",
        "_" + "0" * 26,
        "0" * 26,
        "evt_" + "0" * 25,
        "evt_" + "0" * 27,
        "evt_" + "0" * 25 + "u",  # lower case
        "evt_" + "0" * 25 + "U",  # no letter of the alphabet
        "evt_" + "8" + "0" * 25,  # more than 128 bits
        "evt_" + "0" * 25 + "٣",
        "ses_" + "0" * 26,
        "evt_ses_" + "0" * 26,
        "evt_" + "0" * 26 + "\n",
        # What a number may hold and an id may not.
        "evt_" + "0" * 12 + "_" + "0" * 13,
        "evt_" + " " + "0" * 25,
        "evt_" + "0" * 25 + " ",
        "evt_" + "+" + "0" * 25,
        "evt_" + "-" + "0" * 25,
        "evt_" + "0B" + "0" * 24 + "L",
    ],
)
def test_what_is_no_event_id_is_refused_and_shown(value: str) -> None:
    with pytest.raises(InvalidId) as refused:
        ids.check_id(value, ids.EVENT)
    assert repr(value) in refused.value.message
    assert "evt_ followed by 26 characters" in refused.value.message


@given(st.text(max_size=40))
def test_any_text_is_an_id_or_is_refused_as_one(value: str) -> None:
    try:
        raw = ids.pack_id(value)
    except InvalidId:
        return
    assert ids.unpack_id(value.partition("_")[0], raw) == value
