"""Directives: what a request asks the stub for, in the words of its last user message.

    [[say TEXT]]  [[think TEXT]]  [[call NAME {json}]]  [[usage N]]  [[status CODE]]  [[drop N]]  [[slow N S]]

They stand in what the user said now. Programs put more into a user message than that: reminders, an environment, and a
brief in front of the instruction. Whatever stands in a fence or in one of Onward's frames was said before and is quoted
(no quoted text can close either), and whatever stands in a tag of a program's own is not the user's; ``own_words``
leaves out both, so that the directives of an earlier turn that a brief tells about are not obeyed again.

It is deliberately no parser of those tags: what is left out is what programs were seen to send.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from onward.core.bodies import Usage
from onward.core.fencing import TAG
from onward.core.projection import FRAMES
from onward.engines.script import Call, Fail, Measure, Say, Step, Think, directives
from onward.testing.stub_wire import Heard, Reply

PROGRAM_TAGS: Final = (
    "system-reminder",
    "environment_context",
    "session_context",
    "user_instructions",
    "turn_aborted",
    "permissions instructions",
    "skills_instructions",
    r"(?:local-)?command-[a-z-]+",
)
"""Tags around what a program adds to what its user said."""


def _elements(names: Iterable[str]) -> re.Pattern[str]:
    """Match a whole element with one of these names, with all that is in it."""
    return re.compile(rf"<({'|'.join(names)})(?:\s[^>]*)?>.*?</\1>", re.DOTALL)


_added: Final = _elements(PROGRAM_TAGS)
_quoted: Final = _elements((TAG, *FRAMES))
_status: Final = re.compile(r"\[\[status (\d+)\]\]")
_drop: Final = re.compile(r"\[\[drop (\d+)\]\]")
_slow: Final = re.compile(r"\[\[slow (\d+) (\d+(?:\.\d+)?)\]\]")


def said_by_user(text: str) -> str:
    """Return a user's text without what a program added to it; briefs and other quotations stay."""
    return _added.sub("", text).strip()


def own_words(text: str) -> str:
    """Return what the user said now: without what a program added, and without what is quoted."""
    return _quoted.sub("", said_by_user(text)).strip()


def reply_to(heard: Sequence[Heard], *, size: int) -> Reply:
    """Return the reply that the last user message asks for; without directives, a short echo of it.

    ``size`` is the length of the request in bytes; the input tokens are a quarter of it where no directive counts them.
    """
    text, results = _last(heard)
    if status := _status.search(text):
        return Reply(status=int(status[1]))
    steps: list[Step] = list(directives(text))
    calls = [step for step in steps if isinstance(step, Call)]
    says = [step.text for step in steps if isinstance(step, Say)]
    if fail := next((step for step in steps if isinstance(step, Fail)), None):
        return Reply(status=500, error=fail.reason)
    usage = next((step.usage for step in steps if isinstance(step, Measure)), None)
    drop, slow = _drop.search(text), _slow.search(text)
    reply = Reply(
        thought=next((step.text for step in steps if isinstance(step, Think)), None),
        usage=msgspec.structs.replace(usage or Usage(input_tokens=size // 4), output_tokens=3),
        drop=int(drop[1]) if drop else None,
        chunks=int(slow[1]) if slow else 3,
        pause=float(slow[2]) if slow else 0.0,
    )
    if results < len(calls):
        call = calls[results]
        return msgspec.structs.replace(reply, calls=((call.name, call.input),))
    return msgspec.structs.replace(reply, text=" ".join(says) if says else f"You said: {text[:120]}")


def _last(heard: Sequence[Heard]) -> tuple[str, int]:
    """Return the last words of the user, and how many tools have answered since."""
    text, results = "", 0
    for one in heard:
        if one.who == "tool":
            results += 1
        elif one.who == "user" and (words := own_words(one.text)):
            text, results = words, 0
    return text, results


def least(schema: dict[str, Any]) -> Any:
    """Return a small value that follows a JSON Schema, as far as programs use it for their own questions."""
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "object")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()
    if kind == "object":
        inner, wanted = schema.get("properties") or {}, schema.get("required") or ()
        return {name: least(value) for name, value in inner.items() if name in wanted}
    return {"array": [], "number": 0, "integer": 0, "boolean": False, "null": None}.get(kind, "stub")
