"""Events: what the chain finds, what an erasure leaves, and how times are written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.histories import SESSION, histories, sealed, user

from onward.core import digests
from onward.core.codec import Erased, body_of, encode
from onward.core.digests import GENESIS
from onward.core.events import (
    ACTORS,
    KINDS,
    ONWARD,
    Event,
    NewEvent,
    Source,
    encode_source,
    fault_in,
    iso,
    micros,
    seal,
)


def first_fault(events: list[Event]) -> tuple[int, str] | None:
    """The place (from 0) and the words of the first fault, as a verification walks a session."""
    chain = GENESIS
    for place, event in enumerate(events):
        if why := fault_in(event, place + 1, chain):
            return place, why
        chain = event.chain
    return None


anything = st.text(st.characters(codec=None), max_size=12)
new_events = st.builds(
    NewEvent,
    id=anything,
    at=st.integers(-(2**62), 2**62),
    kind=st.sampled_from(KINDS) | anything,
    actor=st.sampled_from(ACTORS) | anything,
    body=st.binary(max_size=60),
    salt=st.binary(min_size=16, max_size=16),
    source=st.builds(Source, producer=anything, engine=st.none() | anything, place=st.none() | anything),
    run_id=st.none() | anything.filter(bool),
)


def chained(news: list[NewEvent]) -> list[Event]:
    out: list[Event] = []
    for n, new in enumerate(news, 1):
        out.append(seal(new, SESSION, n, out[-1].chain if out else GENESIS))
    return out


@pytest.mark.requirement("L2")
@given(st.lists(new_events, max_size=6))
def test_what_was_sealed_verifies_and_keeps_its_body(news: list[NewEvent]) -> None:
    events = chained(news)
    assert first_fault(events) is None
    assert [e.body for e in events] == [n.body for n in news]


@pytest.mark.requirement("L2")
@given(st.lists(new_events, min_size=1, max_size=5), st.data())
def test_a_change_in_any_field_of_any_event_is_found_there(news: list[NewEvent], data: st.DataObject) -> None:
    events = chained(news)
    at = data.draw(st.integers(0, len(events) - 1))
    field = data.draw(
        st.sampled_from(
            "id session_id seq at kind actor run_id source body salt digest chain".split()  # noqa: SIM905
        )
    )
    before = getattr(events[at], field)
    changed: Any
    if isinstance(before, bytes):
        where = data.draw(st.integers(0, len(before)))
        bit = data.draw(st.integers(0, 7))
        changed = (
            before[:where] + bytes([before[where] ^ 1 << bit]) + before[where + 1 :]
            if where < len(before)
            else before + b"\x00"
        )
    elif isinstance(before, int):
        changed = before + data.draw(st.integers(-1000, 1000).filter(bool))
    elif isinstance(before, Source):
        changed = msgspec.structs.replace(before, producer=before.producer + "x")
    else:
        changed = (before or "") + "x"
    events[at] = msgspec.structs.replace(events[at], **{field: changed})
    found = first_fault(events)
    assert found is not None
    assert found[0] == at


@pytest.mark.requirement("L1", "L2")
@given(st.lists(new_events, min_size=2, max_size=6), st.data())
def test_a_removed_event_and_a_swapped_pair_are_found(news: list[NewEvent], data: st.DataObject) -> None:
    events = chained(news)
    at = data.draw(st.integers(0, len(events) - 2))
    without = events[:at] + events[at + 1 :]
    assert first_fault(without) is not None
    # Whoever removes an event and counts anew is found by the chain.
    renumbered = [msgspec.structs.replace(e, seq=n) for n, e in enumerate(without, 1)]
    assert first_fault(renumbered) is not None
    swapped = [*events]
    swapped[at], swapped[at + 1] = swapped[at + 1], swapped[at]
    assert first_fault(swapped) == (
        at,
        f"expected event {at + 1}, found {at + 2}: an event was removed or moved",
    )
    places = [msgspec.structs.replace(e, seq=n) for n, e in enumerate(swapped, 1)]
    assert first_fault(places) is not None


def test_a_log_that_lost_its_end_verifies_so_the_session_remembers_its_head() -> None:
    events = sealed([user("a"), user("b")])
    assert first_fault(events[:1]) is None
    assert events[0].chain != events[1].chain


@pytest.mark.requirement("L5")
@given(histories, st.data())
def test_erased_events_still_verify_and_say_that_they_were_erased(said: Any, data: st.DataObject) -> None:
    events = sealed(said)
    gone = data.draw(st.sets(st.integers(0, len(events) - 1))) if events else set()
    tombstone = encode(Erased(reason="a key had leaked"))
    after = [
        msgspec.structs.replace(e, body=tombstone, salt=b"") if n in gone else e for n, e in enumerate(events)
    ]
    assert first_fault(after) is None
    for n in gone:
        assert after[n].erased
        assert body_of(after[n]) == Erased(reason="a key had leaked")
        assert after[n].digest == events[n].digest


@pytest.mark.requirement("L5")
@pytest.mark.parametrize("tombstone", [b"", b"\xff", b"[]", b"[" * 5000, b'{"reason": 5}'])
def test_a_tombstone_that_cannot_be_read_is_still_an_erased_body(tombstone: bytes) -> None:
    event = msgspec.structs.replace(sealed([user("a")])[0], body=tombstone, salt=b"")
    assert body_of(event) == Erased()


@pytest.mark.requirement("L5")
@given(st.binary(max_size=20), st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_the_digest_that_stays_depends_on_the_salt_that_went(body: bytes, salt: bytes, other: bytes) -> None:
    assert (digests.body_digest(salt, body) == digests.body_digest(other, body)) == (salt == other)


headers = st.tuples(
    anything,
    anything,
    st.integers(1, 99),
    st.integers(0, 99),
    anything,
    anything,
    anything,
    st.binary(max_size=5),
)


@pytest.mark.requirement("L2")
@given(headers, headers)
def test_no_two_different_envelopes_share_a_header(a: Any, b: Any) -> None:
    assert (digests.header_bytes(*a) == digests.header_bytes(*b)) == (a == b)


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("place", [0, 4, 5])
def test_a_letter_that_moves_from_one_field_to_the_next_moves_the_header(place: int) -> None:
    # "k" before "a1:b" and "k4:a" before "b" are the same characters, were it not for the length in front of the first.
    one: list[Any] = ["i", "s", 1, 2, "k", "a", "r", b"s"]
    other = [*one]
    one[place], one[place + 1] = "k", "a1:b"
    other[place], other[place + 1] = "k4:a", "b"
    assert digests.header_bytes(*one) != digests.header_bytes(*other)


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_a_time_is_exact_to_the_microsecond_in_every_form(at: int) -> None:
    event = msgspec.structs.replace(sealed([user("a")])[0], at=at)
    assert micros(event.time) == at
    assert micros(datetime.fromisoformat(iso(at))) == at


def test_a_time_beyond_any_calendar_is_written_as_a_number() -> None:
    assert iso(10**20) == "100000000000000000000us"


def test_a_moment_without_a_zone_is_taken_as_utc() -> None:
    assert micros(datetime(2026, 1, 1)) == micros(datetime(2026, 1, 1, tzinfo=UTC))  # noqa: DTZ001


@given(st.builds(Source, producer=anything, engine=anything, native_id=anything, place=anything))
def test_any_source_has_bytes_that_can_be_read_back_and_sealed_again(source: Source) -> None:
    stored = encode_source(source)
    again = msgspec.json.decode(stored, type=Source)
    assert encode_source(again) == stored


def test_the_two_commonest_sources_are_written_like_any_other() -> None:
    assert encode_source(ONWARD) == b'{"producer":"onward"}'
