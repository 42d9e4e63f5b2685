"""The account feed: how sessions stand in which something happened, one reader an account for everybody who follows it.

It says hints and no payloads: which sessions changed and how they stand now, each once however much happened. The cursor is
that of the store (``Store.touched``), so a reader who was away is told every session that changed meanwhile, across restarts
of the server too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Final

from onward.errors import OnwardError
from onward.service import following
from onward.service.platform import Platform
from onward.surfaces.http import live_frames as frames
from onward.surfaces.http.live_channel import InThread
from onward.surfaces.http.live_turns import Subscriber, Turns

LOG: Final = logging.getLogger("onward.http.live")
_REMEMBERED: Final = 256
"""Steps that are remembered for those who are a little behind."""

Step = tuple[bytes, str]
"""What follows a cursor, and the next cursor."""


class Feed:
    """The changes of one account, from a cursor on."""

    def __init__(
        self, platform: Platform, cursor: str, *, turns: Turns, in_thread: InThread, pause: float
    ) -> None:
        self.cursor = cursor
        """How far the reader is."""
        self.subscribers: set[Subscriber] = set()
        self._platform, self._turns, self._in_thread, self._pause = platform, turns, in_thread, pause
        self._steps: OrderedDict[str, Step] = OrderedDict()
        self._loading: dict[str, asyncio.Task[Step]] = {}
        self._stirred = asyncio.Event()

    def stir(self) -> None:
        """Let the reader look."""
        self._stirred.set()

    async def read_on(self) -> None:
        """Read for as long as anybody follows; a little apart, so that much that happens at once is told once."""
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            try:
                while await self._read():
                    pass
            except OnwardError as error:
                LOG.warning("the sessions of %s cannot be read: %s", self._platform.account_id, error)
            await asyncio.sleep(self._pause)

    async def _read(self) -> bool:
        """Read a step. Return whether there may be more."""
        before = self.cursor
        piece, self.cursor = await self._load(before)
        if self.cursor == before:
            return False
        self._steps[before] = piece, self.cursor
        while len(self._steps) > _REMEMBERED:
            self._steps.popitem(last=False)
        for subscriber in self.subscribers:
            self._turns.ask(subscriber)
        return True

    async def after(self, cursor: str) -> Step:
        """Return what follows a cursor that is not the reader's. Raises InvalidInput for one of another log."""
        known = self._steps.get(cursor)
        if known is not None:
            return known
        loading = self._loading.get(cursor)
        if loading is None:
            loading = asyncio.ensure_future(self._load(cursor))
            self._loading[cursor] = loading
            loading.add_done_callback(lambda done: self._loaded(cursor, done))
        return await asyncio.shield(loading)

    def _loaded(self, cursor: str, done: asyncio.Task[Step]) -> None:
        self._loading.pop(cursor, None)
        if not done.cancelled():
            done.exception()  # whoever still waits raises it

    async def _load(self, cursor: str) -> Step:
        step: Step = await self._in_thread(self._told, cursor)
        return step

    def _told(self, cursor: str) -> Step:
        found, after = following.news(self._platform, since=cursor)
        told = [frames.news(one) for one in found]
        return b"".join([*told, frames.place(after)]), after


class Changes:
    """What one subscriber of a feed is told."""

    def __init__(self, feed: Feed, cursor: str) -> None:
        self._feed, self.cursor = feed, cursor
        self._begun = False

    async def next(self) -> bytes:
        """Return the next piece."""
        if not self._begun:
            # Where it stands, so that one who is cut off before anything happens misses nothing.
            self._begun = True
            return frames.place(self.cursor)
        if self.cursor == self._feed.cursor:
            return b""
        before = self.cursor
        piece, self.cursor = await self._feed.after(before)
        return piece if self.cursor != before else b""
