"""``demo``, ``bench`` and ``mcp``: what each shows is in a module of its own, loaded when it is called."""

from __future__ import annotations

import importlib
import os

from onward.surfaces import start_of
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


def mcp(call: Call) -> int:
    """Offer Onward's tools to the agent that started this program."""
    from onward.service.asking import here
    from onward.surfaces.cli.opened import opened

    with opened(call, makes=True) as platform:
        start_of("mcp")(platform, here(os.environ, os.getcwd()))
    return 0
