"""The real program, driven as a shell would, and what it answered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "onward.surfaces.cli.main")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a call of the program gave."""

    status: int
    out: bytes
    err: bytes

    @property
    def document(self) -> Any:
        """The one JSON document on standard output; anything before or after it fails."""
        return json.loads(self.out.decode("utf-8"))

    @property
    def text(self) -> str:
        return self.out.decode("utf-8")

    @property
    def told(self) -> str:
        return self.err.decode("utf-8")

    @property
    def code(self) -> str:
        """The first word of the one line of an error."""
        lines = self.told.splitlines()
        assert len(lines) == 1, lines
        return lines[0].partition(":")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """The program on one store."""

    store: Path
    home: Path
    bytecode: Path
    """Where byte code is kept between calls: an installed program has its own, and these calls are many."""

    def environment(self, **more: str) -> dict[str, str]:
        """A person's environment: a home of their own, the store by name, and nothing else that concerns Onward."""
        foreign = ("ONWARD_", "XDG_", "CLAUDE_", "CODEX_", "PYTHONDONTWRITEBYTECODE", "COLUMNS")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        ours = {
            "HOME": str(self.home),
            "ONWARD_STORE": str(self.store),
            "PYTHONPYCACHEPREFIX": str(self.bytecode),
        }
        return {**kept, **ours, **more}

    def __call__(
        self, *args: str | bytes, stdin: bytes = b"", env: Mapping[str, str] | None = None, **options: Any
    ) -> Answer:
        done = subprocess.run(
            [*COMMAND, *args],
            input=stdin,
            capture_output=True,
            env=self.environment(**(env or {})),
            timeout=60,
            check=False,
            **options,
        )
        return Answer(status=done.returncode, out=done.stdout, err=done.stderr)

    def new(
        self, text: str = "Which test fails? [[say test_parse_dates fails.]]", title: str = "Fix the parser"
    ) -> str:
        """Begin a session with one turn of the script engine and return its id."""
        answer = self("run", "--new", title, text, "--engine", "script", "--json")
        assert answer.status == 0, answer.told
        session: str = answer.document["session"]
        return session
