"""Starting several processes together, hearing what they tell, and ending them; every wait is bounded."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PATIENCE: Final = 60.0
"""Seconds that anything may take before a test gives up."""


class Told:
    """A process that does one task of ``conversing``, and what it has told so far."""

    def __init__(self, task: str, url: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.concurrency.conversing", task, url, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.told: list[dict[str, Any]] = []
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._complain, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        assert self.next() == {"ready": True}
        self.told.clear()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _complain(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    def begin(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def next(self) -> dict[str, Any] | None:
        """Wait for the next thing it tells; None at the end. A line that was cut off by its death is not told."""
        line = self._lines.get(timeout=PATIENCE)
        if line is None or not line.endswith("\n"):
            return None
        found: dict[str, Any] = json.loads(line)
        self.told.append(found)
        return found

    def rest(self) -> list[dict[str, Any]]:
        """Wait until it has ended by itself, and return everything it told."""
        while self.next() is not None:
            pass
        code = self._process.wait(PATIENCE)
        assert code == 0, "".join(self._errors)
        return self.told

    def kill(self) -> list[dict[str, Any]]:
        """End it at once, as a power cut would, and return everything it had told."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)
        while self.next() is not None:
            pass
        assert self._process.returncode == -signal.SIGKILL, "".join(self._errors)
        return self.told

    def interrupt(self) -> int:
        """Send what Ctrl-C sends. Return the exit status."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


@contextmanager
def together(*tasks: tuple[str, ...]) -> Iterator[list[Told]]:
    """Start a process for each task, and let all of them begin once every one is ready."""
    processes: list[Told] = []
    try:
        for task in tasks:
            processes.append(Told(*task))
        for process in processes:
            process.begin()
        yield processes
    finally:
        for process in processes:
            process.close()
