"""Awaited: in which sessions somebody was ever asked for something, without reading all of their logs again and again.

Whether a session holds a request is found in its log, and a log only grows: what was looked through once without finding any
is not looked through again, only what came after. So every page can say how much waits for a person, whatever the logs hold.
It is a memory of the server's, and forgetting it costs a look.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from onward.core.records import Session
from onward.service.platform import Platform

REMEMBERED: Final = 20_000
"""Sessions that are remembered; the oldest are forgotten first."""


class Awaited:
    """Up to which event each session holds no request; None for one that holds some. Safe to use from many threads."""

    def __init__(self) -> None:
        self._none_upto: dict[str, int | None] = {}

    def among(self, platform: Platform, sessions: Iterable[Session]) -> list[Session]:
        """Return those of these sessions that hold a request of any kind, answered or not."""
        return [session for session in sessions if self._holds(platform, session)]

    def _holds(self, platform: Platform, session: Session) -> bool:
        known = self._none_upto.get(session.id, 0)
        if known is None:
            return True
        if known >= session.head_seq:
            return False
        found = platform.store.events(session.id, after=known, kinds=("approval",), limit=1)
        while len(self._none_upto) >= REMEMBERED:
            self._none_upto.pop(next(iter(self._none_upto)), None)
        self._none_upto[session.id] = None if found else session.head_seq
        return bool(found)
