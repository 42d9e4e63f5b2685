"""Counters by name: the estimate that needs nothing, and the exact one that needs the ``tokens`` extra.

A manifest records the name; whoever checks it asks ``counter_by_name`` for the same way of counting. The exact
counter is o200k, the encoding of OpenAI's models since GPT-4o, through toktok-rs, whose vocabulary is inside its
wheel: counting asks no network. For other vendors' models it is an estimate too, a good one.

The package is imported when a text is first counted, not when Onward starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from onward.core.budget import CharsCounter, Counter
from onward.errors import InvalidInput, MissingExtra

COUNTERS: Final = ("chars/4", "o200k")
"""The names that ``counter_by_name`` knows."""

_ENCODING: Final = "o200k_base"


class O200kCounter:
    """Counts o200k tokens exactly. Constructing it raises MissingExtra when the package is not installed."""

    name: Final = "o200k"

    def __init__(self) -> None:
        try:
            from toktok import batch_count
        except ImportError as missing:
            raise MissingExtra(feature="Counting o200k tokens", extra="tokens") from missing
        self._count: Callable[..., Any] = batch_count

    def __repr__(self) -> str:
        return "O200kCounter()"

    def count(self, text: str) -> int:
        """Return the number of tokens; lone surrogates, which no tokenizer takes, count as replacement characters."""
        try:
            return int(self._count([text], _ENCODING, 1)[0])
        except UnicodeEncodeError:
            return int(
                self._count(
                    [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")], _ENCODING, 1
                )[0]
            )


def counter_by_name(name: str) -> Counter:
    """Return the counter that a manifest calls by this name.

    Raises InvalidInput for a name nobody knows, MissingExtra when its package is not installed.
    """
    if name == "chars/4":
        return CharsCounter()
    if name == "o200k":
        return O200kCounter()
    raise InvalidInput(what=f"counter {name!r}", why=f"known counters are {', '.join(COUNTERS)}")
