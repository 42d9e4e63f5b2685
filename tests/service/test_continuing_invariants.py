"""What a continuation promises (C1 to C8), looked up in the store after it was made."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.conversations import (
    CITING,
    COMMAND,
    World,
    bodies,
    call_directive,
    halves,
    queued,
    script,
)

from onward.core import digests
from onward.core.bodies import (
    Message,
    Part,
    Pin,
    Pins,
    Plan,
    PlanStep,
    ProjectionContext,
    SessionChange,
    ToolResult,
    Usage,
)
from onward.core.codec import body_of, loads
from onward.core.records import Link
from onward.engines.script import Fail, Measure, Say
from onward.errors import (
    Conflict,
    CycleRefused,
    InvalidContinuation,
    SessionContinued,
    UnresolvedWork,
)
from onward.service import running, sessions
from onward.store.contract import Batch
from onward.store.memory import MemoryStore


@pytest.mark.requirement("C1", "L1")
def test_a_person_who_continues_adds_one_event_to_the_predecessor_and_changes_none(world: World) -> None:
    session_id = world.conversation(5)
    before = world.events(session_id)
    made = world.log.continue_session(session_id, CITING)
    after = world.events(session_id)
    assert after[: len(before)] == before
    (said,) = after[len(before) :]
    body = body_of(said)
    assert isinstance(body, SessionChange)
    assert (body.change, body.other, body.link, said.actor) == (
        "continued",
        made.successor,
        made.link,
        "user",
    )


@pytest.mark.requirement("C1", "L1")
def test_an_agent_that_continues_adds_its_call_the_result_and_the_fact(world: World) -> None:
    session_id = world.conversation(3)
    before = world.events(session_id)
    result = world.log.run(session_id, call_directive(COMMAND), engine="script", follow=False)
    after = world.events(session_id)
    assert after[: len(before)] == before
    mine = [e for e in after[len(before) :] if e.run_id == result.run]
    assert [e.kind for e in mine] == ["message", "run", "session", "tool_call", "tool_result", "session"]
    answer = body_of(mine[-2])
    assert isinstance(answer, ToolResult)
    assert answer.output["successor"] == result.continued_to
    assert not world.store.open_calls(session_id)


@pytest.mark.requirement("C1")
def test_a_second_continuation_and_a_working_successor_leave_the_predecessor_alone(world: World) -> None:
    session_id = world.conversation(3)
    one = world.log.continue_session(session_id, COMMAND)
    before = world.events(session_id)
    world.log.run(one.successor, engine="script")
    world.log.run(one.successor, "More.", engine="script")
    assert world.events(session_id) == before
    two = world.log.continue_session(session_id, COMMAND)
    assert world.events(session_id)[: len(before)] == before
    assert [link.to_session for link in sessions.continuations(world.platform, session_id)] == [
        one.successor,
        two.successor,
    ]


@pytest.mark.requirement("C2", "P6")
def test_everything_that_belongs_to_a_successor_is_there_at_once(world: World) -> None:
    session_id = world.conversation(3)
    plan = Plan(revision=4, steps=(PlanStep(id="s1", text="fix dates", status="active"),))
    pins = Pins(revision=2, pins=(Pin(kind="tool", name="grep", version="3.1"), Pin(kind="tool", name="sed")))
    world.log.set_state(session_id, plan)
    world.log.set_state(session_id, pins)
    given = {**CITING, "transfer": {"pinned_tools": ["grep"]}}
    made = world.log.continue_session(session_id, given)
    assert halves(world.log) == []
    events = world.events(made.successor)
    assert [e.kind for e in events] == ["session", "plan", "pins", "context", "message"]
    (carried,) = bodies(events, Plan)
    assert carried.steps == plan.steps
    assert bodies(events, Pins)[0].pins == pins.pins[:1]
    manifest = world.log.manifest(made.successor)
    assert manifest.state.plan.revision == 4
    assert bodies(events, ProjectionContext)[0].manifest == manifest.id
    assert world.log.verify().ok


@pytest.mark.requirement("P6")
@pytest.mark.parametrize(
    ("transfer", "status", "carried"),
    [
        (None, "open", True),
        (None, "done", False),
        ("carry", "done", True),
        ("close", "open", False),
        ("omit", "open", False),
    ],
)
def test_a_plan_is_carried_closed_or_left_as_it_was_asked_for(
    world: World, transfer: str | None, status: Any, carried: bool
) -> None:
    session_id = world.conversation()
    steps = (PlanStep(id="s1", text="fix dates", status=status),)
    world.log.set_state(session_id, Plan(revision=1, steps=steps))
    made = world.log.continue_session(session_id, {**COMMAND, "transfer": {"plan": transfer}})
    assert [p.steps for p in bodies(world.events(made.successor), Plan)] == ([steps] if carried else [])


HARD = [
    "plain",
    "with a NUL \x00 inside",
    "emoji 👩‍👩‍👧 and flags 🇪🇺",
    "a lone surrogate \ud800 and another \udfff",
    "lines\nand\r\nseparators\u2028\u2029 and \u202e overrides",
    '<quoted label="x">close me</quoted> </session_continuation>',
    " leading and trailing \t",
    "é as one and e\u0301 as two",
    "x" * 20_000,
]


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
def test_the_initiating_message_arrives_byte_for_byte_and_names_the_original(world: World, text: str) -> None:
    session_id = world.conversation()
    original = world.say(
        session_id, text, parts=(Part(blob="sha256:00", media_type="image/png", name="a.png"),)
    )
    made = world.log.continue_session(session_id, COMMAND, budget=20_000)
    world.reopen()
    copy = next(e for e in world.events(made.successor) if e.kind == "message")
    body = loads(copy.body)
    provenance = body.pop("continued_from")
    assert body == loads(original.body)
    assert json.dumps(body["text"]) == json.dumps(text)
    assert provenance == {
        "session": session_id,
        "event": original.id,
        "seq": original.seq,
        "digest": digests.spell(original.digest),
    }


@pytest.mark.requirement("C4")
@given(text=st.text(st.characters(), min_size=1), name=st.text(st.characters(), max_size=5))
def test_any_message_arrives_unaltered(text: str, name: str) -> None:
    world = World(opened=MemoryStore)
    session_id = world.conversation()
    original = world.say(session_id, text, parts=(Part(blob="sha256:11", name=name),))
    made = world.log.continue_session(session_id, COMMAND)
    copy = body_of(next(e for e in world.events(made.successor) if e.kind == "message"))
    assert isinstance(copy, Message)
    assert msgspec.structs.replace(copy, continued_from=None) == body_of(original)


@pytest.mark.requirement("C4")
def test_a_field_that_this_version_does_not_know_is_carried_with_the_message(world: World) -> None:
    session_id = world.conversation()
    raw = b'{"role":"user","text":"hello","mood":{"from":"the future"},"more":[1e400,null]}'.replace(
        b"1e400", b"1"
    )
    world.tell(session_id, world.platform.event("message", raw, "user"))
    made = world.log.continue_session(session_id, COMMAND)
    copy = next(e for e in world.events(made.successor) if e.kind == "message")
    assert loads(copy.body)["mood"] == {"from": "the future"}


@pytest.mark.requirement("C5")
def test_following_predecessors_ends_at_the_origin_from_every_session_of_a_chain(world: World) -> None:
    chain = [world.conversation()]
    for _ in range(6):
        chain.append(world.log.continue_session(chain[-1], COMMAND).successor)
        world.log.run(chain[-1], "Something new.", engine="script")
        world.log.run(chain[-1], "Something else.", engine="script")
    for number, session_id in enumerate(chain):
        assert world.log.lineage(session_id).path == tuple(chain[: number + 1])
        assert (world.log.session(session_id).origin_id or session_id) == chain[0]
        into = [ln for ln in world.store.links(session_id) if ln.to_session == session_id]
        assert len(into) == (number > 0)


@pytest.mark.requirement("C5")
def test_a_branch_is_its_own_origin_and_so_is_the_origin_of_what_it_continues_in(world: World) -> None:
    successor = world.log.continue_session(world.conversation(), COMMAND).successor
    world.log.run(successor, engine="script")
    world.log.run(successor, "On we go.", engine="script")
    branch = world.log.fork(successor)
    made = world.log.continue_session(branch.id, COMMAND)
    assert made.origin == branch.id == world.log.manifest(made.successor).origin
    assert world.log.lineage(made.successor).path == (branch.id, made.successor)


@pytest.mark.requirement("C5")
def test_neither_a_second_predecessor_nor_a_circle_can_be_written(world: World) -> None:
    first, other = world.conversation(), world.conversation()
    made = world.log.continue_session(first, COMMAND)

    def link(source: str, target: str) -> Link:
        return Link(
            id=world.ids.new("lnk"),
            type="continuation",
            from_session=source,
            to_session=target,
            created_at=world.clock(),
        )

    before = world.everything()
    with pytest.raises(Conflict):
        world.store.commit(Batch(links=(link(other, made.successor),)))
    with pytest.raises(CycleRefused):
        world.store.commit(Batch(links=(link(made.successor, first),)))
    assert world.everything() == before


def unfinished_work(world: World, session_id: str) -> dict[str, str]:
    """Leave an open call, a child at work and queued input in a session. Return the name of each."""
    world.call(session_id, "call-1")
    child = world.log.start("Look it up", parent=session_id, engine="script")
    queued(world.log, child.id, "Look it up.")
    waiting = queued(world.log, session_id, "And then this.")
    return {"call": "call-1", "child": child.id, "input": waiting.id}


@pytest.mark.requirement("C6")
def test_unfinished_work_is_refused_with_a_list_that_names_all_of_it(world: World) -> None:
    session_id = world.conversation()
    names = unfinished_work(world, session_id)
    before = world.everything()
    with pytest.raises(UnresolvedWork) as refused:
        world.log.continue_session(session_id, COMMAND)
    assert len(refused.value.details["items"]) == 3
    for name in names.values():
        assert name in refused.value.message
    assert world.everything() == before


@pytest.mark.requirement("C6")
@pytest.mark.parametrize("left_out", ["call", "child", "input"])
def test_naming_all_but_one_is_refused_for_that_one(world: World, left_out: str) -> None:
    session_id = world.conversation()
    names = unfinished_work(world, session_id)
    named = [name for what, name in names.items() if what != left_out]
    with pytest.raises(UnresolvedWork) as refused:
        world.log.continue_session(session_id, {**COMMAND, "transfer": {"pending_runs": named}})
    (item,) = refused.value.details["items"]
    assert names[left_out] in item


@pytest.mark.requirement("C6", "P6")
def test_work_that_is_named_moves_with_its_ids(world: World) -> None:
    session_id = world.conversation()
    names = unfinished_work(world, session_id)
    given = {**COMMAND, "transfer": {"pending_runs": list(names.values())}}
    made = world.log.continue_session(session_id, given)
    state = world.log.manifest(made.successor).state
    assert (state.calls, state.children, state.runs) == (
        (names["call"],),
        (names["child"],),
        (names["input"],),
    )
    moved = world.store.run(names["input"])
    assert moved is not None
    assert (moved.session_id, moved.state) == (made.successor, "queued")
    (link,) = [ln for ln in world.store.links(names["child"]) if ln.type == "child"]
    assert (link.from_session, link.report_to) == (session_id, made.successor)
    assert not world.store.unfinished(session_id)


@pytest.mark.requirement("C6")
def test_the_successor_answers_its_first_message_before_the_input_that_moved_along(world: World) -> None:
    session_id = world.conversation()
    moved = queued(world.log, session_id, "And then this.")
    world.clock.tick()
    made = world.log.continue_session(session_id, {**COMMAND, "transfer": {"pending_runs": [moved.id]}})
    assert world.log.run(made.successor).run == made.run
    second = world.log.run(made.successor)
    assert second.run == moved.id
    assert "And then this." in second.reply


@pytest.mark.requirement("C4", "C6")
def test_input_that_moves_after_its_message_was_said_brings_a_copy_that_names_the_original(
    world: World,
) -> None:
    session_id = world.conversation()
    failed = world.log.run(session_id, "The older request.", engine=script(Fail(reason="no network")))
    again = world.log.retry(failed.run)
    original = next(e for e in world.events(session_id) if e.run_id == failed.run and e.kind == "message")
    world.say(session_id, "The newer request.")
    with pytest.raises(UnresolvedWork, match=again.id):
        world.log.continue_session(session_id, COMMAND)
    made = world.log.continue_session(session_id, {**COMMAND, "transfer": {"pending_runs": [again.id]}})
    runs = {world.log.run(made.successor, engine="script").run: None for _ in range(2)}
    assert set(runs) == {made.run, again.id}
    asked = [b for b in bodies(world.events(made.successor), Message) if b.role == "user"]
    assert {b.text for b in asked} == {"The older request.", "The newer request."}
    (older,) = [b.continued_from for b in asked if b.text == "The older request."]
    assert older is not None
    assert (older.session, older.event, older.digest) == (
        session_id,
        original.id,
        digests.spell(original.digest),
    )
    assert world.log.verify().ok


@pytest.mark.requirement("C6")
def test_a_queued_answer_to_the_very_message_that_is_carried_is_given_by_the_successor_alone(
    world: World,
) -> None:
    session_id = world.conversation()
    failed = world.log.run(session_id, "The request.", engine=script(Fail(reason="no network")))
    again = world.log.retry(failed.run)
    made = world.log.continue_session(session_id, COMMAND)
    left = running.get(world.platform, again.id)
    assert left.state == "cancelled"
    assert made.successor in (left.reason or "")
    assert "The request." in world.log.run(made.successor).reply


@pytest.mark.requirement("C6")
def test_a_child_that_moved_along_is_still_unfinished_work_of_the_next_continuation(world: World) -> None:
    session_id = world.conversation()
    child = world.log.start("Look it up", parent=session_id, engine="script")
    queued(world.log, child.id)
    given = {**COMMAND, "transfer": {"pending_runs": [child.id]}}
    first = world.log.continue_session(session_id, given).successor
    world.log.run(first, engine="script")
    world.log.run(first, "Now something else.", engine="script")
    with pytest.raises(UnresolvedWork, match=child.id):
        world.log.continue_session(first, COMMAND)
    second = world.log.continue_session(first, given).successor
    (link,) = [ln for ln in world.store.links(child.id) if ln.type == "child"]
    assert link.report_to == second
    world.log.continue_session(first, COMMAND)  # it is no longer this one's to lose


@pytest.mark.requirement("C6")
def test_a_name_that_is_not_pending_is_refused_with_what_is(world: World) -> None:
    session_id = world.conversation()
    waiting = queued(world.log, session_id)
    given = {**COMMAND, "transfer": {"pending_runs": [waiting.id, "run_nothing"]}}
    with pytest.raises(InvalidContinuation, match=r"run_nothing.*" + waiting.id):
        world.log.continue_session(session_id, given)


@pytest.mark.requirement("C6")
def test_a_run_that_is_executing_cannot_be_left_behind(world: World) -> None:
    session_id = world.conversation()
    working = running.claim(world.platform, queued(world.log, session_id).id, "elsewhere", engine="script")
    with pytest.raises(UnresolvedWork, match=working.id):
        world.log.continue_session(session_id, COMMAND)


class Meddling:
    """A store that lets something happen between the snapshot and the commit of a continuation."""

    def __init__(self, world: World, meddle: Any) -> None:
        self._store, self._meddle = world.store, meddle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, batch: Batch) -> Any:
        meddle, self._meddle = self._meddle, None
        if meddle is not None:
            meddle()
        return self._store.commit(batch)


@pytest.mark.requirement("C6", "C2")
@pytest.mark.parametrize("what", ["input", "child", "work of a child", "call", "claim"])
def test_work_that_begins_while_a_continuation_is_decided_is_not_left_behind(world: World, what: str) -> None:
    session_id = world.conversation()
    idle = world.log.start("Idle", parent=session_id, engine="script")
    made: list[str] = []

    def meddle() -> None:
        if what == "input":
            made.append(queued(world.log, session_id).id)
        elif what == "child":
            child = world.log.start("Sudden", parent=session_id, engine="script")
            queued(world.log, child.id)
            made.append(child.id)
        elif what == "work of a child":
            queued(world.log, idle.id)
            made.append(idle.id)
        elif what == "call":
            world.call(session_id, "sudden")
            made.append("sudden")
        else:
            run = queued(world.log, session_id)
            running.claim(world.platform, run.id, "elsewhere", engine="script")
            made.append(run.id)

    log = world.acting(store=Meddling(world, meddle))  # type: ignore[arg-type]
    with pytest.raises(UnresolvedWork) as refused:
        log.continue_session(session_id, COMMAND)
    assert made[0] in refused.value.message


@pytest.mark.requirement("C6")
@pytest.mark.parametrize("act", [running.claim, running.cancel])
def test_input_that_moves_while_it_is_being_claimed_or_cancelled_does_not_land_in_the_predecessor(
    world: World, act: Any
) -> None:
    session_id = world.conversation()
    run = queued(world.log, session_id, "And then this.")
    given = {**COMMAND, "transfer": {"pending_runs": [run.id]}}
    log = world.acting(
        store=Meddling(world, lambda: world.log.continue_session(session_id, given))  # type: ignore[arg-type]
    )
    arguments = ("runner",) if act is running.claim else ()
    named = {"engine": "script"} if act is running.claim else {}
    before = len(world.events(session_id))
    with pytest.raises(Conflict):
        act(log.platform, run.id, *arguments, **named)
    assert [e.kind for e in world.events(session_id)[before:]] == ["session"]
    moved = world.store.run(run.id)
    assert moved is not None
    assert moved.state == "queued"


@pytest.mark.requirement("C6")
def test_a_message_to_a_continued_session_is_refused_with_two_offers_and_stored_nowhere(world: World) -> None:
    session_id = world.conversation()
    first = world.log.continue_session(session_id, COMMAND)
    second = world.log.continue_session(session_id, {**COMMAND, "title": "The newest"})
    before = world.everything()
    with pytest.raises(SessionContinued, match="The newest") as refused:
        world.log.submit(session_id, "Are you there?")
    assert refused.value.details["successor"] == second.successor != first.successor
    assert refused.value.details["offers"] == [{"open": second.successor}, {"branch": session_id}]
    assert world.everything() == before


@pytest.mark.requirement("C6")
def test_a_message_that_is_sent_while_the_session_is_being_continued_is_refused(world: World) -> None:
    session_id = world.conversation()
    meddle = Meddling(world, lambda: world.log.continue_session(session_id, COMMAND))
    with pytest.raises(SessionContinued):
        world.acting(store=meddle).submit(session_id, "Too late.", engine="script")  # type: ignore[arg-type]
    assert not world.store.unfinished(session_id)


@pytest.mark.requirement("C7")
def test_a_successor_whose_run_fails_stays_with_its_link_and_can_be_tried_again(world: World) -> None:
    session_id = world.conversation()
    made = world.log.continue_session(session_id, COMMAND, key="k")
    before = world.events(session_id), world.store.links(session_id)
    failed = world.log.run(made.successor, engine=script(Fail(reason="no network")))
    assert (failed.state, failed.run, failed.reason) == ("failed", made.run, "no network")
    again = world.log.retry(failed.run)
    assert world.log.retry(failed.run) == again, "asking twice does not answer twice"
    answered = world.log.run(made.successor, engine=script(Say(text="Here they are.")))
    assert (answered.run, answered.state, answered.reply) == (again.id, "completed", "Here they are.")
    assert (world.events(session_id), world.store.links(session_id)) == before
    assert world.log.continue_session(session_id, COMMAND, key="k").run == made.run
    asked = [e for e in world.events(made.successor) if e.kind == "message" and e.actor == "user"]
    assert len(asked) == 1


@pytest.mark.requirement("C8")
def test_a_successor_carries_no_reading_of_how_full_its_predecessor_was(world: World) -> None:
    session_id = world.conversation()
    world.log.run(
        session_id,
        "How full are you?",
        engine=script(Measure(usage=Usage(input_tokens=190_000, window=200_000)), Say(text="Very.")),
    )
    made = world.log.continue_session(session_id, {**COMMAND, "reason": "context_pressure"})
    assert all(run.usage is None for run in world.store.runs(made.successor))
    assert b"190000" not in b"".join(e.body for e in world.events(made.successor) if e.kind != "context")
