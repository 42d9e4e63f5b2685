"""A channel: one session that somebody follows, read once for all of them.

One task reads it, from the first subscriber's coming to the last one's going. It sleeps until it is stirred (by a hint of
this process, or by ``live_hub``'s look for what other processes wrote), then reads on from the head that it knows, drafts
first: a draft that is gone by then is in the events that are read after it, so a reader never sees its text vanish before
the message comes.

What a subscriber is told is decided by its own cursor, in the views below. A view is asked for the next piece when its
subscriber has a turn, and says b"" when it knows everything.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from onward.core.bodies import SessionChange
from onward.core.codec import body_of
from onward.core.events import Event
from onward.core.records import Draft
from onward.errors import OnwardError
from onward.service import following
from onward.store.contract import Store
from onward.surfaces.http import live_frames as frames
from onward.surfaces.http.live_log import BLOCK, SharedLog
from onward.surfaces.http.live_turns import Subscriber, Turns

LOG: Final = logging.getLogger("onward.http.live")
PAGE: Final = 128
"""Events that are read at once."""
AHEAD: Final = 4
"""Blocks that are read at once for those who catch up: who wants one of them will want the next."""
NOTES: Final = 256
"""States and continuations that are remembered of a session for those who ask for hints."""
_KINDS: Final = ("session", "run")

InThread = Callable[..., Awaitable[Any]]
"""Calls a function in a thread that is kept for this."""


class Note(msgspec.Struct, frozen=True):
    """Something that the readers of hints are told, and the event that it comes from."""

    seq: int
    frame: bytes


class Streaming(msgspec.Struct, frozen=True, kw_only=True):
    """Text that is being written."""

    text: str
    version: int
    """Another number when the text was begun anew, and did not only grow."""
    updated_at: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the store gave."""

    drafts: tuple[Draft, ...]
    said: frozenset[str]
    """Runs that said something in full: what was their draft before that is over."""
    frames: tuple[bytes, ...]
    notes: tuple[Note, ...]
    count: int
    erased: bool


class Channel:
    """One followed session."""

    def __init__(
        self, session: str, head: int, *, store: Store, log: SharedLog, turns: Turns, in_thread: InThread
    ) -> None:
        self.session = session
        self.head = head
        """The newest event that subscribers are told about."""
        self.drafts: dict[str, Streaming] = {}
        self.notes: deque[Note] = deque(maxlen=NOTES)
        self.noted_from = head
        """``notes`` has everything that came after this event."""
        self.subscribers: set[Subscriber] = set()
        self.whole = 0
        """How many of them want the events themselves."""
        self._store, self._log, self._turns, self._in_thread = store, log, turns, in_thread
        self._stirred = asyncio.Event()
        self._stirred.set()
        self._loading: dict[int, asyncio.Task[tuple[int, list[bytes]]]] = {}
        self._erasures = 0
        self._versions = 0
        self._pieces: dict[tuple[str, int, int], bytes] = {}

    def stir(self) -> None:
        """Let the reader look."""
        self._stirred.set()

    def knows(self, head: int, drafts: Sequence[Draft]) -> bool:
        """Whether a look at the store found nothing that the reader has not seen."""
        mine = {(run, draft.updated_at, len(draft.text)) for run, draft in self.drafts.items()}
        return head <= self.head and mine == {(d.run_id, d.updated_at, len(d.text)) for d in drafts}

    async def read_on(self) -> None:
        """Read for as long as anybody follows."""
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            try:
                while await self._read():
                    pass
            except OnwardError as error:
                # The next look stirs again: nothing is lost, it only comes later.
                LOG.warning("session %s cannot be read: %s", self.session, error)

    async def _read(self) -> bool:
        """Read a page. Return whether there may be more."""
        found: Found = await self._in_thread(self._look, self.head, bool(self.whole))
        if found.erased:
            self._erasures += 1
            self._log.forget(self.session)
        if found.frames:
            self._log.add(self.session, self.head + 1, found.frames)
        for note in found.notes:
            if len(self.notes) == NOTES:
                self.noted_from = self.notes[0].seq
            self.notes.append(note)
        self.head += found.count
        more = found.count == PAGE
        for run in found.said:
            self.drafts.pop(run, None)
        changed = self._drafted(found.drafts, may_end=not more)
        if found.count or changed:
            self.wake()
        return more

    def _look(self, after: int, whole: bool) -> Found:
        store = self._store
        drafts = store.drafts([self.session])
        events = store.events(self.session, after=after, limit=PAGE)
        said = frozenset(e.run_id for e in events if e.kind == "message" and e.run_id is not None)
        if said:
            # Their drafts were read before their messages came; what they write by now is new.
            newer = [draft for draft in store.drafts([self.session]) if draft.run_id in said]
            drafts = [draft for draft in drafts if draft.run_id not in said] + newer
        notes: list[Note] = []
        for event in events:
            notes += _notes_of(store, event)
        return Found(
            drafts=tuple(drafts),
            said=said,
            frames=tuple(_encoded(store, event) for event in events) if whole else (),
            notes=tuple(notes),
            count=len(events),
            erased=any(_erases(event) for event in events),
        )

    def _drafted(self, drafts: tuple[Draft, ...], *, may_end: bool) -> bool:
        """Take over what is being written. Return whether anything changed."""
        changed = False
        for draft in drafts:
            known = self.drafts.get(draft.run_id)
            if known is not None and (known.updated_at, known.text) == (draft.updated_at, draft.text):
                continue
            if known is None or not draft.text.startswith(known.text):
                self._versions += 1
                version = self._versions
            else:
                version = known.version
            self.drafts[draft.run_id] = Streaming(
                text=draft.text, version=version, updated_at=draft.updated_at
            )
            changed = True
        if may_end:
            for run in self.drafts.keys() - {draft.run_id for draft in drafts}:
                del self.drafts[run]
                changed = True
        if changed:
            self._pieces.clear()
        return changed

    def close(self) -> None:
        """Nobody follows any more: nothing of the session stays, for nobody would notice what is erased in it."""
        self._erasures += 1
        self._log.forget(self.session)

    def wake(self) -> None:
        """Give every subscriber a turn."""
        for subscriber in self.subscribers:
            self._turns.ask(subscriber)

    async def after(self, cursor: int) -> tuple[bytes, int]:
        """Return events behind a cursor that is before the head, and the cursor behind them."""
        while (found := self._log.after(self.session, cursor)) is None:
            # Those who miss something of the same block wait for one reading.
            block = cursor // BLOCK
            loading = self._loading.get(block)
            if loading is None:
                loading = asyncio.ensure_future(self._load(cursor))
                self._loading[block] = loading
                loading.add_done_callback(functools.partial(self._loaded, block))
            first, read = await asyncio.shield(loading)
            if cursor < (last := first + len(read) - 1):
                # From what was read, for it may have left the log again by now.
                return b"".join(read[cursor + 1 - first :]), last
        return found

    async def _load(self, cursor: int) -> tuple[int, list[bytes]]:
        """Read a block as far as it is missing. Return the number of the first event that was, and them."""
        wanted, erasures = self._log.wanted(self.session, cursor), self._erasures
        upto = min(self.head, (cursor // BLOCK + AHEAD) * BLOCK)
        read: list[bytes] = await self._in_thread(self._encode, wanted, upto)
        if erasures == self._erasures:
            self._log.add(self.session, wanted + 1, read)
        return wanted + 1, read

    def _loaded(self, block: int, done: asyncio.Task[tuple[int, list[bytes]]]) -> None:
        self._loading.pop(block, None)
        if not done.cancelled():
            done.exception()  # whoever still waits raises it

    def _encode(self, after: int, upto: int) -> list[bytes]:
        events = self._store.events(self.session, after=after, upto=upto, limit=upto - after)
        return [_encoded(self._store, event) for event in events]

    async def notes_after(self, cursor: int) -> bytes:
        """Return the states and continuations behind a cursor: the newest ones, if there are very many."""
        if cursor >= self.noted_from:
            return b"".join(note.frame for note in self.notes if note.seq > cursor)
        told: list[Note] = await self._in_thread(self._noted, cursor, self.head)
        return b"".join(note.frame for note in told)

    def _noted(self, after: int, upto: int) -> list[Note]:
        events = self._store.events(
            self.session, after=after, upto=upto, kinds=_KINDS, limit=NOTES, newest_first=True
        )
        return [note for event in reversed(events) for note in _notes_of(self._store, event)]

    def piece(self, run: str, draft: Streaming, offset: int) -> bytes:
        """Return what was written of a draft after so many characters; made once for all who stand there."""
        key = run, draft.version, offset
        made = self._pieces.get(key)
        if made is None:
            made = self._pieces[key] = frames.draft(run, offset, draft.text[offset:])
        return made


def _encoded(store: Store, event: Event) -> bytes:
    """Return an event as it is sent; with the fact of a continuation before it, so that neither comes without the other."""
    told = following.continued(store, event)
    return frames.event(event) if told is None else frames.continued(told) + frames.event(event)


def _notes_of(store: Store, event: Event) -> list[Note]:
    if event.kind not in _KINDS:
        return []
    told = following.continued(store, event)
    made = frames.continued(told) if told is not None else frames.state(event)
    return [] if made is None else [Note(event.seq, made)]


def _erases(event: Event) -> bool:
    body = body_of(event) if event.kind == "session" else None
    return isinstance(body, SessionChange) and body.change == "erased"


class View(Protocol):
    """What one subscriber is told."""

    async def next(self) -> bytes:
        """Return the next piece, or nothing when everything was told."""
        ...


class _Drafts:
    """Which drafts a subscriber knows, and how far."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._told: dict[str, tuple[int, int]] = {}

    def next(self) -> bytes:
        """Return what was written since, and which drafts are over."""
        channel, told = self._channel, self._told
        if not told and not channel.drafts:
            return b""
        out = [frames.draft_end(run) for run in told.keys() - channel.drafts.keys()]
        for run in [run for run in told if run not in channel.drafts]:
            del told[run]
        for run, draft in channel.drafts.items():
            version, length = told.get(run, (0, 0))
            offset = length if version == draft.version else 0
            if version != draft.version or offset < len(draft.text):
                out.append(channel.piece(run, draft, offset))
                told[run] = draft.version, len(draft.text)
        return b"".join(out)


class Events:
    """The events themselves, each once and in order, and drafts while everything else was told."""

    def __init__(self, channel: Channel, after: int) -> None:
        self._channel, self.cursor = channel, after
        self._drafts = _Drafts(channel)

    async def next(self) -> bytes:
        """Return the next piece."""
        if self.cursor < self._channel.head:
            piece, self.cursor = await self._channel.after(self.cursor)
            return piece
        return self._drafts.next() if self.cursor == self._channel.head else b""


class HintsOnly:
    """Up to which event there is something to read; what states and continuations there were; and drafts."""

    def __init__(self, channel: Channel, after: int) -> None:
        self._channel, self.cursor = channel, after
        self._drafts = _Drafts(channel)

    async def next(self) -> bytes:
        """Return the next piece."""
        channel, cursor = self._channel, self.cursor
        if cursor < (head := channel.head):
            told = await channel.notes_after(cursor)
            self.cursor = head
            return told + frames.upto(head)
        return self._drafts.next() if cursor == head else b""
