"""Native files to import: transcripts in the shapes that Claude Code writes, generated.

A session is a chain of rows. People ask, the agent thinks, speaks and calls tools, results come back with the harness's own
copy beside them. Sizes spread as in real transcripts: most rows are a few hundred bytes, some tool output is tens of
kilobytes. Text is made-up prose and made-up code, with the identifiers that a full-text index has to take apart.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec

from onward.bench.payloads import SEED, Prose

_START: Final = datetime(2026, 1, 5, 9, tzinfo=UTC)
_CODE_LINES: Final = 20_000
_SHAPES: Final = (
    "def {a}_{b}({c}: int) -> str:",
    "    {a}{B} = self.{c}.{b}({n}, {d}={a!r})",
    "    if {a} is None or len({b}) > {n}:",
    '        raise {A}{B}Error(f"{c} {d} {{{a}}}")',
    "    return [{a} for {a} in {b}{C}s if {a}.{d} != {n}]",
    "import {a}.{b} as {c}",
    "",
)
_SIZES: Final = ((0.40, 40, 400), (0.80, 400, 2_000), (0.97, 2_000, 8_000), (1.0, 8_000, 24_000))
"""Shares of rows up to which a size is drawn from ``(smallest, largest)`` characters."""


def write(folder: Path, prose: Prose, *, files: int, size: int) -> int:
    """Write transcripts of about ``size`` bytes each into a projects folder. Return the bytes written."""
    writer = _Writer(prose)
    written = 0
    for number in range(files):
        session = writer.uuid()
        project = folder / f"-home-dev-project{number % 3}"
        project.mkdir(parents=True, exist_ok=True)
        start = _START + timedelta(hours=7 * number)
        data = b"".join(msgspec.json.encode(row) + b"\n" for row in writer.rows(session, start, size))
        (project / f"{session}.jsonl").write_bytes(data)
        written += len(data)
    return written


class _Writer:
    def __init__(self, prose: Prose) -> None:
        self._prose = prose
        self._random = random.Random(SEED + 1)
        self._code = self._passage()

    def _passage(self) -> str:
        nouns = self._prose.text(60_000).split()
        lines = []
        for _ in range(_CODE_LINES):
            a, b, c, d = self._random.choices(nouns, k=4)
            shape = self._random.choice(_SHAPES)
            capital = {"A": a.capitalize(), "B": b.capitalize(), "C": c.capitalize()}
            lines.append(shape.format(a=a, b=b, c=c, d=d, n=self._random.randrange(1000), **capital))
        return "\n".join(lines)

    def uuid(self) -> str:
        """Return a new random id."""
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def rows(self, session: str, at: datetime, size: int) -> Iterator[dict[str, Any]]:
        """Yield rows until they hold about ``size`` characters."""
        rng = self._random
        parent: str | None = None
        call: str | None = None
        written = 0
        while written < size:
            n = self._size()
            if call is not None:
                row = self._result(call, n)
                call = None
            elif parent is None or rng.random() < 0.1:
                row = {"type": "user", "message": {"role": "user", "content": self._prose.text(min(n, 1500))}}
            else:
                block, call = self._block(n)
                row = self._answer(block)
            row |= {
                "parentUuid": parent,
                "isSidechain": False,
                "userType": "external",
                "cwd": "/home/dev/project",
                "sessionId": session,
                "version": "2.0.31",
                "gitBranch": "main",
                "uuid": self.uuid(),
                "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            }
            parent = row["uuid"]
            at += timedelta(seconds=rng.uniform(0.5, 40))
            written += n + 600
            yield row

    def _size(self) -> int:
        share = self._random.random()
        low, high = next((low, high) for upto, low, high in _SIZES if share <= upto)
        return self._random.randint(low, high)

    def _source(self, size: int) -> str:
        start = self._random.randrange(len(self._code) - size)
        return self._code[start : start + size]

    def _result(self, call: str, size: int) -> dict[str, Any]:
        output = self._source(size)
        block = {"tool_use_id": call, "type": "tool_result", "content": output, "is_error": False}
        return {
            "type": "user",
            "message": {"role": "user", "content": [block]},
            "toolUseResult": {"stdout": output, "stderr": "", "interrupted": False, "isImage": False},
        }

    def _block(self, size: int) -> tuple[dict[str, Any], str | None]:
        kind = self._random.random()
        if kind < 0.25:
            return {"type": "text", "text": self._prose.text(size)}, None
        if kind < 0.4:
            signature = "".join(self._random.choices("ABCDEFabcdef0123456789+/", k=200))
            return {"type": "thinking", "thinking": self._prose.text(size), "signature": signature}, None
        call = "toolu_" + "".join(self._random.choices("abcdefghjkmnpqrstuvwxyzABCDEFGH0123456789", k=24))
        if kind < 0.7:
            given = {"command": self._source(min(size, 300)), "description": self._prose.text(40)}
            return {"type": "tool_use", "id": call, "name": "Bash", "input": given}, call
        given = {
            "file_path": "/home/dev/project/src/module.py",
            "old_string": self._source(size // 3),
            "new_string": self._source(size // 3),
        }
        return {"type": "tool_use", "id": call, "name": "Edit", "input": given}, call

    def _answer(self, block: dict[str, Any]) -> dict[str, Any]:
        rng = self._random
        usage = {
            "input_tokens": rng.randint(3, 20),
            "cache_creation_input_tokens": rng.randint(0, 9_000),
            "cache_read_input_tokens": rng.randint(0, 150_000),
            "output_tokens": rng.randint(1, 900),
            "service_tier": "standard",
        }
        return {
            "type": "assistant",
            "requestId": "req_" + self.uuid()[:20],
            "message": {
                "id": "msg_" + self.uuid()[:24],
                "type": "message",
                "role": "assistant",
                "model": "some-model",
                "content": [block],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": usage,
            },
        }
