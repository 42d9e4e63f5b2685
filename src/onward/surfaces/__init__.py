"""Surfaces: what people and programs touch. They only translate; nothing is decided here.

None of them imports another. Where one has to start another (the command line starts the server), it asks here by name, so
that what knows them all is this table, and a surface that is not used is not loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

_STARTS: Final = {
    "http": ("onward.surfaces.http.serving", "serve"),
    "mcp": ("onward.surfaces.mcp", "serve"),
}


def start_of(name: str) -> Callable[..., Any]:
    """Return what starts a surface: a function that returns when the surface has ended."""
    module, function = _STARTS[name]
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
