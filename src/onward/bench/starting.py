"""Goal 8: what it costs to type ``onward``, against starting the interpreter to do nothing.

Commands are run as the installed script runs them, in a process of their own, and take turns with ``python -c pass``. The
store that the query asks holds a few thousand events, twenty of which have the word, and is up to date.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from onward.bench.measure import Figure, compared, seconds
from onward.bench.payloads import event, texts
from onward.bench.setting import Setting, open_at
from onward.errors import OnwardError
from onward.store.contract import Append, Batch

SCRIPT: Final = "import sys; from onward.surfaces.cli.main import main; sys.exit(main())"
"""What the console script does."""

HITS: Final = 20
"""Events that hold the word which is searched for."""


def start_up(setting: Setting) -> Iterator[Figure]:
    """Measure ``--help`` and a one-shot search."""
    with setting.place() as folder:
        path = folder / "store.db"
        with open_at(path) as log:
            session = log.start("Measured").id
            said = texts(setting.prose, setting.size(5_000, 2_000, 50))
            every = max(1, len(said) // HITS)
            events = tuple(
                event(log.platform, text if n % every else f"{text} needle", n) for n, text in enumerate(said)
            )
            log.platform.store.commit(Batch(appends=(Append(session_id=session, events=events),)))
            log.search("needle")
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "onward --help": [sys.executable, "-c", SCRIPT, "--help"],
            "onward search, one-shot": [
                sys.executable, "-c", SCRIPT, "--store", f"sqlite:///{path}", "--json", "search", "needle", "--limit", "5",
            ],
        }  # fmt: skip
        spent: dict[str, list[float]] = {name: [] for name in commands}
        for command in commands.values():
            _run(command)  # the first run compiles
        for _ in range(setting.size(25, 9, 1)):
            for name, command in commands.items():
                spent[name].append(seconds(lambda command=command: _run(command)) * 1000)  # type: ignore[misc]
        for name, target in (("onward --help", 4.5), ("onward search, one-shot", 6.0)):
            yield compared(
                8,
                f"{name}, against python -c pass",
                ours=spent[name],
                baseline=spent["python -c pass"],
                target=target,
                bound="<=",
                unit="ms",
            )


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OnwardError(f"A command that was to be measured failed: {done.stderr.strip()[-500:]}")
