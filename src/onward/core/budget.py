"""Budgets: what a text costs, counted by a counter that says its name.

A count is only worth something together with who counted (invariant P4: the manifest names its tokenizer).
``CharsCounter`` needs nothing and is reproducible everywhere; it is an estimate and its name says so. The exact
counter needs a package and lives in ``service.counting``, with ``counter_by_name``, because the core imports nothing
but msgspec.

Costs are additive on purpose: the cost of a list is the sum of the costs of its parts, so that a compiler can fill a
budget one part at a time and counts nothing twice. With ``chars/4`` a joined text never costs more than its parts.
With a real tokenizer it nearly always costs less, and once in a while a token more at a seam; whoever promises a budget
for the whole counts the whole once at the end.

It is deliberately not a price: money is in ``bodies.Usage``, as the engine measured it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from onward.core.codec import flat

if TYPE_CHECKING:
    from onward.core.transcript import TranscriptMessage

MESSAGE_OVERHEAD: Final = 4
"""Tokens that each message costs beside its words: the role and the marks around it.

Chat formats spend three to five (ChatML: two marks, the role and a line break); four is in the middle and fixed, so
that the same messages cost the same everywhere.
"""

CHARS_PER_TOKEN: Final = 4


class Counter(Protocol):
    """Counts tokens. Pure: the same text always costs the same."""

    @property
    def name(self) -> str:
        """The name that a manifest records: it identifies the way of counting, for good."""
        ...

    def count(self, text: str) -> int:
        """Return how many tokens the text costs; 0 for an empty one. Never raises, whatever the text holds."""
        ...


class CharsCounter(msgspec.Struct, frozen=True, kw_only=True):
    """Four characters are a token, rounded up. Close for English and code, about half of the truth for CJK."""

    name: str = "chars/4"

    def count(self, text: str) -> int:
        """Return ``ceil(len(text) / 4)``."""
        return -(-len(text) // CHARS_PER_TOKEN)


def message_cost(message: TranscriptMessage, counter: Counter) -> int:
    """Return the tokens of one message: its content, its tool's name, input and output, and ``MESSAGE_OVERHEAD``."""
    parts = (message.content, message.tool_name or "", flat(message.tool_input), message.tool_output or "")
    return MESSAGE_OVERHEAD + sum(counter.count(part) for part in parts if part)


def messages_cost(messages: Iterable[TranscriptMessage], counter: Counter) -> int:
    """Return the tokens of all these messages."""
    return sum(message_cost(message, counter) for message in messages)
