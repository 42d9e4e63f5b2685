"""Help: the catalogue as text, for a terminal and for the docs.

Pure functions from declarations to text of a given width. The same text is shown by ``--help`` and stands in
``docs/cli.md`` (see ``reference.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from onward.core.columns import wrapped
from onward.surfaces.cli.grammar import GLOBAL, VERSION, Command, Option

WIDTH: Final = 100
_LEFT: Final = 26
"""Columns of the left side of a list; a longer entry has its text below it."""

ABOUT: Final = "Agent conversations that outlive their context window, their engine and their machine."

VARIABLES: Final = (
    ("ONWARD_STORE", "The store that is used without --store."),
    ("ONWARD_ENGINE", "The engine that answers where neither --engine nor the session names one."),
    ("ONWARD_APPROVAL", "Whose continuations wait for a person: never (default), agent or always."),
    (
        "ONWARD_MEMORY",
        "Whose memory comes first: engine (default), what it holds itself; or platform, the log.",
    ),
    ("ONWARD_WINDOW", "How long an engine's own memory is relied on: 4d (default), 36h, unlimited."),
    ("COLUMNS", "Columns to print for. Default: those of the terminal, 100 where there is none."),
)
"""Environment variables that the command line reads."""


def all_commands(commands: Iterable[Command], width: int = WIDTH) -> str:
    """Return the help of ``onward`` itself."""
    return "\n".join(
        [
            "Usage: onward [OPTIONS] COMMAND …",
            "",
            *wrapped(ABOUT, width),
            "",
            "Commands:",
            *listed(((c.name, c.summary) for c in commands), width),
            "",
            "Options, before or after the command:",
            *listed(((_shown(o), o.help) for o in (*GLOBAL, VERSION)), width),
            "",
            "Environment:",
            *listed(VARIABLES, width),
            "",
            *wrapped(
                "`onward COMMAND --help` tells more about one of them. `onward demo` is a first contact.",
                width,
            ),
        ]
    )


def one_command(command: Command, width: int = WIDTH, *, with_global: bool = True) -> str:
    """Return the help of a command."""
    usage = command.usage or " ".join(_placed(a.name, a.required, a.many) for a in command.arguments)
    lines = [
        " ".join(part for part in ("Usage: onward", command.name, usage, "[OPTIONS]") if part),
        "",
        *wrapped(command.summary, width),
    ]
    for paragraph in command.text.split("\n\n") if command.text else ():
        lines += ["", *wrapped(paragraph, width)]
    if command.arguments:
        lines += ["", "Arguments:", *listed(((a.name, a.help) for a in command.arguments), width)]
    options = (*command.options, *(GLOBAL if with_global else ()))
    if options:
        lines += ["", "Options:", *listed(((_shown(o), _told(o)) for o in options), width)]
    if command.examples:
        lines += ["", "Examples:", *(f"  {example}" for example in command.examples)]
    return "\n".join(lines)


def listed(entries: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Return entries with their texts beside them, or below where the left side is too long."""
    lines = []
    indent = " " * (_LEFT + 2) if width >= 2 * _LEFT else "      "
    for left, text in entries:
        beside = len(left) + 2 <= _LEFT and width >= 2 * _LEFT
        if not beside:
            lines.append(f"  {left}")
        rows = wrapped(text, width - len(indent))
        first = f"  {left:{_LEFT}}" if beside else indent
        lines += [(first if number == 0 else indent) + row for number, row in enumerate(rows)]
    return lines


def _shown(option: Option) -> str:
    names = f"{option.short}, {option.name}" if option.short else option.name
    return f"{names} {option.value}" if option.value else names


def _told(option: Option) -> str:
    told = option.help
    if option.choices:
        told += f" One of {', '.join(option.choices)}."
    return f"{told} May be repeated." if option.many else told


def _placed(name: str, required: bool, many: bool) -> str:
    shown = f"{name}…" if many else name
    return shown if required else f"[{shown}]"
