"""The entry: arguments in, an exit status out, and the one place where errors become words.

0 is success, 1 an error (one line on standard error that starts with the error's code), 2 arguments that do not fit, 130
an interrupt. With ``--json`` an error is also the one document on standard output, ``{error: {code, message, details}}``.

Starting is most of what a query costs, so nothing is imported before it is needed: help needs nothing but text, and the
module of a command is loaded when the command is called.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from onward.errors import OnwardError
from onward.surfaces.cli import grammar
from onward.surfaces.cli.catalogue import COMMANDS
from onward.surfaces.cli.grammar import Call, UsageError

INTERRUPTED = 130
PIPE_CLOSED = 141
"""What a shell reports for a program that SIGPIPE ended."""


def main() -> NoReturn:
    """Run the command line of this process and leave it."""
    _fill_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # What a log holds must come out under any locale; JSON is UTF-8 in any case.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        status = _pipe_closed()
    except OSError as error:
        with contextlib.suppress(OSError):
            _say(f"os_error: standard output: {error.strerror}")
            sys.stderr.flush()
        os._exit(1)
    try:
        sys.stderr.flush()
    except OSError:  # the result is out, and there is nowhere left to say this
        os._exit(status)
    if "asyncio" not in sys.modules:
        # The store is closed and nothing runs: taking the interpreter apart would only cost time (about 5 ms).
        os._exit(status)
    sys.exit(status)


def _fill_closed_streams() -> None:
    """Open what whoever started this process closed of standard input, output and error, on nothing.

    Python has no stream there, and the next file that is opened gets its number: what a library prints would go into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            stream = open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def run(argv: Sequence[str]) -> int:
    """Carry out a command line and return its exit status. Raises nothing for what a person can do wrong."""
    asked_json = "--json" in (argv[: list(argv).index("--")] if "--" in argv else argv)
    try:
        return _run(argv)
    except UsageError as error:
        return _failed("usage", str(error), {}, asked_json, status=2)
    except OnwardError as error:
        return _failed(error.code, error.message, error.details, asked_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _pipe_closed()
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _failed("os_error", f"{place}{error.strerror or error}", {}, asked_json)
    except Exception as error:
        if os.environ.get("ONWARD_DEBUG"):
            raise
        told = f"{type(error).__name__}: {error}. This is a fault in Onward; ONWARD_DEBUG=1 shows where."
        return _failed("internal_error", told, {}, asked_json)


def _run(argv: Sequence[str]) -> int:
    try:
        before, name, rest = grammar.split(argv)
        command = COMMANDS.get(name) if name is not None else None
        if name is not None and command is None:
            raise UsageError(f"there is no command {name!r}{grammar.nearest(name, COMMANDS)}")
        values = grammar.read(command, rest, before) if command is not None else before
    except UsageError as error:
        named = next((a for a in argv if a in COMMANDS), None)
        raise UsageError(f"{error} (see `onward {f'{named} ' if named else ''}--help`)") from None
    if before.get("version"):
        import onward

        return _say(f"onward {onward.__version__}", sys.stdout)
    if command is None or values["help"]:
        from onward.surfaces.cli import helping, terminal

        width = min(terminal.width(), helping.WIDTH)
        shown = (
            helping.one_command(command, width) if command else helping.all_commands(COMMANDS.values(), width)
        )
        return _say(shown, sys.stdout)
    call = Call(
        command=command.name,
        values=values,
        store=values["store"],
        json=values["json"],
        quiet=values["quiet"],
    )
    return _load(command.target)(call)


def _load(target: str) -> Callable[[Call], int]:
    """Return the function that carries out a command."""
    module, _, name = target.partition(":")
    # Modules and classes live as long as the process does: collecting while they are made only costs time.
    gc.disable()
    _import_msgspec()
    function: Callable[[Call], int] = getattr(importlib.import_module(f"onward.surfaces.cli.{module}"), name)
    gc.enable()
    return function


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, which costs a quarter of it.

    msgspec prefers that package's ``get_type_hints`` and takes the one of ``typing`` where it is not installed; on the
    versions of Python that Onward runs on, both do the same for what Onward declares.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    absent: Any = None
    sys.modules["typing_extensions"] = absent
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def _failed(code: str, message: str, details: dict[str, Any], asked_json: bool, *, status: int = 1) -> int:
    """Say what went wrong: one line on standard error, and the one document where JSON was asked for."""
    from onward.surfaces.cli import screen

    try:
        if asked_json:
            screen.document({"error": {"code": code, "message": message, "details": _plain(details)}})
        sys.stdout.flush()
        screen.complain(code, message)
    except BrokenPipeError:
        return _pipe_closed()
    except OSError:
        return 1  # there is nowhere left to say it
    return status


def _plain(value: Any) -> Any:
    """Return details in types that JSON has; anything else as text."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _pipe_closed() -> int:
    """Leave quietly when nobody reads any more."""
    # Python flushes standard output once more at exit; let that go nowhere.
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return PIPE_CLOSED


def _say(text: str, stream: Any = None) -> int:
    (stream or sys.stderr).write(f"{text}\n")
    return 0


if __name__ == "__main__":
    main()
