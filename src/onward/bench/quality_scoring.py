"""What counts as right: the value in an answer, and the statement in a context.

Both are string matches on normalised text (lower case, letters and digits, everything else a space), so nobody's judgement
is in the figures. They are strict on purpose: an answer that names the right value and one that it is easily mistaken for
is wrong, for whoever asked would not know which to take.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from onward.bench.quality_scenes import Fact

_WORD: Final = re.compile(r"[^\W_]+")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|\n+")
_DECLINES: Final = re.compile(
    r"\b(?:not|never|isn't|aren't|wasn't) (?:\w+ )?"
    r"(?:mentioned|stated|specified|provided|given|known|clear|included|listed|in the)\b"
    r"|\b(?:do|does|did|have|has|can|could)(?: not|n't) (?:\w+ )?"
    r"(?:know|have|see|find|recall|remember|mention|specify|say|tell)\b"
    r"|\bno (?:\w+ )?(?:information|mention|record|notes?|context|details?)\b"
    r"|\b(?:unknown|unclear|unable to|cannot|can't|sorry)\b",
    re.IGNORECASE,
)
_REMEMBERS: Final = re.compile(
    r"\bI (?:still |do |well |can )*(?:remember|recall)\b|\b(?:as|like|what) (?:I|we) (?:said|discussed|mentioned|agreed)\b"
    r"|\b(?:you|we|I) (?:told|said|mentioned|discussed|talked|spoke|agreed)\b[^.]*\b(?:earlier|before|last time)\b"
    r"|\bwe (?:discussed|talked|spoke)\b|\byou (?:told|asked) me\b"
    r"|\b(?:our|my) (?:previous|last|earlier) (?:conversation|session|chat|discussion)\b|\blast time\b",
    re.IGNORECASE,
)
_PRETENDS: Final = re.compile(
    r"\bI(?: have|'ve)? (?:just )?(?:used the tool|ran|run|called|executed)\b", re.IGNORECASE
)


def right(reply: str, fact: Fact) -> bool:
    """Whether a reply names the value, and none that it may be mistaken for."""
    return _any(reply, fact.answers) and not _any(reply, fact.wrong)


def states(context: str, fact: Fact) -> bool:
    """Whether a context holds the statement word for word: the sentence or line of the evidence with the value in it."""
    return _any(context, statements(fact))


def mentions(context: str, fact: Fact) -> bool:
    """Whether a context holds the value at all, in whatever words: what can be asked of a summary."""
    return _any(context, fact.answers)


def declines(reply: str) -> bool:
    """Whether a reply says that it cannot tell, or says nothing."""
    return not reply.strip() or _DECLINES.search(reply) is not None


def remembers(reply: str) -> bool:
    """Whether a reply claims a memory of the conversation, which only who was part of it can have."""
    return _REMEMBERS.search(reply) is not None


def pretends(reply: str) -> bool:
    """Whether a reply says that a tool was used for it; nobody who is asked here has any."""
    return _PRETENDS.search(reply) is not None


def statements(fact: Fact) -> tuple[str, ...]:
    """Return the sentences or lines of a fact that hold its value."""
    return tuple(part for part in _SENTENCE.split(fact.text) if _any(part, fact.answers))


def _any(text: str, values: Iterable[str]) -> bool:
    words = _plain(text)
    return any(_plain(value) in words for value in values)


def _plain(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "
