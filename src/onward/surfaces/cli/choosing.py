"""Choosing an engine: the one that was named, else the session's own, else the one in ``ONWARD_ENGINE``.

A session that was imported names the agent that wrote it, which may be none that can be run from here; then the next in
that order is taken. An engine that cannot run here is refused before anything is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from onward.engines import ENGINES, engine_by_name
from onward.engines.contract import Engine
from onward.errors import EngineUnavailable, InvalidInput
from onward.surfaces.cli.grammar import UsageError

VARIABLE = "ONWARD_ENGINE"


def engine_name(named: str | None, *of_session: str | None) -> str | None:
    """Return the name of the engine to use, or None when nobody names one that exists."""
    if named:
        return named
    known = [name for name in of_session if name in ENGINES]
    return known[0] if known else os.environ.get(VARIABLE) or None


def engine(
    named: str | None, options: Sequence[str], *of_session: str | None, model: str | None = None
) -> Engine:
    """Return the engine to use, ready to run. Raises InvalidInput when none is named, EngineUnavailable.

    ``model`` is the model that was asked for; the engine `model` cannot say whether it can run without knowing it.
    """
    name = engine_name(named, *of_session)
    if name is None:
        wrote = next((n for n in of_session if n), None)
        why = f"the session's own, {wrote}, cannot be run from here" if wrote else "none is named"
        raise InvalidInput(
            what="the engine",
            why=f"{why}. Name one with --engine or {VARIABLE}: {', '.join(ENGINES)}. `local` is a small model on this "
            "machine (pip install 'onward[local]'), `model` asks a provider's API, `script` plays what it is told; "
            "`onward doctor` says what can run here",
        )
    chosen = engine_options(options)
    if name == "model" and model is not None:
        chosen.setdefault("model", model)
    made = engine_by_name(name, **chosen)
    if (cause := made.unavailable()) is not None:
        raise EngineUnavailable(engine=name, why=cause)
    return made


def engine_options(given: Sequence[str]) -> dict[str, Any]:
    """Return the options of an engine from ``key=value`` texts. Raises UsageError for one without ``=``."""
    options: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        name = key.strip().replace("-", "_")
        if not equals or not name.isidentifier():
            raise UsageError(f"--engine-option takes KEY=VALUE, found {text!r}")
        try:
            options[name] = json.loads(value)
        except (ValueError, RecursionError):
            options[name] = value
    return options
