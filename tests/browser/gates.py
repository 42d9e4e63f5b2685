"""Gates: places where an agent waits until a test has looked at the page.

The agent runs in the server's process, so a gate is a connection to the test: the agent says the gate's name and reads until
it is answered. Nothing is waited for by the clock, except that a test gives up.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final

PATIENCE: Final = 30.0
"""Seconds that anything may take before a test gives up."""


class Gates:
    """All gates of a test. ``port`` is where agents come to."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._waiting: dict[str, socket.socket] = {}
        self._changed = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                agent, _ = self._socket.accept()
            except OSError:
                return
            with agent.makefile("rb") as said:
                name = said.readline().decode().strip()
            with self._changed:
                left = self._waiting.pop(name, None)
                self._waiting[name] = agent
                if left is not None:  # its run was cancelled there
                    left.close()
                self._changed.notify_all()

    def reached(self, name: str) -> None:
        """Wait until an agent stands at this gate."""
        with self._changed:
            there = self._changed.wait_for(lambda: name in self._waiting, PATIENCE)
            assert there, f"no agent came to the gate {name}; there are {sorted(self._waiting)}"

    def open(self, name: str) -> None:
        """Let the agent at this gate go on, as soon as there is one."""
        self.reached(name)
        with self._changed:
            agent = self._waiting.pop(name)
        with agent:
            agent.sendall(b"go\n")

    def forget(self) -> None:
        """Let everybody go who waits: their server was killed."""
        with self._changed:
            gone, self._waiting = self._waiting, {}
        for agent in gone.values():
            with contextlib.suppress(OSError):
                agent.close()

    def close(self) -> None:
        """Take nobody any more."""
        self._socket.close()
        self.forget()
