"""The grammar of the command line: what a command takes, as data, and how arguments are read.

Commands are declared in ``catalogue.py`` with the values below. From them come the parser, the help (``helping.py``) and
the reference in the docs, so the three cannot disagree. Options may stand anywhere, ``--name value`` or ``--name=value``;
what follows an option that takes a value is its value, whatever it looks like; after ``--`` everything is an argument,
and so is a dash with a text behind it (``"- first point"``).

Why not a library: a query may take six starts of the interpreter, and takes 4.8. Importing click beside msgspec costs
another 1.5, argparse 0.5, this module 0.1; and a library's errors and help would not read like ours.

It is deliberately unable to do more than that: no abbreviations, no bundles of letters, no nested commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

MAX_DIGITS: Final = 15
"""Digits of a number; beyond them it could not be stored."""


class UsageError(Exception):
    """The arguments do not fit the command; the message says which and what would."""


class Argument(NamedTuple):
    """What is given by its place."""

    name: str
    """As it is shown: ``SES``."""
    help: str
    required: bool = True
    many: bool = False
    """It takes all that is left."""
    kind: str = "text"
    """``text``, or ``path``: only a path may hold bytes that are not UTF-8."""

    @property
    def key(self) -> str:
        """The name of its value: the letters that its own name begins with, ``ses`` for ``SES:SEQ``."""
        letters = len(self.name) - len(self.name.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        return self.name[:letters].lower()


class Option(NamedTuple):
    """What is given by its name."""

    name: str
    """With its dashes: ``--title``."""
    help: str
    value: str = ""
    """What its value is called; empty for a flag."""
    choices: tuple[str, ...] = ()
    kind: str = "text"
    """``text``, ``path`` or ``number``."""
    many: bool = False
    """It may be repeated; the value is a list."""
    short: str = ""

    @property
    def key(self) -> str:
        """The name of its value."""
        return self.name.lstrip("-").replace("-", "_")


class Command(NamedTuple):
    """A command: what it takes and where it is carried out."""

    name: str
    target: str
    """``module:function`` under this package; loaded when the command is called."""
    summary: str
    text: str = ""
    """More about it, in paragraphs."""
    usage: str = ""
    """What follows the name in the usage line, where the arguments alone do not say it."""
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()


class Call:
    """A command as it was called: the values of its arguments and options, and the global options."""

    __slots__ = ("command", "json", "quiet", "store", "values")

    def __init__(
        self,
        *,
        command: str,
        values: dict[str, Any],
        store: str | None = None,
        json: bool = False,
        quiet: bool = False,
    ) -> None:
        self.command, self.values = command, values
        self.store, self.json, self.quiet = store, json, quiet

    def __getitem__(self, key: str) -> Any:
        """Return a value by its key: None or ``[]`` for what was not given, False for a flag that was not."""
        return self.values[key]


GLOBAL: Final = (
    Option(
        "--store",
        "The store: a file, or a URL such as sqlite:///work.db. Default: ONWARD_STORE, else onward/onward.db in "
        "XDG_DATA_HOME or ~/.local/share.",
        "URL",
    ),
    Option("--json", "Print exactly one JSON document on standard output."),
    Option("--quiet", "Print the result and nothing beside it.", short="-q"),
    Option("--help", "Show this and exit.", short="-h"),
)
"""What every command takes, before or after its name."""

VERSION: Final = Option("--version", "Show the version and exit.")


def split(tokens: Sequence[str]) -> tuple[dict[str, Any], str | None, list[str]]:
    """Return the options before the command's name, the name or None, and what follows it. Raises UsageError."""
    values, places, rest = _scan(tokens, (*GLOBAL, VERSION), first_only=True)
    return values, places[0] if places else None, rest


def read(command: Command, tokens: Sequence[str], before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the values of a command's arguments and options, and of the global options, by key. Raises UsageError."""
    options = (*command.options, *GLOBAL)
    values, places, _ = _scan(tokens, options)
    for key, value in (before or {}).items():
        if key in values and not values[key]:
            values[key] = value
    if values["help"]:
        return values
    waiting = list(places)
    for argument in command.arguments:
        if argument.many:
            values[argument.key], waiting = [_checked(argument, v) for v in waiting], []
        else:
            values[argument.key] = _checked(argument, waiting.pop(0)) if waiting else None
        if argument.required and not values[argument.key]:
            if values[argument.key] == "":
                raise UsageError(f"{argument.name} is empty")
            meant = f"{argument.help[:1].lower()}{argument.help[1:]}".rstrip(".")
            raise UsageError(f"{argument.name} is missing: {meant}")
    if waiting:
        raise UsageError(f"{waiting[0]!r} is one argument too many")
    return values


def _scan(
    tokens: Sequence[str], options: Sequence[Option], *, first_only: bool = False
) -> tuple[dict[str, Any], list[str], list[str]]:
    """Take options out of the tokens. Return their values, the arguments, and what is left after the first of them."""
    by_name = {name: option for option in options for name in (option.name, option.short) if name}
    values: dict[str, Any] = {o.key: [] if o.many else None if o.value else False for o in options}
    places: list[str] = []
    left = iter(tokens)
    for token in left:
        if token == "--" and not first_only:
            places += left
        elif token.startswith("-") and token != "-" and " " not in token.partition("=")[0]:
            _take(token, by_name, values, left)
        else:
            places.append(token)
            if first_only:
                return values, places, list(left)
    return values, places, []


def _take(token: str, by_name: dict[str, Option], values: dict[str, Any], left: Iterator[str]) -> None:
    """Take one option and its value."""
    name, equals, value = token.partition("=") if token.startswith("--") else (token, "", "")
    option = by_name.get(name)
    if option is None:
        raise UsageError(f"there is no option {name}{nearest(name, by_name)}")
    if not option.value:
        if equals:
            raise UsageError(f"{name} takes no value")
        values[option.key] = True
        return
    given = value if equals else next(left, None)
    if given is None:
        raise UsageError(f"{name} needs its {option.value}: {option.help}")
    made = _checked(option, given)
    if option.many:
        values[option.key].append(made)
    elif values[option.key] is not None:
        raise UsageError(f"{name} is given twice")
    else:
        values[option.key] = made


def _checked(what: Argument | Option, given: str) -> Any:
    """Return a value in its type."""
    if "\0" in given:
        raise UsageError(f"{what.name} holds a NUL character")
    if what.kind == "path":
        if not given:  # an unset variable of a shell; as a path it would mean this folder
            raise UsageError(f"{what.name} is empty")
    else:
        try:
            given.encode("utf-8")
        except UnicodeEncodeError:
            raise UsageError(f"{what.name} is not UTF-8: {given!r}") from None
    if what.kind == "number":
        if not given.isascii() or not given.isdigit() or len(given) > MAX_DIGITS:
            raise UsageError(
                f"{what.name} takes a whole number of at most {MAX_DIGITS} digits, found {given!r}"
            )
        return int(given)
    if isinstance(what, Option) and what.choices and given not in what.choices:
        raise UsageError(f"{what.name} is one of {', '.join(what.choices)}, found {given!r}")
    return given


def nearest(name: str, names: dict[str, Any]) -> str:
    """Return the question whether another name was meant, or nothing when none is like it."""
    from difflib import get_close_matches

    found = get_close_matches(name, names, 1)
    return f"; did you mean {found[0]}?" if found else ""
