"""Engines with a memory of their own, as tests need them: what they hold, lose, and were given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from onward.engines.contract import Capabilities, Finished, Signal, Turn
from onward.engines.script import Begin, Fail, Say, ScriptEngine

TEXT: Capabilities = Capabilities(memory=True, reads="text", chooses_id=True, tools=True, streaming=True)
"""What coding engines can do: they keep a conversation, and are told of another one as text."""
RESTORING: Capabilities = Capabilities(
    memory=True, reads="text", chooses_id=True, restore=True, tools=True, streaming=True
)
ONE_SHOT: Capabilities = Capabilities(reads="text", streaming=True)
"""A program that is started anew for every turn."""


class Dead:
    """An engine that fails before it has begun anything."""

    name = "script"
    capabilities = TEXT

    def unavailable(self) -> str | None:
        return None

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        yield Finished(status="failed", reason="It did not start.")


class Guest:
    """An engine that goes on in what it holds, by the rules of the engine contract.

    ``held`` is its memory: what it was told and said, by the id of each conversation. A test that empties it is a machine
    that lost its files.
    """

    def __init__(
        self, capabilities: Capabilities = TEXT, *, name: str = "script", steps: tuple[Any, ...] = ()
    ) -> None:
        self.held: dict[str, list[str]] = {}
        self.turns: list[Turn] = []
        self.prompts: list[str] = []
        """The one message that each turn sent to the model."""
        self._steps = steps or (Say(text="Done."),)
        self.engine = ScriptEngine(script=self._play, capabilities=capabilities)
        if name != "script":
            # The script engine passes for another one: its name is all that the log knows of it.
            vars(self.engine)["name"] = name

    def _play(self, turn: Turn) -> tuple[Any, ...]:
        self.turns.append(turn)
        begin = self._begin(turn)
        if begin is None:
            return (Fail(reason="No conversation found with that id."),)
        prompt = f"{turn.brief}\n\n{turn.input}" if begin.briefed else turn.input
        self.prompts.append(prompt)
        self.held.setdefault(begin.native_id or "", []).append(prompt)
        return (begin, *self._steps)

    def _begin(self, turn: Turn) -> Begin | None:
        known = turn.native.id if turn.native else None
        if known is not None and known in self.held and not turn.prefer_recorded:
            return Begin(native_id=known, resumed=True)
        if turn.native_only:
            return None
        why = "It was not found where the engine keeps it." if known else ""
        if known is not None and turn.recorded:
            self.held[known] = [row.decode() for file in turn.recorded for row in file.rows]
            return Begin(native_id=known, restored=True, why=why)
        new = turn.new_id or f"native-{len(self.held) + 1}"
        return Begin(native_id=new, briefed=bool(turn.brief.strip()), why=why)
