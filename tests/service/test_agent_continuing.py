"""An agent that continues by itself: its turn ends without an answer, and its successor gives it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.service.conversations import (
    CITING,
    COMMAND,
    World,
    bodies,
    call_directive,
    halves,
    queued,
    texts,
)

from onward.core.bodies import Message, RunChange, ToolResult
from onward.core.codec import body_of, loads
from onward.engines.contract import Capabilities, Finished, Said, Started, ToolCalled, Turn
from onward.engines.script import Call, Say, ScriptEngine
from onward.errors import LeaseLost
from onward.runner import execute
from onward.service import running
from onward.service.offering import offered_tools


@pytest.mark.requirement("C1", "C4")
def test_the_turn_ends_as_continued_without_an_answer_and_the_successor_answers(world: World) -> None:
    session_id = world.conversation()
    asked = "Write the notes, please. " + call_directive(CITING)
    result = world.log.run(session_id, asked, engine="script")
    assert result.session != session_id
    assert (result.state, result.opening) == ("completed", "seeded")
    (own,) = world.store.runs(session_id)
    assert own.state == "continued"
    after = world.events(session_id)
    assert after[-1].kind == "session"
    assert not [e for e in after if e.run_id == own.id and e.kind == "message" and e.actor == "agent"]
    assert texts(world.events(result.session))[0] == asked
    assert halves(world.log) == []


def successor_says(turn: Turn) -> list[Any]:
    """Continue in the first session, answer in the next."""
    if turn.history and turn.history[0].content.startswith("You are continuing"):
        return [Say(text=f"Answered with {len(turn.history)} message of background.")]
    return [Say(text="Let me go on elsewhere."), Call(name="continue_session", input=CITING)]


def test_the_answer_is_that_of_the_successor_given_its_projection(world: World) -> None:
    session_id = world.conversation()
    result = world.log.run(session_id, "Write the notes.", engine=ScriptEngine(script=successor_says))
    assert result.reply == "Answered with 1 message of background."
    assert result.transcript is not None
    (background,) = result.transcript.messages
    assert "The parser fails on leap days." in background.content
    assert texts(world.events(session_id))[-1] == "Let me go on elsewhere."


def test_without_following_the_result_says_where_it_went_on(world: World) -> None:
    session_id = world.conversation()
    result = world.log.run(session_id, call_directive(COMMAND), engine="script", follow=False)
    assert (result.state, result.reply) == ("continued", "")
    assert result.continued_to is not None
    assert [r.state for r in world.store.runs(result.continued_to)] == ["queued"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ({**COMMAND, "reason": "boredom"}, "invalid_continuation"),
        ({**COMMAND, "handoff": {**COMMAND["handoff"], "decisions": ["d"]}}, "invalid_continuation"),
        ({**COMMAND, "title": "t" * 200}, "limit_exceeded"),
        ({**COMMAND, "sources": [{"from_seq": 5000}]}, "source_not_found"),
        ({}, "invalid_continuation"),
    ],
)
def test_a_refused_continuation_is_an_answer_and_the_turn_goes_on_where_it_is(
    world: World, command: dict[str, Any], told: str
) -> None:
    session_id = world.conversation()
    engine = ScriptEngine(
        script=[Call(name="continue_session", input=command), Say(text="Then I stay here.")]
    )
    result = world.log.run(session_id, "Go on elsewhere.", engine=engine)
    assert (result.session, result.state, result.reply) == (session_id, "completed", "Then I stay here.")
    (answer,) = bodies(world.events(session_id), ToolResult)
    assert answer.status == "error"
    assert answer.output.startswith(told)
    assert not world.store.links(session_id)


@pytest.mark.requirement("C6")
def test_a_call_that_is_still_open_beside_the_asking_one_is_told_to_the_agent(world: World) -> None:
    session_id = world.conversation()
    world.call(session_id, "left over")
    engine = ScriptEngine(script=[Call(name="continue_session", input=COMMAND), Say(text="I see.")])
    result = world.log.run(session_id, "Go on elsewhere.", engine=engine)
    assert result.session == session_id
    assert "left over" in bodies(world.events(session_id), ToolResult)[-1].output


@pytest.mark.requirement("C3")
def test_a_call_that_is_played_again_returns_the_same_successor(world: World) -> None:
    session_id = world.conversation()
    result = world.log.run(session_id, call_directive(COMMAND), engine="script", follow=False)
    run = running.get(world.platform, result.run)
    (tool,) = [t for t in offered_tools(world.platform, run) if t.name == "continue_session"]
    again = asyncio.run(tool.call(f"{run.id}.1", {"reason": "whatever came of it"}))
    assert (again.status, again.ends_turn, again.recorded) == ("ok", True, True)
    assert again.output["successor"] == result.continued_to
    assert len(world.store.links(session_id)) == 1


@pytest.mark.requirement("L6", "C2")
def test_a_run_that_was_cancelled_meanwhile_continues_nothing(world: World) -> None:
    session_id = world.conversation()
    run = running.claim(world.platform, queued(world.log, session_id).id, "r", engine="script")
    (tool,) = [t for t in offered_tools(world.platform, run) if t.name == "continue_session"]
    running.cancel(world.platform, run.id)
    before = world.everything()
    with pytest.raises(LeaseLost):
        asyncio.run(tool.call(f"{run.id}.1", COMMAND))
    assert world.everything() == before


class TalksOn:
    """An engine that does not stop although its turn was ended by a tool, and breaks in the end."""

    name = "script"
    capabilities = Capabilities(tools=True)

    def __init__(self, ending: str) -> None:
        self.ending = ending

    def unavailable(self) -> str | None:
        return None

    async def run(self, turn: Turn) -> Any:
        yield Started()
        call = ToolCalled(call=f"{turn.run_id}.1", name="continue_session", input=COMMAND)
        yield call
        tool = next(t for t in turn.tools if t.name == call.name)
        await tool.call(call.call, call.input)
        if self.ending == "says":
            yield Said(text="But I am not done.")
        if self.ending == "breaks":
            raise RuntimeError("broken")
        if self.ending == "completes":
            yield Finished(status="completed")


@pytest.mark.requirement("C1")
@pytest.mark.parametrize("ending", ["says", "stops", "completes"])
def test_whatever_an_engine_does_after_its_turn_was_ended_the_continuation_stands(
    world: World, ending: str
) -> None:
    session_id = world.conversation()
    run = queued(world.log, session_id)
    result = asyncio.run(execute(world.platform, run.id, TalksOn(ending)))  # type: ignore[arg-type]
    assert result.state == "continued"
    assert result.continued_to is not None
    assert "But I am not done." not in texts(world.events(session_id))
    assert world.events(session_id)[-1].kind == "session"


def test_an_engine_that_breaks_after_its_turn_was_ended_still_shows_its_exception(world: World) -> None:
    session_id = world.conversation()
    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(execute(world.platform, queued(world.log, session_id).id, TalksOn("breaks")))  # type: ignore[arg-type]
    assert [r.state for r in world.store.runs(session_id)] == ["continued"]


def test_a_chain_of_continuations_is_followed_until_somebody_answers_and_no_further_than_the_loop_guard(
    world: World,
) -> None:
    session_id = world.conversation()
    always = ScriptEngine(script=[Call(name="continue_session", input=COMMAND), Say(text="So I answer.")])
    result = world.log.run(session_id, "Who answers?", engine=always)
    assert result.reply == "So I answer."
    assert len(world.log.lineage(result.session).path) == 2, "nobody had spoken in the successor (C8)"


def test_the_successor_is_run_by_the_same_engine_in_the_same_place_but_not_with_the_same_limits(
    world: World,
) -> None:
    session_id = world.conversation()
    result = world.log.run(
        session_id,
        call_directive(COMMAND),
        engine="script",
        continuation="replay",
        continuation_opts={"max_messages": 1, "model": "m", "workdir": "/w"},
        adapter_opts={"effort": "high"},
    )
    run = running.get(world.platform, result.run)
    assert run.session_id != session_id
    assert run.engine == "script"
    assert loads(run.options) == {"model": "m", "workdir": "/w", "adapter_opts": {"effort": "high"}}
    assert result.opening == "seeded"


def test_a_projection_is_no_larger_than_what_the_engine_can_hold(world: World) -> None:
    session_id = world.conversation(60, about="something " * 8)
    engine = ScriptEngine(
        script=lambda turn: successor_says(turn), capabilities=Capabilities(tools=True, window=2000)
    )
    result = world.log.run(session_id, "Go on.", engine=engine)
    assert world.log.manifest(result.session).budget == 1200
    assert result.reply.startswith("Answered")


def test_the_recorded_result_is_not_recorded_twice(world: World) -> None:
    session_id = world.conversation()
    world.log.run(session_id, call_directive(COMMAND), engine="script", follow=False)
    events = world.events(session_id)
    assert len(bodies(events, ToolResult)) == 1
    states = [b.state for b in bodies(events, RunChange)]
    assert states == ["running"], "the fact of the continuation is how that run ended"


def test_the_initiating_message_is_the_one_the_run_answers(world: World) -> None:
    session_id = world.conversation()
    result = world.log.run(session_id, "Precisely this. " + call_directive(COMMAND), engine="script")
    copy = next(e for e in world.events(result.session) if e.kind == "message")
    body = body_of(copy)
    assert isinstance(body, Message)
    assert body.continued_from is not None
    original = world.store.event(body.continued_from.event)
    assert original is not None
    assert msgspec.structs.replace(body, continued_from=None) == body_of(original)
