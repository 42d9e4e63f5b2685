"""Readers of streams, as cheap as they can be, so that it is the server that is measured.

They speak HTTP/1.1 as browsers do. While the clock runs they only look whether the last event is there; afterwards every
byte is gone through, and an event that is missing, repeated or out of order ends the measurement.
"""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import time
from collections.abc import Mapping
from typing import Final

from onward.errors import OnwardError

PATIENCE: Final = 120.0
"""Seconds in which everything has to come."""
_CHUNK: Final = 256 * 1024
_NUMBER: Final = re.compile(rb"^id: (\d+)\nevent: event\n", re.MULTILINE)
_CHUNK_HEADER: Final = re.compile(rb"\r\n(?:[0-9a-fA-F]+\r\n)?")
_LONGEST: Final = 64
"""Bytes that may hold the beginning of a number and what stands before it."""


class Readers:
    """So many connections to one server."""

    def __init__(self, address: tuple[str, int], count: int) -> None:
        self._sockets = [socket.create_connection(address) for _ in range(count)]
        self._came = [bytearray() for _ in range(count)]
        self._ends = [b""] * count
        self.seen = [0] * count
        """The newest event that each has got."""
        self.delivered = 0
        """Events that came, in all."""
        self.first = 0.0
        """When the first of what was read last began to come, by ``time.perf_counter``."""

    def ask(self, path: str, headers: Mapping[str, str], *, after: int = 0) -> None:
        """Send the request on every connection."""
        lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{n}: {v}" for n, v in headers.items())]
        request = "\r\n".join([*lines, "", ""]).encode()
        self.seen = [after] * len(self._sockets)
        for connection in self._sockets:
            connection.sendall(request)

    def begun(self) -> None:
        """Wait until every connection is being answered."""
        for number, connection in enumerate(self._sockets):
            connection.settimeout(PATIENCE)
            while b"\r\n\r\n" not in self._came[number]:
                self._came[number] += self._received(number)

    def read(self, upto: int) -> float:
        """Read until every connection has this event. Return when the last came, by ``time.perf_counter``.

        Raises OnwardError when anything is missing, repeated or refused.
        """
        last = b"\nid: %d\nevent: event\n" % upto
        until, self.first = time.perf_counter() + PATIENCE, 0.0
        with selectors.DefaultSelector() as selector:
            for number, connection in enumerate(self._sockets):
                selector.register(connection, selectors.EVENT_READ, number)
            left = len(self._sockets)
            while left:
                if time.perf_counter() > until:
                    raise OnwardError(
                        f"{left} of {len(self._sockets)} readers had not got event {upto} in time"
                    )
                for key, _ in selector.select(1.0):
                    if self._take(key.data, last):
                        selector.unregister(key.fileobj)
                        left -= 1
        over = time.perf_counter()
        for number in range(len(self._sockets)):
            self._check(number, upto)
        return over

    def _take(self, number: int, last: bytes) -> bool:
        """Take what came on a connection. Return whether the last event has begun to come."""
        data = self._received(number)
        self.first = self.first or time.perf_counter()
        self._came[number] += data
        tail = self._ends[number] + data
        # The first event of all comes behind a chunk header and not behind a line of its own.
        found = last in tail or last[1:] in tail
        self._ends[number] = b"" if found else tail[-_LONGEST:]
        return found

    def _received(self, number: int) -> bytes:
        data = self._sockets[number].recv(_CHUNK)
        if not data:
            raise OnwardError(f"a stream ended: {bytes(self._came[number][-300:])!r}")
        return data

    def _check(self, number: int, upto: int) -> None:
        """Go through what came on a connection."""
        came = self._came[number]
        if came.startswith(b"HTTP/"):
            head, _, rest = bytes(came).partition(b"\r\n\r\n")
            if b" 200 " not in head.partition(b"\r\n")[0]:
                raise OnwardError(f"a stream was refused: {bytes(came[:300])!r}")
            came = bytearray(b"\n\r\n" + rest)
        seen = self.seen[number]
        for match in _NUMBER.finditer(_CHUNK_HEADER.sub(b"", came)):
            seen += 1
            if int(match[1]) != seen:
                raise OnwardError(f"event {match[1].decode()} came where {seen} was due")
        if seen != upto:
            raise OnwardError(f"event {seen} was the last where {upto} was due")
        self.delivered += seen - self.seen[number]
        self.seen[number] = seen
        # What is left of the last event is gone through with the next one.
        self._came[number] = came[came.rfind(b"event: event\n") :]

    def close(self) -> None:
        """Go away, and wait until the server has noticed."""
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        for connection in self._sockets:
            connection.settimeout(PATIENCE)
            with contextlib.suppress(OSError):
                while connection.recv(_CHUNK):
                    pass
            connection.close()
