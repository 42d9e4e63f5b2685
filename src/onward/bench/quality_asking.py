"""An engine as it is questioned: under one control text, without tools, and with what it was given written down.

The runner drives it like any other engine, so what is measured goes through the platform and not around it. It changes
nothing about how the engine answers. With ``as_text`` it passes for an engine that reads what came before as text: it then
puts the brief in front of the question, in the same message, once, exactly as the contract asks of such engines.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from onward.core.bodies import Usage
from onward.core.transcript import TranscriptMessage
from onward.engines.contract import (
    Capabilities,
    Engine,
    Finished,
    Measured,
    Said,
    Signal,
    Started,
    Turn,
)


class Instructed:
    """An engine under one control text, and what it was given last."""

    def __init__(self, engine: Engine, instruction: str, *, as_text: bool = False) -> None:
        self._engine, self._instruction, self._as_text = engine, instruction, as_text
        self.name = engine.name
        self.model: str | None = None
        self.usage: Usage | None = None
        self.history: tuple[TranscriptMessage, ...] = ()
        self.brief = ""

    @property
    def capabilities(self) -> Capabilities:
        # No tools: reading more of the record is what none of the contexts could do.
        able = msgspec.structs.replace(self._engine.capabilities, tools=False)
        return msgspec.structs.replace(able, reads="text") if self._as_text else able

    def unavailable(self) -> str | None:
        return self._engine.unavailable()

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        """Answer under the control text."""
        self.history, self.brief, self.usage = turn.history, "", None
        turn = msgspec.structs.replace(turn, system=self._instruction)
        if self._as_text and turn.brief:
            self.brief = turn.brief
            turn = msgspec.structs.replace(turn, brief="", input=f"{turn.brief}\n\n{turn.input}")
        async for signal in self._engine.run(turn):
            match signal:
                case Started() if self.brief:
                    yield msgspec.structs.replace(signal, briefed=True)
                    continue
                case Measured():
                    self.usage = signal.usage
                case Said():
                    self.model = signal.model or self.model
            yield signal

    def say(self, text: str, context: str = "") -> tuple[str, str]:
        """Return the answer to a text behind a context, and why it failed, empty if it did not."""
        return asyncio.run(self._say(text, context))

    async def _say(self, text: str, context: str) -> tuple[str, str]:
        history = (TranscriptMessage(role="user", content=context),) if context else ()
        turn = Turn(session_id="bench", run_id="bench", input=text, history=history)
        reply, failed = "", "it stopped without an end"
        async for signal in self.run(turn):
            match signal:
                case Said():
                    reply += signal.text
                case Finished(status="completed"):
                    failed = ""
                case Finished():
                    failed = signal.reason or "it gave no reason"
        return reply, failed
