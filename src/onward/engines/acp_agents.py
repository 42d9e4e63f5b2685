"""What is known about agents that speak the Agent Client Protocol, as data: how to start them, and where they differ.

The protocol leaves room, and agents use it. An entry says how the program is started, what it calls our tools, which of
its modes stand for our permission modes, and what was seen to be off about it. ``acp_stream`` and ``acp`` read these
fields and know no agent by name; an agent without an entry is taken to keep to the protocol. An agent that says at
``initialize`` who it is (``agentInfo``) is recognised by that too, so one started by a command of the user's own gets
its entry.

What is off was observed with opencode 1.18, Gemini CLI 0.61 and Qwen Code 0.24; an entry is only ever a reason to be more
careful, never to believe an agent more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from onward.engines.contract import PermissionMode


class AcpAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent."""

    name: str
    """The name of the engine."""
    program: str = ""
    arguments: tuple[str, ...] = ()
    """What follows the program to make it speak the protocol."""
    package: str = ""
    """Where it comes from, for those who lack it."""
    known_as: tuple[str, ...] = ()
    """The names by which it introduces itself, in lower case."""
    model_flag: str | None = None
    """The argument that chooses the model when the process starts; None: only as the protocol offers it."""
    our_tools: tuple[str, ...] = ("{server}_{tool}", "mcp_{server}_{tool}", "mcp__{server}__{tool}")
    """What it may call a tool of ours."""
    names: Literal["title", "meta", "id"] = "title"
    """Where a report says which tool is called: the title of its first report; a field of ``_meta``; the id of the call,
    before its first double underscore."""
    input_comes_later: bool = False
    """Its first report of a call may hold a part of the input only: the call counts as made with the report that it runs."""
    usage_of: Literal["turn", "request"] = "turn"
    """Whether the usage in the answer to a prompt is of the whole turn or of its last request to the model."""
    modes: Mapping[PermissionMode, tuple[str, ...]] = {}
    """The ids of its modes that stand for a permission mode of ours, the best first."""
    environment: Mapping[str, str] = {}
    """Added to its environment, unless it is set there."""

    def environment_here(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return what is added to an inherited environment."""
        return {name: value for name, value in self.environment.items() if name not in inherited}


PLAIN: Final = AcpAgent(
    name="acp",
    modes={
        "accept_edits": ("acceptEdits", "auto-edit", "autoEdit", "accept-edits"),
        "plan": ("plan", "read-only"),
        "full_auto": ("auto", "full-access", "yolo", "bypassPermissions"),
        "dangerously_skip_permissions": ("bypassPermissions", "full-access", "yolo"),
    },
)
"""An agent about which nothing is known."""

AGENTS: Final = (
    AcpAgent(
        name="opencode",
        program="opencode",
        arguments=("acp",),
        package="opencode-ai",
        known_as=("opencode",),
        our_tools=("{server}_{tool}",),
        input_comes_later=True,
        usage_of="request",
        modes={"plan": ("plan",)},
        environment={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
    ),
    AcpAgent(
        name="gemini",
        program="gemini",
        arguments=("--acp",),
        package="@google/gemini-cli",
        known_as=("gemini-cli",),
        model_flag="-m",
        # Of a command in a terminal of its own it tells others that it ended, and nothing of what it printed.
        environment={"GEMINI_PTY_INFO": "child_process"},
        our_tools=("mcp_{server}_{tool}",),
        names="id",
        modes={
            "accept_edits": ("autoEdit",),
            "plan": ("plan",),
            "full_auto": ("yolo",),
            "dangerously_skip_permissions": ("yolo",),
        },
    ),
    AcpAgent(
        name="qwen",
        program="qwen",
        arguments=("--acp",),
        package="@qwen-code/qwen-code",
        known_as=("qwen-code",),
        our_tools=("mcp__{server}__{tool}",),
        names="meta",
        input_comes_later=True,
        modes={
            "accept_edits": ("auto-edit",),
            "plan": ("plan",),
            "full_auto": ("auto", "yolo"),
            "dangerously_skip_permissions": ("yolo",),
        },
    ),
)
"""The agents that have an engine of their own name."""


def agent_named(name: str) -> AcpAgent:
    """Return the entry of this name. Raises KeyError."""
    return {agent.name: agent for agent in AGENTS}[name]


def recognised(given: AcpAgent, info: Any) -> AcpAgent:
    """Return what is known about an agent that introduced itself: ``given`` unless that is ``PLAIN``."""
    said = info.get("name") if isinstance(info, dict) else None
    if given is not PLAIN or not isinstance(said, str):
        return given
    return next((agent for agent in AGENTS if said.lower() in agent.known_as), given)
