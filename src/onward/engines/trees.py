"""Process trees: finding everything that a program started, and ending it.

A program's tools do not end with it. They run in process groups and sessions of their own, are handed to init when
their parent dies, and may ignore a request to end. So a family is found in three ways: the descendants of the root,
looked up *before* anything is killed; the session that the root leads; and a mark that every process inherits in its
environment (``MARK``), which finds those that were handed to somebody else.

It never ends a process that is not of the family: each is known by its number and its time of creation together, so a
number that the system has given to somebody else meanwhile is left alone. What cannot be found is a process that left the
session, dropped its environment and lost its parent, all before it was seen for the first time.

Everything here blocks (it reads the process table); ``processes`` calls it from worker threads, one call at a time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import psutil

MARK: Final = "ONWARD_PROCESS"
"""The environment variable that every process of an engine inherits, so that none is overlooked."""
BETWEEN: Final = ":"
"""Separates marks where one family runs inside another; both find what is in the inner one."""
PAUSE: Final = 0.01
"""Seconds between two looks at processes that are ending."""
_GONE: Final = (psutil.NoSuchProcess, psutil.AccessDenied, OSError)


class Family:
    """A program that we started and whatever it started, by pid and time of creation.

    Without a ``pid`` it is what somebody else started, who is gone: all that carries the mark.
    """

    def __init__(self, pid: int | None, mark: str) -> None:
        self.mark = mark
        self.root: Any = None
        """The program itself; None if it had ended before we looked."""
        self._known: set[Any] = set()
        if pid is None:
            return
        try:
            self.root = psutil.Process(pid)
        except _GONE:
            return

    def look(self) -> None:
        """Find members that are not known yet. Call it before anything is killed, and again afterwards."""
        session = None
        # Only while the root lives is its number surely not somebody else's.
        if self.root is not None and _lives(self.root) and _session(self.root.pid) == self.root.pid:
            session = self.root.pid
        parents = [*self._known] if self.root is None else [self.root, *self._known]
        for parent in parents:
            try:
                self._known.update(parent.children(recursive=True))
            except _GONE:
                continue
        mine = os.getpid()
        for process in psutil.process_iter():
            if process.pid == mine or process in self._known:
                continue
            if (session is not None and _session(process.pid) == session) or self._marked(process):
                self._known.add(process)
        self._known.discard(self.root)

    def _marked(self, process: Any) -> bool:
        try:
            return self.mark in process.environ().get(MARK, "").split(BETWEEN)
        except _GONE:
            return False

    def living(self) -> list[Any]:
        """Return the members, without the root, that still run."""
        return [process for process in self._known if _lives(process)]

    def ask(self, *, seconds: float) -> None:
        """Ask every member but the root to end, and wait until they have, at most this long."""
        asked = self.living()
        for process in asked:
            _signal(process.terminate)
        _await_end(asked, seconds)

    def ask_root(self) -> None:
        """Ask the program itself to end.

        Not through whoever waits for its exit code: asyncio's own way looks at that code first, and may take it away from
        its watcher, which then reports one that nobody gave.
        """
        if self.root is not None:
            _signal(self.root.terminate)

    def kill(self, *, seconds: float) -> tuple[int, ...]:
        """Kill every member, the root too, and whatever they start meanwhile; return the pids, in ascending order.

        Returns after ``seconds`` even if something cannot be killed; ``living`` tells.
        """
        until = time.monotonic() + seconds
        killed: set[int] = set()
        while True:
            # The eldest first: an engine whose tool ends before it would go on, and ask its model what to do next.
            there = sorted(self.living(), key=_born)
            if self.root is not None and _lives(self.root):
                there.insert(0, self.root)
            for process in there:
                if _signal(process.kill):
                    killed.add(process.pid)
            _await_end(there, until - time.monotonic())
            self.look()
            if not self.living() or time.monotonic() >= until:
                return tuple(sorted(killed))


def _lives(process: Any) -> bool:
    """Whether it runs. One that has ended but was not collected by its parent does not."""
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except (psutil.AccessDenied, OSError):
        return True


def _born(process: Any) -> float:
    try:
        return float(process.create_time())
    except _GONE:
        return 0.0


def _session(pid: int) -> int | None:
    if sys.platform == "win32":
        return None
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _signal(send: Callable[[], object]) -> bool:
    try:
        send()
    except _GONE:
        return False
    return True


def _await_end(processes: list[Any], seconds: float) -> None:
    """Wait until none of them runs. The exit code of a child of ours is left for whoever waits for it."""
    until = time.monotonic() + seconds
    while any(_lives(process) for process in processes) and time.monotonic() < until:
        time.sleep(PAUSE)
