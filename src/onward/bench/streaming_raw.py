"""The servers to compare streams with: as somebody would write them who has the bytes in memory and no log to keep.

``/loop`` sends one event after the other, one message to the server below each. ``/queue`` gives each subscriber a queue of
its own, the usual way to serve many; ``/go`` puts every event into all of them. Neither knows accounts, cursors or drafts,
or notices that a reader has gone. Run as a process; the first line says at which port it listens.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

Send = Callable[[dict[str, Any]], Awaitable[None]]


def application(frames: list[bytes]) -> Callable[..., Awaitable[None]]:
    """Return the two servers over these events."""
    queues: list[asyncio.Queue[bytes]] = []

    async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        del receive
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["path"] == "/queue":
            waiting: asyncio.Queue[bytes] = asyncio.Queue()
            queues.append(waiting)
            await send(_body(b": \n\n"))
            for _ in frames:
                await send(_body(await waiting.get()))
        elif scope["path"] == "/go":
            for frame in frames:
                for waiting in queues:
                    waiting.put_nowait(frame)
            queues.clear()
        else:
            for frame in frames:
                await send(_body(frame))
        await send({"type": "http.response.body", "body": b""})

    return app


def _body(frame: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": frame, "more_body": True}


def read(file: Path) -> Iterator[bytes]:
    """Yield the events of a file."""
    for frame in file.read_bytes().split(b"\n\n")[:-1]:
        yield frame + b"\n\n"


def main(file: str) -> None:
    """Serve the events of a file until killed."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = uvicorn.Config(
        application(list(read(Path(file)))),
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="asyncio",
        ws="none",
    )
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main(sys.argv[1])
