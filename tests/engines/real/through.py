"""The five programs as engines of the platform, each at home in a folder of a test, and what is seen from both sides."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from tests.engines.real.cli_homes import (
    MODEL,
    Home,
    claude_home,
    codex_home,
    gemini_home,
    opencode_home,
    pi_home,
)

from onward.core.bodies import OpeningFacts, SessionChange
from onward.core.brief import PREAMBLE
from onward.core.codec import body_of
from onward.core.events import Event
from onward.engines import engine_by_name
from onward.engines.processes import MARK
from onward.library import Onward
from onward.runner import RunResult
from onward.service import native_records
from onward.service.platform import Platform
from onward.store.contract import Store
from onward.testing.stub_models import StubModels

FREE: Final = {"permission_mode": "dangerously_skip_permissions"}
PATIENCE: Final = 90.0
"""Seconds that anything may take before a test gives up."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is different about a program."""

    home: Callable[[Path, StubModels], Home]
    shell: str
    """Its tool that runs a command."""
    command: str = "command"
    """What that tool calls the command."""
    ours: str = "mcp__onward__{}"
    """What it calls a tool of ours."""
    more: dict[str, Any] = field(default_factory=dict)
    """What else its tool is given."""
    outside: dict[str, Any] = field(default_factory=dict)
    """What its tool is given besides so that a person has to be asked."""
    options: dict[str, Any] = field(default_factory=dict)


KINDS: Final = {
    "claude-code": Kind(home=claude_home, shell="Bash", more={"description": "x"}),
    "codex": Kind(
        home=codex_home,
        shell="exec_command",
        command="cmd",
        more={"yield_time_ms": 30_000},
        outside={"sandbox_permissions": "require_escalated", "justification": "It is outside."},
    ),
    "opencode": Kind(home=opencode_home, shell="bash", ours="onward_{}", more={"description": "x"}),
    "gemini": Kind(
        home=gemini_home, shell="run_shell_command", ours="mcp_onward_{}", more={"description": "x"}
    ),
    "pi": Kind(home=pi_home, shell="bash", options={"model": f"stub/{MODEL}"}),
}


@dataclass(kw_only=True)
class Place:
    """One machine with one program on it, and the platform."""

    name: str
    home: Home
    stub: StubModels
    log: Onward

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    def engine(self, **options: Any) -> Any:
        """The engine, as a person sets it up."""
        options = {
            "program": str(self.home.program),
            "env": dict(self.home.env),
            **self.kind.options,
            **options,
        }
        return engine_by_name(self.name, **options)

    def settings(self, prefix: str = "") -> list[str]:
        """The engine's set-up as words of a command."""
        options = {"program": str(self.home.program), "env": dict(self.home.env), **self.kind.options}
        said = [f"{prefix}{name}={json.dumps(value)}" for name, value in options.items()]
        return [word for setting in said for word in ("--engine-option", setting)]

    def start(self) -> str:
        """Open a session about the folder that the program works in."""
        return self.log.start("Words", engine=self.name, workspace=str(self.home.workdir)).id

    def say(self, session: str, text: str, **more: Any) -> RunResult:
        """Say something there, and wait for the answer."""
        self.aged()
        given = {"engine": self.engine(), "continuation_opts": FREE, **more}
        return self.log.run(session, text, **given)

    def shell(self, command: str, *, outside: bool = False) -> tuple[str, dict[str, Any]]:
        """The call of its own tool that runs a command; ``outside`` of what it may do without asking."""
        more = self.kind.more | (self.kind.outside if outside else {})
        return self.kind.shell, {self.kind.command: command, **more}

    def call(self, command: str, *, outside: bool = False) -> str:
        """The directive that makes the model run a command."""
        name, given = self.shell(command, outside=outside)
        return f"[[call {name} {json.dumps(given)}]]"

    def aged(self) -> None:
        """Let a minute pass for the conversations that are there: Gemini keeps time in the names of its files."""
        if self.name == "gemini":
            for file in self.home.native_files():
                file.rename(file.with_name(file.name.replace("session-20", "session-19", 1)))

    def forget(self, session: str) -> None:
        """Take away the program's own files of all conversations, and what was kept of them for this one."""
        files = self.home.native_files()
        assert files, "it kept nothing that could be taken away"
        for file in files:
            file.unlink()
        for row in self.log.platform.store.engine_sessions(session):
            native_records.delete(self.log.platform, row.engine, row.native_id)

    def briefed(self) -> list[str]:
        """The texts of the newest request, whoever said them, that hold a reconstruction."""
        return [one.text for one in self.stub.heard() if PREAMBLE in one.text]

    def itself(self) -> list[psutil.Process]:
        """The program, where its engine runs in this process."""
        mine = os.getpid()
        return [process for process in marked(self.home) if process.ppid() == mine]

    def left(self) -> list[str]:
        """What still runs of what was started in this home."""
        return [" ".join(process.cmdline()) for process in marked(self.home)]


def place(name: str, folder: Path, stub: StubModels, store: Store, machine: str = "laptop") -> Place:
    """Make a machine with this program on it."""
    folder.mkdir(parents=True, exist_ok=True)
    home = KINDS[name].home(folder, stub)
    return Place(name=name, home=home, stub=stub, log=Onward(Platform(store=store, host=machine)))


def marked(home: Home) -> list[psutil.Process]:
    """The processes of the engine that still run in this home, whoever their parents are by now."""
    found = []
    for process in psutil.process_iter():
        try:
            env = process.environ()
            if (
                MARK in env
                and env.get("HOME") == home.env["HOME"]
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def events(log: Onward, session: str) -> list[Event]:
    """The whole log of a session."""
    return list(log.read(session, limit=1000).events)


def bodies(log: Onward, session: str) -> list[Any]:
    """What the whole log of a session says."""
    return [body_of(event) for event in events(log, session)]


def openings(log: Onward, session: str) -> list[OpeningFacts]:
    """How each turn of a session got its context."""
    found = bodies(log, session)
    return [b.facts for b in found if isinstance(b, SessionChange) and b.change == "opening" and b.facts]


@contextmanager
def began(pipe: Path) -> Iterator[threading.Event]:
    """Make a pipe, and give what is set once a tool has written into it."""
    os.mkfifo(pipe)
    opened = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    written, over = threading.Event(), os.pipe()

    def wait() -> None:
        if opened in select.select([opened, over[0]], [], [], PATIENCE)[0]:
            written.set()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield written
    finally:
        os.close(over[1])
        thread.join()
        os.close(over[0])
        os.close(opened)


@contextmanager
def killing(victims: Callable[[], list[psutil.Process]], *after: threading.Event) -> Iterator[list[int]]:
    """Kill these processes as soon as all of this has happened; give their pids, once they are."""
    killed: list[int] = []

    def kill() -> None:
        if all(event.wait(PATIENCE) for event in after):
            for process in victims():
                os.kill(process.pid, signal.SIGKILL)
                killed.append(process.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        thread.join()
