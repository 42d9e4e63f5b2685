"""The script engine: an agent that does exactly what it is told, with no model behind it.

It is the engine of tests, demos and documentation, and it is a real one: it streams, it runs the tools that are
offered, and it passes the same suite as the others. What it does comes from a script given in Python (a list of
steps, or a function from the turn to steps), or else from directives in the text that it is asked:

    [[say TEXT]]   [[think TEXT]]   [[call NAME {json}]]   [[usage N]]   [[fail TEXT]]   [[hang]]   [[stop]]

Text without a directive is answered with a short echo that says how many earlier messages there were. The same turn
always gives the same signals: it reads no clock and draws no random number.

It is deliberately able to misbehave where a real engine could: ``Stop`` ends without ``Finished``, ``Hang`` never
ends by itself. What an engine must not do (raise, call a tool before saying so), it cannot be told to do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from onward.core.bodies import Usage
from onward.engines.calling import answer, offers
from onward.engines.contract import (
    Capabilities,
    Finished,
    Measured,
    Permission,
    Said,
    Signal,
    Started,
    TextDelta,
    Thought,
    ToolCalled,
    Turn,
    call_id,
)
from onward.errors import InvalidInput

ECHO_LIMIT: Final = 120
"""Characters of the question that an echo repeats."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The root of what a script can do."""


class Begin(Step, kw_only=True, frozen=True):
    """Report another start than the usual one, to play an engine that keeps conversations. Only as the first step."""

    model: str | None = "script"
    native_id: str | None = None
    resumed: bool = False
    restored: bool = False
    briefed: bool = False
    why: str = ""


class Say(Step, kw_only=True, frozen=True):
    """Say a text: first in this many deltas of about equal length, then as a finished message."""

    text: str
    deltas: int = 3


class Mutter(Step, kw_only=True, frozen=True):
    """Say the deltas of a message that is never finished, as an engine that dies in the middle of a sentence does."""

    text: str


class Think(Step, kw_only=True, frozen=True):
    """Show reasoning."""

    text: str
    signature: str | None = None


class Call(Step, kw_only=True, frozen=True):
    """Call a tool and wait for its answer. If the tool ends the turn, the rest of the script is not played."""

    name: str
    input: Any = {}
    provider_call: str | None = None


class Measure(Step, kw_only=True, frozen=True):
    """Report usage."""

    usage: Usage


class Ask(Step, kw_only=True, frozen=True):
    """Ask for permission, and say what was answered: ``granted``, or ``refused: …``."""

    permission: Permission


class Fail(Step, kw_only=True, frozen=True):
    """End the turn as failed."""

    reason: str
    retryable: bool = False


class Hang(Step, kw_only=True, frozen=True):
    """Wait until cancelled."""


class Stop(Step, kw_only=True, frozen=True):
    """End the stream without ``Finished``, which is what a crashed engine looks like."""


Script = Iterable[Step] | Callable[[Turn], Iterable[Step]]


class ScriptEngine:
    """Plays a script. Without one it follows the directives in the text of each turn, or echoes it.

    ``script`` is a list of steps that every turn plays, or a function that gives the steps of a turn.
    ``capabilities`` lets it pass for an engine with other abilities, such as one that keeps its own conversation (see
    ``Begin``).
    """

    name: Final = "script"

    def __init__(self, *, script: Script | None = None, capabilities: Capabilities | None = None) -> None:
        self._script = script if script is None or callable(script) else tuple(script)
        self._capabilities = capabilities or Capabilities(tools=True, streaming=True)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def unavailable(self) -> str | None:
        return None

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        """Play the steps of this turn; a directive that cannot be read fails it, with what is wrong."""
        fault: str | None = None
        steps: tuple[Step, ...] = ()
        try:
            steps = self._steps(turn)
        except InvalidInput as invalid:
            fault = invalid.message
        begin = steps[0] if steps and isinstance(steps[0], Begin) else Begin()
        yield Started(
            model=begin.model,
            native_id=begin.native_id,
            resumed=begin.resumed,
            restored=begin.restored,
            briefed=begin.briefed,
            why=begin.why,
        )
        if fault is not None:
            yield Finished(status="failed", reason=fault)
            return
        calls = 0
        for step in steps:
            match step:
                case Say():
                    for piece in _pieces(step.text, step.deltas):
                        yield TextDelta(text=piece)
                    yield Said(text=step.text, model=begin.model)
                case Mutter():
                    yield TextDelta(text=step.text)
                case Think():
                    yield Thought(text=step.text, signature=step.signature)
                case Measure():
                    yield Measured(usage=step.usage)
                case Call():
                    calls += 1
                    called = ToolCalled(
                        call=call_id(turn.run_id, calls),
                        name=step.name,
                        input=step.input,
                        provider_call=step.provider_call,
                        ours=offers(turn, step.name),
                    )
                    yield called
                    answered, ended = await answer(turn, called)
                    yield answered
                    if ended:
                        yield ended
                        return
                case Ask():
                    said = await asked(turn, step.permission)
                    yield Said(text=said, model=begin.model)
                case Fail():
                    yield Finished(status="failed", reason=step.reason, retryable=step.retryable)
                    return
                case Hang():
                    await asyncio.Event().wait()
                case Stop():
                    return
                case _:
                    pass
        yield Finished(status="completed")

    def _steps(self, turn: Turn) -> tuple[Step, ...]:
        if self._script is None:
            return tuple(directives(turn.input)) or (Say(text=echo(turn)),)
        return tuple(self._script(turn) if callable(self._script) else self._script)


async def asked(turn: Turn, permission: Permission) -> str:
    """Ask whoever may allow it, and return the answer in words."""
    if turn.permit is None:
        return "refused: nobody can be asked"
    answer = await turn.permit(permission)
    return "granted" if answer.granted else f"refused: {answer.note}"


def echo(turn: Turn) -> str:
    """Return the answer to a text without directives: what was asked, and how much was known before."""
    asked = " ".join(turn.input.split())
    if len(asked) > ECHO_LIMIT:
        asked = asked[: ECHO_LIMIT - 1] + "…"
    count = len(turn.history)
    return f"You said “{asked}”. I was given {count} earlier message{'' if count == 1 else 's'}."


def directives(text: str) -> Iterator[Step]:
    """Yield the steps that the directives in a text ask for, in order; none for a text without directives.

    A word after ``[[`` that names no directive is ordinary text. Raises InvalidInput for a directive that is cut off
    or whose JSON or number cannot be read.
    """
    at = 0
    while (start := text.find("[[", at)) >= 0:
        at = start + 2
        word, _, _ = text[at : at + 8].partition("]]")
        word = word.split(maxsplit=1)[0] if word.split() else ""
        if word not in _DIRECTIVES:
            continue
        at += len(word)
        if word == "call":
            step, at = _read_call(text, at)
        else:
            end = text.find("]]", at)
            if end < 0:
                raise InvalidInput(what=f"directive [[{word}", why="it has no closing ]]")
            step, at = _DIRECTIVES[word](text[at:end].strip()), end + 2
        yield step


def _read_call(text: str, at: int) -> tuple[Step, int]:
    """Read ``NAME {json}]]``. The JSON may hold brackets itself, so its own grammar says where it ends."""
    rest = text[at:].lstrip()
    name = rest.split("]]", 1)[0].split("{", 1)[0].strip()
    if not name or "]]" not in rest:
        raise InvalidInput(what="directive [[call", why="it is written [[call NAME {json}]]")
    at += len(text[at:]) - len(rest) + rest.index(name) + len(name)
    while at < len(text) and text[at].isspace():
        at += 1
    given: Any = {}
    if text[at : at + 1] == "{":
        try:
            given, at = json.JSONDecoder().raw_decode(text, at)
        except ValueError as invalid:
            raise InvalidInput(
                what=f"directive [[call {name}", why=f"its JSON cannot be read: {invalid}"
            ) from None
    while at < len(text) and text[at].isspace():
        at += 1
    if text[at : at + 2] != "]]":
        raise InvalidInput(what=f"directive [[call {name}", why="after the JSON there must be ]]")
    return Call(name=name, input=given), at + 2


def _usage(text: str) -> Step:
    if not text.isascii() or not text.isdigit():
        raise InvalidInput(what=f"directive [[usage {text}]]", why="it takes a whole number of input tokens")
    return Measure(usage=Usage(input_tokens=int(text), context_tokens=int(text)))


_DIRECTIVES: Final[dict[str, Callable[[str], Step]]] = {
    "say": lambda text: Say(text=text),
    "think": lambda text: Think(text=text),
    "call": lambda text: Call(name=text),
    "usage": _usage,
    "fail": lambda text: Fail(reason=text or "the script said so"),
    "hang": lambda _: Hang(),
    "stop": lambda _: Stop(),
}


def _pieces(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, count)))
    return [text[at : at + size] for at in range(0, len(text), size)]
