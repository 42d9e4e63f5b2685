"""Streaming: one stream as an answer, plain ASGI.

A subscriber sends when it has a turn: a piece of at most ``PIECE`` bytes, then whoever waits goes first. The server below
(uvicorn) makes ``send`` wait while the reader has not taken what is there, so a reader that stands still costs one piece and
the socket's buffer, and after ``Tuning.patience`` its connection. It comes back and says where it stood.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Final

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from onward.surfaces.http import live_frames as frames
from onward.surfaces.http.live_channel import View
from onward.surfaces.http.live_hub import CLOSING, REVOKED, SLOW, Live
from onward.surfaces.http.live_turns import Subscriber

MEDIA: Final = "text/event-stream"
PIECE: Final = 64 * 1024
"""Bytes that are handed over at once."""
GONE: Final = "gone"
"""The stream is over because its reader went."""
_HEADERS: Final = {
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx would collect what is meant to arrive at once
}


class Stream(Response):
    """An answer that goes on. ``opened`` admits the reader when it is sent; what it raises is an answer of its own."""

    media_type = MEDIA

    def __init__(self, live: Live, opened: AbstractAsyncContextManager[tuple[Subscriber, View]]) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._live, self._opened = live, opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        async with self._opened as (subscriber, view):
            head = scope["method"] == "HEAD"
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send(_body(b"" if head else frames.OPENING, more=not head))
            if head:
                return
            leaving = asyncio.ensure_future(_leave(receive, subscriber))
            try:
                whole = await self._send_on(subscriber, view, send)
            except asyncio.CancelledError:
                if subscriber.ending != SLOW:
                    raise
                # We did this ourselves. Returning in the middle closes the connection.
                asyncio.current_task().uncancel()  # type: ignore[union-attr]  # we are one
                return
            finally:
                leaving.cancel()
            if whole and subscriber.ending == REVOKED:
                told = "This token may not read here any more. Sign in again."
                await send(_body(frames.end("unauthorized", told)))
            if subscriber.ending in (REVOKED, CLOSING):
                await send(_body(b"", more=False))

    async def _send_on(self, subscriber: Subscriber, view: View, send: Send) -> bool:
        """Send until the stream is over. Return whether the last thing that was sent is whole."""
        loop, live = asyncio.get_running_loop(), self._live
        while True:
            await subscriber.turn.wait()
            subscriber.turn.clear()
            if subscriber.is_over():
                return True
            data = await view.next()
            if not data:
                if loop.time() - subscriber.heard_at < live.tuning.heartbeat:
                    continue
                data = frames.HEARTBEAT
            for start in range(0, len(data), PIECE):
                if start:
                    live.again(subscriber)
                    await subscriber.turn.wait()
                    subscriber.turn.clear()
                    if subscriber.is_over():
                        return False
                subscriber.sending_since = loop.time()
                await send(_body(data[start : start + PIECE] if len(data) > PIECE else data))
                subscriber.sending_since = None
            subscriber.heard_at = loop.time()
            live.again(subscriber)


async def _leave(receive: Receive, subscriber: Subscriber) -> None:
    """Notice that the reader has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    subscriber.ending = subscriber.ending or GONE
    subscriber.turn.set()  # it will send nothing, so it need not wait for those who do


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
