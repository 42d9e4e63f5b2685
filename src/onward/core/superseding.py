"""Superseding: whether a later event replaces what an earlier one says.

A search finds what was said, and the oldest saying of it as readily as the newest. Here pairs are judged, by rules that a
person can follow, and each verdict names its rule:

- ``revision``: a newer revision of the plan or of the pins replaces an older one.
- ``file``: a later read or write of the same file, that did not fail, replaces an earlier one.
- ``restated``: the same subject is given another value, ``the port is 8417`` and later ``the port is now 9000``. Without
  a word of change (now, actually, correction …) the subject has to be named by two words at least, and both values have
  to be numbers, names or code.
- ``changed``: a sentence says what became of a value: ``from A to B``, ``B instead of A``, ``no longer A``, ``renamed A
  to B``.

A wrong verdict hides what is true, and a missed one only leaves two hits to compare. So every doubt is decided for
"replaces nothing": a subject has to agree in all its words, questions and what is only supposed do not count, nor does what
tools print or what is quoted. Words are compared by stem. A later event that returns to the same value replaces nothing.

The order of events is the caller's: ``newest`` takes later statements in their order, and never names an earlier one, since
it is given none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from onward.core.bodies import Body, Pins, Plan, ToolCall, ToolResult
from onward.core.stating import Statement, is_plain, is_telling
from onward.core.stemming import stem

Rule = Literal["revision", "file", "restated", "changed"]


class Touch(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool call did to one file."""

    path: str
    writes: bool
    part: str = ""
    """Which part of the file a read asked for; empty for all of it."""


_VAGUE: Final = frozenset(
    stem(word)
    for word in """
    answer case code error file idea it issue line message number one option output plan point problem question reason result
    rest same step test thing time type way word work phase part section item task todo note status summary
    """.split()  # noqa: SIM905
)
"""Subjects that a conversation names anew all the time: alone they tell nothing."""
_PATHS: Final = ("file_path", "path", "notebook_path", "filename", "file", "target_file")
_PARTS: Final = (
    "offset", "limit", "start", "end", "range", "lines", "start_line", "end_line", "view_range", "pages",
)  # fmt: skip
_WRITES: Final = re.compile(r"edit|write|create|patch|replace|insert|update|delete", re.IGNORECASE)
_READS: Final = re.compile(r"read|view|open|cat|get|show", re.IGNORECASE)


def can_be_replaced(stated: Statement) -> bool:
    """Whether any later statement could replace this one, so that it is worth looking for one."""
    return stated.value is not None and (
        stated.particular or is_plain(stated.value) or is_telling(stated.value)
    )


def restates(earlier: Statement, later: Statement) -> Rule | None:
    """Return the rule by which a later statement replaces an earlier one, or None."""
    if earlier.value is None:
        return None
    if later.former is not None and later.former == earlier.value and later.value != earlier.value:
        # The value that is given up is the one that was stated. The sentence may name less of the subject, but nothing else.
        if later.subject and later.subject <= earlier.subject and not later.subject <= _VAGUE:
            return "changed"
        if (not later.subject or earlier.subject < later.subject) and is_telling(earlier.value):
            return "changed"
        return None
    if later.value is None or later.value == earlier.value or earlier.subject != later.subject:
        return None
    naming = {word for word in earlier.subject if word not in _VAGUE and not word.isdigit()}
    if not naming or not _same_sort(earlier.value, later.value):
        return None
    if earlier.particular and later.particular:
        return "restated" if later.change or len(naming) > 1 else None
    # A word that is no name may be a value too (``debug``, then ``trace``), if the sentence speaks of a change.
    plain = later.change and is_plain(earlier.value) and is_plain(later.value)
    return "restated" if plain else None


def _same_sort(one: str, other: str) -> bool:
    """Whether two values could stand for each other: both hold a number, or neither does."""
    return any(c.isdigit() for c in one) == any(c.isdigit() for c in other)


def touches(body: Body) -> tuple[Touch, ...]:
    """Return the files that a tool call reads or writes, as far as its input names them."""
    if not isinstance(body, ToolCall) or not isinstance(body.input, dict):
        return ()
    writes = _WRITES.search(body.name) is not None
    if not writes and not _READS.search(body.name):
        return ()
    given: dict[str, Any] = body.input
    part = "" if writes else ",".join(f"{key}={given[key]}" for key in _PARTS if given.get(key) is not None)
    paths = dict.fromkeys(given[key] for key in _PATHS if isinstance(given.get(key), str) and given[key])
    return tuple(Touch(path=path, writes=writes, part=part) for path in paths)


def touched_again(earlier: Sequence[Touch], later: Sequence[Touch], result: ToolResult | None) -> bool:
    """Whether a later tool call replaces an earlier one on the same file; ``result`` is the later one's.

    A call that failed, or whose outcome is not known, replaces nothing. A read of a part replaces a read of the same part.
    """
    if result is None or result.status != "ok" or result.closer:
        return False
    return any(
        one.path == two.path and (two.writes or two.part in ("", one.part))
        for one in earlier
        for two in later
    )


def newer_revision(earlier: Body, later: Body) -> bool:
    """Whether a later plan or set of pins is another revision of an earlier one."""
    return isinstance(earlier, Plan | Pins) and type(later) is type(earlier)


def newest(
    earlier: Sequence[Statement], later: Sequence[tuple[str, Sequence[Statement]]]
) -> tuple[str, Rule] | None:
    """Return the id of the event that replaces what an earlier one stated, with the rule, or None.

    ``later`` holds the later events with what they state, in their order. The newest that speaks about the subject
    decides: when it returns to the earlier value, nothing is replaced.
    """
    for one in earlier:
        replaced: tuple[str, Rule] | None = None
        value = one
        for event, stated in later:
            for other in stated:
                if rule := restates(value, other) or restates(one, other):
                    replaced = (event, rule)
                    if other.value is not None:
                        value = msgspec.structs.replace(value, value=other.value)
                if other.value == one.value and other.subject == one.subject:
                    replaced, value = None, one
        if replaced:
            return replaced
    return None
