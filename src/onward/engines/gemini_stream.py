"""What ``gemini -o stream-json`` writes, as signals. Pure: the same lines give the same signals.

Onward drives Gemini CLI by the Agent Client Protocol (``acp``), which offers it our tools and asks for permission; this
reads the other form, as it comes from runs that somebody started by hand. ``init`` is the start, ``result`` the only end:
a stream without it was cut off, and gives none. The echo of the prompt is left out; a line that is not understood becomes
``Noted(kind="raw")``.
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
    TextDelta,
    ToolAnswered,
    ToolCalled,
)


class GeminiStream:
    """The lines of one run. ``next_call`` gives our id of the next call."""

    def __init__(self, *, next_call: Callable[[], str]) -> None:
        self._next = next_call
        self._model: str | None = None
        self._text: list[str] = []
        self._calls: dict[str, ToolCalled] = {}

    def line(self, line: bytes) -> tuple[Signal, ...]:
        """Return what follows from one line, without its end."""
        try:
            row = loads(line)
        except ValueError:
            row = None
        taken = self._taken(row) if isinstance(row, dict) else None
        if taken is None:
            return (*self._flush(), Noted(kind="raw", body=line)) if line.strip() else ()
        return taken

    def _taken(self, row: dict[str, Any]) -> tuple[Signal, ...] | None:
        match row:
            case {"type": "init", "session_id": str(native)}:
                self._model = row.get("model")
                return (Started(native_id=native, model=self._model),)
            case {"type": "message", "role": "user"}:
                return ()
            case {"type": "message", "role": "assistant", "content": str(text)}:
                self._text.append(text)
                return (TextDelta(text=text),)
            case {"type": "tool_use", "tool_id": str(native), "tool_name": str(name)}:
                called = ToolCalled(
                    call=self._next(), name=name, input=row.get("parameters"), provider_call=native
                )
                self._calls[native] = called
                return (*self._flush(), called)
            case {"type": "tool_result", "tool_id": str(native)} if native in self._calls:
                called = self._calls.pop(native)
                failed = row.get("status") != "success"
                output = row.get("output") if not failed or row.get("output") else row.get("error")
                status = "error" if failed else "ok"
                return (
                    *self._flush(),
                    ToolAnswered(call=called.call, output=output, status=status, name=called.name),  # type: ignore[arg-type]
                )
            case {"type": "result", "status": str(status)}:
                return (*self._flush(), *self._measured(row.get("stats")), self._end(status, row))
            case _:
                return None

    def _flush(self) -> tuple[Signal, ...]:
        text = "".join(self._text)
        self._text = []
        return (Said(text=text, model=self._model),) if text.strip() else ()

    def _measured(self, stats: Any) -> tuple[Signal, ...]:
        if not isinstance(stats, dict):
            return ()
        usage = Usage(
            input_tokens=stats.get("input_tokens"),
            output_tokens=stats.get("output_tokens"),
            cache_read_tokens=stats.get("cached"),
        )
        return (Measured(usage=usage),)

    def _end(self, status: str, row: dict[str, Any]) -> Finished:
        if status == "success":
            return Finished(status="completed")
        error = row.get("error")
        reason = error.get("message") if isinstance(error, dict) else None
        return Finished(
            status="failed", reason=str(reason or f"it ended with status {status}"), code="unknown"
        )
