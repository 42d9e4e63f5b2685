"""A lock between processes: one writer at a time on one file, in the order in which they came.

SQLite's own waiting is a series of ever longer naps, which lets a busy process starve the others; the kernel's ``flock``
queues them. The lock file holds nothing and stays. If a process dies, the kernel releases what it held.

``flock`` itself cannot be told when to give up, so a contended wait happens on a thread of its own, and ``acquire`` waits
for that thread as long as it was told. Where the system has no ``flock``, this lock is always free and SQLite's waiting
has to do.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import Literal

if sys.platform != "win32":
    import fcntl


class ProcessLock:
    """The write lock of one file. One thread of this process uses it at a time: the one that leads the writers."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        self._changed = threading.Condition()
        self._state: Literal["free", "asked", "held"] = "free"
        self._wanted = False
        self._closed = False
        self._waiter: threading.Thread | None = None

    def acquire(self, seconds: float) -> bool:
        """Take the lock, waiting at most this long. Return whether it is held now."""
        if sys.platform == "win32":
            return True
        with self._changed:
            if self._state == "free":
                if self._take(fcntl.LOCK_EX | fcntl.LOCK_NB):
                    self._state = "held"
                    return True
                self._state = "asked"
                if self._waiter is None:
                    self._waiter = threading.Thread(target=self._wait, name="onward-lock", daemon=True)
                    self._waiter.start()
                self._changed.notify_all()
            # "asked" may be left from a wait that was given up: the place in the queue is still ours.
            self._wanted = True
            deadline = time.monotonic() + seconds
            while self._state == "asked" and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            self._wanted = False
            return self._state == "held"

    def release(self) -> None:
        """Let the next process have it."""
        if sys.platform == "win32":
            return
        with self._changed:
            self._take(fcntl.LOCK_UN)
            self._state = "free"

    def close(self) -> None:
        """Let go for good. A wait that is still going on ends by itself."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._state != "asked":
                self._shut()

    if sys.platform != "win32":

        def _take(self, how: int) -> bool:
            try:
                fcntl.flock(self._file, how)
            except BlockingIOError:
                return False
            return True

        def _wait(self) -> None:
            while True:
                with self._changed:
                    while self._state != "asked":
                        if self._closed:
                            return
                        self._changed.wait()
                self._take(fcntl.LOCK_EX)
                with self._changed:
                    if self._wanted and not self._closed:
                        self._state = "held"
                    else:
                        self._take(fcntl.LOCK_UN)
                        self._state = "free"
                        if self._closed:
                            self._shut()
                    self._changed.notify_all()

    def _shut(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._file)
