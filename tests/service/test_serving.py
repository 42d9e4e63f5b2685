"""A runner in the process that has the store: it takes what waits, stops when it is told, and puts engines to sleep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec.structs import replace

from onward.core.bodies import Notice
from onward.core.codec import body_of
from onward.core.records import Offer
from onward.engines.contract import Awake, Capabilities, Finished, KeepsProcesses, Said, Signal, Started, Turn
from onward.engines.script import Hang, Say, ScriptEngine
from onward.errors import InvalidInput
from onward.runner.serving import Bedtime, LocalOffice, Runner, engines_here, offers
from onward.service import machines, running, sessions
from onward.service.hinting import Hints, hinting
from onward.service.machines import Slept
from onward.service.platform import Platform
from onward.store.memory import MemoryStore

PATIENCE = 30.0


@pytest.fixture
def hints() -> Hints:
    return Hints()


@pytest.fixture
def platform(hints: Hints) -> Platform:
    return Platform(store=hinting(MemoryStore(), hints), host="home")


class Warm:
    """An engine that keeps a process a session, in imagination, and counts how often one was ended."""

    name = "warm"
    capabilities = Capabilities(streaming=True)

    def __init__(self) -> None:
        self.waiting: dict[str, float] = {}
        self.ended: list[str] = []
        self.closed = False

    def unavailable(self) -> str | None:
        return None

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        yield Started()
        yield Said(text="Yes.")
        self.waiting[turn.session_id] = 100.0
        yield Finished(status="completed")

    def awake(self) -> tuple[Awake, ...]:
        return tuple(Awake(session_id=name, idle_since=since) for name, since in self.waiting.items())

    async def sleep(self, session_id: str) -> bool:
        if self.waiting.pop(session_id, None) is None:
            return False
        self.ended.append(session_id)
        return True

    async def aclose(self) -> None:
        self.closed = True


class Lines:
    """What a runner says, to be waited for. Made inside the loop that it is used in."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._more = asyncio.Event()

    def append(self, line: str) -> None:
        self._lines.append(line)
        self._more.set()

    async def hear(self, wanted: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not any(wanted in line for line in self._lines):
                self._more.clear()
                await self._more.wait()


def test_what_is_queued_while_a_runner_waits_is_taken_and_stopping_ends_it(
    platform: Platform, hints: Hints
) -> None:
    async def work() -> str:
        lines = Lines()
        runner = Runner(LocalOffice(platform, hints), {"script": ScriptEngine()}, say=lines.append)
        await runner.register()
        working = asyncio.create_task(runner.run())
        session = await asyncio.to_thread(sessions.start, platform, "x", engine="script")
        run = await asyncio.to_thread(running.submit, platform, session.id, "Hello")
        await lines.hear("completed")
        runner.stop()
        await asyncio.wait_for(working, PATIENCE)
        return run.id

    run = running.get(platform, asyncio.run(work()))
    here = machines.home(platform)
    assert here is not None
    assert (run.state, run.machine_id, run.owner) == ("completed", here.id, "home")


def test_a_runner_executes_several_runs_at_once_and_no_more(platform: Platform, hints: Hints) -> None:
    async def work() -> list[str]:
        lines = Lines()
        engine = ScriptEngine(script=[Say(text="Here."), Hang()])
        runner = Runner(LocalOffice(platform, hints), {"script": engine}, at_once=2, say=lines.append)
        await runner.register()
        working = asyncio.create_task(runner.run(grace=0))
        runs = []
        for _ in range(3):
            session = await asyncio.to_thread(sessions.start, platform, "x", engine="script")
            runs.append(await asyncio.to_thread(running.submit, platform, session.id, "Hello"))
        for run in runs[:2]:
            await lines.hear(f"{run.id} in")
        states = [running.get(platform, run.id).state for run in runs]
        runner.stop()
        await asyncio.wait_for(working, PATIENCE)
        return states + [running.get(platform, run.id).state for run in runs]

    assert asyncio.run(work()) == ["running", "running", "queued", "cancelled", "cancelled", "queued"]


def test_an_engine_that_cannot_run_any_more_fails_its_run_and_says_why(
    platform: Platform, hints: Hints
) -> None:
    class Breaking(ScriptEngine):
        asked = 0

        def unavailable(self) -> str | None:
            self.asked += 1
            return "it was removed" if self.asked > 2 else None

    async def work() -> str:
        lines = Lines()
        runner = Runner(LocalOffice(platform, hints), {"script": Breaking()}, say=lines.append)
        await runner.register()
        working = asyncio.create_task(runner.run())
        session = await asyncio.to_thread(sessions.start, platform, "x", engine="script")
        run = await asyncio.to_thread(running.submit, platform, session.id, "Hello")
        await lines.hear("it was removed")
        runner.stop()
        await asyncio.wait_for(working, PATIENCE)
        return run.id

    run = running.get(platform, asyncio.run(work()))
    assert run.state == "failed"
    assert "it was removed" in (run.reason or "")


# -- sleep --------------------------------------------------------------------------------------------------------------


def test_a_process_sleeps_once_it_has_waited_for_as_long_as_the_dial_says() -> None:
    engine, now = Warm(), [100.0]
    engine.waiting = {"ses_a": 100.0, "ses_b": 130.0}
    bedtime = Bedtime({"warm": engine, "script": ScriptEngine()}, idle=60, clock=lambda: now[0])
    assert isinstance(engine, KeepsProcesses)
    assert bedtime.due() == 60
    assert asyncio.run(bedtime.sweep()) == ()
    now[0] = 160.0
    (slept,) = asyncio.run(bedtime.sweep())
    assert (slept.session_id, slept.engine, slept.idle) == ("ses_a", "warm", 60.0)
    assert engine.ended == ["ses_a"]
    assert bedtime.due() == 30
    now[0] = 1000.0
    assert [one.session_id for one in asyncio.run(bedtime.sweep())] == ["ses_b"]
    assert asyncio.run(bedtime.sweep()) == ()
    assert bedtime.due() == 3600


def test_nothing_is_told_of_a_process_that_was_gone_already() -> None:
    class Gone(Warm):
        async def sleep(self, session_id: str) -> bool:
            return False

    engine = Gone()
    engine.waiting = {"ses_a": 0.0}
    assert asyncio.run(Bedtime({"warm": engine}, idle=0, clock=lambda: 1.0).sweep()) == ()


def test_one_sweep_is_one_notification_and_a_notice_in_each_session_and_the_next_message_wakes(
    platform: Platform, hints: Hints
) -> None:
    engine, notified = Warm(), list[Sequence[Slept]]()

    async def work() -> list[str]:
        lines = Lines()
        heard = asyncio.Event()

        def notify(ended: Sequence[Slept]) -> None:
            notified.append(ended)
            heard.set()

        runner = Runner(
            LocalOffice(platform, hints),
            {"warm": engine},
            idle=0,
            clock=lambda: 100.0 + 6 * 3600,
            say=lines.append,
            notify=notify,
        )
        await runner.register()
        working = asyncio.create_task(runner.run())
        session = await asyncio.to_thread(sessions.start, platform, "x", engine="warm")
        for _ in range(2):
            heard.clear()
            await asyncio.to_thread(running.submit, platform, session.id, "Hello")
            await asyncio.wait_for(heard.wait(), PATIENCE)
        runner.stop()
        await asyncio.wait_for(working, PATIENCE)
        return [session.id]

    (session,) = asyncio.run(work())
    assert engine.closed
    assert [[one.session_id for one in ended] for ended in notified] == [[session], [session]]
    told = [body_of(e) for e in platform.store.events(session, kinds=("context",))]
    notices = [body for body in told if isinstance(body, Notice)]
    assert [notice.text for notice in notices] == [
        "home put its warm process to sleep after 6 h without a message."
    ] * 2
    replies = [e for e in platform.store.events(session, kinds=("message",)) if e.actor == "agent"]
    assert len(replies) == 2


# -- engines ------------------------------------------------------------------------------------------------------------


def test_a_machine_offers_what_it_can_construct_with_the_reason_where_it_cannot_run() -> None:
    made = engines_here(["script"])
    assert offers(made) == (Offer(name="script"),)
    assert "script" in engines_here()
    with pytest.raises(InvalidInput):
        engines_here(["nothing"])
    with pytest.raises(InvalidInput):
        engines_here(["script"], {"script": {"nothing": 1}})
    with pytest.raises(InvalidInput):
        engines_here(["script"], {"other": {"nothing": 1}})
    broken = replace(offers(made)[0], unavailable="no")
    assert broken.unavailable == "no"
