"""Choosing an engine: the one that was named, else the session's own, else the one in ``ONWARD_ENGINE``.

A session that was imported names the agent that wrote it, which may be none that can be run from here; then the next in
that order is taken. An engine that cannot run here is refused before anything is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from onward.core.routing import Router, routing_of
from onward.engines import ENGINES, engine_by_name
from onward.engines.contract import Engine
from onward.errors import EngineUnavailable, InvalidInput
from onward.surfaces.cli.grammar import UsageError

VARIABLE = "ONWARD_ENGINE"


def engine_name(
    named: str | None, *of_session: str | None, options: Sequence[str] = (), model: str | None = None
) -> str | None:
    """Return the name of the engine to use, or None when nobody names one that exists.

    The one that was named is taken as it is; the session's own only if it can run here.
    """
    if named:
        return named
    for name in of_session:
        if name in ENGINES and _unavailable(name, options, model) is None:
            return name
    return os.environ.get(VARIABLE) or None


def engine(
    named: str | None, options: Sequence[str], *of_session: str | None, model: str | None = None
) -> Engine:
    """Return the engine to use, ready to run. Raises InvalidInput when none is named, EngineUnavailable.

    ``model`` is the model that was asked for; the engine `model` cannot say whether it can run without knowing it.
    """
    name = engine_name(named, *of_session, options=options, model=model)
    if name is None:
        wrote = next((n for n in of_session if n), None)
        cause = _unavailable(wrote, options, model) if wrote in ENGINES else None
        because = f" ({cause})" if cause else ""
        why = f"the session's own, {wrote}, cannot be run from here{because}" if wrote else "none is named"
        raise InvalidInput(
            what="the engine",
            why=f"{why}. Name one with --engine or {VARIABLE}: {', '.join(ENGINES)}. `local` is a small model on this "
            "machine (pip install 'onward[local]'), `model` asks a provider's API, `script` plays what it is told; "
            "`onward doctor` says what can run here",
        )
    made = _made(name, options, model)
    if (cause := made.unavailable()) is not None:
        raise EngineUnavailable(engine=name, why=cause)
    return made


def _made(name: str, options: Sequence[str], model: str | None) -> Engine:
    chosen = engine_options(options)
    if name == "model" and model is not None:
        chosen.setdefault("model", model)
    return engine_by_name(name, **chosen)


def _unavailable(name: str | None, options: Sequence[str], model: str | None) -> str | None:
    """Return why an engine cannot run here. One whose options are wrong can: then that is what is said."""
    try:
        return _made(name or "", options, model).unavailable()
    except InvalidInput:
        return None


def engine_or_router(
    named: str | None, options: Sequence[str], *of_session: str | None, model: str | None = None
) -> Engine | Router:
    """Return the engine to use, or with ``a,b`` several of which one answers (``core.routing``).

    Several take no options on the command line. Raises as ``engine`` does.
    """
    name = engine_name(named, *of_session)
    if name is None or "," not in name:
        return engine(named, options, *of_session, model=model)
    if options:
        raise UsageError("--engine-option is for one engine; of several, none can be told which it is for")
    routing = routing_of([part for part in name.split(",") if part.strip()])
    for route in routing.routes:
        engine_by_name(route.engine)
    return Router(routing)


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
