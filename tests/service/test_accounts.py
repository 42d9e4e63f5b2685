"""Two accounts on one store: nothing of one is readable, nor reachable by any verb, for the other (A1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.service.conversations import COMMAND, World, new_account, queued

from onward.core.bodies import Plan
from onward.core.records import Link
from onward.errors import NotFound, OnwardError, SourceNotFound
from onward.library import Onward
from onward.service import recalling, running, sessions
from onward.store.contract import Batch


class Theirs:
    """A continued conversation of another account, with a run of each kind."""

    def __init__(self, world: World) -> None:
        self.world = world
        log = world.acting(new_account())
        self.session = log.start("Their walrus", engine="script", workspace="/theirs").id
        world.say(self.session, "Their walrus sings.")
        log.run(self.session, "Sing on.", engine="script")
        self.made = log.continue_session(self.session, COMMAND, key="k")
        self.waiting = queued(log, self.made.successor).id
        self.event = world.events(self.session)[1].id
        self.log = log


VERBS: dict[str, Callable[[Onward, Theirs], Any]] = {
    "session": lambda log, t: log.session(t.session),
    "read": lambda log, t: log.read(t.session),
    "lines": lambda log, t: recalling.read_lines(log.platform, t.session),
    "search from": lambda log, t: log.search("walrus", session_id=t.session),
    "search workspace": lambda log, t: log.search("walrus", session_id=t.session, scope="workspace"),
    "manifest of a session": lambda log, t: log.manifest(t.made.successor),
    "manifest": lambda log, t: log.manifest(t.made.manifest),
    "recompile": lambda log, t: log.recompile(t.log.manifest(t.made.manifest)),
    "fork": lambda log, t: log.fork(t.session, 1),
    "lineage": lambda log, t: log.lineage(t.session),
    "transcript": lambda log, t: log.transcript(t.session),
    "draft": lambda log, t: log.draft(t.session, "Take it over"),
    "continue": lambda log, t: log.continue_session(t.session, COMMAND),
    "continue with their key": lambda log, t: log.continue_session(t.session, COMMAND, key="k"),
    "rename": lambda log, t: log.rename(t.session, "Mine"),
    "archive": lambda log, t: log.archive(t.session),
    "state": lambda log, t: log.set_state(t.session, Plan(revision=1)),
    "erase": lambda log, t: log.erase(t.event),
    "submit": lambda log, t: log.submit(t.session, "Hello?"),
    "run": lambda log, t: log.run(t.made.successor, "Hello?", engine="script"),
    "run what waits": lambda log, t: log.run(t.made.successor, engine="script"),
    "claim": lambda log, t: running.claim(log.platform, t.waiting, "me", engine="script"),
    "cancel": lambda log, t: log.cancel(t.waiting),
    "retry": lambda log, t: log.retry(t.made.run or ""),
    "child": lambda log, t: log.start("A child", parent=t.session),
    "provider sessions": lambda log, t: log.provider_sessions(t.session),
    "recalls": lambda log, t: log.recalls(t.made.successor),
    "verify": lambda log, t: log.verify(t.session),
}


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_reaches_what_belongs_to_another_account(world: World, verb: str) -> None:
    theirs = Theirs(world)
    mine = world.log
    before = [world.events(s) for s in (theirs.session, theirs.made.successor)]
    runs = world.store.runs(theirs.made.successor)
    with pytest.raises(NotFound) as refused:
        VERBS[verb](mine, theirs)
    assert "walrus" not in str(refused.value), "the refusal itself tells nothing"
    assert [world.events(s) for s in (theirs.session, theirs.made.successor)] == before
    assert world.store.runs(theirs.made.successor) == runs


@pytest.mark.requirement("A1")
def test_every_verb_that_is_refused_to_one_account_works_for_the_other(world: World) -> None:
    """Or else the test above would prove nothing."""
    refused_anyway = {"continue", "submit", "retry", "child", "run what waits", "run", "claim", "cancel"}
    for verb in VERBS.keys() - refused_anyway:
        theirs = Theirs(world)
        VERBS[verb](theirs.log, theirs)
    theirs = Theirs(world)
    VERBS["run what waits"](theirs.log, theirs)


@pytest.mark.requirement("A1")
def test_lists_and_searches_of_one_account_hold_nothing_of_the_other(world: World) -> None:
    theirs = Theirs(world)
    mine = world.conversation(1, "my walrus")
    assert [s.id for s in world.log.sessions()[0]] == [mine]
    assert world.log.sessions(workspace="/theirs") == ([], None)
    assert world.log.sessions(text="Their") == ([], None)
    assert {hit.session for hit in world.log.search("walrus").hits} == {mine}
    assert {hit.session for hit in theirs.log.search("walrus").hits} == {theirs.session}
    assert world.log.verify().sessions == 1


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("by", ["session", "event"])
def test_what_belongs_to_another_account_cannot_be_cited(world: World, by: str) -> None:
    theirs = Theirs(world)
    source = {"session": theirs.session, "from_seq": 1} if by == "session" else {"from_event": theirs.event}
    with pytest.raises(SourceNotFound) as refused:
        world.log.continue_session(world.conversation(), {**COMMAND, "sources": [source]})
    assert "may be read" in refused.value.message


@pytest.mark.requirement("A1")
def test_a_lineage_shows_what_may_not_be_read_as_a_breadcrumb_and_reaches_nothing_through_it(
    world: World,
) -> None:
    theirs = Theirs(world)
    mine = world.conversation(1, "my walrus")
    link = Link(
        id=world.ids.new("lnk"),
        type="fork",
        from_session=theirs.session,
        to_session=mine,
        created_at=world.clock(),
        seq=3,
    )
    world.store.commit(Batch(links=(link,)))
    lineage = world.log.lineage(mine)
    assert lineage.sessions[theirs.session] is None
    assert lineage.sessions[mine] == world.log.session(mine)
    assert {s.session for s in sessions.scope(world.platform, world.log.session(mine))} == {mine}
    assert set(sessions.reach(world.platform, mine)) == {mine}
    assert {hit.session for hit in world.log.search("walrus", session_id=mine).hits} == {mine}
    assert not any("Their" in m.content for m in world.log.transcript(mine).messages)
    made = world.log.continue_session(mine, COMMAND)
    text = world.log.transcript(made.successor).messages[0].content
    assert "Their walrus" not in text


@pytest.mark.requirement("A1")
def test_an_account_closes_only_its_own_runs(world: World) -> None:
    theirs = Theirs(world)
    running.claim(theirs.log.platform, theirs.waiting, "r", engine="script")
    own = queued(world.log, world.log.start().id)
    running.claim(world.platform, own.id, "r", engine="script")
    world.clock.tick(3600)
    assert [run.id for run in world.log.expire()] == [own.id]
    assert [run.id for run in theirs.log.expire()] == [theirs.waiting]


@pytest.mark.requirement("A1")
def test_the_same_folder_is_another_workspace_for_each_account(world: World) -> None:
    theirs = Theirs(world)
    mine = world.log.start(workspace="/theirs")
    assert mine.workspace_id != theirs.log.session(theirs.session).workspace_id
    assert [s.id for s in world.log.sessions(workspace="/theirs")[0]] == [mine.id]


@pytest.mark.requirement("A1")
def test_a_refusal_is_the_same_whether_a_thing_is_hidden_or_not_there(world: World) -> None:
    theirs = Theirs(world)

    def told(session_id: str) -> str:
        with pytest.raises(OnwardError) as refused:
            world.log.read(session_id)
        return f"{refused.value.code} {refused.value.message.replace(session_id, '…')}"

    assert told(theirs.session) == told("ses_00000000000000000000000000")
