"""Runners in several processes: each message is answered once, in order, and a runner that dies loses nothing said (L6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.concurrency.processes import together
from tests.service.conversations import bodies

import onward
from onward.core.bodies import Message, RunChange
from onward.library import Onward
from onward.service import running
from onward.service.platform import wall_clock


def later(log: Onward, seconds: float) -> Onward:
    """The same store, at another time of day."""
    return Onward(replace(log.platform, clock=lambda: wall_clock() + round(seconds * 1_000_000)))


@pytest.mark.requirement("L6", "L1")
def test_messages_are_answered_once_and_in_order_whoever_answers_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'onward.db'}"
    with onward.open(url) as log:
        session = log.start("Many", engine="script").id
        sent = [log.submit(session, f"Message {number}.", engine="script").id for number in range(24)]
    with together(*[("work_through", url, session)] * 4) as processes:
        answered = [
            fact["run"] for process in processes for fact in process.rest() if fact["state"] == "completed"
        ]
    assert set(sent) <= set(answered)
    with onward.open(url) as log:
        events = list(log.platform.store.scan(session))
        asked = [b.text for b in bodies(events, Message) if b.role == "user"]
        assert asked == [f"Message {number}." for number in range(24)]
        said = [b.role for b in bodies(events, Message)]
        assert said == ["user", "assistant"] * 24
        assert [b.state for b in bodies(events, RunChange)] == ["running", "completed"] * 24
        assert log.verify().ok


@pytest.mark.requirement("L6")
def test_what_a_killed_runner_had_streamed_is_in_the_log_and_its_message_is_answered_by_the_next(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'onward.db'}"
    with onward.open(url) as log:
        session = log.start("Streaming", engine="script").id
        with together(("stream_and_hang", url, session, "The answer is forty-")) as (process,):
            streaming = process.next()
            assert streaming is not None
            process.kill()
        assert log.expire() == [], "its lease has not ended yet"
        then = later(log, running.LEASE_SECONDS + 1)
        (ended,) = then.expire()
        assert (ended.id, ended.state) == (streaming["streaming"], "interrupted")
        said = [b for b in bodies(list(log.platform.store.scan(session)), Message) if b.role == "assistant"]
        assert [(b.text, b.interrupted) for b in said] == [
            ("A finished message.", False),
            ("The answer is forty-", True),
        ]
        result = then.run(session, engine="script")
        assert result.state == "completed"
        assert log.verify().ok


def test_a_person_who_presses_ctrl_c_keeps_what_was_said_and_the_run_is_cancelled(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'onward.db'}"
    with onward.open(url) as log:
        session = log.start("Interrupted", engine="script").id
        with together(("stream_and_hang", url, session, "The answer is forty-")) as (process,):
            streaming = process.next()
            assert streaming is not None
            assert process.interrupt() != 0
        run = running.get(log.platform, streaming["streaming"])
        assert run.state == "cancelled"
        last = bodies(list(log.platform.store.scan(session)), Message)[-1]
        assert (last.text, last.interrupted) == ("The answer is forty-", True)


@pytest.mark.requirement("L6")
def test_a_run_cancelled_from_another_process_stops_the_one_that_works_on_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'onward.db'}"
    with onward.open(url) as log:
        session = log.start("Cancelled", engine="script").id
        with together(("answer_slowly", url, session)) as (process,):
            streaming = process.next()
            assert streaming is not None
            log.cancel(streaming["streaming"], reason="enough")
            told = process.rest()
        assert told[-1] == {"state": "cancelled", "reason": "enough"}
        assert running.get(log.platform, streaming["streaming"]).reason == "enough"
