"""The program that an engine starts as its MCP server: it carries lines between the engine and the bridge of the turn.

It knows neither the protocol nor the tools; both are in ``bridge``, in the process that runs the turn. So it needs
nothing but the standard library, imports as little of that as it can (engines wait for their servers), and is started by
its path in isolated mode: a file in the workspace cannot take the place of a module that it needs.

The environment says where to (``ONWARD_BRIDGE``, an address on this machine) and with which secret
(``ONWARD_BRIDGE_SECRET``). First comes a line with the secret, then the engine's lines as they are. After everything it
handed to the engine it tells the bridge how many bytes that were so far, in a line that begins with ``+``, which no
JSON does. It ends when the bridge ends the connection, and with it the turn; or when nobody reads it.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock, start_new_thread

# Without `Final`: importing typing would cost half as much again as starting the interpreter.
ADDRESS = "ONWARD_BRIDGE"
SECRET = "ONWARD_BRIDGE_SECRET"
DELIVERED = b"+"
CHUNK = 2**16
_STDIN, _STDOUT = 0, 1


def main() -> int:
    """Carry lines until the bridge ends. Return 2, with a sentence on standard error, when there is no bridge."""
    address, secret = os.environ.get(ADDRESS, ""), os.environ.get(SECRET, "")
    host, _, port = address.rpartition(":")
    if not port.isdigit() or not secret:
        return _refuse(f"{ADDRESS} and {SECRET} must say where to; an engine that Onward starts is told both")
    import socket

    try:
        line = socket.create_connection((host, int(port)), timeout=5)
    except OSError as gone:
        return _refuse(f"nobody answers at {address} ({gone}); the turn that offered these tools is over")
    line.settimeout(None)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(secret.encode() + b"\n")
    sending = allocate_lock()
    over = False
    """The engine says no more; then nobody waits for the count either."""

    def from_engine() -> None:
        """Send whole lines, so that a count of delivered bytes never lands inside one."""
        nonlocal over
        rest = b""
        try:
            while chunk := os.read(_STDIN, CHUNK):
                lines, end, rest_of = (rest + chunk).rpartition(b"\n")
                rest = rest_of
                if end:
                    with sending:
                        line.sendall(lines + end)
            with sending:
                if rest:
                    line.sendall(rest + b"\n")
                over = True
                line.shutdown(socket.SHUT_WR)
        except OSError:
            os._exit(1)

    start_new_thread(from_engine, ())
    delivered = 0
    try:
        while chunk := line.recv(CHUNK):
            delivered += len(chunk)
            while chunk:
                chunk = chunk[os.write(_STDOUT, chunk) :]
            with sending:
                if not over:
                    line.sendall(DELIVERED + b"%d\n" % delivered)
    except OSError:
        return 1
    return 0


def _refuse(why: str) -> int:
    sys.stderr.write(f"onward bridge: {why}\n")
    sys.stderr.flush()
    return 2


if __name__ == "__main__":
    # The other thread may be waiting for a line that never comes; the interpreter would wait for it.
    os._exit(main())
