"""Opening in a workspace: whoever comes back to a folder is told of it, and what a model reads only ever grows (T2)."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tests.service.conversations import World, bodies
from tests.service.guests import ONE_SHOT, Dead, Guest

from onward.core.bodies import BriefContext, OpeningFacts, SessionChange
from onward.engines.contract import Capabilities
from onward.engines.script import Say

REPO = "/repo"
MESSAGES = Capabilities(tools=True, streaming=True)


def facts(world: World, session_id: str) -> list[OpeningFacts]:
    return [b.facts for b in bodies(world.events(session_id), SessionChange) if b.change == "opening"]


def worked(world: World, text: str = "The codeword is walrus.") -> str:
    """Work that was done in the folder before."""
    session = world.log.start(workspace=REPO, engine="script")
    world.log.run(session.id, text, engine="script")
    world.clock.tick(3_600)
    return session.id


@pytest.mark.requirement("O1", "T2")
def test_a_model_is_told_of_the_workspace_in_front_and_every_later_turn_begins_with_the_same_bytes(
    world: World,
) -> None:
    worked(world)
    session = world.log.start(workspace=REPO, engine="script")
    guest = Guest(MESSAGES)
    for number in range(4):
        result = world.log.run(session.id, f"Question {number}.", engine=guest.engine)
        assert result.opening == "seeded"
        world.clock.tick(3_600)
        worked(world, "Meanwhile, next door.")
    first = guest.turns[0].history
    assert [m.role for m in first] == ["user"]
    assert "The codeword is walrus." in first[0].content
    for earlier, later in itertools.pairwise(guest.turns):
        assert [m.content for m in later.history[: len(earlier.history)]] == [
            m.content for m in earlier.history
        ]
        assert later.history[len(earlier.history)].content == earlier.input
    assert "Meanwhile" not in guest.turns[-1].history[0].content
    assert sum("The codeword is walrus." in m.content for m in guest.turns[-1].history) == 1
    [kept] = bodies(world.events(session.id), BriefContext)
    assert (kept.scope, kept.text) == ("workspace", first[0].content)
    told = facts(world, session.id)
    assert (told[0].scope, told[0].given, told[0].rows) == ("workspace", "messages", 2)
    assert (told[1].scope, told[1].rows) == (None, 3)


@pytest.mark.requirement("T2")
@pytest.mark.parametrize("options", [{"max_messages": 2}, {"limit": 3}])
def test_the_brief_stays_in_front_whatever_is_cut(world: World, options: dict[str, int]) -> None:
    worked(world)
    session = world.log.start(workspace=REPO, engine="script")
    guest = Guest(MESSAGES)
    for number in range(8):
        world.log.run(session.id, f"Question {number}.", engine=guest.engine, continuation_opts=options)
    fronts = {turn.history[0].content for turn in guest.turns}
    assert len(fronts) == 1
    assert len(guest.turns[-1].history) <= 4


def test_the_brief_fits_into_what_the_engine_has_room_for(world: World) -> None:
    session = worked(world)
    for number in range(40):
        world.say(session, f"Row {number}: " + "words " * 100)
    small = Guest(Capabilities(window=2_048))
    fresh = world.log.start(workspace=REPO, engine="script")
    assert world.log.run(fresh.id, "Hello?", engine=small.engine).opening == "seeded"
    [brief] = small.turns[0].history
    assert "Row 39" in brief.content
    assert len(brief.content) < 2_048 * 0.6 * 4 + 1_000


@pytest.mark.requirement("T2")
def test_a_first_turn_that_is_tried_again_is_told_the_same(world: World) -> None:
    worked(world)
    session = world.log.start(workspace=REPO, engine="script")
    from onward.engines.script import Fail

    bad = Guest(MESSAGES, steps=(Fail(reason="no"),))
    failed = world.log.run(session.id, "Hello?", engine=bad.engine)
    worked(world, "Meanwhile.")
    world.log.retry(failed.run)
    good = Guest(MESSAGES)
    world.log.run(session.id, engine=good.engine)
    assert [m.content for m in good.turns[0].history] == [m.content for m in bad.turns[0].history]
    assert len(bodies(world.events(session.id), BriefContext)) == 1


def test_an_engine_that_never_began_leaves_no_brief_in_the_log(world: World) -> None:
    worked(world)
    session = world.log.start(workspace=REPO, engine="script")
    assert world.log.run(session.id, "x", engine=Dead()).opening is None
    assert not bodies(world.events(session.id), BriefContext)


@pytest.mark.requirement("T2")
def test_engines_may_take_turns_and_each_is_told_what_the_other_was(world: World) -> None:
    worked(world)
    session = world.log.start(workspace=REPO, engine="script")
    coder, model = Guest(name="claude-code"), Guest(MESSAGES)
    world.log.run(session.id, "To the coder.", engine=coder.engine)
    world.log.run(session.id, "To the model.", engine=model.engine)
    history = [m.content for m in model.turns[0].history]
    assert history[0] == coder.turns[0].brief
    assert history[1:] == ["To the coder.", "Done."]
    world.log.run(session.id, "To the coder again.", engine=coder.engine)
    assert coder.turns[1].brief.count("To the model.") == 1
    # A brief of the conversation itself repeats what is in view: no later turn is given it.
    world.log.run(session.id, "To the model again.", engine=model.engine)
    assert [m.content for m in model.turns[1].history][:3] == history
    assert sum("This is not the previous" in m.content for m in model.turns[1].history) == 1


def test_a_coder_without_memory_begins_with_the_workspace_and_goes_on_with_its_own_rows(world: World) -> None:
    worked(world)
    session = world.log.start(workspace=REPO, engine="script")
    guest = Guest(ONE_SHOT)
    for number in range(3):
        world.log.run(session.id, f"Turn {number}.", engine=guest.engine)
    assert [f.scope for f in facts(world, session.id)] == ["workspace", "session", "session"]
    assert [b.scope for b in bodies(world.events(session.id), BriefContext)] == ["workspace"]
    assert "The user said: Turn 0." in guest.turns[2].brief


def test_a_fresh_start_in_a_folder_without_a_record_is_told_as_that(world: World) -> None:
    session = world.log.start(workspace="/new", engine="script")
    guest = Guest(MESSAGES, steps=(Say(text="Hello."),))
    result = world.log.run(session.id, "Hi.", engine=guest.engine)
    assert result.opening == "fresh"
    assert guest.turns[0].history == ()


def test_the_folder_of_the_workspace_is_where_an_engine_works_if_it_is_there(
    world: World, tmp_path: object
) -> None:
    here = world.log.start(workspace=str(tmp_path), engine="script")
    gone = world.log.start(workspace="/not/on/this/machine", engine="script")
    guest = Guest()
    world.log.run(here.id, "x", engine=guest.engine)
    world.log.run(gone.id, "x", engine=guest.engine)
    world.log.run(here.id, "x", engine=guest.engine, continuation_opts={"workdir": "/elsewhere"})
    assert [turn.workdir for turn in guest.turns] == [str(tmp_path), None, "/elsewhere"]


def test_an_engine_that_acts_never_works_in_another_folder_than_that_of_its_session(
    world: World, tmp_path: Path
) -> None:
    gone = world.log.start(workspace=str(tmp_path / "gone"), engine="script")
    guest = Guest(Capabilities(acts=True))
    result = world.log.run(gone.id, "Delete everything here.", engine=guest.engine)
    assert (result.state, guest.turns) == ("failed", [])
    assert str(tmp_path / "gone") in result.reason
    assert "onward move" in result.reason
    named = world.log.run(gone.id, "x", engine=guest.engine, continuation_opts={"workdir": str(tmp_path)})
    assert named.state == "completed"
    (tmp_path / "gone").mkdir()
    assert world.log.run(gone.id, "x", engine=guest.engine).state == "completed"
    assert [turn.workdir for turn in guest.turns] == [str(tmp_path), str(tmp_path / "gone")]
