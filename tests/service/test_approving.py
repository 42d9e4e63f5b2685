"""Continuations that wait for a person: parked whole, answered once, and carried out as if they had been asked for then."""

from __future__ import annotations

import asyncio
import threading
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
    new_account,
    queued,
    texts,
)

from onward.core.bodies import Approval, ToolResult
from onward.core.continuing_command import parse_command
from onward.engines.script import Call, Say, ScriptEngine
from onward.errors import (
    ApprovalAnswered,
    ApprovalNotFound,
    ContinuationDeclined,
    ContinuationParked,
    ContinuationRefused,
    InvalidInput,
    LeaseLost,
    LimitExceeded,
    OnwardError,
    UnresolvedWork,
)
from onward.library import Onward
from onward.service import approving, parking, running
from onward.service.offering import offered_tools
from onward.service.platform import approval_policy


def under(world: World, policy: str) -> Onward:
    """Everything Onward does here, under a policy."""
    return Onward(msgspec.structs.replace(world.platform, approval=policy))


def park(world: World, session_id: str, command: dict[str, Any] = CITING, **fields: Any) -> str:
    """Ask to continue as an agent would, and return the request that waits."""
    with pytest.raises(ContinuationParked) as caught:
        under(world, "agent").continue_session(session_id, command, actor="agent", **fields)
    name: str = caught.value.details["approval"]
    return name


@pytest.mark.parametrize(
    ("policy", "actor", "waits"),
    [
        ("never", "agent", False),
        ("never", "user", False),
        ("agent", "agent", True),
        ("agent", "user", False),
        ("agent", "trigger", False),
        ("always", "agent", True),
        ("always", "user", True),
    ],
)
def test_whose_continuations_wait_is_what_the_policy_says(
    world: World, policy: str, actor: str, waits: bool
) -> None:
    session_id = world.conversation()
    log = under(world, policy)
    if waits:
        with pytest.raises(ContinuationParked):
            log.continue_session(session_id, COMMAND, actor=actor)
        assert world.store.links(session_id) == []
        assert [parked.state for parked in log.approvals(session_id)] == ["requested"]
    else:
        assert log.continue_session(session_id, COMMAND, actor=actor).successor
        assert log.approvals(session_id) == []


@pytest.mark.requirement("C1", "C2")
def test_until_it_is_accepted_nothing_is_made_and_the_log_gains_the_request_alone(world: World) -> None:
    session_id = world.conversation()
    before = world.events(session_id)
    name = park(world, session_id)
    after = world.events(session_id)
    assert after[: len(before)] == before
    (request,) = after[len(before) :]
    assert (request.id, request.kind, request.actor) == (name, "approval", "agent")
    assert len(world.log.sessions()[0]) == 1
    world.reopen()
    (parked,) = world.log.approvals()
    assert parked.command == parse_command(CITING)
    assert (parked.id, parked.session, parked.state) == (name, session_id, "requested")


@pytest.mark.requirement("C1", "C2", "C4")
def test_accepting_continues_as_it_was_asked_for_and_adds_the_grant_in_the_same_transaction(
    world: World,
) -> None:
    session_id = world.conversation()
    name = park(world, session_id)
    before = world.events(session_id)
    made = world.log.approve(name)
    gained = world.events(session_id)[len(before) :]
    assert world.events(session_id)[: len(before)] == before
    assert [(e.kind, e.actor) for e in gained] == [("approval", "user"), ("session", "agent")]
    (granted,) = bodies(gained, Approval)
    assert (granted.state, granted.answers) == ("granted", name)
    manifest = world.log.manifest(made.successor)
    assert manifest.handoff == parse_command(CITING).handoff
    assert manifest.actor == "agent"
    assert texts(world.events(made.successor)) == ["Go on with the parser."]
    assert halves(world.log) == []
    assert world.log.approvals() == []
    (answered,) = world.log.approvals(answered=True)
    assert (answered.state, answered.successor) == ("granted", made.successor)


@pytest.mark.requirement("C3")
def test_accepting_twice_gives_the_same_successor_whatever_was_changed_the_second_time(world: World) -> None:
    session_id = world.conversation()
    name = park(world, session_id)
    made = world.log.approve(name)
    world.reopen()
    again = world.log.approve(name, {**COMMAND, "title": "Something else"})
    assert (again.successor, again.manifest, again.repeated) == (made.successor, made.manifest, True)
    assert len(world.store.links(session_id)) == 1
    assert len(bodies(world.events(session_id), Approval)) == 2


@pytest.mark.requirement("C3")
def test_a_command_that_is_repeated_under_its_key_is_parked_once(world: World) -> None:
    session_id = world.conversation()
    name = park(world, session_id, key="k")
    assert park(world, session_id, key="k") == name
    assert len(world.log.approvals(session_id)) == 1
    made = world.log.approve(name)
    again = under(world, "agent").continue_session(session_id, COMMAND, actor="agent", key="k")
    assert (again.successor, again.repeated) == (made.successor, True)


def test_a_person_may_change_what_was_asked_for(world: World) -> None:
    session_id = world.conversation()
    name = park(world, session_id)
    changed = {**CITING, "title": "By hand", "handoff": {**CITING["handoff"], "cautions": ["Ask first."]}}
    made = world.log.approve(name, changed)
    manifest = world.log.manifest(made.successor)
    assert (manifest.title, manifest.handoff.cautions, manifest.actor) == ("By hand", ("Ask first.",), "user")
    assert bodies(world.events(session_id), Approval)[-1].note == "with changes"


def test_declining_is_final_and_tells_why(world: World) -> None:
    session_id = world.conversation()
    name = park(world, session_id, key="k")
    declined = world.log.decline(name, note="not yet")
    assert (declined.state, declined.note) == ("denied", "not yet")
    assert world.log.decline(name, note="again").note == "not yet"
    for again in (
        lambda: world.log.approve(name),
        lambda: under(world, "agent").continue_session(session_id, COMMAND, actor="agent", key="k"),
    ):
        with pytest.raises(ContinuationDeclined, match="not yet"):
            again()
    assert world.store.links(session_id) == []
    assert world.log.approvals() == []
    assert [e.kind for e in world.events(session_id)][-2:] == ["approval", "approval"]


def test_what_was_accepted_cannot_be_declined(world: World) -> None:
    name = park(world, world.conversation())
    made = world.log.approve(name)
    with pytest.raises(ApprovalAnswered, match=made.successor):
        world.log.decline(name)


def test_everything_is_checked_again_when_it_is_accepted_and_it_waits_on_if_a_check_fails(
    world: World,
) -> None:
    session_id = world.conversation()
    name = park(world, session_id)
    world.call(session_id, "left over")
    before = world.everything()
    with pytest.raises(UnresolvedWork):
        world.log.approve(name)
    assert world.everything() == before
    world.answer(session_id, "left over")
    world.say(session_id, "And one more thing.")
    made = world.log.approve(name)
    assert texts(world.events(made.successor)) == ["And one more thing."]


@pytest.mark.parametrize(
    "command",
    [{**COMMAND, "reason": "boredom"}, {**COMMAND, "sources": [{"from_seq": 5000}]}, {}],
)
def test_what_would_be_refused_is_refused_at_once_and_not_parked(
    world: World, command: dict[str, Any]
) -> None:
    session_id = world.conversation()
    before = world.everything()
    with pytest.raises(OnwardError) as caught:
        under(world, "always").continue_session(session_id, command)
    assert not isinstance(caught.value, ContinuationParked)
    assert world.everything() == before


def test_an_agents_turn_ends_as_completed_with_its_call_answered(world: World) -> None:
    session_id = world.conversation()
    engine = ScriptEngine(
        script=[
            Say(text="I would go on elsewhere."),
            Call(name="continue_session", input=CITING),
            Say(text="no"),
        ]
    )
    result = under(world, "agent").run(session_id, "Write the notes.", engine=engine)
    assert (result.session, result.state, result.reply) == (
        session_id,
        "completed",
        "I would go on elsewhere.",
    )
    (parked,) = world.log.approvals()
    assert result.approval == parked.id
    assert parked.id in result.reason
    (answer,) = bodies(world.events(session_id), ToolResult)
    assert answer.output["parked"] == parked.id
    assert "waits for a person" in answer.output["note"]
    assert world.store.open_calls(session_id) == []
    assert world.store.unfinished(session_id) == []
    made = world.log.approve(parked.id)
    assert texts(world.events(made.successor)) == ["Write the notes."]
    answered = world.log.run(made.successor, engine=ScriptEngine(script=[Say(text="Here they are.")]))
    assert answered.reply == "Here they are."


def test_the_conversation_goes_on_while_a_request_waits(world: World) -> None:
    session_id = world.conversation()
    log = under(world, "agent")
    log.run(session_id, "Go on. " + call_directive(CITING), engine="script")
    more = log.run(session_id, "Never mind.", engine=ScriptEngine(script=[Say(text="As you like.")]))
    assert (more.state, more.reply) == ("completed", "As you like.")
    assert more.transcript is not None
    assert any("waits for a person" in m.tool_output for m in more.transcript.messages if m.tool_output)


def test_only_so_many_requests_of_a_session_wait_at_a_time(world: World) -> None:
    session_id = world.conversation()
    names = [park(world, session_id) for _ in range(parking.MAX_PENDING)]
    with pytest.raises(LimitExceeded, match=str(parking.MAX_PENDING)):
        under(world, "agent").continue_session(session_id, COMMAND, actor="agent")
    world.log.decline(names[0])
    assert park(world, session_id) not in names


@pytest.mark.requirement("A1")
def test_nobody_elses_requests_can_be_seen_or_answered(world: World) -> None:
    name = park(world, world.conversation())
    stranger = world.acting(new_account())
    assert stranger.approvals() == []
    for answer in (stranger.approve, stranger.decline):
        with pytest.raises(ApprovalNotFound):
            answer(name)
    assert len(world.log.approvals()) == 1


def test_a_permission_that_an_engine_asked_for_is_no_request_to_continue(world: World) -> None:
    session_id = world.conversation()
    asked = Approval(state="requested", subject="rm -rf build", call="c1")
    (event,) = world.tell(session_id, world.platform.event("approval", asked, "agent"))
    assert world.log.approvals(session_id) == []
    with pytest.raises(ApprovalNotFound):
        world.log.approve(event.id)


def test_of_an_acceptance_and_a_refusal_at_the_same_time_one_wins(world: World) -> None:
    for _ in range(8):
        session_id = world.conversation()
        name = park(world, session_id)
        begin = threading.Barrier(3)
        outcomes: dict[str, Any] = {}

        def answer(
            who: str, act: Any, begin: threading.Barrier = begin, outcomes: dict[str, Any] = outcomes
        ) -> None:
            begin.wait(10)
            try:
                outcomes[who] = act()
            except OnwardError as error:
                outcomes[who] = error

        threads = [
            threading.Thread(
                target=answer, args=("accept", lambda name=name: approving.accept(world.platform, name))
            ),
            threading.Thread(
                target=answer, args=("twice", lambda name=name: approving.accept(world.platform, name))
            ),
            threading.Thread(
                target=answer, args=("decline", lambda name=name: approving.decline(world.platform, name))
            ),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        links = world.store.links(session_id)
        states = [b.state for b in bodies(world.events(session_id), Approval)]
        if links:
            assert states == ["requested", "granted"]
            assert isinstance(outcomes["decline"], ApprovalAnswered)
            assert outcomes["accept"].successor == outcomes["twice"].successor == links[0].to_session
        else:
            assert states == ["requested", "denied"]
            assert isinstance(outcomes["accept"], ContinuationRefused)
            assert outcomes["decline"].state == "denied"


def test_the_policy_of_a_process_is_read_from_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert approval_policy() == "never"
    monkeypatch.setenv("ONWARD_APPROVAL", "Agent")
    assert approval_policy() == "agent"
    monkeypatch.setenv("ONWARD_APPROVAL", "sometimes")
    with pytest.raises(InvalidInput, match="never, agent, always"):
        approval_policy()


def asking(world: World, session_id: str) -> tuple[Any, Any]:
    """A run whose agent is at work under the policy, and its tool to continue."""
    run = running.claim(world.platform, queued(world.log, session_id).id, "r", engine="script")
    tools = offered_tools(under(world, "agent").platform, run)
    return run, next(tool for tool in tools if tool.name == "continue_session")


@pytest.mark.requirement("C3")
def test_a_call_that_is_played_again_answers_the_same_and_parks_nothing_more(world: World) -> None:
    session_id = world.conversation()
    run, tool = asking(world, session_id)
    world.call(session_id, f"{run.id}.1", "continue_session", run_id=run.id)
    first = asyncio.run(tool.call(f"{run.id}.1", CITING))
    before = world.everything()
    again = asyncio.run(tool.call(f"{run.id}.1", COMMAND))
    assert (first.ends_turn, first.recorded) == (True, True)
    assert again == first
    assert world.everything() == before


@pytest.mark.requirement("L6")
def test_a_run_that_lost_its_lease_parks_nothing(world: World) -> None:
    session_id = world.conversation()
    run, tool = asking(world, session_id)
    running.cancel(world.platform, run.id)
    before = world.everything()
    with pytest.raises(LeaseLost):
        asyncio.run(tool.call(f"{run.id}.1", CITING))
    assert world.everything() == before


def test_a_runner_that_dies_after_parking_leaves_a_request_that_can_be_accepted(world: World) -> None:
    session_id = world.conversation()
    run, tool = asking(world, session_id)
    world.call(session_id, f"{run.id}.1", "continue_session", run_id=run.id)
    asyncio.run(tool.call(f"{run.id}.1", CITING))
    world.clock.tick(3600)
    (ended,) = world.log.expire()
    assert ended.state == "interrupted"
    assert world.store.unfinished(session_id) == [], (
        "it had called a tool, so it is not tried again by itself"
    )
    assert world.store.open_calls(session_id) == []
    (parked,) = world.log.approvals()
    made = world.log.approve(parked.id)
    assert texts(world.events(made.successor)) == ["Later."]
    assert halves(world.log) == []
