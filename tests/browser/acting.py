"""An agent that does what a message tells it to, in the order and at the moment that a test says.

It speaks the directives of the script engine and four more, which a test of a page needs:

    [[gate NAME]]     wait until the test opens the gate of this name (``gates.Gates``)
    [[write TEXT]]    write a piece of an answer, which is shown at once and finishes nothing
    [[finish TEXT]]   finish the answer: this is what the log keeps
    [[ask TEXT]]      ask a person for permission to do this, and say what was answered

A successor answers the same message as its predecessor, and so does a second attempt. ``[[then]]`` parts what is done each
time: the first run of a message does the first part, the next one the second, and all that follow do the last. So such a
message has to be another one each time that it is said anew.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from onward.engines.contract import (
    Capabilities,
    Finished,
    Permission,
    Said,
    Signal,
    Started,
    TextDelta,
    Turn,
)
from onward.engines.script import Ask, ScriptEngine, Step, asked, directives, echo

_OURS: Final = re.compile(r"\[\[(gate|write|finish|ask) (.*?)\]\]", re.DOTALL)
_THEN: Final = "[[then]]"


class Actor:
    """The engine ``script``, with the gates of a test at this port; none where there are no gates."""

    name: Final = "script"

    def __init__(self, gates: int = 0) -> None:
        self._gates = gates
        self._played: Counter[str] = Counter()

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return Capabilities(tools=True, streaming=True)

    def unavailable(self) -> str | None:
        """It is always there."""
        return None

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        """Do what this part of the message says."""
        parts = turn.input.split(_THEN)
        part = parts[min(self._played[turn.input], len(parts) - 1)]
        self._played[turn.input] += 1
        yield Started(model="script")
        steps = 0
        for piece in _pieces(part):
            if isinstance(piece, tuple):
                word, about = piece
                steps += 1
                if word == "gate":
                    await self._gate(about)
                elif word == "write":
                    yield TextDelta(text=about)
                elif word == "finish":
                    yield Said(text=about, model="script")
                else:
                    assert turn.permit is not None
                    permission = Permission(subject=about, tool="Bash", input={"command": about})
                    yield Said(text=await asked(turn, permission), model="script")
                continue
            script = tuple(directives(piece))
            steps += len(script)
            async for signal in _played(script, turn):
                if isinstance(signal, Finished) and signal.status != "completed":
                    yield signal
                    return
                if not isinstance(signal, Finished | Started):
                    yield signal
        if not steps:
            yield Said(text=echo(turn), model="script")
        yield Finished(status="completed")

    async def _gate(self, name: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._gates)
        try:
            writer.write(f"{name}\n".encode())
            await writer.drain()
            if not await reader.readline():
                raise ConnectionError(f"the test that keeps the gate {name} is gone")
        finally:
            writer.close()


def _pieces(text: str) -> list[str | tuple[str, str]]:
    """Return a text as what is ours and what stands between it."""
    found: list[str | tuple[str, str]] = []
    at = 0
    for ours in _OURS.finditer(text):
        found += [text[at : ours.start()], (ours[1], ours[2])]
        at = ours.end()
    return [*found, text[at:]]


async def _played(script: tuple[Step, ...], turn: Turn) -> AsyncIterator[Signal]:
    assert not any(isinstance(step, Ask) for step in script)
    async for signal in ScriptEngine(script=script).run(turn):
        yield signal
