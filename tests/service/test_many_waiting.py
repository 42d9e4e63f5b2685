"""Very many messages and requests that wait: each is read a fixed number of times, however many there are."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onward.core.bodies import Approval
from onward.engines.contract import Permission
from onward.service import approving, permitting, running, sessions
from onward.service.platform import Platform
from onward.store.contract import Append, Batch
from onward.store.memory import MemoryStore
from onward.surfaces.http import shapes
from onward.surfaces.http.console import about

MANY = 400


class Counting:
    """A store that counts what is read from it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("events", "event", "unfinished", "runs", "run"):
            return found

        def counted(*args: Any, **named: Any) -> Any:
            result = found(*args, **named)
            self.read += len(result) if isinstance(result, list) else int(result is not None)
            return result

        return counted


@pytest.fixture
def platform() -> Platform:
    return Platform(store=MemoryStore(), host="home")


def counted(platform: Platform) -> tuple[Platform, Counting]:
    store = Counting(platform.store)  # type: ignore[arg-type]  # it is one here
    return replace(platform, store=store), store


def test_many_messages_that_wait_are_read_twice_for_the_page_and_told_in_their_order(
    platform: Platform,
) -> None:
    session = sessions.start(platform, "Much to do", engine="script")
    runs = [running.submit(platform, session.id, f"number {number}") for number in range(MANY)]
    watched, store = counted(platform)
    shown = about.facts(watched, session)
    # Those that wait and what is spent, each once, and the few that are shown.
    assert store.read < 3 * MANY
    assert [one.run for one in shown.queued] == [run.id for run in runs[: about.QUEUED]]
    assert [one.why for one in shown.queued[:2]] == ["", "Another message is before it."]
    assert shown.more_queued == MANY - about.QUEUED


def test_many_runs_in_a_list_say_what_they_wait_for_from_one_reading(platform: Platform) -> None:
    session = sessions.start(platform, "Much to do", engine="script")
    for number in range(MANY):
        running.submit(platform, session.id, f"number {number}")
    found = platform.store.runs(session.id, limit=200)
    watched, store = counted(platform)
    unfinished = platform.store.unfinished(session.id)
    assert [shapes.run(run, watched, unfinished) for run in found] == [
        shapes.run(run, platform) for run in found
    ]
    assert store.read == 0


def test_many_permissions_are_told_with_their_answers_from_one_reading(platform: Platform) -> None:
    session = sessions.start(platform, "Much to ask", engine="script")
    run = running.claim(platform, running.submit(platform, session.id, "Go").id, "home", engine="script")
    asked = [
        platform.event(
            "approval",
            permitting.request(Permission(call=f"c{n}", tool="rm", input={}, subject=f"rm {n}")),
            "agent",
            run_id=run.id,
        )
        for n in range(MANY)
    ]
    running.record(platform, run, asked)
    for event in asked[::2]:
        said = Approval(state="granted", subject="rm", call="c", answers=event.id)
        late = replace(said, state="denied")
        events = tuple(platform.event("approval", one, "user", run_id=run.id) for one in (said, late))
        platform.store.commit(Batch(appends=(Append(session_id=session.id, events=events),)))
    watched, store = counted(platform)
    waiting = permitting.permissions(watched, session.id)
    assert [one.id for one in waiting] == [event.id for event in asked[1::2]]
    assert store.read < 3 * MANY
    everything = permitting.permissions(platform, session.id, answered=True)
    assert everything == [permitting.requested(platform, event.id) for event in asked]
    assert {one.state for one in everything} == {"requested", "granted"}  # the first answer holds
    watched, store = counted(platform)
    assert approving.approvals(watched, session.id) == []
    assert store.read < 3 * MANY
