"""The timeline of a workspace and what a brief is made from: whose rows, which of them, and at what cost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.service.conversations import COMMAND, World, new_account

from onward.core.bodies import BriefContext, Command, Message, Outcome, Terminal
from onward.core.events import Event, NewEvent
from onward.errors import InvalidInput, LimitExceeded, WorkspaceNotFound
from onward.service import briefing, sessions
from onward.service.briefing import Composed, brief_for, timeline
from onward.store.contract import Append, Batch

REPO = "/repo"


def told(world: World, session_id: str, text: str, *, at: int | None = None) -> Event:
    """Let the user say something, a second later than everything before."""
    world.clock.tick()
    return world.say(session_id, text)


def texts(found: briefing.Timeline) -> list[str]:
    return [row.text for row in found.rows]


def brief(world: World, session_id: str, **options: Any) -> Composed:
    """The brief for a question that is asked now."""
    asked = told(world, session_id, "What now?")
    return brief_for(world.platform, session_id, asked, **{"window": None, **options})


def test_sessions_of_a_workspace_share_one_timeline_in_the_order_of_time(world: World) -> None:
    one = world.log.start(workspace=REPO)
    two = world.log.start(workspace=REPO)
    elsewhere = world.log.start(workspace="/other")
    for number in range(6):
        told(world, (one, two)[number % 2].id, f"Number {number}.")
    told(world, elsewhere.id, "Not here.")
    found = world.log.timeline(REPO)
    assert texts(found) == [f"Number {n}." for n in range(6)]
    assert [row.session for row in found.rows] == [one.id, two.id] * 3
    assert not found.more


def test_a_timeline_is_read_backwards_from_its_end_and_forwards_from_any_time(world: World) -> None:
    session = [world.log.start(workspace=REPO).id for _ in range(3)]
    for number in range(30):
        told(world, session[number % 3], str(number))
    newest = world.log.timeline(REPO, limit=12)
    assert (texts(newest), newest.more) == ([str(n) for n in range(18, 30)], True)
    back: list[str] = []
    page = newest
    while True:
        back = [*texts(page), *back]
        if not page.more:
            break
        page = world.log.timeline(REPO, before=page.rows[0].at, limit=12)
    assert back == [str(n) for n in range(30)]
    forth: list[str] = []
    since = 0
    while True:
        page = world.log.timeline(REPO, since=since, limit=7)
        forth += texts(page)
        if not page.more:
            break
        since = page.rows[-1].at
    assert forth == back
    after = world.log.timeline(REPO, since=page.rows[-1].at)
    assert (after.rows, after.more) == ((), False)


def test_a_page_never_ends_between_rows_of_the_same_moment(world: World) -> None:
    session = world.log.start(workspace=REPO)
    world.clock.tick()
    for number in range(5):
        world.say(session.id, str(number))  # the clock stands still
    assert texts(world.log.timeline(REPO, limit=2)) == ["0", "1", "2", "3", "4"]
    assert texts(world.log.timeline(REPO, since=0, limit=2)) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"since": 1, "before": 2}, InvalidInput),
        ({"limit": 0}, LimitExceeded),
        ({"limit": 201}, LimitExceeded),
    ],
)
def test_a_question_that_means_nothing_is_refused(
    world: World, options: dict[str, Any], error: type[Exception]
) -> None:
    world.log.start(workspace=REPO)
    with pytest.raises(error):
        world.log.timeline(REPO, **options)
    with pytest.raises(WorkspaceNotFound):
        world.log.timeline("/nowhere")


@pytest.mark.requirement("A1")
def test_another_accounts_work_in_the_same_folder_is_in_no_timeline_and_no_brief(world: World) -> None:
    mine = world.log.start(workspace=REPO)
    told(world, mine.id, "Mine.")
    other = world.acting(new_account())
    theirs = other.start(workspace=REPO)
    world.clock.tick()
    other.submit(theirs.id, "Theirs.", engine="script")
    other.run(theirs.id, engine="script")
    assert texts(world.log.timeline(REPO)) == ["Mine."]
    assert "Mine." not in texts(other.timeline(REPO))
    fresh = world.log.start(workspace=REPO)
    found = brief(world, fresh.id)
    assert "Mine." in found.text
    assert "Theirs." not in found.text


def test_what_a_continuation_carried_over_is_told_once(world: World) -> None:
    session = world.log.start(workspace=REPO)
    told(world, session.id, "Write the release notes.")
    made = world.log.continue_session(session.id, COMMAND)
    told(world, made.successor, "And the changelog.")
    assert texts(world.log.timeline(REPO)).count("Write the release notes.") == 1
    assert texts(world.log.timeline(REPO))[-1] == "And the changelog."


def test_delegated_sessions_are_left_out_unless_they_are_asked_for_and_archived_ones_are_not(
    world: World,
) -> None:
    parent = world.log.start(workspace=REPO)
    told(world, parent.id, "Parent.")
    child = world.log.start(workspace=REPO, parent=parent.id)
    told(world, child.id, "Child.")
    world.log.archive(parent.id)
    assert texts(world.log.timeline(REPO)) == ["Parent."]
    assert texts(world.log.timeline(REPO, children=True)) == ["Parent.", "Child."]


def test_a_conversation_is_briefed_from_its_own_rows_and_not_from_its_neighbours(world: World) -> None:
    neighbour = world.log.start(workspace=REPO)
    told(world, neighbour.id, "Next door.")
    session = world.log.start("Parsing", workspace=REPO)
    told(world, session.id, "In here.")
    found = brief(world, session.id)
    assert found.scope == "session"
    assert "In here." in found.text
    assert "The record of “Parsing”" in found.text
    assert "Next door." not in found.text
    assert "What now?" not in found.text


def test_one_without_rows_is_briefed_from_its_workspace_and_every_change_of_place_is_marked(
    world: World,
) -> None:
    one, two = (world.log.start(workspace=REPO).id for _ in range(2))
    for number in range(4):
        told(world, (one, two)[number // 2], f"Number {number}.")
    fresh = world.log.start(workspace=REPO)
    found = brief(world, fresh.id)
    assert (found.scope, found.brief.rows) == ("workspace", 4)
    assert f"The record of {REPO}, from" in found.text
    assert (
        found.text.index(f"— in {one} —") < found.text.index("Number 0.") < found.text.index(f"— in {two} —")
    )


def test_a_workspace_is_told_as_far_back_as_the_window_reaches(world: World) -> None:
    one = world.log.start(workspace=REPO)
    told(world, one.id, "Long ago.")
    world.clock.tick(5 * 86_400)
    told(world, one.id, "Of late.")
    fresh = world.log.start(workspace=REPO)
    found = brief(world, fresh.id, window=4 * 86_400.0)
    assert "Long ago." not in found.text
    assert "older ones exist" in found.text
    another = world.log.start(workspace=REPO)
    assert "Long ago." in brief(world, another.id, window=None).text


@pytest.mark.parametrize("workspace", [None, REPO])
def test_where_nothing_was_said_there_is_no_brief(world: World, workspace: str | None) -> None:
    session = world.log.start(workspace=workspace)
    assert brief(world, session.id) == Composed()


def test_panes_commands_and_outcomes_are_told_and_an_earlier_brief_is_not(world: World) -> None:
    session = world.log.start()
    new = world.platform.event
    world.tell(
        session.id,
        new("command", Command(text="make test"), "user"),
        new("terminal", Terminal(text="1 failed"), "tool"),
        new("outcome", Outcome(text="It failed.", status="failed"), "system"),
        new("context", BriefContext(text="An earlier brief.", rows=3), "system"),
    )
    text = brief(world, session.id).text
    for line in (
        "A command was given: make test",
        "The terminal showed: 1 failed",
        "The work ended (failed): It failed.",
    ):
        assert line in text
    assert "An earlier brief." not in text


def test_an_erased_text_is_in_no_brief_and_that_something_was_erased_is(world: World) -> None:
    session = world.log.start()
    secret = told(world, session.id, "The password is hunter2.")
    world.log.erase(secret.id)
    text = brief(world, session.id).text
    assert "hunter2" not in text
    assert "An entry was erased" in text


class Counting:
    """A store that counts what is read from it."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.events_read = self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def events(self, *args: Any, **named: Any) -> Any:
        found = self.store.events(*args, **named)
        self.events_read += len(found)
        self.calls += 1
        return found


def filled(world: World, session_id: str, count: int) -> None:
    """Append many messages in few commits."""
    for start in range(0, count, 500):
        new: list[NewEvent] = []
        for number in range(start, min(start + 500, count)):
            world.clock.tick()
            new.append(
                world.platform.event("message", Message(role="user", text=f"Number {number}."), "user")
            )
        world.store.commit(Batch(appends=(Append(session_id=session_id, events=tuple(new)),)))


@pytest.mark.parametrize("scope", ["session", "workspace", "since", "before"])
def test_what_is_read_does_not_grow_with_the_log(world: World, scope: str) -> None:
    costs = []
    for count in (500, 5_000):
        folder = f"/repo{count}"
        long = world.log.start(workspace=folder)
        filled(world, long.id, count)
        asking = long if scope == "session" else world.log.start(workspace=folder)
        asked = told(world, asking.id, "What now?")
        counting = Counting(world.store)
        platform = world.acting(store=counting).platform  # type: ignore[arg-type]
        if scope in ("session", "workspace"):
            found = brief_for(platform, asking.id, asked, window=None)
            assert (found.scope, found.brief.rows, found.fault) == (scope, 60, "")
        else:
            timeline(platform, folder, **{scope: asked.at - 60_000_000}, limit=20)
        costs.append((counting.events_read, counting.calls))
    (few, calls), (many, more_calls) = costs
    assert many <= few + 8
    assert more_calls <= calls + 8  # halving goes a few steps further
    assert many <= 500


def test_the_current_conversation_of_a_folder_is_the_newest_that_was_not_put_away(world: World) -> None:
    assert sessions.current(world.platform, REPO) is None
    old = world.log.start("Old", workspace=REPO)
    told(world, old.id, "x")
    new = world.log.start("New", workspace=REPO)
    told(world, new.id, "x")
    world.log.start("Child", workspace=REPO, parent=new.id)
    assert world.log.open(REPO).id == new.id
    told(world, old.id, "Again.")
    assert world.log.open(REPO).id == old.id
    world.log.archive(old.id)
    assert world.log.open(REPO).id == new.id
    world.log.archive(new.id)
    assert sessions.current(world.platform, REPO) is None
    made = world.log.open(REPO, "Anew")
    assert (made.title, made.id in (old.id, new.id)) == ("Anew", False)
    assert world.log.open(REPO).id == made.id


def test_a_continued_conversation_leads_to_where_it_went_on(world: World) -> None:
    session = world.log.start(workspace=REPO)
    told(world, session.id, "Write the release notes.")
    first = world.log.continue_session(session.id, COMMAND)
    world.log.run(first.successor, engine="script")
    told(world, first.successor, "More.")
    second = world.log.continue_session(first.successor, COMMAND)
    assert world.log.open(REPO).id == second.successor
