"""The shared log: events of followed sessions as bytes that are ready to be sent, encoded once for everybody.

Whoever reads a stream is a number in it, the cursor, and is handed what follows as one piece. What is kept is bounded in
bytes for the whole process; the blocks that nobody asked for longest go first. That something is not here is therefore
normal and loses nothing: the reader takes it from the store by the same cursor, and puts it here for those behind.

Pure: no store, no loop and no clock. Blocks begin at fixed numbers, so readers who come from anywhere meet in the same ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

BLOCK: Final = 64
"""Events a block."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes that are kept for all sessions together, unless told otherwise."""


class Block:
    """The first so many events of a stretch of ``BLOCK``, one behind the other."""

    __slots__ = ("_cut", "_cut_at", "_starts", "data", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        """The number of the event that the block begins with."""
        self.data = bytearray()
        self._starts: list[int] = []
        self._cut, self._cut_at = b"", -1

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, frame: bytes) -> None:
        """Put the next event at the end."""
        self._starts.append(len(self.data))
        self.data += frame
        self._cut_at = -1

    def after(self, cursor: int) -> tuple[bytes, int] | None:
        """Return the events behind a cursor and the cursor behind them; None when the first of them is not here."""
        index = cursor + 1 - self.first
        if not 0 <= index < len(self._starts):
            return None
        if self._cut_at != index:
            # Most readers of a session stand at the same place: what one was given is kept for the next.
            self._cut, self._cut_at = bytes(memoryview(self.data)[self._starts[index] :]), index
        return self._cut, self.first + len(self._starts) - 1


class SharedLog:
    """Blocks of any number of sessions, at most so many bytes of them."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()
        self.size = 0
        """Bytes that are kept now."""

    def after(self, session: str, cursor: int) -> tuple[bytes, int] | None:
        """Return what follows a cursor in its block, and the cursor behind that; None when it is not here."""
        key = session, cursor // BLOCK
        block = self._blocks.get(key)
        if block is None or (found := block.after(cursor)) is None:
            return None
        self._blocks.move_to_end(key)
        return found

    def wanted(self, session: str, cursor: int) -> int:
        """Return after which event to read on from the store so that what follows the cursor comes to be here."""
        block = self._blocks.get((session, cursor // BLOCK))
        have = len(block) if block is not None else 0
        return cursor // BLOCK * BLOCK + min(have, cursor % BLOCK)

    def add(self, session: str, first: int, frames: Sequence[bytes]) -> None:
        """Put events here that follow one another, the first with this number.

        What is here already stays as it is; what would leave a hole in a block is left out.
        """
        for seq, frame in enumerate(frames, first):
            key = session, (seq - 1) // BLOCK
            block = self._blocks.get(key)
            begins = (seq - 1) // BLOCK * BLOCK + 1
            if block is None and seq == begins:
                block = self._blocks[key] = Block(begins)
            if block is None or begins + len(block) != seq:
                continue
            block.add(frame)
            self.size += len(frame)
            self._blocks.move_to_end(key)
        while self.size > self._most and len(self._blocks) > 1:
            _, dropped = self._blocks.popitem(last=False)
            self.size -= len(dropped.data)

    def forget(self, session: str) -> None:
        """Drop everything of a session: nobody follows it any more, or something in it was erased."""
        for key in [key for key in self._blocks if key[0] == session]:
            self.size -= len(self._blocks.pop(key).data)
