"""Governing a run: limits and rules are held against what the engine does, and its questions are answered and logged."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.service.conversations import World, bodies, texts

from onward.core.bodies import Approval, Notice, ToolResult, Usage
from onward.engines.contract import Capabilities, Permission
from onward.engines.script import Ask, Call, Fail, Hang, Measure, Say, ScriptEngine
from onward.errors import ApprovalNotFound, InvalidInput, InvalidTransition, MissingCapability
from onward.runner import RunResult
from onward.service import permitting


def engine(*steps: Any) -> ScriptEngine:
    return ScriptEngine(script=steps)


def govern(world: World, *steps: Any, **options: Any) -> RunResult:
    session = world.log.start("x").id
    return world.log.run(session, "Go.", engine=engine(*steps), continuation_opts=options)


NO_SHELL = {"name": "careful", "rules": [{"effect": "deny", "tools": ["Bash"]}]}
ASKS = Permission(subject="Write a.txt", tool="Write", edits=True)


def test_a_denied_tool_stops_the_engine_and_fails_the_run_whatever_it_would_have_said(world: World) -> None:
    result = govern(world, Say(text="Now"), Call(name="Bash"), Say(text="Done!"), policies=[NO_SHELL])
    assert (result.state, result.code) == ("failed", "policy")
    assert result.reason == "Policy “careful” does not allow the tool Bash."
    events = world.events(result.session)
    assert texts(events) == ["Go.", "Now"]
    assert [n.text for n in bodies(events, Notice)] == [result.reason]
    assert not world.store.open_calls(result.session)


def test_a_policy_that_warns_says_so_and_goes_on(world: World) -> None:
    result = govern(world, Call(name="Bash"), Say(text="Done!"), policies=[{**NO_SHELL, "action": "warn"}])
    assert (result.state, result.reply) == ("completed", "Done!")
    assert len(bodies(world.events(result.session), Notice)) == 1


@pytest.mark.parametrize(
    ("limit", "steps"),
    [
        ({"max_tool_calls": 1}, (Call(name="a"), Call(name="b"), Say(text="Done!"))),
        ({"max_total_tokens": 10}, (Measure(usage=Usage(input_tokens=11)), Say(text="Done!"))),
        ({"max_cost_usd": 0.01}, (Measure(usage=Usage(cost_usd=0.02)), Say(text="Done!"))),
        ({"max_seconds": 0.05}, (Hang(), Say(text="Done!"))),
    ],
)
def test_what_goes_beyond_a_limit_is_stopped(
    world: World, limit: dict[str, Any], steps: tuple[Any, ...]
) -> None:
    result = govern(world, *steps, policies=[{"name": "small", **limit}])
    assert (result.state, result.code, result.reply) == ("failed", "policy", "")
    assert "Policy “small” allows" in result.reason


def test_time_that_only_warns_is_said_while_the_engine_goes_on(world: World) -> None:
    session = world.log.start("x").id
    noticed = threading.Event()

    class Waiting(ScriptEngine):
        async def run(self, turn: Any) -> Any:
            import asyncio

            async for signal in super().run(turn):
                yield signal
                while not noticed.is_set() and not bodies(world.events(session), Notice):  # noqa: ASYNC110
                    await asyncio.sleep(0)
                noticed.set()

    policy = {"name": "brisk", "max_seconds": 0.02, "action": "warn"}
    result = world.log.run(
        session, "Go.", engine=Waiting(script=[Say(text="Done!")]), continuation_opts={"policies": [policy]}
    )
    assert (result.state, result.reply) == ("completed", "Done!")
    assert len(bodies(world.events(session), Notice)) == 1


def test_several_policies_are_held_as_one(world: World) -> None:
    other = {"name": "short", "max_tool_calls": 3, "action": "warn"}
    result = govern(world, Call(name="Bash"), Say(text="Done!"), policies=[other, NO_SHELL])
    assert result.reason == "Policy “short + careful” does not allow the tool Bash."


def test_a_policy_that_nothing_could_satisfy_is_refused_before_anything_is_stored(world: World) -> None:
    session = world.log.start("x").id
    with pytest.raises(InvalidInput):
        world.log.run(
            session,
            "Go.",
            engine=engine(),
            continuation_opts={"policies": [{"name": "none", "max_tool_calls": 0}]},
        )
    assert not world.store.runs(session)


def test_what_a_policy_asks_a_person_is_granted_by_another_attempt_in_which_it_only_warns(
    world: World,
) -> None:
    steps = (Call(name="Bash"), Say(text="Done!"))
    result = govern(world, *steps, policies=[{**NO_SHELL, "action": "ask"}])
    assert (result.state, result.code) == ("cancelled", "policy")
    (waiting,) = permitting.permissions(world.platform, result.session)
    assert (waiting.beyond, waiting.tool, waiting.run) == ("careful", "Bash", result.run)
    granted = permitting.answer(world.platform, waiting.id, True)
    assert granted.state == "granted"
    again = world.log.run(result.session, engine=engine(*steps))
    assert (again.run, again.state, again.reply) == (granted.retried, "completed", "Done!")
    assert texts(world.events(result.session)) == ["Go.", "Done!"]
    assert permitting.answer(world.platform, waiting.id, True).state == "granted"
    assert len(world.store.runs(result.session)) == 2


def test_a_request_that_was_denied_stays_denied(world: World) -> None:
    result = govern(world, Call(name="Bash"), policies=[{**NO_SHELL, "action": "ask"}])
    (waiting,) = permitting.permissions(world.platform, result.session)
    permitting.answer(world.platform, waiting.id, False, note="no")
    with pytest.raises(InvalidTransition):
        permitting.answer(world.platform, waiting.id, True)
    assert permitting.permissions(world.platform, result.session) == []
    assert [a.state for a in bodies(world.events(result.session), Approval)] == ["requested", "denied"]


def test_an_agent_does_not_get_rid_of_a_policy_by_continuing_elsewhere(world: World) -> None:
    session = world.log.start("x").id
    command = {
        "reason": "topic_change",
        "title": "Elsewhere",
        "handoff": {"purpose": "free", "current_request": "free"},
    }
    turns = iter(
        [
            (Call(name="continue_session", input=command),),
            (Call(name="Bash"), Say(text="Done!")),
        ]
    )
    tools = Capabilities(tools=True)
    free = ScriptEngine(script=lambda _turn: next(turns), capabilities=tools)
    result = world.log.run(session, "Go.", engine=free, continuation_opts={"policies": [NO_SHELL]})
    assert result.session != session
    assert (result.state, result.code) == ("failed", "policy")


@pytest.mark.parametrize(
    ("mode", "edits", "answer"),
    [
        ("default", True, "refused"),
        ("accept_edits", True, "granted"),
        ("accept_edits", False, "refused"),
        ("plan", True, "refused"),
        ("full_auto", False, "granted"),
        ("dangerously_skip_permissions", False, "granted"),
    ],
)
def test_where_nobody_is_asked_the_mode_answers_and_both_are_in_the_log(
    world: World, mode: str, edits: bool, answer: str
) -> None:
    asked = Permission(subject="Write a.txt", tool="Write", edits=edits)
    result = govern(world, Ask(permission=asked), permission_mode=mode)
    assert result.reply.startswith(answer)
    request, said = bodies(world.events(result.session), Approval)
    assert (request.state, request.subject) == ("requested", "Write a.txt")
    assert said.state == ("granted" if answer == "granted" else "denied")
    assert said.answers is not None


def test_a_rule_against_a_tool_answers_before_any_mode(world: World) -> None:
    policy = {"name": "careful", "rules": [{"effect": "deny", "tools": ["Write"]}], "action": "warn"}
    result = govern(
        world, Ask(permission=ASKS), permission_mode="dangerously_skip_permissions", policies=[policy]
    )
    assert result.reply == "refused: Policy “careful” does not allow the tool Write."


@pytest.mark.parametrize("granted", [True, False])
def test_a_person_answers_while_the_engine_waits(world: World, granted: bool) -> None:
    session = world.log.start("x").id
    results: list[RunResult] = []
    asked = threading.Event()

    def listen(_run: Any, _signal: Any) -> None:
        asked.set()

    def run() -> None:
        results.append(
            world.log.run(
                session,
                "Go.",
                engine=engine(Say(text="May I?"), Ask(permission=ASKS)),
                continuation_opts={"ask": 30.0},
                listener=listen,
            )
        )

    working = threading.Thread(target=run)
    working.start()
    assert asked.wait(10)
    waiting: list[permitting.Requested] = []
    tried = threading.Event()
    for _ in range(1000):
        waiting = permitting.permissions(world.platform, session)
        if waiting or tried.wait(0.01):
            break
    assert [one.subject for one in waiting] == ["Write a.txt"]
    permitting.answer(world.platform, waiting[0].id, granted, note="" if granted else "not that file")
    working.join(10)
    (result,) = results
    assert result.state == "completed"
    assert result.reply.endswith("granted" if granted else "refused: not that file")
    assert permitting.permissions(world.platform, session) == []


def test_when_nobody_answers_in_time_the_answer_is_no_and_the_log_says_so(world: World) -> None:
    result = govern(world, Ask(permission=ASKS), ask=0.05)
    assert result.reply == "refused: Nobody answered within 0.05 seconds."
    request, said = bodies(world.events(result.session), Approval)
    assert (said.state, said.note) == ("denied", "Nobody answered within 0.05 seconds.")
    assert request.state == "requested"


def test_a_question_is_over_with_its_run(world: World) -> None:
    session = world.log.start("x").id
    run = world.log.submit(session, "Go.", engine="script")
    from onward.service import running

    claimed = running.claim(world.platform, run.id, "me", engine="script", lease=60)
    body = permitting.request(ASKS)
    (event,) = running.record(
        world.platform, claimed, (world.platform.event("approval", body, "agent", run_id=run.id),)
    )
    assert permitting.requested(world.platform, event.id).state == "requested"
    running.settle(world.platform, claimed, "failed")
    assert permitting.requested(world.platform, event.id).state == "lapsed"
    with pytest.raises(InvalidTransition):
        permitting.answer(world.platform, event.id, True)
    with pytest.raises(ApprovalNotFound):
        permitting.answer(world.acting("acc_other").platform, event.id, True)


def test_what_a_run_requires_is_checked_before_its_message_is_stored(world: World) -> None:
    session = world.log.start("x").id
    with pytest.raises(MissingCapability, match="code_execution:commands"):
        world.log.run(
            session,
            "Go.",
            engine=engine(Say(text="hi")),
            continuation_opts={"requires": ["code_execution:commands", "tool"]},
        )
    assert not world.store.runs(session)


def test_what_a_run_wishes_for_is_only_said(world: World) -> None:
    result = govern(world, Say(text="hi"), wishes=["file_access", "sampling:streaming"])
    assert result.state == "completed"
    assert result.warnings == ("script has no file_access; the run goes on without it.",)


def test_an_open_call_of_a_stopped_engine_is_closed_as_unknown(world: World) -> None:
    result = govern(world, Call(name="Bash"), policies=[NO_SHELL])
    (closed,) = bodies(world.events(result.session), ToolResult)
    assert (closed.status, closed.closer) == ("outcome_unknown", True)


def test_a_failure_is_told_with_its_kind_and_whether_another_attempt_may_help(world: World) -> None:
    assert govern(world, Fail(reason="busy", retryable=True)).retryable
    assert not govern(world, Fail(reason="wrong")).retryable
    acted = govern(world, Call(name="a"), Fail(reason="busy", retryable=True))
    assert (acted.state, acted.retryable) == ("failed", False)


def test_an_engines_own_tool_does_not_pass_for_ours_by_its_name(world: World) -> None:
    policy = {"name": "careful", "rules": [{"effect": "deny", "tools": ["search"]}]}
    own = ScriptEngine(script=[Call(name="search"), Say(text="Done!")], capabilities=Capabilities())
    session = world.log.start("x").id
    stopped = world.log.run(session, "Go.", engine=own, continuation_opts={"policies": [policy]})
    assert (stopped.state, stopped.code) == ("failed", "policy")
    given = (Call(name="search", input={"query": "Go"}), Say(text="Done!"))
    assert govern(world, *given, policies=[policy]).state == "completed"


def test_an_answer_without_a_beginning_is_told_as_one_that_nobody_confirmed(world: World) -> None:
    from onward.engines.contract import Finished

    class Abrupt(ScriptEngine):
        async def run(self, turn: Any) -> Any:
            yield Finished(status="completed")

    session = world.log.start("x").id
    result = world.log.run(session, "Go.", engine=Abrupt())
    assert (result.state, result.opening) == ("completed", "fresh")
