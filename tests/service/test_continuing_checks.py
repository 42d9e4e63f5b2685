"""The checks of continuing, in the design's order, through the verb that everybody calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.service.conversations import CITING, COMMAND, World, queued

from onward.core.bodies import Pin, Pins, Plan, PlanStep
from onward.core.continuing_command import Command, parse_command
from onward.core.manifest import Handoff
from onward.errors import (
    BudgetTooSmall,
    ContinuationLoop,
    DelegatedChild,
    InvalidContinuation,
    LimitExceeded,
    NothingToContinue,
    OnwardError,
    RateLimited,
    SessionArchived,
    SourceNotFound,
    TooManySuccessors,
    UnresolvedWork,
)

Spoil = Callable[[World, str, dict[str, Any]], None]


def bad_shape(world: World, session_id: str, given: dict[str, Any]) -> None:
    given["reason"] = "boredom"


def child(world: World, session_id: str, given: dict[str, Any]) -> None:
    given["_session"] = delegated(world, session_id)


def delegated(world: World, parent: str) -> str:
    session = world.log.start("Delegated", parent=parent, engine="script")
    world.say(session.id, "Do this part.")
    return session.id


def eight_successors(world: World, session_id: str, given: dict[str, Any]) -> None:
    for number in range(8):
        world.log.continue_session(session_id, COMMAND, key=f"earlier {number}")


def missing_source(world: World, session_id: str, given: dict[str, Any]) -> None:
    given["sources"] = [{"from_seq": 9999}]


def open_call(world: World, session_id: str, given: dict[str, Any]) -> None:
    world.call(session_id)


def small_budget(world: World, session_id: str, given: dict[str, Any]) -> None:
    given["_budget"] = 70


IN_ORDER: list[tuple[Spoil, type[OnwardError]]] = [
    (bad_shape, InvalidContinuation),
    (child, DelegatedChild),
    (eight_successors, TooManySuccessors),
    (missing_source, SourceNotFound),
    (open_call, UnresolvedWork),
    (small_budget, BudgetTooSmall),
]


@pytest.mark.requirement("C2", "C3")
@pytest.mark.parametrize("first", range(len(IN_ORDER)), ids=[spoil.__name__ for spoil, _ in IN_ORDER])
def test_of_everything_that_is_wrong_the_first_check_of_the_order_answers(world: World, first: int) -> None:
    session_id = world.conversation()
    given: dict[str, Any] = dict(COMMAND)
    for spoil, _ in IN_ORDER[first:]:
        spoil(world, session_id, given)
    target = given.pop("_session", session_id)
    budget = given.pop("_budget", None)
    before = world.everything()
    with pytest.raises(IN_ORDER[first][1]):
        world.log.continue_session(target, given, key="new", budget=budget)
    assert world.everything() == before


@pytest.mark.requirement("C3")
def test_a_key_that_was_used_answers_before_any_check_looks_at_the_command(world: World) -> None:
    session_id = world.conversation()
    made = world.log.continue_session(session_id, CITING, key="k")
    again = world.log.continue_session(session_id, {"reason": "nonsense"}, key="k", budget=1)
    assert again == msgspec.structs.replace(made, repeated=True)


@pytest.mark.requirement("C3")
def test_the_same_key_gives_the_same_successor_after_the_store_was_reopened(world: World) -> None:
    session_id = world.conversation()
    made = world.log.continue_session(session_id, CITING, key="k")
    world.reopen()
    assert world.log.continue_session(session_id, COMMAND, key="k") == msgspec.structs.replace(
        made, repeated=True
    )
    assert len(world.store.links(session_id)) == 1


@pytest.mark.requirement("C3")
def test_a_repeated_key_names_the_first_run_even_when_older_input_moved_along_and_it_was_tried_again(
    world: World,
) -> None:
    session_id = world.conversation()
    moved = queued(world.log, session_id)
    world.clock.tick()
    given = {**COMMAND, "transfer": {"pending_runs": [moved.id]}}
    made = world.log.continue_session(session_id, given, key="k")
    assert world.log.run(made.successor, engine="script").run == made.run
    for _ in range(120):
        world.log.cancel(queued(world.log, made.successor).id)
    assert world.log.continue_session(session_id, COMMAND, key="k").run == made.run


@pytest.mark.requirement("C3")
def test_without_a_key_every_command_is_new(world: World) -> None:
    session_id = world.conversation()
    one, two = (world.log.continue_session(session_id, COMMAND) for _ in range(2))
    assert one.successor != two.successor


@pytest.mark.parametrize("key", ["", "k" * 201])
def test_a_key_that_could_not_be_kept_is_refused_with_its_limit(world: World, key: str) -> None:
    with pytest.raises(LimitExceeded, match="1 to 200"):
        world.log.continue_session(world.conversation(), COMMAND, key=key)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"reason": "boredom"}, InvalidContinuation),
        ({"title": " "}, InvalidContinuation),
        ({"title": "t" * 121}, LimitExceeded),
        ({"description": "é" * 513}, LimitExceeded),
        ({"handoff": {"current_request": "no purpose"}}, InvalidContinuation),
        ({"handoff": {"purpose": "p", "decisions": ["without any source"]}}, InvalidContinuation),
        ({"sources": [{"from_seq": 1}] * 65}, LimitExceeded),
        ({"sources": [{"from_seq": 3, "to_seq": 2}]}, InvalidContinuation),
        ({"transfer": {"plan": "burn"}}, InvalidContinuation),
    ],
)
def test_a_command_that_is_not_well_formed_is_refused_whole(
    world: World, change: dict[str, Any], error: type[OnwardError]
) -> None:
    session_id = world.conversation()
    before = world.everything()
    with pytest.raises(error):
        world.log.continue_session(session_id, {**COMMAND, **change})
    assert world.everything() == before


@pytest.mark.parametrize(
    "command",
    [
        Command(reason="boredom", title="t", handoff=Handoff(purpose="p")),
        Command(reason="other", title="", handoff=Handoff(purpose="p")),
        Command(reason="other", title="t", handoff=Handoff(purpose="")),
        Command(reason="other", title="t", handoff=Handoff(purpose="p", decisions=("no source",))),
    ],
    ids=["reason", "title", "purpose", "sources"],
)
def test_a_command_built_in_python_is_held_to_the_same_shape(world: World, command: Command) -> None:
    with pytest.raises(InvalidContinuation):
        world.log.continue_session(world.conversation(), command)


def test_a_command_built_in_python_means_what_the_same_one_read_from_json_means(world: World) -> None:
    session_id = world.conversation()
    made = [
        world.log.manifest(world.log.continue_session(session_id, command).successor)
        for command in (CITING, parse_command(CITING))
    ]
    assert made[0].handoff == made[1].handoff
    assert made[0].sources == made[1].sources
    assert made[0].adjusted == made[1].adjusted


@pytest.mark.requirement("C8")
def test_a_successor_cannot_be_continued_before_somebody_has_spoken_there(world: World) -> None:
    made = world.log.continue_session(world.conversation(), COMMAND)
    with pytest.raises(ContinuationLoop):
        world.log.continue_session(made.successor, COMMAND)
    world.log.run(made.successor, engine="script")
    with pytest.raises(ContinuationLoop):
        world.log.continue_session(made.successor, COMMAND)
    world.log.run(made.successor, "And now something else.", engine="script")
    world.log.continue_session(made.successor, COMMAND)


@pytest.mark.requirement("C8")
def test_a_lineage_is_continued_at_most_so_often_in_ten_minutes_and_then_again(world: World) -> None:
    current = world.conversation()
    for _ in range(20):
        current = world.log.continue_session(current, COMMAND).successor
        world.log.run(current, engine="script")
        world.say(current, "Next.")
    with pytest.raises(RateLimited) as refused:
        world.log.continue_session(current, COMMAND)
    assert refused.value.retryable
    world.clock.tick(601)
    world.log.continue_session(current, COMMAND)


def test_a_session_in_which_nobody_spoke_has_nothing_to_carry_over(world: World) -> None:
    session = world.log.start("Empty", engine="script")
    world.say(session.id, "I begin by myself.", actor="agent")
    world.say(session.id, "<local-command>/clear</local-command>", aside=True)
    with pytest.raises(NothingToContinue):
        world.log.continue_session(session.id, COMMAND)


@pytest.mark.requirement("C4")
def test_the_newest_message_of_a_trigger_can_be_what_a_continuation_carries(world: World) -> None:
    session_id = world.conversation()
    asked = world.say(session_id, "The nightly build failed.", actor="trigger")
    made = world.log.continue_session(session_id, COMMAND)
    copy = next(e for e in world.events(made.successor) if e.kind == "message")
    assert copy.actor == "trigger"
    assert world.log.manifest(made.successor).initiating.event == asked.id


def test_an_archived_session_is_not_continued(world: World) -> None:
    session_id = world.conversation()
    world.log.archive(session_id)
    with pytest.raises(SessionArchived):
        world.log.continue_session(session_id, COMMAND)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"from_seq": 4, "to_seq": 400}, "has events 1 to"),
        ({"from_event": "evt_00000000000000000000000000"}, "no event"),
        ({"session": "ses_00000000000000000000000000", "from_seq": 1}, "no session"),
    ],
)
def test_a_source_that_cannot_be_had_is_named_by_its_number(
    world: World, source: dict[str, Any], why: str
) -> None:
    with pytest.raises(SourceNotFound, match=why) as refused:
        world.log.continue_session(world.conversation(), {**COMMAND, "sources": [{"from_seq": 1}, source]})
    assert refused.value.details["index"] == 2


def test_events_may_be_cited_by_id_or_by_number_and_both_are_kept(world: World) -> None:
    session_id = world.conversation()
    second, third = world.events(session_id)[1:3]
    by_id = {**COMMAND, "sources": [{"from_event": second.id, "to_event": third.id}]}
    by_number = {**COMMAND, "sources": [{"from_seq": 2, "to_seq": 3}]}
    for given in (by_id, by_number):
        source = world.log.manifest(world.log.continue_session(session_id, given).successor).sources[0]
        assert (source.from_event, source.to_event) == (second.id, third.id)
        assert (source.from_seq, source.to_seq) == (2, 3)


def test_a_pin_that_is_not_there_cannot_be_carried(world: World) -> None:
    session_id = world.conversation()
    given = {**COMMAND, "transfer": {"pinned_tools": ["grep"]}}
    with pytest.raises(InvalidContinuation, match="grep"):
        world.log.continue_session(session_id, given)
    world.log.set_state(session_id, Pins(revision=1, pins=(Pin(kind="tool", name="find"),)))
    with pytest.raises(InvalidContinuation, match="grep"):
        world.log.continue_session(session_id, given)


@pytest.mark.requirement("P3")
def test_a_budget_that_the_fixed_parts_exceed_is_refused_with_numbers_before_anything_is_written(
    world: World,
) -> None:
    session_id = world.conversation()
    world.log.set_state(session_id, Plan(revision=1, steps=(PlanStep(id="s1", text="long " * 400),)))
    before = world.everything()
    with pytest.raises(BudgetTooSmall) as refused:
        world.log.continue_session(session_id, COMMAND, budget=500)
    assert refused.value.details["needed"] > refused.value.details["budget"] == 500
    assert world.everything() == before
    with pytest.raises(LimitExceeded):
        world.log.continue_session(session_id, COMMAND, budget=1)
