"""What an agent may do that asks first: the rules of a turn, before anybody is asked. Pure.

In order: what the turn denies is refused; our own tools are granted, because Onward checks their calls itself; with a list
of allowed tools, those are granted and the rest refused; then the permission mode decides what it can. What is left is
for a person (``Turn.permit``), and refused where there is none.
"""

from __future__ import annotations

from typing import Final

import msgspec

from onward.engines.acp_stream import Asked
from onward.engines.contract import Turn

HARMLESS: Final = frozenset({"read", "search", "think"})
"""Kinds of call that change nothing (the protocol's own words)."""
EDITS: Final = frozenset({"edit"})
_AUTOMATIC: Final = frozenset({"full_auto", "dangerously_skip_permissions"})
NOBODY: Final = "It needs permission, and in this run there is nobody who could give it."


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether it may, and why not."""

    granted: bool
    why: str = ""


def by_rule(turn: Turn, asked: Asked) -> Answer | None:
    """Return the answer that the turn's own rules give; None if somebody has to be asked."""
    tool = asked.permission.tool
    if tool in turn.denied_tools:
        return Answer(granted=False, why=f"The tool {tool} is denied in this run.")
    if asked.ours is not None:
        return Answer(granted=True)
    if turn.allowed_tools is not None:
        granted = tool in turn.allowed_tools
        return Answer(
            granted=granted, why="" if granted else f"The tool {tool} is not among those allowed in this run."
        )
    if turn.permission_mode in _AUTOMATIC or asked.kind in HARMLESS:
        return Answer(granted=True)
    if turn.permission_mode == "accept_edits" and asked.kind in EDITS:
        return Answer(granted=True)
    if turn.permission_mode == "plan":
        return Answer(granted=False, why="In this run the agent only plans.")
    if turn.permit is None:
        return Answer(granted=False, why=NOBODY)
    return None
