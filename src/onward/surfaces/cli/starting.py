"""``demo`` and ``bench``: what each shows is in a module of its own, loaded when it is called."""

from __future__ import annotations

import importlib

from onward.surfaces.cli.grammar import Call


def demo(call: Call) -> int:
    """Show a first contact."""
    status: int = importlib.import_module("onward.surfaces.cli.demo").demo(call.json)
    return status


def bench(call: Call) -> int:
    """Measure the speed goals."""
    status: int = importlib.import_module("onward.bench.main").run(
        call["name"], json=call.json, quick=call["quick"], quality=call["quality"]
    )
    return status
