"""Describing: the document that says what every route takes and answers."""

from __future__ import annotations

import functools
from typing import Any, Final

from starlette.responses import Response

from onward.surfaces.http.routing import JSON, Ask, Route


def description(ask: Ask) -> Response:
    """Return the description of the server."""
    del ask
    data, name = _written()
    return Response(data, headers={"etag": name, "cache-control": "no-cache"}, media_type=JSON)


@functools.cache
def _written() -> tuple[bytes, str]:
    from onward.surfaces.http import openapi, replying
    from onward.surfaces.http.table import ROUTES as EVERY  # late: this route is one of them

    data = openapi.written(EVERY)
    return data, replying.tag(data, "strong")


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/openapi.json",
        does="Return this description.",
        scope=None,
        handler=description,
        answer=dict[str, Any],
        tag="strong",
    ),
)
