"""Talk: the single events of a made-up conversation, and everything in it that is not a fact.

Small talk, listings and tool calls name the same subjects, properties and reasons as the facts do. Whoever looks for a fact
by one of its words alone finds these.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count
from typing import Any, Final, TypeVar

from onward.bench import conversations_words as words
from onward.core.bodies import Message, ToolCall, ToolResult
from onward.core.events import NewEvent
from onward.service.platform import Platform

T = TypeVar("T")
Subject = tuple[str, str]
"""What it is for, and what it is."""

_MODIFIERS: Final = 7
_FUNCTIONS: Final = 7
_CHOICES: Final = 4


class Talk:
    """The subjects of one lineage and what is said about them, drawn from one half of the tables."""

    def __init__(self, platform: Platform, rng: random.Random, half: int, number: int) -> None:
        self._platform = platform
        self._half = half
        self._calls = count(1)
        self.rng = rng
        modifiers = self.mine(words.MODIFIERS)
        self.modifiers = [modifiers[(number * 3 + n) % len(modifiers)] for n in range(_MODIFIERS)]
        heads = [head for head, _ in words.HEADS]
        self.subjects: list[Subject] = [(m, head) for m in self.modifiers for head in rng.sample(heads, 2)]
        self.choices = rng.sample(self.mine(words.CHOICES), _CHOICES)
        # Few functions, so that several things are said about each.
        tables = (words.VERBS, words.NOUNS, words.PARTS)
        self.functions = [tuple(self.drawn(table) for table in tables) for _ in range(_FUNCTIONS)]

    def mine(self, table: Sequence[T]) -> list[T]:
        """Return the half of a table that this lineage uses."""
        return list(table[self._half :: 2])

    def drawn(self, table: Sequence[T]) -> T:
        """Return one entry of that half."""
        return self.rng.choice(self.mine(table))

    def called(self, subject: Subject, *, exactly: bool) -> str:
        """Return a subject by its name, or as somebody calls it who does not remember the name."""
        modifier, head = subject
        if exactly:
            return f"{modifier} {head}"
        return self.rng.choice(dict(words.HEADS)[head]).format(m=modifier)

    def spelled(self, function: tuple[str, ...]) -> str:
        """Return the name of a function, in one of two spellings."""
        verb, noun, part = function
        if self.rng.random() < 0.5:
            return f"{verb}{noun}{part}"
        return f"{verb}_{noun}_{part}".lower()

    def say(self, text: str, actor: str = "agent") -> NewEvent:
        """Return a message."""
        text = text[0].upper() + text[1:]
        body = Message(role="user" if actor == "user" else "assistant", text=text)
        return self._platform.event("message", body, actor)

    def somebody(self) -> str:
        """Return who speaks: a person or the agent."""
        return self.rng.choice(("user", "agent"))

    def padded(self, text: str) -> str:
        """Return a statement between sentences that say nothing about it."""
        before = self.rng.sample(words.FILLS, self.rng.randrange(3))
        after = self.rng.sample(words.FILLS, self.rng.randrange(3))
        return " ".join([*before, text[0].upper() + text[1:], *after])

    def chatter(self) -> NewEvent:
        """Return a message about nothing, one to three sentences."""
        return self.say(" ".join(self._sentence() for _ in range(self.rng.randrange(1, 4))), self.somebody())

    def work(self) -> list[NewEvent]:
        """Return a tool call about some subject, and its result."""
        modifier, head = self.rng.choice(self.subjects)
        if self.rng.random() < 0.5:
            return self.tool("read_file", {"path": f"services/{modifier}_{head}/main.py"}, self.listing())
        return self.tool("shell", {"command": f"grep -rn {modifier} services | head"}, self.listing())

    def tool(self, name: str, given: dict[str, Any], output: str) -> list[NewEvent]:
        """Return a tool call and its result."""
        call = f"c{next(self._calls)}"
        return [
            self._platform.event("tool_call", ToolCall(call=call, name=name, input=given), "agent"),
            self._platform.event("tool_result", ToolResult(call=call, output=output), "tool"),
        ]

    def listing(self) -> str:
        """Return some lines as a tool prints them."""
        return "\n".join(self._line() for _ in range(self.rng.randrange(4, 14)))

    def _line(self) -> str:
        modifier, head = self.rng.choice(self.subjects)
        prop = self.rng.choice(words.PROPERTIES).name
        return self.rng.choice(
            (
                f"services/{modifier}_{head}/settings.toml:{self.rng.randrange(1, 90)}: {prop} = ...",
                f"PASS tests/{modifier}/test_{head}.py",
                f"{modifier}-{head}  running  {self.rng.randrange(1, 400)}m",
                f"    log.info('{modifier} {head} ready')",
            )
        )

    def _sentence(self) -> str:
        modifier, head = self.rng.choice(self.subjects)
        what, chosen, rejected, _, _ = self.rng.choice(self.choices)
        return self.rng.choice(words.CHATTER).format(
            s=f"{modifier} {head}",
            m=modifier,
            p=self.rng.choice(words.PROPERTIES).name,
            c=self.drawn(words.CAUSES)[0],
            f=self.spelled(self.rng.choice(self.functions)),
            w=what,
            a=chosen,
            b=rejected,
        )
