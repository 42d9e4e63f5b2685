"""Leases on engines' own conversations: one writer at a time on this machine, and nothing left behind by a dead one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from onward.engines.leases import folder, native_lease
from onward.errors import EngineError, NativeSessionBusy

HOLD = """
import sys
from pathlib import Path
from onward.engines.leases import native_lease
with native_lease("codex", sys.argv[2], who="run_7", within=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_conversation_has_one_holder_even_within_one_process(tmp_path: Path) -> None:
    with native_lease("codex", "t1", within=tmp_path):
        with pytest.raises(NativeSessionBusy) as busy, native_lease("codex", "t1", within=tmp_path):
            pass
        assert busy.value.code == "busy"
        assert busy.value.retryable
        with native_lease("codex", "t2", within=tmp_path), native_lease("pi", "t1", within=tmp_path):
            pass
    with native_lease("codex", "t1", within=tmp_path):
        pass


def test_who_comes_second_is_told_who_holds_it_and_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), "t1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == b"held"
        said = rf"run_7, process {holder.pid} on .+, since 20\d\d-"
        with pytest.raises(NativeSessionBusy, match=said), native_lease("codex", "t1", within=tmp_path):
            pass
        holder.kill()
        holder.wait()
        with native_lease("codex", "t1", within=tmp_path):
            pass


def test_many_who_want_it_at_once_hold_it_one_after_the_other(tmp_path: Path) -> None:
    """Holders also take the file away as they leave; whoever opened it before must not hold a file that is gone."""
    within = 0
    most = 0
    turns = 0
    counting = threading.Lock()
    start = threading.Barrier(8)

    def want() -> None:
        nonlocal within, most, turns
        start.wait(10)
        mine = 0
        while mine < 25:
            try:
                with native_lease("codex", "t1", within=tmp_path):
                    with counting:
                        within += 1
                        most = max(most, within)
                    with counting:
                        within -= 1
                        turns += 1
                    mine += 1
            except NativeSessionBusy:
                continue

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (most, turns) == (1, 200)


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be taken away on Windows")
def test_nothing_is_left_in_the_folder_and_only_its_owner_may_look(tmp_path: Path) -> None:
    within = tmp_path / "state" / "leases"
    with native_lease("claude-code", "a/../b", within=within):
        (lease,) = within.iterdir()
        assert lease.name.startswith("claude-code-")
        assert stat.S_IMODE(lease.stat().st_mode) == 0o600
        assert stat.S_IMODE(within.stat().st_mode) == 0o700
    assert list(within.iterdir()) == []


def test_leases_are_kept_in_the_state_folder_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert folder() == tmp_path / "onward" / "leases"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert folder() == Path.home() / ".local" / "state" / "onward" / "leases"


def test_where_no_lease_can_be_written_the_work_is_not_begun(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with (
        pytest.raises(EngineError, match=r"its lease .* cannot be written .* set XDG_STATE_HOME"),
        native_lease("codex", "t1", within=blocked / "leases"),
    ):
        pytest.fail("it was held")


def test_a_program_that_is_started_meanwhile_does_not_inherit_the_lease(tmp_path: Path) -> None:
    with native_lease("codex", "t1", within=tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    with child:
        with native_lease("codex", "t1", within=tmp_path):
            pass
        child.kill()
