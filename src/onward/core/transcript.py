"""The transcript: provider-neutral messages built from events (stub, being written)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class TranscriptMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of the model's input.

    A tool call is an ``assistant`` message with ``tool_call_id``, ``tool_name`` and ``tool_input``; its answer is the
    ``tool`` message with the same ``tool_call_id`` and ``tool_output``. Calls made side by side come as consecutive
    ``assistant`` messages, followed by their answers in the same order.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_input: Any = None
    tool_output: str | None = None
    status: Literal["ok", "error", "not_started", "outcome_unknown"] = "ok"
    signature: str | None = None
    """The provider's signature, when this is reasoning that must go back untouched."""
    seq: int | None = None
    metadata: dict[str, Any] = {}
