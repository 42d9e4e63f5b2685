"""The hub: everybody who follows something at this server, and the few tasks that serve them all.

A session that is followed has one channel with one reader, an account one feed. Hints of this process stir them at once; for
what other processes write, one task looks at all of them together, five times a second. A second task tends to the
subscribers: it lets a heartbeat be sent to those that were silent, drops those that do not take what they are sent, and asks
again whether each may still read (invariant A1), at once when tokens change. All tasks end with the last subscriber.

What is not kept here is anybody's unsent bytes. A subscriber is a cursor; what it is sent is shared or read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import msgspec

from onward.core.records import Draft, Token
from onward.errors import InvalidInput, OnwardError, ServerBusy, TooManyStreams
from onward.service.hinting import Hint, Hints
from onward.service.platform import Platform
from onward.surfaces.http.live_channel import Channel, Events, HintsOnly, View
from onward.surfaces.http.live_feed import Changes, Feed
from onward.surfaces.http.live_log import MOST_BYTES, SharedLog
from onward.surfaces.http.live_turns import Subscriber, Turns

LOG: Final = logging.getLogger("onward.http.live")
REVOKED: Final = "revoked"
"""The stream is over because its reader may not read any more."""
CLOSING: Final = "closing"
"""The stream is over because the server is about to go."""
SLOW: Final = "slow"
"""The stream is over because its reader did not take what it was sent."""
_THREADS: Final = 2

T = TypeVar("T")


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The hub's dials. Times are in seconds."""

    look: float = 0.2
    """Between two looks for what other processes wrote."""
    tend: float = 1.0
    """Between two rounds of tending."""
    heartbeat: float = 15.0
    """How long a stream is silent at most."""
    patience: float = 20.0
    """How long a reader may leave what it was sent."""
    recheck: float = 5.0
    """Between two questions whether the readers may read."""
    feed: float = 0.1
    """Between two looks of an account's feed at most."""
    per_account: int = 1_500
    """Streams of one account."""
    in_all: int = 4_000
    """Streams of this process."""
    cache: int = MOST_BYTES
    """Bytes of encoded events that are kept."""


class Live:
    """Everybody who follows something. ``holds`` says whether a token is still good."""

    def __init__(
        self,
        platform: Platform,
        hints: Hints,
        closing: asyncio.Event,
        holds: Callable[[Token], bool],
        tuning: Tuning | None = None,
    ) -> None:
        self.tuning = tuning or Tuning()
        self._platform, self._hints, self._closing, self._holds = platform, hints, closing, holds
        self._log = SharedLog(self.tuning.cache)
        self._turns = Turns()
        self._channels: dict[str, Channel] = {}
        self._feeds: dict[str, Feed] = {}
        self._reading: dict[Channel | Feed, asyncio.Task[None]] = {}
        self._subscribers: dict[Subscriber, tuple[Token, str | None, asyncio.Task[Any]]] = {}
        self._of_account: Counter[str] = Counter()
        self._keepers: tuple[asyncio.Task[None], ...] = ()
        self._stop_hearing: Callable[[], None] = lambda: None
        self._threads: ThreadPoolExecutor | None = None
        self._granted = asyncio.Event()

    @property
    def subscribers(self) -> int:
        """How many streams are open."""
        return len(self._subscribers)

    @property
    def cached(self) -> int:
        """Bytes of encoded events that are kept."""
        return self._log.size

    async def in_thread(self, function: Callable[..., T], *args: Any, **named: Any) -> T:
        """Call a function in a thread of our own: whoever waits in the others does not hold up the streams."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="onward-live")
        call = functools.partial(function, *args, **named)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    # -- coming and going ---------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def following(
        self, platform: Platform, token: Token, session: str, after: int, *, hints: bool = False
    ) -> AsyncIterator[tuple[Subscriber, View]]:
        """Follow a session from a cursor; the events themselves, or hints that there are some.

        Raises SessionNotFound, InvalidInput for a cursor beyond the head, TooManyStreams, ServerBusy.
        """
        with self._admitted(platform, token, session) as subscriber:
            found = await self.in_thread(platform.session, session)
            if after > found.head_seq:
                why = f"the newest event is number {found.head_seq}; ask from there, or from an earlier one"
                raise InvalidInput(what=f"cursor {after}", why=why)
            channel = self._channels.get(session)
            if channel is None:
                channel = self._channels[session] = Channel(
                    session,
                    found.head_seq,
                    store=self._platform.store,
                    log=self._log,
                    turns=self._turns,
                    in_thread=self.in_thread,
                )
                self._start(channel)
            channel.subscribers.add(subscriber)
            channel.whole += not hints
            try:
                self._turns.ask(subscriber)
                yield subscriber, HintsOnly(channel, after) if hints else Events(channel, after)
            finally:
                channel.subscribers.discard(subscriber)
                channel.whole -= not hints
                if not channel.subscribers:
                    del self._channels[session]
                    channel.close()
                    self._reading.pop(channel).cancel()

    @contextlib.asynccontextmanager
    async def changes(
        self, platform: Platform, token: Token, cursor: str | None
    ) -> AsyncIterator[tuple[Subscriber, View]]:
        """Follow the sessions of an account, from a cursor or from now.

        Raises InvalidInput for a cursor of another log, TooManyStreams, ServerBusy.
        """
        account = platform.account_id
        with self._admitted(platform, token, None) as subscriber:
            _, now = await self.in_thread(platform.store.touched, account)
            if cursor is not None:
                await self.in_thread(platform.store.touched, account, since=cursor, limit=1)
            feed = self._feeds.get(account)
            if feed is None:
                feed = self._feeds[account] = Feed(
                    platform, now, turns=self._turns, in_thread=self.in_thread, pause=self.tuning.feed
                )
                self._start(feed)
            feed.subscribers.add(subscriber)
            try:
                self._turns.ask(subscriber)
                yield subscriber, Changes(feed, now if cursor is None else cursor)
            finally:
                feed.subscribers.discard(subscriber)
                if not feed.subscribers:
                    del self._feeds[account]
                    self._reading.pop(feed).cancel()

    @contextlib.contextmanager
    def _admitted(self, platform: Platform, token: Token, session: str | None) -> Any:
        """Count a subscriber while it is here. Raises TooManyStreams, ServerBusy."""
        account, tuning = platform.account_id, self.tuning
        if len(self._subscribers) >= tuning.in_all:
            raise ServerBusy(limit=tuning.in_all)
        if self._of_account[account] >= tuning.per_account:
            raise TooManyStreams(found=self._of_account[account], limit=tuning.per_account)
        task = asyncio.current_task()
        assert task is not None
        subscriber = Subscriber(account, now=asyncio.get_running_loop().time())
        if not self._subscribers:
            self._open()
        self._subscribers[subscriber] = token, session, task
        self._of_account[account] += 1
        try:
            yield subscriber
        finally:
            del self._subscribers[subscriber]
            self._of_account -= Counter((account,))
            if not self._subscribers:
                self._close()

    def _open(self) -> None:
        """The first subscriber came."""
        loop = asyncio.get_running_loop()

        def hear(hint: Hint) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
                loop.call_soon_threadsafe(self._heard, hint)

        self._stop_hearing = self._hints.listen(hear)
        self._keepers = tuple(
            asyncio.ensure_future(keeping) for keeping in (self._look(), self._tend(), self._end_all())
        )

    def _close(self) -> None:
        """The last subscriber went."""
        self._stop_hearing()
        for keeper in self._keepers:
            keeper.cancel()
        self._keepers = ()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    def _start(self, followed: Channel | Feed) -> None:
        self._reading[followed] = asyncio.ensure_future(followed.read_on())

    # -- keeping ------------------------------------------------------------------------------------------------------

    def _heard(self, hint: Hint) -> None:
        for session in hint.sessions:
            channel = self._channels.get(session)
            if channel is not None:
                channel.stir()
        if hint.sessions:
            for feed in self._feeds.values():
                feed.stir()
        if hint.grants:
            self._granted.set()

    async def _look(self) -> None:
        """Look for what other processes wrote, for everything that is followed at once."""
        while True:
            await asyncio.sleep(self.tuning.look)
            channels = tuple(self._channels)
            try:
                heads, drafts = await self.in_thread(self._looked, channels)
            except OnwardError as error:
                LOG.warning("the store cannot be looked at: %s", error)
                continue
            except Exception:  # whatever it is, those who follow hear of the next look
                LOG.exception("the store cannot be looked at")
                continue
            for session in channels:
                channel = self._channels.get(session)
                if channel is not None and not channel.knows(heads.get(session, 0), drafts.get(session, ())):
                    channel.stir()
            for feed in self._feeds.values():
                feed.stir()

    def _looked(self, sessions: tuple[str, ...]) -> tuple[dict[str, int], dict[str, list[Draft]]]:
        if not sessions:
            return {}, {}
        drafts: dict[str, list[Draft]] = {}
        for draft in self._platform.store.drafts(sessions):
            drafts.setdefault(draft.session_id, []).append(draft)
        return self._platform.store.heads(sessions), drafts

    async def _tend(self) -> None:
        """Let heartbeats be sent, drop those who do not read, and end the streams of those who may not."""
        loop, tuning = asyncio.get_running_loop(), self.tuning
        asked = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._granted.wait(), tuning.tend)
            now = loop.time()
            for subscriber, (_, _, task) in tuple(self._subscribers.items()):
                since = subscriber.sending_since
                if since is not None and now - since > tuning.patience:
                    subscriber.ending = SLOW
                    task.cancel()
                elif now - subscriber.heard_at >= tuning.heartbeat:
                    self._turns.ask(subscriber)
            if self._granted.is_set() or now - asked >= tuning.recheck:
                self._granted.clear()
                asked = now
                await self._recheck()

    async def _recheck(self) -> None:
        """Ask again who may read what (invariant A1): each question once, however many readers it concerns."""
        questions = {(token, session) for token, session, _ in self._subscribers.values()}
        try:
            denied = await self.in_thread(self._denied, questions)
        except OnwardError as error:
            LOG.warning("nobody could be asked who may still read: %s", error)
            return
        except Exception:  # asked again soon: what must not happen is that nobody asks any more
            LOG.exception("nobody could be asked who may still read")
            return
        for subscriber, (token, session, _) in tuple(self._subscribers.items()):
            if (token, session) in denied:
                self._finish(subscriber, REVOKED)

    def _denied(self, questions: set[tuple[Token, str | None]]) -> set[tuple[Token, str | None]]:
        denied = set()
        good = {token: self._holds(token) for token in {token for token, _ in questions}}
        for token, session in questions:
            platform = msgspec.structs.replace(self._platform, account_id=token.account_id)
            if not good[token] or (session is not None and not platform.may_read(session)):
                denied.add((token, session))
        return denied

    async def _end_all(self) -> None:
        await self._closing.wait()
        for subscriber in tuple(self._subscribers):
            self._finish(subscriber, CLOSING)

    def _finish(self, subscriber: Subscriber, why: str) -> None:
        if subscriber.ending is None:
            subscriber.ending = why
        self._turns.ask(subscriber)

    def again(self, subscriber: Subscriber) -> None:
        """Give a subscriber another turn."""
        self._turns.ask(subscriber)
