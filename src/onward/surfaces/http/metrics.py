"""Metrics: how much there is, how it goes and how long requests take, as text for Prometheus.

An account is told about what it has (invariant A1). What is true of the server as a whole, the durations of requests and how
far the index is behind, is told to the account that owns the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from starlette.responses import Response

from onward.core.records import RunState
from onward.service import machines
from onward.surfaces.http.measuring import BUCKETS, Meters
from onward.surfaces.http.routing import Ask, Route

MEDIA: Final = "text/plain"
_VERSION: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics(ask: Ask) -> Response:
    """Return the metrics."""
    return Response("".join(f"{line}\n" for line in _lines(ask)), headers={"content-type": _VERSION})


def _lines(ask: Ask) -> Iterator[str]:
    platform = ask.platform
    tally = platform.store.tally(platform.account_id)
    yield from _one("onward_sessions", "Sessions of the account.", tally.sessions)
    yield from _one("onward_events", "Events of the account.", tally.events)
    yield from _head("onward_runs", "Runs of the account by state.", "gauge")
    for state in get_args(RunState):
        yield f'onward_runs{{state="{state}"}} {tally.runs.get(state, 0)}'
    there = [machines.online(platform, machine) for machine in machines.listed(platform)]
    yield from _head("onward_machines", "Machines of the account.", "gauge")
    yield f'onward_machines{{online="true"}} {sum(there)}'
    yield f'onward_machines{{online="false"}} {len(there) - sum(there)}'
    if platform.account_id == ask.house.platform.account_id:
        told = "Events that the full text is behind the log."
        yield from _one("onward_index_lag_events", told, platform.store.index_lag())
        yield from _durations(ask.house.meters)


def _durations(meters: Meters) -> Iterator[str]:
    name = "onward_request_seconds"
    yield from _head(name, "How long requests took, streams apart.", "histogram")
    for route, status, found in meters.read():
        labels = f'route="{route}",status="{status}"'
        total = 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), found.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {found.seconds:.6f}"
        yield f"{name}_count{{{labels}}} {total}"


def _head(name: str, does: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {does}"
    yield f"# TYPE {name} {kind}"


def _one(name: str, does: str, value: int) -> Iterator[str]:
    yield from _head(name, does, "gauge")
    yield f"{name} {value}"


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/metrics",
        does="Return counts and durations as text for Prometheus.",
        scope="read",
        handler=metrics,
        answer=str,
        media=MEDIA,
    ),
)
