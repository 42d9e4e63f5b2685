"""A server as a process, with the acting agent in it: ``python -m tests.browser.served STORE PORT GATES LEASE``.

Everything but the agent, and how long a run waits for a server that was killed, is what ``onward serve`` starts. It prints
one line of JSON once it listens.
"""

from __future__ import annotations

import json
import os
import sys

from tests.browser.acting import Actor

import onward
from onward.service import running
from onward.surfaces.http.serving import serve


def main(store: str, port: str, gates: str, lease: str) -> None:
    """Serve until told to stop."""
    invited: list[str] = []

    def ready(url: str, _secret: str | None) -> None:
        print(json.dumps({"url": url, "link": invited[0], "pid": os.getpid()}), flush=True)

    running.LEASE_SECONDS = float(lease)  # type: ignore[misc, assignment]  # final for everybody else
    with onward.open(store) as log:
        serve(
            log.platform,
            ready=ready,
            inviting=invited.append,
            port=int(port),
            engines={"script": Actor(int(gates))},
            rate=0,
            grace=1,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
