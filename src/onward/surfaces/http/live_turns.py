"""Turns: who of those who follow may send next, a few in each round of the event loop.

When a session with a thousand readers gets an event, a thousand tasks want to run at once, and whatever else the process
does would wait until all of them have. So a reader asks for a turn, and in each round of the loop a few get one, in the
order of asking; everything else that the loop has to do happens in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

AT_ONCE: Final = 16
"""Turns in a round at most."""
FEWEST: Final = 3
"""Turns in a round at least: those who follow must come to an end even where everything takes long."""
ROUND_SECONDS: Final = 0.001
"""What a round should take. Where it takes longer, there are fewer turns in it."""


class Subscriber:
    """One reader of a stream."""

    __slots__ = ("account", "asked", "ending", "heard_at", "sending_since", "turn")

    def __init__(self, account: str, *, now: float) -> None:
        self.account = account
        self.turn = asyncio.Event()
        """Set when it may look for something to send."""
        self.asked = False
        """It waits for a turn."""
        self.ending: str | None = None
        """Why the stream is over; None while it is not."""
        self.heard_at = now
        """When something was sent last, by the loop's clock."""
        self.sending_since: float | None = None
        """Since when it waits for the reader to take what was sent."""

    def is_over(self) -> bool:
        """Whether its stream is to end."""
        return self.ending is not None


class Turns:
    """The queue of those who want a turn. For one event loop."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._most = self._at_once = at_once
        self._begun = 0.0
        self._waiting: deque[Subscriber] = deque()
        self._due = False

    def ask(self, subscriber: Subscriber) -> None:
        """Give a reader a turn, in this round or a later one. Asked twice before it came, it is one."""
        if subscriber.asked:
            return
        subscriber.asked = True
        self._waiting.append(subscriber)
        if not self._due:
            self._due = True
            loop = asyncio.get_running_loop()
            self._begun = loop.time()
            loop.call_soon(self._round)

    def _round(self) -> None:
        loop = asyncio.get_running_loop()
        # Since the last round the loop did what that let happen, and everything else once.
        took, self._begun = loop.time() - self._begun, loop.time()
        if took > 2 * ROUND_SECONDS:
            self._at_once = max(FEWEST, self._at_once // 2)
        elif took < ROUND_SECONDS:
            self._at_once = min(self._most, self._at_once + 1)
        for _ in range(min(self._at_once, len(self._waiting))):
            subscriber = self._waiting.popleft()
            subscriber.asked = False
            subscriber.turn.set()
        self._due = bool(self._waiting)
        if self._due:
            loop.call_soon(self._round)
