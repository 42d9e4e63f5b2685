"""Processes of an owner that was killed are ended by whoever starts something next, and nobody else's ever are."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from onward.engines import leases, orphans
from onward.engines.orphans import Registered, end_orphans
from onward.engines.processes import MARK, Child

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0

# Starts a program with a tool in a session of its own, tells their pids and its own mark, and waits to be killed.
OWNER = """
import asyncio, sys
from onward.engines.processes import Child

TREE = (
    "import os, subprocess, sys, time\\n"
    "tool = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\\n"
    "print(os.getpid(), tool.pid, flush=True)\\n"
    "time.sleep(600)\\n"
)

async def main():
    child = await Child.start([sys.executable, "-c", TREE])
    async for line in child.lines():
        print(line.decode(), flush=True)
        break
    if "stop" in sys.argv:
        await child.stop(grace=0)
        print("stopped", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the families of this test are registered."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return orphans.folder()


@pytest.fixture
def owner(place: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A process that has started a program with a tool, and those two."""
    started = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert started.stdout is not None
    family: list[psutil.Process] = []
    try:
        family = [psutil.Process(int(pid)) for pid in started.stdout.readline().split()]
        assert len(family) == 2
        yield started, family
    finally:
        started.kill()
        started.wait(PATIENCE)
        started.stdout.close()
        for process in family:
            if runs(process):
                process.kill()


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def start_something() -> None:
    async def start() -> None:
        async with await Child.start([sys.executable, "-c", ""]) as child:
            await child.wait()

    asyncio.run(start())


@pytest.mark.requirement("L6")
@pytest.mark.parametrize("ends", [end_orphans, start_something])
def test_what_a_killed_owner_left_running_is_ended_by_the_next_one(ends, owner, place: Path) -> None:
    started, family = owner
    started.send_signal(signal.SIGKILL)
    started.wait(PATIENCE)
    assert runs(family[1]), "its tool works on: this is what the test is about"
    ends()
    assert not any(runs(process) for process in family)
    assert os.listdir(place) == []


def test_what_a_living_owner_has_started_is_left_alone(owner, place: Path) -> None:
    _, family = owner
    assert end_orphans() == ()
    start_something()
    assert all(runs(process) for process in family)
    assert len(os.listdir(place)) == 1


def test_our_own_families_are_left_alone_and_leave_nothing_registered(place: Path) -> None:
    async def work() -> None:
        async with await Child.start([sys.executable, "-c", "input()"]) as child:
            (registered,) = os.listdir(place)
            assert psutil.Process(child.pid).environ()[MARK].endswith(registered)
            assert await asyncio.to_thread(end_orphans) == ()
            assert child.exit_code is None
        assert os.listdir(place) == []

    asyncio.run(work())


def test_a_program_that_does_not_start_leaves_nothing_registered(place: Path) -> None:
    async def work() -> None:
        with pytest.raises(Exception, match="nowhere"):
            await Child.start(["nowhere-to-be-found"])

    asyncio.run(work())
    assert os.listdir(place) == []


def test_a_file_without_processes_is_taken_away_and_a_foreign_mark_means_nothing(place: Path) -> None:
    bystander = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, MARK: "another:mark"}
    )
    try:
        place.mkdir(parents=True)
        (place / "0123456789abcdef").touch()
        assert end_orphans() == ()
        assert os.listdir(place) == []
        assert bystander.poll() is None
    finally:
        bystander.communicate(b"\n", timeout=PATIENCE)


def test_what_could_not_be_ended_stays_registered_for_the_next_one(place: Path) -> None:
    family = Registered()
    family.ended(whole=False)
    assert os.listdir(place) == [family.mark]
    assert end_orphans() == ()
    assert os.listdir(place) == []


def test_two_that_look_at_once_do_not_wait_for_each_other(place: Path) -> None:
    place.mkdir(parents=True)
    (place / "0123456789abcdef").touch()
    held = leases.hold(place / "0123456789abcdef")
    assert held is not None
    began = time.monotonic()
    assert end_orphans() == ()
    assert time.monotonic() - began < 1.0
    os.close(held)


def test_where_nothing_can_be_written_programs_start_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    start_something()
    assert end_orphans() == ()
