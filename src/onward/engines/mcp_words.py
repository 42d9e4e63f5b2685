"""How our tools and what they answer are said in the Model Context Protocol, purely: values in, plain JSON out.

Whatever offers our tools by MCP (the bridge of a turn, a server of our own) says them with these words, so that an agent
reads the same wherever it meets them. Structures follow the revision 2025-11-25 of the protocol, and are valid in
those before it.
"""

from __future__ import annotations

from typing import Any, Final

from onward.core.codec import flat
from onward.engines.contract import Tool, ToolOutcome
from onward.engines.wire import clean

REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions of the protocol that are spoken, oldest first."""


def revision(asked: object) -> str:
    """Return the revision to speak with a client that asked for one: the same if it is known, else our newest.

    The client ends the connection if it cannot speak that (lifecycle, version negotiation).
    """
    return asked if isinstance(asked, str) and asked in REVISIONS else REVISIONS[-1]


def tool_words(tool: Tool) -> dict[str, Any]:
    """Return a tool as an entry of ``tools/list``."""
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {"type": "object", **tool.schema},
    }


def outcome_words(outcome: ToolOutcome) -> dict[str, Any]:
    """Return what a tool answered as the result of ``tools/call``."""
    return text_result(said(outcome.output), error=outcome.status == "error")


def text_result(text: str, *, error: bool = False) -> dict[str, Any]:
    """Return a result of ``tools/call`` that is one text. An error is for the model to read, and to act on."""
    return {"content": [{"type": "text", "text": clean(text)}], "isError": error}


def said(output: Any) -> str:
    """Return an output as text: a text as it is, nothing as nothing, everything else as JSON."""
    return flat(output)


def provider_call(meta: object) -> str | None:
    """Return the engine's own id of a call, where its ``_meta`` tells it: Claude Code and Codex do."""
    if not isinstance(meta, dict):
        return None
    for key in ("claudecode/toolUseId", "callId"):
        if isinstance(found := meta.get(key), str) and found:
            return found
    return None
