"""Dispatching: who gets which run, what a repeated claim gets, and what is said while nobody takes a run."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from onward.core.bodies import Message
from onward.core.codec import body_of
from onward.core.events import NewEvent
from onward.core.records import Machine, Offer, Run
from onward.engines.contract import Capabilities
from onward.errors import Conflict, LeaseLost
from onward.library import Onward
from onward.runner.desk import LocalDesk
from onward.service import dispatching, entries, machines, opening, running, sessions, workspaces
from onward.service.hinting import Hint, Hints, hinting
from onward.service.opening import EngineFacts
from onward.service.platform import Platform
from onward.store.memory import MemoryStore
from onward.testing.clock import FakeClock, FakeIds

SCRIPT = Offer(name="script")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def platform(clock: FakeClock) -> Platform:
    return Platform(store=MemoryStore(), clock=clock, ids=FakeIds(clock), host="home")


@pytest.fixture
def tower(platform: Platform) -> Machine:
    return machines.register(platform, "tower", [SCRIPT])


def queue(
    platform: Platform,
    *,
    engine: str = "script",
    workspace: str | None = None,
    machine: Machine | None = None,
) -> Run:
    session = sessions.start(platform, "x", workspace=workspace, machine=machine, engine=engine)
    return running.submit(platform, session.id, "Hello")


def claim(platform: Platform, machine: Machine, name: str, *engines: str) -> Run | None:
    return dispatching.claim_next(platform, machine, engines or ("script",), claim=name)


def test_what_waits_longest_is_claimed_first_for_as_long_as_another_machine_may_be_away(
    platform: Platform, tower: Machine, clock: FakeClock
) -> None:
    first, second = queue(platform), queue(platform)
    taken = claim(platform, tower, "one")
    assert taken is not None
    assert (taken.id, taken.state, taken.owner, taken.machine_id) == (first.id, "running", "tower", tower.id)
    assert taken.lease_until == clock() + 900_000_000
    clock.tick(899)
    assert running.expire(platform) == []
    clock.tick(2)
    assert [run.id for run in running.expire(platform)] == [first.id]
    assert getattr(claim(platform, tower, "two"), "id", None) == second.id


@pytest.mark.requirement("L3")
def test_a_claim_that_is_repeated_gets_the_run_that_it_got(platform: Platform, tower: Machine) -> None:
    first, second = queue(platform), queue(platform)
    for _ in range(3):
        assert getattr(claim(platform, tower, "one"), "id", None) == first.id
    laptop = machines.register(platform, "laptop", [SCRIPT])
    assert getattr(claim(platform, laptop, "one"), "id", None) == second.id
    assert claim(platform, laptop, "two") is None


def test_a_claim_that_is_given_back_before_anything_was_said_waits_again(
    platform: Platform, tower: Machine
) -> None:
    run = queue(platform)
    assert claim(platform, tower, "one") is not None
    dispatching.give_back(platform, tower, "another")
    assert running.get(platform, run.id).state == "running"
    dispatching.give_back(platform, tower, "one")
    assert running.get(platform, run.id).state == "interrupted"
    again = claim(platform, tower, "two")
    assert again is not None
    assert again.retry_of == run.id


@pytest.mark.requirement("L6")
def test_machines_that_ask_at_once_never_get_the_same_run(platform: Platform) -> None:
    many = [machines.register(platform, f"m{n}", [SCRIPT]) for n in range(4)]
    runs = {queue(platform).id for _ in range(40)}
    together = threading.Barrier(len(many))

    def work(machine: Machine) -> list[str]:
        together.wait(30)
        taken = []
        while (run := claim(platform, machine, f"{machine.name} {len(taken)}")) is not None:
            taken.append(run.id)
        return taken

    with ThreadPoolExecutor(len(many)) as pool:
        found = [run for taken in pool.map(work, many) for run in taken]
    # One that lost every candidate it saw may stop early; what is left waits for whoever asks next.
    rest = []
    while (run := claim(platform, many[0], f"rest {len(rest)}")) is not None:
        rest.append(run.id)
    assert sorted(found + rest) == sorted(runs)


@pytest.mark.requirement("A1")
def test_a_machine_gets_no_run_of_another_account(platform: Platform, tower: Machine) -> None:
    theirs = replace(platform, account_id="acc_0000000000000000000000000B")
    queue(theirs)
    assert claim(platform, tower, "one") is None


# -- what is said meanwhile ---------------------------------------------------------------------------------------------


def test_a_run_says_which_machine_it_waits_for(platform: Platform, tower: Machine, clock: FakeClock) -> None:
    run = queue(platform, workspace="/p", machine=tower)
    assert dispatching.why_waiting(platform, run) == ""
    clock.tick(61)
    assert dispatching.why_waiting(platform, run) == "tower is offline."
    machines.register(platform, "tower", [replace(SCRIPT, unavailable="it is broken")])
    assert dispatching.why_waiting(platform, run) == "tower cannot run script: it is broken."
    machines.register(platform, "tower", [SCRIPT])
    taken = claim(platform, tower, "one")
    assert taken is not None
    assert dispatching.why_waiting(platform, taken) == ""


def test_a_run_without_a_workspace_waits_for_any_machine_that_has_its_engine(
    platform: Platform, tower: Machine, clock: FakeClock
) -> None:
    run = queue(platform)
    clock.tick(61)
    assert dispatching.why_waiting(platform, run) == "tower is offline."
    machines.register(platform, "laptop", [SCRIPT])
    assert dispatching.why_waiting(platform, run) == ""
    assert dispatching.why_waiting(platform, queue(platform, engine="codex")) == ""


def test_a_run_says_what_is_before_it(platform: Platform, tower: Machine) -> None:
    first = queue(platform)
    second = running.submit(platform, first.session_id, "And then?")
    assert dispatching.why_waiting(platform, second) == "Another message is before it."
    claim(platform, tower, "one")
    assert dispatching.why_waiting(platform, second) == "Another message is being answered."


def test_a_message_for_another_machine_is_left_for_it_and_the_result_says_so(
    platform: Platform, tower: Machine, clock: FakeClock
) -> None:
    session = sessions.start(platform, "x", workspace="/p", machine=tower, engine="script")
    log = Onward(platform)
    result = log.run(session.id, "Hello")
    assert (result.state, result.reason) == ("queued", "It waits: tower executes it.")
    clock.tick(61)
    assert log.run(session.id).reason == "It waits: tower is offline."
    workspaces.move(platform, "/p", machines.register_here(platform), "/p")
    assert log.run(session.id).state == "completed"


# -- numbered entries ---------------------------------------------------------------------------------------------------


def entry(platform: Platform, run: Run, number: int, *events: NewEvent) -> None:
    """Make one entry the way the server does."""
    held = entries.held(platform, run.id, run.fence)
    if entries.was_acknowledged(held, number):
        return
    through, store = entries.numbered(platform, held, number)
    asyncio.run(LocalDesk(through).record(held, events))
    store.finish()


@pytest.mark.requirement("L3", "L6")
def test_an_entry_is_made_once_and_in_order(platform: Platform, tower: Machine) -> None:
    queue(platform)
    run = claim(platform, tower, "one")
    assert run is not None

    def said(text: str) -> NewEvent:
        return platform.event("message", Message(role="assistant", text=text), "agent", run_id=run.id)

    entry(platform, run, 1, said("one"))
    for _ in range(2):
        entry(platform, run, 2, said("two"))
    entry(platform, run, 3)
    with pytest.raises(Conflict):
        entry(platform, run, 5, said("too early"))
    with pytest.raises(LeaseLost):
        entry(platform, replace(run, fence=run.fence + 1), 4, said("not ours"))
    told = [body_of(e) for e in platform.store.events(run.session_id, kinds=("message",))]
    assert [getattr(body, "text", "") for body in told] == ["Hello", "one", "two"]
    assert running.get(platform, run.id).entries == 3


@pytest.mark.requirement("L3", "C3")
def test_a_tool_that_is_called_again_under_its_id_writes_nothing_twice(
    platform: Platform, tower: Machine
) -> None:
    queue(platform)
    run = claim(platform, tower, "one")
    assert run is not None
    facts = EngineFacts(name="script", capabilities=Capabilities(tools=True))

    def call(name: str) -> object:
        desk = LocalDesk(entries.calling(platform, run, name))
        tool = next(tool for tool in desk.tools(run, facts) if tool.name == "read_events")
        return asyncio.run(tool.call(name, {"to_seq": 1})).output

    assert call(f"{run.id}.1") == call(f"{run.id}.1")
    call(f"{run.id}.2")
    recalled = platform.store.events(run.session_id, kinds=("recalled",))
    assert len(recalled) == 2
    with pytest.raises(LeaseLost):
        call("run_other.1")


# -- hints --------------------------------------------------------------------------------------------------------------


def test_whoever_listens_hears_which_sessions_were_written_to(platform: Platform) -> None:
    hints, heard = Hints(), list[Hint]()
    there = replace(platform, store=hinting(platform.store, hints))
    stop = hints.listen(heard.append)
    run = queue(there)
    assert [hint.runs for hint in heard] == [False, True]
    assert {name for hint in heard for name in hint.sessions} == {run.session_id}
    stop()
    queue(there)
    assert len(heard) == 2


@pytest.mark.requirement("L3")
def test_what_an_engine_is_given_can_be_asked_for_again(platform: Platform, tower: Machine) -> None:
    queue(platform)
    run = claim(platform, tower, "one")
    assert run is not None
    able = Capabilities(memory=True, chooses_id=True, reads="text")
    facts = EngineFacts(name="script", capabilities=able, machine=tower.id)
    first, again = (opening.prepare(platform, run, facts) for _ in range(2))
    assert first.new_id is not None
    assert again == first
    (begun,) = platform.store.engine_sessions(run.session_id)
    assert begun.native_id == first.new_id
