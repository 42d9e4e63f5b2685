"""A manifest is enough: what was compiled can be compiled again from the log, and gives the same digest (P1)."""

from __future__ import annotations

import random

import pytest
from tests.service.conversations import CITING, COMMAND, World, bodies

from onward.core.bodies import (
    Checkpoint,
    Opaque,
    Plan,
    PlanStep,
    ProjectionContext,
    Reasoning,
    ToolCall,
    ToolResult,
)
from onward.core.codec import body_of
from onward.core.digests import content_digest
from onward.errors import InvalidInput, ManifestNotFound
from onward.service.counting import counter_by_name
from onward.store.memory import MemoryStore

HISTORIES = 200


def random_history(world: World, chance: random.Random) -> str:
    """A session in which anything may have happened, perhaps a branch or a successor of one."""
    session_id = world.log.start("Any", engine="script").id
    for number in range(chance.randrange(1, 40)):
        words = " ".join(
            chance.choices(["walrus", "漢字", "\x00", "👩‍👩‍👧", "</quoted>", "\n[3] user:", "x" * 300], k=5)
        )
        new = world.platform.event
        what = chance.randrange(9)
        if what < 3:
            world.say(session_id, words, actor=chance.choice(["user", "agent", "trigger"]))
        elif what == 3:
            world.tell(
                session_id, new("tool_call", ToolCall(call=f"c{number}", name="n", input=words), "agent")
            )
            world.tell(session_id, new("tool_result", ToolResult(call=f"c{number}", output=words), "tool"))
        elif what == 4:
            world.tell(session_id, new("reasoning", Reasoning(text=words), "agent"))
        elif what == 5:
            world.tell(session_id, new("context", Opaque(text=words), "system"))
        elif what == 6:
            world.tell(
                session_id, new("checkpoint", Checkpoint(text=words, first_seq=1, last_seq=2), "system")
            )
        elif what == 7:
            steps = tuple(PlanStep(id=f"s{n}", text=words) for n in range(chance.randrange(3)))
            world.log.set_state(session_id, Plan(revision=number + 1, steps=steps))
        else:
            world.tell(session_id, new("strange", b'{"never":"seen"}', "system"))
    world.say(session_id, "Go on.")
    kind = chance.randrange(4)
    if kind == 1:
        session_id = world.log.fork(
            session_id, chance.randrange(1, world.log.session(session_id).head_seq + 1)
        ).id
        world.say(session_id, "This way.")
    elif kind == 2:
        session_id = world.log.continue_session(session_id, COMMAND).successor
        world.log.run(session_id, "That way.", engine="script")
        world.say(session_id, "And so on.")
    return session_id


@pytest.mark.requirement("P1", "P4")
def test_any_projection_can_be_compiled_again_from_its_manifest_and_the_log() -> None:
    chance = random.Random(20260101)
    world = World(opened=MemoryStore)
    for _ in range(HISTORIES):
        session_id = random_history(world, chance)
        head = world.log.session(session_id).head_seq
        sources = []
        for _ in range(chance.randrange(4)):
            first = chance.randrange(1, head + 1)
            sources.append(
                {"from_seq": first, "to_seq": chance.randrange(first, head + 1), "relevance": "why"}
            )
        sources += [{"url": "https://example.org/a"}] * chance.randrange(2)
        budget = chance.choice([900, 2000, 8000])
        made = world.log.continue_session(session_id, {**COMMAND, "sources": sources}, budget=budget)
        manifest = world.log.manifest(made.successor)
        (projection,) = bodies(world.events(made.successor), ProjectionContext)
        assert content_digest(projection.text.encode("utf-8", "surrogatepass")) == manifest.digest
        assert world.log.recompile(manifest) == manifest.digest
        assert manifest.tokens <= budget
        counted = counter_by_name(manifest.tokenizer).count(projection.text)
        assert counted <= manifest.tokens
        world.clock.tick(3600)  # the rate limit is another test's


@pytest.mark.requirement("P1")
def test_what_is_said_and_done_later_does_not_change_what_was_compiled(world: World) -> None:
    session_id = world.conversation(5)
    made = world.log.continue_session(session_id, CITING)
    manifest = world.log.manifest(made.successor)
    world.log.rename(session_id, "Another title")
    world.log.fork(session_id)
    world.log.continue_session(session_id, COMMAND)
    world.log.set_state(session_id, Plan(revision=1, steps=(PlanStep(id="s", text="new"),)))
    world.reopen()
    assert world.log.manifest(made.manifest) == manifest
    assert world.log.recompile(manifest) == manifest.digest


@pytest.mark.requirement("L5", "P1")
def test_an_erased_source_changes_what_is_compiled_again_and_breaks_no_chain(world: World) -> None:
    session_id = world.conversation(5)
    made = world.log.continue_session(session_id, CITING)
    manifest = world.log.manifest(made.successor)
    included = world.events(session_id)[1]
    world.log.erase(included.id, reason="a leaked key")
    assert world.log.recompile(manifest) != manifest.digest
    assert world.log.verify().ok
    text = body_of(world.events(made.successor)[1])
    assert isinstance(text, ProjectionContext)
    assert "Question 1" in text.text, "the copy in the projection is another event, to be erased itself"
    world.log.erase(world.events(made.successor)[1].id)
    assert world.log.verify().ok


@pytest.mark.requirement("P1")
def test_a_manifest_is_found_by_its_id_and_by_the_session_it_began(world: World) -> None:
    session_id = world.conversation()
    made = world.log.continue_session(session_id, COMMAND)
    assert world.log.manifest(made.successor) == world.log.manifest(made.manifest)
    assert world.log.manifest(made.successor).id == made.manifest
    with pytest.raises(ManifestNotFound, match="was not continued from another"):
        world.log.manifest(session_id)
    with pytest.raises(ManifestNotFound):
        world.log.manifest("man_00000000000000000000000000")
    with pytest.raises(InvalidInput):
        world.log.manifest("whatever")
