"""Retention: what is kept of a conversation that may take only so many bytes, and exactly how much is not.

In this order, and only as far as needed:

1. the oldest pieces are dropped, but never one that must stay (a checkpoint stands for everything before it) and never the
   newest;
2. the longest of what is left is cut in its middle, then the next longest, down to one common length. Where it was cut, a
   notice says how many UTF-8 bytes are missing. As much is kept as fits, half of it from the head and half from the tail.

Every count is taken on the original text, in UTF-8 bytes, and no code point is ever split. The same pieces give the same
result, and what fits already comes back as it is.

It is deliberately unaware of what a piece is and of how it is written: the caller says what each one costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

NOTICE: Final = "[… {omitted} UTF-8 bytes omitted …]"
"""What stands where a text was cut, on a line of its own. No thousands separators: a shorter count is never longer."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One text of a conversation."""

    text: str
    stays: bool = False
    """It is never dropped."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of one piece."""

    index: int
    """Which one it was."""
    text: str
    omitted: int = 0
    """UTF-8 bytes of the original that are missing."""


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a conversation."""

    kept: tuple[Kept, ...]
    """In their order."""
    dropped: int = 0
    """Pieces that are gone altogether."""
    omitted_bytes: int = 0
    """UTF-8 bytes that are missing: of dropped pieces and of those that were cut."""


Cost = Callable[[int, str], int]
"""Returns what the piece of an index costs with this text: at least its UTF-8 bytes, and with more in it never less."""


def utf8(text: str) -> bytes:
    """Return a text in UTF-8. A lone surrogate counts three bytes, as its code point would."""
    return text.encode("utf-8", "surrogatepass")


def retain(pieces: Sequence[Piece], room: int, cost: Cost) -> Retained | int:
    """Return what is left of the pieces within ``room`` bytes, or what the least that must stay would need."""
    sizes = [len(utf8(piece.text)) for piece in pieces]
    # Of a long conversation most is dropped for its bytes alone; what the rest costs is asked piece by piece.
    likely = _left(pieces, range(len(pieces)), sizes, room)
    costs = {index: cost(index, pieces[index].text) for index in likely}
    left = _left(pieces, likely, costs, room)
    total = sum(costs[index] for index in left)
    missing = sum(sizes) - sum(sizes[index] for index in left)
    if total <= room:
        kept = [Kept(index=index, text=pieces[index].text) for index in left]
    else:
        texts = [_Text(index, pieces[index].text, costs[index], cost) for index in left]
        least = sum(text.within(0)[1] for text in texts)
        if least > room:
            return least
        low, high = 0, room
        while low < high:
            middle = (low + high + 1) // 2
            if sum(text.within(middle)[1] for text in texts) <= room:
                low = middle
            else:
                high = middle - 1
        kept = [text.within(low)[0] for text in texts]
    return Retained(
        kept=tuple(kept),
        dropped=len(pieces) - len(left),
        omitted_bytes=missing + sum(k.omitted for k in kept),
    )


def _left(
    pieces: Sequence[Piece], among: Sequence[int], weights: Sequence[int] | dict[int, int], room: int
) -> list[int]:
    """Return what is left of these when the oldest that may go are dropped until their weights fit, or none may go."""
    total = sum(weights[index] for index in among)
    left = []
    for index in among:
        if total > room and not pieces[index].stays and index < len(pieces) - 1:
            total -= weights[index]
        else:
            left.append(index)
    return left


def cut(text: str | bytes, keep: int) -> tuple[str, int]:
    """Return a text cut to at most ``keep`` UTF-8 bytes of it, with the notice, and how many bytes are missing.

    Half is kept from the head and half from the tail, each to the last whole code point. A text that is not longer is whole.
    """
    data = utf8(text) if isinstance(text, str) else text
    if keep >= len(data):
        return data.decode("utf-8", "surrogatepass"), 0
    head, tail = (keep + 1) // 2, len(data) - keep // 2
    while head and data[head] & 0xC0 == 0x80:
        head -= 1
    while tail < len(data) and data[tail] & 0xC0 == 0x80:
        tail += 1
    omitted = tail - head
    ends = (data[:head], NOTICE.format(omitted=omitted).encode(), data[tail:])
    return b"\n".join(end for end in ends if end).decode("utf-8", "surrogatepass"), omitted


class _Text:
    """One text that may be cut, and what it costs at each length."""

    def __init__(self, index: int, text: str, whole: int, cost: Cost) -> None:
        self.index, self.text, self.whole, self.cost = index, text, whole, cost
        self.data = utf8(text)
        self._known: dict[int, tuple[Kept, int]] = {}

    def within(self, limit: int) -> tuple[Kept, int]:
        """Return as much of it as costs at most ``limit`` and what that costs; at least the notice, whatever that costs."""
        if limit not in self._known:
            self._known[limit] = self._found(limit)
        return self._known[limit]

    def _found(self, limit: int) -> tuple[Kept, int]:
        nothing = self._cut(0)
        if self.whole <= max(limit, nothing[1]):  # also where the notice would be no shorter than the text
            return Kept(index=self.index, text=self.text), self.whole
        best, low, high = nothing, 1, min(limit, len(self.data) - 1)
        while low <= high:
            middle = (low + high) // 2
            tried = self._cut(middle)
            if tried[1] <= limit:
                best, low = tried, middle + 1
            else:
                high = middle - 1
        return best

    def _cut(self, keep: int) -> tuple[Kept, int]:
        text, omitted = cut(self.data, keep)
        return Kept(index=self.index, text=text, omitted=omitted), self.cost(self.index, text)
