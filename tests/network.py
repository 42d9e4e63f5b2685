"""No test leaves this machine: connecting or resolving beyond loopback fails, with the address that was wanted.

An audit hook sees every connection that Python code in this process makes, through whatever library. It raises at the
place of the attempt, and it remembers, so that code which swallows the error still fails its test. Programs that a test
starts are not watched.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
from collections.abc import Iterator
from typing import Any


class LeftTheMachine(RuntimeError):
    """Code under test tried to reach another machine."""


def is_loopback(host: object) -> bool:
    """Whether a host, as sockets take it, is this machine: localhost or a loopback address."""
    if isinstance(host, bytes | bytearray):
        host = host.decode("ascii", "replace")
    if host in (None, ""):
        return True
    name = str(host).partition("%")[0].lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost") or name == socket.gethostname().lower()


def is_address(host: object) -> bool:
    """Whether a host is a numeric address, which resolves without asking anyone."""
    try:
        ipaddress.ip_address(host.decode("ascii", "replace") if isinstance(host, bytes) else str(host))
    except ValueError:
        return False
    return True


class Guard:
    """Watches the process from `install` to its end; `attempts` holds what was tried since it was last emptied."""

    def __init__(self) -> None:
        self.attempts: list[str] = []

    def install(self) -> None:
        """Starts watching. Audit hooks cannot be removed, so this is done once a process."""
        sys.addaudithook(self._watch)

    @contextlib.contextmanager
    def expected(self) -> Iterator[list[str]]:
        """A block in which attempts fail as ever, and do not count against the test."""
        before = list(self.attempts)
        try:
            yield self.attempts
        finally:
            self.attempts[:] = before

    def _watch(self, event: str, args: tuple[Any, ...]) -> None:
        if not event.startswith("socket."):
            return
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            sock, address = args[0], args[-1]
            if isinstance(address, tuple) and address and sock.family in (socket.AF_INET, socket.AF_INET6):
                self._refuse_unless(is_loopback(address[0]), event, address)
        elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
            self._refuse_unless(is_loopback(args[0]) or is_address(args[0]), event, args[0])

    def _refuse_unless(self, allowed: bool, event: str, target: object) -> None:
        if not allowed:
            self.attempts.append(f"{event} {target!r}")
            raise LeftTheMachine(f"tests stay on this machine; this one tried {event} {target!r}")
