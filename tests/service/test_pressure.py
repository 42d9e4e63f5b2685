"""Context pressure in a session: measured at the end of a run, said once a threshold, and never inherited."""

from __future__ import annotations

from typing import Any

import pytest
from tests.service.conversations import COMMAND, World, bodies, script

from onward.core.bodies import Notice, Usage
from onward.core.pressure import Pressure
from onward.engines.contract import Capabilities
from onward.engines.script import Call, Measure, Say


def filled(world: World, session_id: str, tokens: int, **fields: Any) -> Any:
    """Run a turn whose newest request had this many tokens of a window of a thousand."""
    usage = Usage(context_tokens=tokens, window=1000, **fields)
    return world.log.run(session_id, "Go on.", engine=script(Measure(usage=usage), Say(text="Done.")))


def said(world: World, session_id: str) -> list[str]:
    return [notice.summary for notice in bodies(world.events(session_id), Notice)]


@pytest.mark.requirement("C8")
def test_there_is_no_reading_before_a_first_measurement(world: World) -> None:
    session_id = world.conversation()
    assert world.log.pressure(session_id) is None
    result = world.log.run(session_id, "Hello.", engine=script(Say(text="Hello.")))
    assert result.pressure is None
    assert world.log.pressure(session_id) is None


@pytest.mark.requirement("C8")
def test_a_fresh_successor_and_a_branch_begin_without_a_reading_whatever_their_source_had(
    world: World,
) -> None:
    session_id = world.conversation()
    filled(world, session_id, 990)
    world.say(session_id, "And now?")
    made = world.log.continue_session(session_id, COMMAND)
    branch = world.log.fork(session_id)
    assert world.log.pressure(session_id) == Pressure(tokens=990, window=1000, share=0.99)
    assert world.log.pressure(made.successor) is None
    assert world.log.pressure(branch.id) is None
    assert said(world, made.successor) == []
    filled(world, made.successor, 100)
    assert world.log.pressure(made.successor) == Pressure(tokens=100, window=1000, share=0.1)


def test_each_threshold_is_said_once_at_the_end_of_the_run_that_reached_it(world: World) -> None:
    session_id = world.conversation()
    told = []
    for tokens in (500, 699, 700, 720, 849, 850, 990, 750, 990):
        result = filled(world, session_id, tokens)
        assert result.pressure == Pressure(tokens=tokens, window=1000, share=tokens / 1000)
        told.append(len(said(world, session_id)))
    assert told == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    look, act = said(world, session_id)
    assert "look for a good place" in look
    assert "before answering more" in act


def test_whoever_begins_above_the_second_threshold_is_told_the_second_alone(world: World) -> None:
    session_id = world.conversation()
    for tokens in (900, 750):
        filled(world, session_id, tokens)
    (only,) = said(world, session_id)
    assert "before answering more" in only


def test_the_agent_reads_the_notice_in_its_next_turn(world: World) -> None:
    session_id = world.conversation()
    filled(world, session_id, 860)
    result = world.log.run(session_id, "Next.", engine=script(Say(text="Yes.")))
    assert result.transcript is not None
    told = [m.content for m in result.transcript.messages if "860 of 1,000 tokens" in m.content]
    assert len(told) == 1


@pytest.mark.requirement("T2")
def test_a_notice_stands_behind_what_the_model_has_read_already(world: World) -> None:
    session_id = world.conversation()
    before = filled(world, session_id, 860).transcript.messages
    after = filled(world, session_id, 870).transcript.messages
    later = filled(world, session_id, 880).transcript.messages
    assert after[: len(before)] == before
    assert later[: len(after)] == after


def test_nothing_is_summarised_or_continued_by_itself(world: World) -> None:
    session_id = world.conversation()
    filled(world, session_id, 999)
    kinds = {event.kind for event in world.events(session_id)}
    assert "checkpoint" not in kinds
    assert world.store.links(session_id) == []


def test_of_several_requests_in_a_turn_only_the_newest_counts_and_a_bare_sum_is_not_believed(
    world: World,
) -> None:
    session_id = world.conversation()
    sums = script(
        Call(name="nothing", input={}),
        Measure(usage=Usage(input_tokens=1900, window=1000)),
        Say(text="Done."),
    )
    assert world.log.run(session_id, "Go on.", engine=sums).pressure is None
    assert said(world, session_id) == []
    assert filled(world, session_id, 650, input_tokens=1900).pressure.tokens == 650
    bare = script(Measure(usage=Usage(input_tokens=300, window=1000)), Say(text="Done."))
    assert world.log.run(session_id, "Go on.", engine=bare).pressure.tokens == 300


def test_the_window_is_that_of_the_engine_where_the_usage_names_none(world: World) -> None:
    session_id = world.conversation()
    engine = script(
        Measure(usage=Usage(context_tokens=800)), Say(text="Done."), capabilities=Capabilities(window=1000)
    )
    assert world.log.run(session_id, "Go on.", engine=engine).pressure.share == 0.8
    world.reopen()
    assert world.log.pressure(session_id) == Pressure(tokens=800, window=1000, share=0.8)
    assert len(said(world, session_id)) == 1


def test_a_turn_that_was_not_measured_leaves_the_reading_as_it_was(world: World) -> None:
    session_id = world.conversation()
    filled(world, session_id, 400)
    world.log.run(session_id, "Go on.", engine=script(Say(text="Unmeasured.")))
    assert world.log.pressure(session_id) == Pressure(tokens=400, window=1000, share=0.4)
