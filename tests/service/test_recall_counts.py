"""What recalls add up to: per session, per compiler and reason, and per address for the next recommendation."""

from __future__ import annotations

import pytest
from tests.service.conversations import CITING, World

from onward.core.manifest import COMPILER, Manifest
from onward.service import recalling
from onward.service.recounting import often_recalled, recall_rates, recall_report


def succeeded(
    world: World, reason: str = "topic_change", session: str | None = None
) -> tuple[str, str, Manifest]:
    """A session with a long past, its successor, and what that was given."""
    session = session or world.conversation(60)
    made = world.log.continue_session(session, {**CITING, "reason": reason}, budget=1500)
    return session, made.successor, world.log.manifest(made.successor)


def left_out(record: Manifest) -> str:
    """The address of one event that a projection left out for its size."""
    address = next(o.address for o in record.omitted if o.cause == "budget")
    session, _, span = address.partition(":")
    return f"{session}:{span.partition('-')[0]}"


def test_a_session_that_recalled_nothing_counts_as_a_continuation_with_rate_zero(world: World) -> None:
    succeeded(world)
    (rate,) = recall_rates(world.platform)
    assert (rate.compiler, rate.reason, rate.continuations, rate.recalls, rate.of_omitted, rate.rate) == (
        COMPILER, "topic_change", 1, 0, 0, 0.0,
    )  # fmt: skip


def test_rates_are_by_compiler_and_reason_over_the_whole_account(world: World) -> None:
    _, one, record = succeeded(world)
    recalling.read_at(world.platform, left_out(record), asked_by=one)
    recalling.read_at(world.platform, f"{one}:1", asked_by=one)
    succeeded(world)
    succeeded(world, "phase_change")
    world.conversation(1)
    rates = recall_rates(world.platform)
    assert [(r.reason, r.continuations, r.recalls, r.of_omitted, r.rate) for r in rates] == [
        ("phase_change", 1, 0, 0, 0.0),
        ("topic_change", 2, 2, 1, 0.5),
    ]


@pytest.mark.requirement("A1")
def test_rates_count_no_other_account(world: World) -> None:
    succeeded(world)
    assert recall_rates(world.acting("acc_0000000000000000000000000B").platform) == ()


def test_the_report_names_what_was_left_out_and_asked_for_again(world: World) -> None:
    _, successor, record = succeeded(world)
    address = left_out(record)
    for _ in range(2):
        recalling.read_at(world.platform, address, asked_by=successor)
    report = recall_report(world.platform, successor)
    assert (report.recalls, report.of_omitted, report.asked_again) == (2, 2, {address: 2})
    assert (report.compiler, report.reason) == (COMPILER, "topic_change")


def test_an_address_that_was_read_again_is_recommended_to_everyone_after(world: World) -> None:
    session, successor, record = succeeded(world)
    address = left_out(record)
    assert often_recalled(world.platform, successor) == []
    recalling.read_at(world.platform, address, asked_by=successor)
    # To the session itself, which may go on elsewhere, and to whoever continues the predecessor again.
    assert often_recalled(world.platform, successor) == [address]
    assert often_recalled(world.platform, session) == [address]
    world.say(session, "Once more.")
    _, sibling, _ = succeeded(world, session=session)
    assert often_recalled(world.platform, sibling) == [address]


def test_one_search_is_no_demand_and_two_are(world: World) -> None:
    _, successor, _ = succeeded(world)
    recalling.search(world.platform, "question 3 parser", session_id=successor, limit=9, asked_by=successor)
    found = recall_report(world.platform, successor).asked_again
    assert found
    assert often_recalled(world.platform, successor) == []
    recalling.search(world.platform, "question 3 parser", session_id=successor, limit=9, asked_by=successor)
    assert often_recalled(world.platform, successor) == sorted(found)


def test_what_was_read_more_often_comes_first_and_the_list_is_bounded(world: World) -> None:
    session, successor, record = succeeded(world)
    address = next(o.address for o in record.omitted if o.cause == "budget" and "-" in o.address)
    first, last = map(int, address.partition(":")[2].split("-"))
    for number in range(first, last + 1):
        recalling.read_at(world.platform, f"{session}:{number}", asked_by=successor)
    recalling.read_at(world.platform, f"{session}:{last}", asked_by=successor)
    often = often_recalled(world.platform, successor)
    assert often[0] == f"{session}:{last}"
    assert len(often) == min(32, last - first + 1)
