"""The screen: everything that the command line prints goes through here.

Standard output holds the result, standard error what is said about it. What a log holds may be hostile: control
characters (terminal escapes among them), marks that reorder text and lone surrogates are printed as visible escapes, in
plain text and inside JSON strings alike. Line ends and tabs stay.

With ``--json`` standard output holds exactly one document, in UTF-8 whatever the locale says.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Final

import msgspec

from onward.core.columns import fitted, wrapped
from onward.core.harmless import harmless
from onward.surfaces.cli.terminal import width

_HARMFUL_IN_JSON: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def one_line(text: str, limit: int | None = None) -> str:
    """Return a text on one harmless line, cut with an ellipsis beyond ``limit`` columns."""
    line = harmless(" ".join(text.split()))
    return line if limit is None else fitted(line, limit)


def moment(at: str) -> str:
    """Return a time of the log, in ISO 8601, as people read it: to the minute, in UTC."""
    return f"{at[:16].replace('T', ' ')} UTC"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def headline(title: str) -> str:
    """Return the title of a session on one line, cut to the terminal."""
    return one_line(title, width()) or "(no title)"


def say(text: str = "", indent: str = "") -> None:
    """Print a text as a result; lines after the first of a logged text are set in by ``indent``."""
    shown = harmless(text)
    if indent:
        shown = shown.replace("\n", f"\n{indent}")
    sys.stdout.write(f"{shown}\n")


def flow(text: str, indent: str = "") -> None:
    """Print words that may be broken anywhere to the width of the terminal, under an indent."""
    for line in wrapped(harmless(text), width() - len(indent)):
        sys.stdout.write(f"{indent}{line}\n")


def piece(text: str) -> None:
    """Print a piece of a text that is being produced, at once and without a line end."""
    sys.stdout.write(harmless(text))
    sys.stdout.flush()


def note(text: str) -> None:
    """Print something about the result on standard error."""
    sys.stdout.flush()
    sys.stderr.write(f"{harmless(text)}\n")


def complain(code: str, message: str) -> None:
    """Print an error: one line on standard error that starts with its code."""
    sys.stderr.write(f"{code}: {one_line(message)}\n")


def document(value: Any, *, pretty: bool = False) -> None:
    """Print the one JSON document. It is indented for a person at a terminal, and where it is meant to be edited."""
    data = as_json(value)
    if pretty or sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    text = _HARMFUL_IN_JSON.sub(_escaped_in_json, data.decode("utf-8")) + "\n"
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(text)
    else:
        buffer.write(text.encode("utf-8"))
        buffer.flush()


def as_json(value: Any) -> bytes:
    """Return a value as JSON bytes. Structs, and ``msgspec.Raw`` pieces that are JSON already, may stand in it."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate somewhere: one piece at a time, those as escapes
        return _piecewise(value)


def _piecewise(value: Any) -> bytes:
    if isinstance(value, msgspec.Raw):
        return bytes(value)
    if isinstance(value, msgspec.Struct):
        return _piecewise(msgspec.to_builtins(value))
    if isinstance(value, dict):
        return b"{" + b",".join(_piecewise(str(k)) + b":" + _piecewise(v) for k, v in value.items()) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(_piecewise(v) for v in value) + b"]"
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json

        return json.dumps(value).encode("ascii")


def _escaped_in_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
