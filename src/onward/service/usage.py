"""Usage: what runs and sessions used and cost, as their engines said or as rates tell.

Nothing is stored twice: each run keeps its own usage, and sums are made when they are asked for.
"""

from __future__ import annotations

from typing import Final

import msgspec

from onward.core.bodies import Usage
from onward.core.pricing import Rates, Spent, cost_of, rate_of, spent
from onward.core.records import Run
from onward.service.platform import Platform

MOST_RUNS: Final = 10_000
"""Runs of one session that are added up; ``SessionUsage.complete`` says whether there were more."""


class RunUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one run used."""

    run: str
    engine: str
    state: str
    usage: Usage | None = None
    cost_usd: float | None = None
    """As the engine said, else by the rates; None where neither is known."""


class SessionUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a session used."""

    session: str
    total: Spent
    engines: dict[str, Spent]
    complete: bool
    runs: tuple[RunUsage, ...]
    """Newest first."""


def of_run(run: Run, rates: Rates | None = None) -> RunUsage:
    """Return what a run used; nothing is known of one whose engine did not say."""
    usage = msgspec.json.decode(run.usage, type=Usage) if run.usage else None
    # A run does not keep the model's name beside its engine, so a rate is looked up by the engine unless the options
    # named the model.
    model = _model(run)
    cost = cost_of(usage, rate_of(rates or {}, model, run.engine)) if usage is not None else None
    return RunUsage(run=run.id, engine=run.engine, state=run.state, usage=usage, cost_usd=cost)


def of_session(platform: Platform, session_id: str, rates: Rates | None = None) -> SessionUsage:
    """Return what a session's runs used, in all and by engine. Raises SessionNotFound."""
    platform.session(session_id)
    found = platform.store.runs(session_id, limit=MOST_RUNS + 1)
    used = tuple(of_run(run, rates) for run in found[:MOST_RUNS])
    engines = dict.fromkeys(one.engine for one in used)
    return SessionUsage(
        session=session_id,
        total=spent((one.usage, one.cost_usd) for one in used),
        engines={
            name: spent((one.usage, one.cost_usd) for one in used if one.engine == name) for name in engines
        },
        complete=len(found) <= MOST_RUNS,
        runs=used,
    )


def _model(run: Run) -> str | None:
    options = msgspec.json.decode(run.options)
    model = options.get("model") if isinstance(options, dict) else None
    return model if isinstance(model, str) else None
