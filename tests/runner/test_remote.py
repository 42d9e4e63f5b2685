"""A runner's end of the line: what is asked again and for how long, and what a desk does when nobody answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from onward.core.records import Offer, Run
from onward.errors import LeaseLost, OnwardError, RunNotFound, ServerUnreachable, Unauthorized
from onward.runner import wire
from onward.runner.connection import Connection, Nothing, refused
from onward.runner.remote import HURRIED, RemoteDesk, RemoteOffice
from onward.service import machines, running, sessions
from onward.service.machines import Slept
from onward.service.platform import Platform
from onward.store.memory import MemoryStore
from onward.testing.clock import FakeClock, FakeIds


class Line:
    """A connection whose time passes only while it waits, and whose other end does what each test says."""

    def __init__(self, *answers: Callable[[httpx2.Request], httpx2.Response]) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self.asked: list[tuple[str, Any]] = []
        self._answers = list(answers)
        transport = httpx2.MockTransport(self._handle)
        self.connection = Connection(
            "http://tower:1", "secret", clock=lambda: self.now, pause=self._pause, transport=transport
        )

    async def _pause(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        assert request.headers["authorization"] == "Bearer secret"
        self.asked.append((request.url.path, json.loads(request.content or b"null")))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return answer(request)


def lost(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ReadError("it broke", request=request)


def says(status: int, **content: Any) -> Callable[[httpx2.Request], httpx2.Response]:
    return lambda _request: httpx2.Response(status, json=content)


def ask(line: Line, patience: float = 100.0) -> Nothing:
    return asyncio.run(line.connection.ask("POST", "/v1/x", Nothing(), Nothing, patience=patience))


def test_a_lost_answer_is_asked_for_again_after_pauses_that_double_up_to_a_limit() -> None:
    line = Line(*[lost] * 8, says(200))
    ask(line)
    assert line.waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


@pytest.mark.parametrize("passing", [lost, says(502), says(503), says(504), says(429)])
def test_what_will_pass_is_waited_for_as_long_as_there_is_patience_and_not_longer(
    passing: Callable[[httpx2.Request], httpx2.Response],
) -> None:
    line = Line(passing)
    with pytest.raises(ServerUnreachable, match="http://tower:1"):
        ask(line, patience=10)
    assert line.now == pytest.approx(10)
    assert len(line.asked) > 5


def test_what_is_refused_is_not_asked_again_and_is_the_error_that_the_server_raised() -> None:
    line = Line(says(404, error={"code": "run_not_found", "message": "Gone.", "details": {"run": "run_1"}}))
    with pytest.raises(RunNotFound, match="Gone") as found:
        ask(line)
    assert found.value.details == {"run": "run_1"}
    assert len(line.asked) == 1
    assert isinstance(refused(401, b'{"error":{"code":"unauthorized","message":"No."}}'), Unauthorized)
    odd = refused(418, b"<html>")
    assert type(odd) is OnwardError
    assert "418" in odd.message
    assert refused(400, b'{"error":{"code":"from_the_future","message":"Hm."}}').message == "Hm."


def test_in_a_hurry_nobody_is_waited_for_long() -> None:
    line = Line(lost)
    office = RemoteOffice(line.connection, "laptop")
    office.hurry()
    with pytest.raises(ServerUnreachable):
        ask(line, patience=900)
    assert line.now == pytest.approx(HURRIED)


def desk(line: Line, lease: float = 60.0) -> tuple[RemoteDesk, Run]:
    clock = FakeClock()
    run = Run(id=FakeIds(clock).new("run"), session_id="ses_1", created_at=1, fence=3, entries=0)
    made = RemoteDesk(
        line.connection, run, "mac_1", lease=lease, events=Platform(store=MemoryStore(), ids=FakeIds(clock))
    )
    return made, run


@pytest.mark.requirement("L3")
def test_entries_are_numbered_from_one_and_a_refused_one_leaves_its_number() -> None:
    refuse = says(400, error={"code": "invalid_input", "message": "No.", "details": {}})
    line = Line(says(200, number=1), lost, says(200, number=2), refuse, says(200, number=3))
    made, run = desk(line)

    async def enter() -> None:
        await made.keep_draft(run, "a")
        await made.keep_draft(run, "ab")
        with pytest.raises(OnwardError):
            await made.keep_draft(run, "x")
        await made.keep_draft(run, "abc")

    asyncio.run(enter())
    assert [content["number"] for _, content in line.asked] == [1, 2, 2, 3, 3]
    assert {content["fence"] for _, content in line.asked} == {3}


@pytest.mark.requirement("L3")
def test_an_entry_of_a_cancelled_driver_is_still_acknowledged_before_the_next() -> None:
    async def enter() -> Line:
        line = Line(lost, says(200, number=1), says(200, number=2))
        made, run = desk(line)
        entering = asyncio.create_task(made.keep_draft(run, "a"))
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        await made.keep_draft(run, "b")
        return line

    line = asyncio.run(enter())
    assert [content["number"] for _, content in line.asked] == [1, 1, 2]


@pytest.mark.requirement("L6")
def test_a_run_whose_server_is_silent_for_as_long_as_its_lease_is_given_up() -> None:
    line = Line(lost)
    made, run = desk(line, lease=60)

    async def beat() -> None:
        await made.heartbeat(run, lease=60)
        line.now = 59.0
        await made.heartbeat(run, lease=60)
        line.now = 60.0
        with pytest.raises(LeaseLost, match="60 seconds"):
            await made.heartbeat(run, lease=60)

    asyncio.run(beat())
    assert line.waits == []


def test_what_goes_over_the_line_comes_back_as_it_was() -> None:
    odd = wire.DraftEntry(text="caf\udce9 \ud800 ☃")
    there = wire.Entering(fence=1, number=2, entry=odd)
    assert wire.read(wire.write(there), wire.Entering) == there
    with pytest.raises(ValueError, match="fence"):
        wire.read(b'{"number": 1}', wire.Entering)


@pytest.mark.parametrize("seconds", [-1, -1e300])
def test_no_time_is_negative(seconds: float) -> None:
    beating = wire.Beating(fence=1, lease=seconds)
    with pytest.raises(ValueError, match="lease"):
        wire.read(wire.write(beating), wire.Beating)
    sleeping = wire.Sleeping(machine="m", ended=(Slept(session_id="s", engine="e", idle=seconds, event="x"),))
    with pytest.raises(ValueError, match="idle"):
        wire.read(wire.write(sleeping), wire.Sleeping)


# -- against the server -------------------------------------------------------------------------------------------------


def test_a_runner_that_stops_while_it_asks_gives_back_what_it_may_have_got() -> None:
    from tests.surfaces.http.asking import Asked

    served = Asked()
    connection = Connection(
        "http://127.0.0.1:8421", served.secret, transport=httpx2.ASGITransport(app=served.app)
    )

    async def stop_at_once() -> None:
        office = RemoteOffice(connection, "tower")
        await office.register([Offer(name="script")])
        assert (office.lease, office.beat) == (900.0, 20.0)
        stop = asyncio.Event()
        stop.set()
        assert await office.claim(["script"], stop) is None

    asyncio.run(stop_at_once())
    session = sessions.start(served.platform, "x", engine="script")
    run = running.submit(served.platform, session.id, "Hello")
    assert running.get(served.platform, run.id).state == "queued"


def test_sleep_on_another_machine_is_told_in_the_log_and_once_to_those_who_ask() -> None:
    from tests.surfaces.http.asking import Asked

    served = Asked()
    connection = Connection(
        "http://127.0.0.1:8421", served.secret, transport=httpx2.ASGITransport(app=served.app)
    )
    session = sessions.start(served.platform, "x")
    ended = Slept(session_id=session.id, engine="codex", idle=7200.0, event=served.platform.ids.new("evt"))

    async def tell() -> None:
        office = RemoteOffice(connection, "tower")
        await office.register([])
        await office.slept([ended])
        await office.slept([replace(ended)])
        await office.place("/work")

    asyncio.run(tell())
    contexts = served.platform.store.events(session.id, kinds=("context",))
    assert len(contexts) == 1
    tower = machines.get(served.platform, "tower")
    assert served.platform.store.workspace(served.platform.account_id, "/work", tower.id) is not None
