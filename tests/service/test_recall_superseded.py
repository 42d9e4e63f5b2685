"""Hits that a later event of the same line replaces name it, and only then."""

from __future__ import annotations

import itertools

import pytest
from tests.service.conversations import World
from tests.service.test_recall_search import continued, said

from onward.core.bodies import Plan, PlanStep, ToolCall, ToolResult
from onward.core.codec import body_of
from onward.core.events import Event
from onward.service.superseded import superseded

OLD, NEW = "The gateway port is 8417.", "The gateway port is now 9000."


def named(world: World, query: str, **options: object) -> dict[str, str | None]:
    """Each hit's text, with the text of what it says replaces it."""
    found = world.log.search(query, **options).hits
    by = {hit.event: hit.text for hit in found}
    return {hit.text: by.get(hit.superseded_by, hit.superseded_by) for hit in found}


def test_a_hit_names_the_later_statement_and_stands_behind_it(world: World) -> None:
    session = said(world, OLD, "Fine.", NEW)
    found = world.log.search("gateway port", session_id=session).hits
    assert [hit.text for hit in found] == [NEW, OLD]
    assert found[1].superseded_by == found[0].event
    assert found[0].superseded_by is None


def test_a_successor_replaces_what_its_predecessor_said_and_never_the_other_way_round(world: World) -> None:
    first, second = said(world, OLD), said(world, NEW)
    continued(world, first, second)
    for asked_from in (first, second):
        assert named(world, "gateway port", session_id=asked_from) == {OLD: NEW, NEW: None}
    third = said(world, OLD)
    continued(world, second, third)
    # It came back: what says so now is true, and so is what said it first.
    assert named(world, "gateway port", session_id=third, limit=1) == {OLD: None}


def test_nothing_is_replaced_by_another_lineage_or_a_delegated_child(world: World) -> None:
    session = said(world, OLD)
    said(world, NEW)
    child = world.log.start("Child", parent=session).id
    said(world, NEW, session=child)
    assert set(named(world, "gateway port").values()) == {None}


def test_a_branch_is_judged_by_its_own_line(world: World) -> None:
    source = said(world, OLD)
    branch = world.log.fork(source).id
    said(world, NEW, session=source)
    assert named(world, "gateway port", session_id=branch) == {OLD: None}
    assert named(world, "gateway port", session_id=source) == {OLD: NEW, NEW: None}
    said(world, "The gateway port is now 7000.", session=branch)
    assert named(world, "gateway port", session_id=branch)[OLD] == "The gateway port is now 7000."


def test_with_several_successors_the_newest_one_decides(world: World) -> None:
    session, older, newer = said(world, OLD), said(world, NEW), said(world, "The gateway port is now 7000.")
    continued(world, session, older)
    continued(world, session, newer)
    assert named(world, "gateway port", session_id=session)[OLD] == "The gateway port is now 7000."
    assert named(world, "gateway port", session_id=older)[OLD] == NEW


def test_a_statement_far_behind_many_others_on_the_same_words_is_still_compared(world: World) -> None:
    session = said(
        world, OLD, NEW, *(f"We talked about the gateway and a port, {n} times." for n in range(15))
    )
    assert named(world, "gateway port", session_id=session, limit=50)[OLD] == NEW


def touched(
    world: World, session: str, number: int, name: str, path: str, *, ok: bool = True
) -> tuple[Event, Event]:
    call = ToolCall(call=f"c{number}", name=name, input={"path": path, "note": "pelican"})
    result = ToolResult(call=f"c{number}", output=f"pelican {number}", status="ok" if ok else "error")
    (one,) = world.tell(session, world.platform.event("tool_call", call, "agent"))
    (two,) = world.tell(session, world.platform.event("tool_result", result, "tool"))
    return one, two


def test_a_file_that_was_read_or_written_again_names_the_later_time(world: World) -> None:
    session = world.log.start("Files").id
    read, seen = touched(world, session, 1, "read_file", "src/a.py")
    other, _ = touched(world, session, 2, "read_file", "lib/a.py")
    again, seen_again = touched(world, session, 3, "read_file", "src/a.py")
    failed, _ = touched(world, session, 4, "write_file", "src/a.py", ok=False)
    by = {hit.event: hit.superseded_by for hit in world.log.search("pelican", session_id=session).hits}
    assert by[read.id] == by[seen.id] == seen_again.id
    assert by[again.id] is by[seen_again.id] is by[other.id] is by[failed.id] is None
    wrote, _ = touched(world, session, 5, "edit_file", "src/a.py")
    by = {hit.event: hit.superseded_by for hit in world.log.search("pelican", session_id=session).hits}
    assert by[read.id] == by[seen_again.id] == by[failed.id] == wrote.id


@pytest.mark.requirement("P6")
def test_an_older_revision_of_the_plan_names_the_newest(world: World) -> None:
    session = world.log.start("Plans").id
    first, second, third = (
        world.log.set_state(session, Plan(revision=n, steps=(PlanStep(id="s1", text=f"step {n}"),)))
        for n in (1, 2, 3)
    )
    found = superseded(world.platform, [(event, body_of(event)) for event in (first, second, third)])
    assert {event: (by.by, by.rule) for event, by in found.items()} == {
        first.id: (third.id, "revision"),
        second.id: (third.id, "revision"),
    }


def test_whatever_is_named_comes_later_on_the_line(world: World) -> None:
    values = [8417, 9000, 8417, 7000, 7000, 9000]
    sessions = [said(world, f"The gateway port is now {a}.", f"The relay port is now {b}.")
                for a, b in zip(values, reversed(values), strict=True)]  # fmt: skip
    for before, after in itertools.pairwise(sessions):
        continued(world, before, after)
    place = {event.id: (n, event.seq) for n, name in enumerate(sessions) for event in world.events(name)}
    found = world.log.search("port", session_id=sessions[2], limit=50).hits
    assert len(found) == 12
    assert any(hit.superseded_by for hit in found)
    for hit in found:
        if hit.superseded_by:
            assert place[hit.superseded_by] > place[hit.event]
