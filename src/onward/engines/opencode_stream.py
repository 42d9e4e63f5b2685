"""What ``opencode run --format json`` writes, as signals. Pure: the same lines give the same signals.

Onward drives opencode by the Agent Client Protocol (``acp``). This form is not offered as a way to run it, because it
reports a call only once it has ended: a crash in the middle of one would leave no trace of it in the log, and our own
tools could not be told from the rest. It is read as it comes from runs that somebody started by hand.

There is no message that ends a run. The last step says why it ended (``stop``: the model had no more to do), and the
output ends; ``ended`` then says what that makes. A stream that breaks off before has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onward.core.bodies import Usage
from onward.core.codec import loads
from onward.engines.contract import (
    Finished,
    Measured,
    Noted,
    Said,
    Signal,
    Started,
    Thought,
    ToolAnswered,
    ToolCalled,
)


class OpencodeStream:
    """The lines of one run. ``next_call`` gives our id of the next call."""

    def __init__(self, *, next_call: Callable[[], str]) -> None:
        self._next = next_call
        self._native: str | None = None
        self._usage = Usage(input_tokens=0, output_tokens=0, cache_read_tokens=0, cost_usd=0.0)
        self._stopped = ""
        self._fault = ""

    def line(self, line: bytes) -> tuple[Signal, ...]:
        """Return what follows from one line, without its end."""
        try:
            row = loads(line)
        except ValueError:
            row = None
        taken = self._taken(row) if isinstance(row, dict) else None
        if taken is None:
            return (Noted(kind="raw", body=line),) if line.strip() else ()
        return (*self._started(row), *taken)

    def ended(self) -> Finished:
        """Return the end, once the output has ended."""
        if self._fault:
            return Finished(status="failed", reason=self._fault, code="unknown")
        if self._stopped == "stop":
            return Finished(status="completed")
        reason = f"the last step ended with {self._stopped!r}" if self._stopped else "no step was finished"
        return Finished(status="failed", reason=f"The output ended early: {reason}.", code="crashed")

    def _started(self, row: Any) -> tuple[Signal, ...]:
        native = row.get("sessionID")
        if self._native is not None or not isinstance(native, str):
            return ()
        self._native = native
        return (Started(native_id=native),)

    def _taken(self, row: dict[str, Any]) -> tuple[Signal, ...] | None:
        match row:
            case {"type": "step_start"}:
                self._stopped = ""
                return ()
            case {"type": "text", "part": {"text": str(text)}}:
                return (Said(text=text),) if text.strip() else ()
            case {"type": "reasoning", "part": {"text": str(text)}}:
                return (Thought(text=text),) if text.strip() else ()
            case {
                "type": "tool_use",
                "part": {"tool": str(name), "state": {"status": str(status)} as state} as part,
            }:
                return self._called(name, status, state, part)
            case {"type": "step_finish", "part": {"reason": str(reason)} as part}:
                self._stopped = reason
                return self._measured(part)
            case {"type": "error", "error": dict(error)}:
                data = error.get("data")
                said = data.get("message") if isinstance(data, dict) else None
                self._fault = str(said or error.get("name") or "an error without a message")
                return ()
            case _:
                return None

    def _called(
        self, name: str, status: str, state: dict[str, Any], part: dict[str, Any]
    ) -> tuple[Signal, ...]:
        called = ToolCalled(
            call=self._next(), name=name, input=state.get("input"), provider_call=part.get("callID")
        )
        if status not in ("completed", "error"):
            return (called,)
        output = state.get("output") if status == "completed" else state.get("error")
        how = "ok" if status == "completed" else "error"
        return (called, ToolAnswered(call=called.call, output=output, status=how, name=name))  # type: ignore[arg-type]

    def _measured(self, part: dict[str, Any]) -> tuple[Signal, ...]:
        tokens, cost = part.get("tokens"), part.get("cost")
        if not isinstance(tokens, dict):
            return ()
        cache = tokens.get("cache")
        cached = cache.get("read", 0) if isinstance(cache, dict) else 0
        prompt = tokens.get("input", 0) + cached
        before = self._usage
        self._usage = Usage(
            input_tokens=(before.input_tokens or 0) + prompt,
            output_tokens=(before.output_tokens or 0) + tokens.get("output", 0),
            cache_read_tokens=(before.cache_read_tokens or 0) + cached,
            cost_usd=(before.cost_usd or 0.0) + (cost if isinstance(cost, int | float) else 0.0),
            context_tokens=prompt,
        )
        return (Measured(usage=self._usage),)
