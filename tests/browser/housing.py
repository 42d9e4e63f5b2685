"""Servers for a browser: processes that can be killed and come back at the same place, and a network that can be cut."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import httpx2
from tests.browser.gates import PATIENCE, Gates

import onward
from onward.core.bodies import Body
from onward.core.events import Event
from onward.service import tokens
from onward.store.contract import Append, Batch

ROOT: Final = Path(__file__).resolve().parent.parent.parent


class House:
    """A store with a server in front of it. The store is read and written from here too: it is the same file."""

    def __init__(self, folder: Path, *, lease: float = 60, **environment: str) -> None:
        self.store = f"sqlite:///{folder / 'store.db'}"
        self.log = onward.open(self.store)
        _, self.secret = tokens.create(self.log.platform, "a browser of tests", ["admin"])
        self.gates = Gates()
        self._environment, self._lease = environment, lease
        self._process: subprocess.Popen[str] | None = None
        self._complaints: list[str] = []
        self.port = 0
        self.link = ""
        """Signs in one browser; of this start."""

    @property
    def url(self) -> str:
        """Where the server is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def cookie(self) -> dict[str, Any]:
        """What a browser that is signed in has."""
        return {"name": f"onward_{self.port}", "value": self.secret, "url": self.url}

    def serve(self) -> None:
        """Start the server, at the port that it had before."""
        arguments = (self.store, str(self.port), str(self.gates.port), str(self._lease))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.browser.served", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **self._environment},
        )
        lines: queue.Queue[str] = queue.Queue()
        out, complaints = self._process.stdout, self._process.stderr
        assert out is not None and complaints is not None  # noqa: PT018 (both are pipes)
        threading.Thread(target=lambda: lines.put(out.readline()), daemon=True).start()
        threading.Thread(target=self._complaints.extend, args=(complaints,), daemon=True).start()
        first = lines.get(timeout=PATIENCE)
        assert first, f"the server ended at once: {''.join(self._complaints)}"
        told = json.loads(first)
        self.port = int(told["url"].rpartition(":")[2])
        self.link = told["link"]

    def kill(self) -> None:
        """End the server in the middle of whatever it does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)
        self.gates.forget()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def faults(self) -> list[str]:
        """Return what the server complained about that is a fault of its own."""
        told = "".join(self._complaints)
        return [told[-4000:]] if "Traceback" in told else []

    def close(self) -> None:
        """End everything."""
        if self._process is not None:
            self.kill()
        self.gates.close()
        self.log.close()

    def ask(self, method: str, path: str, content: Any = None, **query: Any) -> Any:
        """Ask the API, and return its answer whatever it is."""
        with httpx2.Client(base_url=self.url, trust_env=False, timeout=PATIENCE) as client:
            headers = {"authorization": f"Bearer {self.secret}"}
            answer = client.request(method, f"/v1/{path}", json=content, params=query, headers=headers)
        return answer.json()

    def session(self, title: str, **options: Any) -> str:
        """Open a session for the acting agent."""
        return self.log.start(title, engine="script", **options).id

    def write(self, session: str, entries: Sequence[tuple[str, Body | bytes, str]]) -> list[Event]:
        """Log events: kind, body, actor."""
        platform = self.log.platform
        events = tuple(platform.event(kind, body, actor) for kind, body, actor in entries)
        done = platform.store.commit(Batch(appends=(Append(session_id=session, events=events),)))
        return list(done.events)

    def say(self, session: str, text: str) -> str:
        """Put a message before the agent; return the run."""
        run: str = self.ask("POST", f"sessions/{session}/messages", {"text": text})["id"]
        return run

    def ended(self, session: str, run: str) -> dict[str, Any]:
        """Wait until a run has ended; return it."""
        after = 0
        for _ in range(100):
            found = self.ask("GET", f"sessions/{session}/events", after=after, wait=5, limit=200)["events"]
            after = found[-1]["seq"] if found else after
            now = self.ask("GET", f"runs/{run}")
            state: dict[str, Any] = now.get("run", now)
            if state["state"] not in ("queued", "running"):
                return state
        raise AssertionError(f"the run {run} never ended")

    def seqs(self, session: str) -> list[int]:
        """Return the numbers of all events of a session."""
        head = self.log.session(session).head_seq
        return list(range(1, head + 1))


class Network:
    """A relay to a server: a network that can be cut, and whose readers come back at once.

    A browser waits as long as a stream tells it to before it comes again. That number is replaced by a small one of the same
    length, so that a hundred cuts take seconds; nothing else is touched.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._streams: set[socket.socket] = set()
        self._changed = threading.Condition()
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(near,), daemon=True).start()

    def _relay(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._to)) as far:
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()
            while data := far.recv(65_536):
                if b"text/event-stream" in data:
                    with self._changed:
                        self._streams.add(near)
                        self._changed.notify_all()
                near.sendall(re.sub(rb"retry: (\d+)", _at_once, data))
            near.shutdown(socket.SHUT_RDWR)
        with self._changed:
            self._streams.discard(near)
            self._changed.notify_all()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65_536):
                far.sendall(data)
            far.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Wait until a stream is open, and cut every one that is."""
        with self._changed:
            assert self._changed.wait_for(lambda: bool(self._streams), PATIENCE), "no stream was opened again"
            for one in self._streams:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                self.cuts += 1
            self._streams.clear()

    def close(self) -> None:
        """Take no more connections."""
        self._socket.close()


def _at_once(found: re.Match[bytes]) -> bytes:
    return b"retry: " + b"1".rjust(len(found[1]), b"0")


@contextlib.contextmanager
def house(folder: Path, *, lease: float = 60, **environment: str) -> Iterator[House]:
    """A server for a while."""
    made = House(folder, lease=lease, **environment)
    try:
        made.serve()
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def network(port: int) -> Iterator[Network]:
    """A relay for a while."""
    made = Network(port)
    try:
        yield made
    finally:
        made.close()
