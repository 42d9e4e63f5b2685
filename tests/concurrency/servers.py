"""Servers and runners as processes, a network that breaks, and logs made comparable; every wait is bounded."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2

import onward
from onward.service import tokens

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PATIENCE: Final = 60.0
"""Seconds that anything may take before a test gives up."""
_NAMED: Final = re.compile(r"\b(?:ses|evt|run|lnk|man|mac)_[0-9A-HJKMNP-TV-Z]{26}")


class Running:
    """A command of ``onward`` that runs until it is told to stop, and what it told first."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "onward", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._complain, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        first = self._lines.get(timeout=PATIENCE)
        assert first, f"it ended at once: {''.join(self.errors)}"
        self.told: dict[str, Any] = json.loads(first)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        for reader in self._readers[1:]:
            reader.join(PATIENCE)
        self._lines.put("")

    def _complain(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def tell(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait until it has ended; return its status."""
        return self.process.wait(PATIENCE)

    def end(self) -> None:
        """End it, whatever it is doing."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


class Site:
    """A store with a server in front of it, and runners that work for it."""

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{folder / 'store.db'}"
        with onward.open(self.store) as log:
            _, self.secret = tokens.create(log.platform, "everything", ["admin"])
        self._running: list[Running] = []
        self.port = 0
        self.server: Running | None = None

    @property
    def url(self) -> str:
        """Where the server is."""
        return f"http://127.0.0.1:{self.port}"

    def serve(self, *arguments: str) -> Running:
        """Start the server, at the port that it had before."""
        more = arguments or ("--no-runner",)
        started = Running("--store", self.store, "--json", "serve", "--port", str(self.port), *more)
        self._running.append(started)
        self.server = started
        self.port = int(started.told["url"].rpartition(":")[2])
        return started

    def runner(
        self, name: str, *arguments: str, url: str | None = None, engine: str = "script", **environment: str
    ) -> Running:
        """Start a runner with one engine."""
        started = Running(
            *("--json", "runner", "--server", url or self.url, "--name", name, "--engine", engine),
            *arguments,
            ONWARD_TOKEN=self.secret,
            **environment,
        )
        self._running.append(started)
        return started

    def ask(self, method: str, path: str, content: Any = None, **query: Any) -> Any:
        """Ask the server and return its answer, whatever it is."""
        with httpx2.Client(base_url=self.url, trust_env=False, timeout=PATIENCE) as client:
            headers = {"authorization": f"Bearer {self.secret}"}
            response = client.request(method, f"/v1/{path}", json=content, params=query, headers=headers)
        return response.json()

    def session(self, **fields: Any) -> str:
        """Open a session for the script engine."""
        made: str = self.ask("POST", "sessions", {"engine": "script", **fields})["id"]
        return made

    def say(self, session: str, text: str, **options: Any) -> str:
        """Put a message before the agent, with options of its run; return the run."""
        said = {"text": text, "options": options} if options else {"text": text}
        run: str = self.ask("POST", f"sessions/{session}/messages", said)["id"]
        return run

    def follow(self, session: str, enough: Any) -> list[dict[str, Any]]:
        """Read a session's events as they come until they are enough; return them."""
        seen: list[dict[str, Any]] = []
        for _ in range(200):
            if enough(seen):
                return seen
            seen += self.ask(
                "GET", f"sessions/{session}/events", after=seen[-1]["seq"] if seen else 0, wait=5, limit=20
            )["events"]
        raise AssertionError(f"it never came that far; the last event is {seen[-1:]}")

    def ended(self, session: str, run: str) -> list[dict[str, Any]]:
        """Wait until a run has ended; return the session's events."""
        return self.follow(session, lambda seen: any(ends(event, run) for event in seen))

    def close(self) -> None:
        """End everything."""
        for started in self._running:
            started.end()


def ends(event: dict[str, Any], run: str) -> bool:
    """Whether an event is the end of a run: its final state, or that its agent continued elsewhere."""
    body = event["body"]
    final = event["kind"] == "run" and body["state"] != "running"
    return bool(event["run"] == run and (final or body.get("change") == "continued"))


def comparable(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return a log without ids, times and what follows from them: two logs that tell the same story are equal."""
    names: dict[str, str] = {}

    def renamed(found: re.Match[str]) -> str:
        return names.setdefault(found.group(), f"{found.group()[:3]} {len(names)}")

    out = []
    for event in events:
        told = json.loads(_NAMED.sub(renamed, json.dumps([event["body"], event["run"], event["id"]])))
        out.append((event["seq"], event["kind"], event["actor"], event["source"], told))
    return out


class BadNetwork:
    """A relay to a server that cuts connections in the middle of answers, seeded, and counts how often it did."""

    def __init__(self, port: int, *, seed: int) -> None:
        self._to, self._random = port, random.Random(seed)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.cuts = 0
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while self._open:
            try:
                near, _ = self._socket.accept()
            except OSError:
                return
            # Some connections are cut before a single byte of the answer, most somewhere in one, some last longer.
            lasts = (0, self._random.randrange(1, 600), self._random.randrange(600, 5000), 20_000)
            left = self._random.choice(lasts)
            threading.Thread(target=self._relay, args=(near, left), daemon=True).start()

    def _relay(self, near: socket.socket, left: int) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._to)) as far:
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()
            while data := far.recv(65_536):
                if len(data) > left:
                    near.sendall(data[:left])
                    self.cuts += 1
                    near.shutdown(socket.SHUT_RDWR)
                    return
                left -= len(data)
                near.sendall(data)
            near.shutdown(socket.SHUT_WR)

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65_536):
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Take no more connections."""
        self._open = False
        self._socket.close()


@contextlib.contextmanager
def bad_network(port: int, *, seed: int) -> Iterator[BadNetwork]:
    """A relay for a while."""
    relay = BadNetwork(port, seed=seed)
    try:
        yield relay
    finally:
        relay.close()


KILL: Final = signal.SIGKILL
TERM: Final = signal.SIGTERM
INT: Final = signal.SIGINT
