"""The reference of the command line, ``docs/cli.md``, written from the catalogue.

    python -m onward.surfaces.cli.reference > docs/cli.md

A test compares the file with what this gives, so the docs cannot fall behind the program.
"""

from __future__ import annotations

import sys

from onward.surfaces.cli import helping
from onward.surfaces.cli.catalogue import COMMANDS

PREFACE = """# Command line

Written from the program itself: `python -m onward.surfaces.cli.reference > docs/cli.md`. Change the catalogue, not
this file.

With `--json`, standard output is exactly one JSON document in UTF-8, with the fields that each command names. What is said
beside the result goes to standard error. A session is named by its id, by the beginning of its id where no other begins so,
or by `@last`, the one with the newest activity.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | an error: one line on standard error that starts with its code |
| 2 | the arguments do not fit the command (code `usage`) |
| 130 | interrupted |
| 141 | whoever read the output went away |

With `--json` an error is also the one document: `{"error": {"code", "message", "details"}}`.

Control characters in logged text are shown as escapes (`\\x1b`), in plain output and inside JSON strings, so that a log
cannot act on a terminal.
"""


def reference() -> str:
    """Return the whole reference as Markdown."""
    parts = [PREFACE, "## onward\n", _block(helping.all_commands(COMMANDS.values()))]
    for command in COMMANDS.values():
        parts += [f"## onward {command.name}\n", _block(helping.one_command(command, with_global=False))]
    return "\n".join(parts)


def _block(text: str) -> str:
    return f"```text\n{text}\n```\n"


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(reference())
