"""Branches by reference: a branch sees its source up to the point, and neither sees what the other says afterwards."""

from __future__ import annotations

import pytest
from tests.service.conversations import COMMAND, World, bodies, texts

from onward.core.bodies import Pin, Pins, Plan, PlanStep, ProjectionContext
from onward.errors import EventNotFound
from onward.service import sessions


def history(world: World, session_id: str) -> list[str]:
    """The words that a session's history is made of."""
    stretches = sessions.scope(world.platform, world.log.session(session_id))
    return texts(sessions.newest(world.platform, stretches, 1000))


def heard(world: World, session_id: str) -> list[str]:
    """What an engine is given of a session."""
    return [m.content for m in world.log.transcript(session_id).messages]


def found(world: World, session_id: str, query: str) -> set[tuple[str, int]]:
    """What a search in a session's lineage finds."""
    hits = world.log.search(query, session_id=session_id).hits
    return {(hit.session, hit.seq) for hit in hits}


@pytest.fixture
def tree(world: World) -> dict[str, str]:
    """A source, a continuation of it, a fork of that, and a fork of the fork; everybody says something of their own."""
    names = {"origin": world.conversation(1, "the walrus")}
    made = world.log.continue_session(names["origin"], COMMAND)
    names["successor"] = made.successor
    world.say(made.successor, "Shared by the successor: aardvark.")
    names["fork"] = world.log.fork(made.successor).id
    world.say(made.successor, "Only the successor: badger.")
    world.say(names["fork"], "Shared by the fork: caterpillar.")
    names["second"] = world.log.fork(names["fork"]).id
    world.say(names["fork"], "Only the fork: dormouse.")
    world.say(names["second"], "Only the second fork: elephant.")
    world.reopen()
    return names


VISIBLE = {
    "successor": {"aardvark", "badger"},
    "fork": {"aardvark", "caterpillar", "dormouse"},
    "second": {"aardvark", "caterpillar", "elephant"},
}
ANIMALS = ("aardvark", "badger", "caterpillar", "dormouse", "elephant")


@pytest.mark.requirement("T1", "L1")
@pytest.mark.parametrize("name", VISIBLE)
@pytest.mark.parametrize("looking", [history, heard])
def test_history_and_transcript_hold_the_source_up_to_the_point_and_nothing_after_it(
    world: World, tree: dict[str, str], name: str, looking: object
) -> None:
    said = "\n".join(looking(world, tree[name]))  # type: ignore[operator]
    assert {animal for animal in ANIMALS if animal in said} == VISIBLE[name]


@pytest.mark.parametrize("name", VISIBLE)
def test_search_finds_what_is_in_view_and_no_other_branch(
    world: World, tree: dict[str, str], name: str
) -> None:
    assert {animal for animal in ANIMALS if found(world, tree[name], animal)} == VISIBLE[name]


def test_every_session_of_a_tree_finds_what_its_origin_said_and_the_origin_what_came_of_it(
    world: World, tree: dict[str, str]
) -> None:
    for name in tree.values():
        assert any(session == tree["origin"] for session, _ in found(world, name, "walrus"))
    assert found(world, tree["origin"], "badger")
    assert not found(world, tree["origin"], "dormouse"), "a branch is another conversation"


@pytest.mark.requirement("P2")
@pytest.mark.parametrize("name", ["fork", "second"])
def test_the_projection_of_a_branch_accounts_for_its_history_and_for_nothing_else(
    world: World, tree: dict[str, str], name: str
) -> None:
    made = world.log.continue_session(tree[name], COMMAND)
    manifest = world.log.manifest(made.successor)
    (projection,) = bodies(world.events(made.successor), ProjectionContext)
    asked = texts(world.events(made.successor))[0]
    shown = {animal for animal in ANIMALS if animal in projection.text or animal in asked}
    assert shown == VISIBLE[name]
    inside = {(s.session, seq) for s in manifest.scope for seq in range(s.from_seq, s.to_seq + 1)}
    listed = set()
    for piece in manifest.included:
        listed |= {(piece.session, seq) for seq in range(piece.from_seq, piece.to_seq + 1)}
    for left_out in manifest.omitted:
        session, _, span = left_out.address.partition(":")
        first, _, last = span.partition("-")
        listed |= {(session, seq) for seq in range(int(first), int(last or first) + 1)}
    initiating = world.store.event(manifest.initiating.event)
    assert initiating is not None
    assert listed | {(initiating.session_id, initiating.seq)} == inside
    assert world.log.recompile(manifest) == manifest.digest


def test_state_is_inherited_at_the_point_and_changed_apart(world: World) -> None:
    session_id = world.conversation()
    at_the_point = Plan(revision=1, steps=(PlanStep(id="s1", text="before"),))
    pins = Pins(revision=1, pins=(Pin(kind="tool", name="grep"),))
    world.log.set_state(session_id, at_the_point)
    world.log.set_state(session_id, pins)
    branch = world.log.fork(session_id)
    later = Plan(revision=2, steps=(PlanStep(id="s2", text="after"),))
    world.log.set_state(session_id, later)
    world.reopen()
    found = sessions.state(world.platform, world.log.session(branch.id))
    assert sessions.plan_of(found) == at_the_point
    assert "pins" in found
    own = Plan(revision=2, steps=(PlanStep(id="s3", text="own"),))
    world.log.set_state(branch.id, own)
    second = world.log.fork(branch.id)
    for name, plan in ((session_id, later), (branch.id, own), (second.id, own)):
        assert sessions.plan_of(sessions.state(world.platform, world.log.session(name))) == plan
    made = world.log.continue_session(second.id, COMMAND)
    assert [p.steps for p in bodies(world.events(made.successor), Plan)] == [own.steps]


@pytest.mark.requirement("L1")
def test_a_branch_holds_no_copy_and_its_source_gains_one_event(world: World) -> None:
    session_id = world.conversation(5)
    before = world.events(session_id)
    branch = world.log.fork(session_id, 4, title="Another way")
    assert [e.kind for e in world.events(branch.id)] == ["session"]
    after = world.events(session_id)
    assert after[:-1] == before
    assert after[-1].kind == "session"
    assert history(world, branch.id) == texts(before[:4])
    assert branch.title == "Another way"


@pytest.mark.requirement("C6")
def test_a_continued_session_can_still_be_branched_and_the_branch_answers(world: World) -> None:
    session_id = world.conversation()
    world.log.continue_session(session_id, COMMAND)
    branch = world.log.fork(session_id)
    result = world.log.run(branch.id, "And if we had not?", engine="script")
    assert result.state == "completed"
    assert result.transcript is not None
    assert [m.content for m in result.transcript.messages][-1].startswith("Go on with")


@pytest.mark.requirement("T1")
def test_a_point_between_a_call_and_its_result_gives_a_branch_whose_call_is_answered_as_unknown(
    world: World,
) -> None:
    session_id = world.conversation()
    call = world.call(session_id)
    world.answer(session_id, output="all green")
    branch = world.log.fork(session_id, call.seq)
    messages = world.log.transcript(branch.id).messages
    assert [m.role for m in messages[-2:]] == ["assistant", "tool"]
    assert messages[-1].status == "outcome_unknown"
    assert "all green" not in (messages[-1].tool_output or "")
    result = world.log.run(branch.id, "What came of it?", engine="script")
    assert result.transcript is not None
    assert result.transcript.messages == messages
    assert world.log.transcript(session_id).messages[-1].tool_output == "all green"


@pytest.mark.parametrize("seq", [0, -1, 9999])
def test_a_point_that_does_not_exist_is_refused_and_the_range_is_told(world: World, seq: int) -> None:
    session_id = world.conversation()
    before = world.everything()
    with pytest.raises(EventNotFound, match="events 1 to"):
        world.log.fork(session_id, seq)
    assert world.everything() == before


def test_the_initiating_message_of_a_branch_may_lie_in_its_source_but_never_after_the_point(
    world: World,
) -> None:
    session_id = world.conversation(1)
    point = world.log.session(session_id).head_seq
    world.say(session_id, "Asked after the point.")
    branch = world.log.fork(session_id, point)
    made = world.log.continue_session(branch.id, COMMAND)
    initiating = world.log.manifest(made.successor).initiating
    assert (initiating.seq, world.store.event(initiating.event)) == (
        point,
        world.events(session_id)[point - 1],
    )


def test_a_source_cited_beyond_the_point_stays_a_link(world: World) -> None:
    session_id = world.conversation(1)
    branch = world.log.fork(session_id, 3)
    given = {
        **COMMAND,
        "sources": [
            {"session": session_id, "from_seq": 2, "to_seq": 3},
            {"session": session_id, "from_seq": 3, "to_seq": 4},
        ],
    }
    manifest = world.log.manifest(world.log.continue_session(branch.id, given).successor)
    causes = {o.source: o.cause for o in manifest.omitted if o.source is not None}
    assert causes == {1: "other_session"}
