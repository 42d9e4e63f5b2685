"""A manifest is enough: what was compiled can be compiled again from the log, and gives the same digest (P1)."""

from __future__ import annotations

import pytest
from tests.service.conversations import CITING, COMMAND, World

from onward.core.bodies import Plan, PlanStep, ProjectionContext
from onward.core.codec import body_of
from onward.errors import InvalidInput, ManifestNotFound


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
