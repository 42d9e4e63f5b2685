"""Cut off at any call to the store, a continuation exists whole or not at all, and its key makes it whole (C2, C3)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from tests.service.conversations import CITING, World, call_directive, halves

from onward.core.bodies import Plan, PlanStep
from onward.errors import StoreError


class Cut(Exception):
    """The process is gone."""


class Breaking:
    """A store that breaks at its n-th call, before or after doing what was asked."""

    def __init__(self, store: Any, at: int, *, after: bool, error: type[Exception] = Cut) -> None:
        self._store, self._at, self._after, self._error = store, at, after, error
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*args: Any, **named: Any) -> Any:
            self.calls.append(name)
            broken = len(self.calls) == self._at
            if broken and not self._after:
                raise self._error(name)
            result = found(*args, **named)
            if broken:
                raise self._error(name)
            return result

        return call


def prepared(world: World) -> str:
    session_id = world.conversation(3)
    world.log.set_state(session_id, Plan(revision=1, steps=(PlanStep(id="s1", text="fix dates"),)))
    return session_id


@pytest.mark.requirement("C2", "C3")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_continuation_cut_off_at_any_call_is_whole_or_nothing_and_its_key_completes_it(
    world: World, after: bool
) -> None:
    at = 0
    while True:
        at += 1
        session_id = prepared(world)
        before = world.everything()
        store = Breaking(world.store, at, after=after)
        with contextlib.suppress(Cut):
            world.acting(store=store).continue_session(session_id, CITING, key="k")  # type: ignore[arg-type]
        if len(store.calls) < at:
            break  # it went through: every call has been cut once
        done = "commit" in store.calls[: at if after else at - 1]
        if not done:
            assert world.everything() == before
        made = world.log.continue_session(session_id, CITING, key="k")
        assert made.repeated == done
        assert len(world.store.links(session_id)) == 1
        assert halves(world.log, session_id) == []
    assert store.calls.count("commit") == 1, "one transaction"
    assert at > 10
    assert world.log.verify().ok


@pytest.mark.requirement("C2", "C7")
def test_an_agent_cut_off_anywhere_in_its_turn_leaves_a_whole_continuation_or_none(world: World) -> None:
    at = 0
    outcomes = set()
    while True:
        at += 1
        session_id = prepared(world)
        store = Breaking(world.store, at, after=at % 2 == 0, error=StoreError)
        try:
            result = world.acting(store=store).run(  # type: ignore[arg-type]
                session_id, call_directive(CITING), engine="script"
            )
            outcomes.add(result.state)
        except StoreError:
            outcomes.add("raised")
        if len(store.calls) < at:
            break
        assert halves(world.log, session_id) == []
        world.clock.tick(3600)
        world.log.expire()
        assert not [r for r in world.store.runs(session_id) if r.state == "running"]
        assert not world.store.open_calls(session_id)
    assert at > 30
    assert halves(world.log) == []
    assert outcomes >= {"completed", "raised"}
    assert world.log.verify().ok
