"""Claude Code's ``stream-json``, one line at a time, as signals: the pure half of the adapter.

``ClaudeTurn`` takes the lines of one turn and says what each means: signals for the log, a question that somebody has to
answer, the reply to a request of ours, the end. It holds what a turn needs to remember (which calls are open, what the
newest request cost) and nothing else: no clock, no process, no file. The same lines always give the same answers, which
is how recorded traffic tests it.

Nothing vanishes: a line gives signals, or is part of the control protocol, or its kind is in ``NOISE`` with the reason why
it says nothing that the log does not have already. What is unknown becomes ``Noted(kind="raw")``, whole.

What it deliberately does not believe: the exit code, and ``subtype``. A turn is completed when a ``result`` says
``is_error: false`` *and* carries the id of the conversation that was asked for. What a subagent says is not the agent's
answer: its lines are kept as raw records. Calls of our own tools are told by the bridge, which runs them, and not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from onward.core.bodies import Checkpoint, Plan, PlanStep, Usage
from onward.core.codec import encode, loads
from onward.core.digests import content_digest
from onward.engines.calling import Numbers
from onward.engines.claude_costs import Spent, risen, spent_of, summed, used_by, window_of
from onward.engines.claude_ends import end_of
from onward.engines.claude_native import place_of
from onward.engines.contract import (
    Finished,
    Measured,
    Mirrored,
    Noted,
    Said,
    Signal,
    Started,
    TextDelta,
    Thought,
    ToolAnswered,
    ToolCalled,
)

NOISE: Final[Mapping[str, str]] = {
    "system/status": "that it asks the model, or compacts: what comes of it is told",
    "system/hook_started": "the hook's response is told",
    "system/hook_progress": "the hook's response is told",
    "system/thinking_tokens": "how much it has thought so far: the thought is told whole",
    "system/background_tasks_changed": "a list of what task_started and task_notification tell one by one",
    "system/session_state_changed": "idle or running: the result tells",
    "system/files_persisted": "an acknowledgement of the program to itself",
    "system/init again": "the head of the turn, repeated",
    "stream_event": "pieces of what the finished block tells whole; pieces of text are deltas",
    "assistant/empty": "a block of text without text",
    "user/interrupted": "the marker that it writes when we interrupt it",
    "user/replay": "our own message, or a local command's echo of it, sent back",
    "user/ours": "the result of a tool of ours, which the bridge tells",
    "tool_progress": "seconds that a tool has run",
    "keep_alive": "nothing but that it lives",
    "prompt_suggestion": "a guess at what the person may ask next",
    "rate_limit_event/allowed": "that the limit is not reached",
    "blank": "an empty line",
}
"""Lines that give no signal, each with the reason. The key is what ``Heard.noise`` says."""

_CALLS: Final = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))
_SYNTHETIC: Final = "<synthetic>"
_INTERRUPTED: Final = "[Request interrupted by user"
_PLAN_STATES: Final = {"pending": "open", "in_progress": "active", "completed": "done"}


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """The program asks us something over the control protocol and waits for the reply."""

    id: str
    subtype: str
    request: dict[str, Any]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The program's reply to a control request of ours."""

    id: str
    error: str | None = None
    response: Any = None


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What one line means."""

    signals: tuple[Signal, ...] = ()
    ours: tuple[str, ...] = ()
    """Tools of ours that it is about to call, by our names."""
    ask: Ask | None = None
    withdrawn: str | None = None
    """The id of a question that it no longer waits for."""
    reply: Reply | None = None
    end: Finished | None = None
    """How the turn ended. Lines may follow (the last rows of its own file); none of them changes this."""
    noise: str | None = None
    """A key of ``NOISE``, if the line says nothing."""


class _Mirror(msgspec.Struct):
    file: str = msgspec.field(name="filePath", default="")
    entries: list[msgspec.Raw] = []


_mirror: Final = msgspec.json.Decoder(_Mirror)


class ClaudeTurn:
    """Reads the lines of one turn.

    ``conversation`` is the id that was asked for; ``started`` tells how the turn got its context, to be confirmed by the
    program's own report of that id. ``ours`` are the names of our tools and ``server`` the name that they are offered
    under. ``spent`` is what the conversation cost before.
    """

    def __init__(
        self,
        conversation: str,
        numbers: Numbers,
        *,
        started: Started | None = None,
        ours: frozenset[str] = frozenset(),
        server: str = "onward",
        spent: Spent | None = None,
    ) -> None:
        self.conversation = conversation
        self.spent = spent or Spent()
        """After the end: what the conversation has cost by then, if the program said so."""
        self.begun = False
        self.acted = False
        """A tool was called: trying again may do something twice."""
        self.running = False
        """Something was said since the last result."""
        self.interrupting = False
        """We asked it to stop: that it did is no failure."""
        self._started = started or Started()
        self._numbers, self._prefix, self._ours = numbers, f"mcp__{server}__", ours
        self._calls: dict[str, tuple[str, str]] = {}
        """The provider's id of an open call, to our id and the tool's name."""
        self._ours_called: set[str] = set()
        self._boundary: dict[str, Any] | None = None
        self._requests: dict[str, Usage] = {}
        """What each model request of the turn used, by its message's id."""
        self._request = ""
        self._ended = False

    def call_of(self, provider_call: Any) -> str | None:
        """Return our id of an open call of its own tools."""
        return self._calls.get(provider_call if isinstance(provider_call, str) else "", (None, ""))[0]

    def hear(self, line: bytes) -> Heard:
        """Say what a line means. Never raises."""
        if not line.strip():
            return Heard(noise="blank")
        try:
            record = loads(line)
        except ValueError:
            return Heard(signals=(_raw(line),))
        if not isinstance(record, dict):
            return Heard(signals=(_raw(line),))
        match record.get("type"):
            case "transcript_mirror":
                return self._mirrored(line)
            case "control_request" | "control_response" | "control_cancel_request":
                return _control(record, line)
        if self._ended:
            return Heard(signals=(_raw(line),))
        return self._said(record, line)

    def _said(self, record: dict[str, Any], line: bytes) -> Heard:
        kind = record.get("type")
        if kind in ("assistant", "user", "stream_event") and record.get("parent_tool_use_id"):
            return Heard(noise="stream_event") if kind == "stream_event" else Heard(signals=(_raw(line),))
        match kind:
            case "assistant":
                self.running = True
                return self._assistant(record, line)
            case "user":
                return self._user(record, line)
            case "stream_event":
                self.running = True
                return self._piece(record.get("event"))
            case "system":
                return self._system(record, line)
            case "result":
                return self._result(record)
            case "rate_limit_event" if _at(record, "rate_limit_info", "status") == "allowed":
                return Heard(noise="rate_limit_event/allowed")
            case "tool_progress" | "keep_alive" | "prompt_suggestion":
                return Heard(noise=kind)
            case _:
                return Heard(signals=(_raw(line),))

    # The beginning

    def _system(self, record: dict[str, Any], line: bytes) -> Heard:
        subtype = record.get("subtype")
        noise = f"system/{subtype}"
        if subtype == "init":
            return self._init(record)
        if subtype == "compact_boundary":
            facts = record.get("compact_metadata")
            self._boundary = facts if isinstance(facts, dict) else {}
            return Heard(signals=(_raw(line),))
        return Heard(noise=noise) if noise in NOISE else Heard(signals=(_raw(line),))

    def _init(self, record: dict[str, Any]) -> Heard:
        self.running = True
        if (found := record.get("session_id")) != self.conversation:
            self._ended = True
            return Heard(end=_elsewhere(self.conversation, found))
        if self.begun:
            return Heard(noise="system/init again")
        self.begun = True
        model = record.get("model")
        started = msgspec.structs.replace(
            self._started,
            model=model if isinstance(model, str) else self._started.model,
            native_id=self.conversation,
        )
        return Heard(signals=(started,))

    # What the agent says and does

    def _assistant(self, record: dict[str, Any], line: bytes) -> Heard:
        message = record.get("message")
        blocks = message.get("content") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not isinstance(blocks, list):
            return Heard(signals=(_raw(line),))
        model = message.get("model")
        if model == _SYNTHETIC or record.get("isApiErrorMessage"):
            # The program speaks, not the model: an error that the result tells too, or a filler.
            return Heard(signals=(_raw(line),))
        signals: list[Signal] = []
        ours: list[str] = []
        empty = False
        for block in blocks:
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "text" and isinstance(block.get("text"), str):
                if block["text"]:
                    signals.append(Said(text=block["text"], model=model if isinstance(model, str) else None))
                else:
                    empty = True
            elif kind == "thinking":
                signals.append(
                    Thought(text=str(block.get("thinking") or ""), signature=block.get("signature") or None)
                )
            elif kind == "redacted_thinking":
                signals.append(Thought(text="", signature=block.get("data")))
            elif kind in _CALLS and isinstance(block.get("id"), str):
                self._called(block, signals, ours)
            elif isinstance(kind, str) and kind.endswith("_tool_result"):
                self._answered(block, signals)
            else:
                signals.append(Noted(kind="raw", body=encode(block) if isinstance(block, dict) else line))
        if measured := self._used(message.get("id"), message.get("usage")):
            signals.append(measured)
        noise = "assistant/empty" if empty and not signals and not ours else None
        return Heard(signals=tuple(signals), ours=tuple(ours), noise=noise)

    def _called(self, block: dict[str, Any], signals: list[Signal], ours: list[str]) -> None:
        provider, name, given = block["id"], str(block.get("name") or ""), block.get("input")
        self.acted = True
        if name.startswith(self._prefix) and name.removeprefix(self._prefix) in self._ours:
            self._ours_called.add(provider)
            ours.append(name.removeprefix(self._prefix))
            return
        call = self._numbers.next()
        self._calls[provider] = (call, name)
        signals.append(ToolCalled(call=call, name=name, input=given, provider_call=provider))
        if name == "TodoWrite" and (plan := _plan(given)):
            signals.append(Noted(kind="plan", body=plan))

    def _answered(self, block: dict[str, Any], signals: list[Signal]) -> bool:
        """Tell a result; return False if it is that of a tool of ours, which the bridge tells."""
        provider = block.get("tool_use_id")
        if provider in self._ours_called:
            return False
        found = self._calls.pop(provider, None) if isinstance(provider, str) else None
        if found is None:
            # It answers nothing that was asked in this turn (a call that an earlier process left open).
            signals.append(Noted(kind="raw", body=encode(block)))
            return True
        call, name = found
        signals.append(
            ToolAnswered(
                call=call,
                output=output_of(block.get("content")),
                status="error" if block.get("is_error") else "ok",
                name=name,
            )
        )
        return True

    def _user(self, record: dict[str, Any], line: bytes) -> Heard:
        content = _at(record, "message", "content")
        if self._boundary is not None and record.get("isSynthetic") and (text := _text(content)):
            facts, self._boundary = self._boundary, None
            trigger = facts.get("trigger")
            point = Checkpoint(text=text, trigger=trigger if isinstance(trigger, str) else None)
            return Heard(signals=(Noted(kind="checkpoint", body=point, actor="system"),))
        if record.get("isReplay"):
            return Heard(noise="user/replay")
        if not isinstance(content, list):
            return Heard(signals=(_raw(line),))
        signals: list[Signal] = []
        noise = None
        for block in content:
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "tool_result":
                noise = noise if self._answered(block, signals) else "user/ours"
            elif kind == "text" and str(block.get("text")).startswith(_INTERRUPTED):
                noise = "user/interrupted"
            else:
                signals.append(Noted(kind="raw", body=encode(block) if isinstance(block, dict) else line))
        return Heard(signals=tuple(signals), noise=None if signals else noise or "assistant/empty")

    def _piece(self, event: Any) -> Heard:
        if not isinstance(event, dict):
            return Heard(noise="stream_event")
        match event.get("type"):
            case "content_block_delta" if _at(event, "delta", "type") == "text_delta":
                text = _at(event, "delta", "text")
                if isinstance(text, str) and text:
                    return Heard(signals=(TextDelta(text=text),))
            case "message_start":
                message = event.get("message")
                if isinstance(message, dict):
                    self._request = str(message.get("id") or "")
                    if measured := self._used(self._request, message.get("usage")):
                        return Heard(signals=(measured,))
            case "message_delta":
                if measured := self._used(self._request, event.get("usage")):
                    return Heard(signals=(measured,))
        return Heard(noise="stream_event")

    # What it cost

    def _used(self, request: Any, usage: Any) -> Measured | None:
        """Take what a model request reports; return the turn's usage so far if that changed it."""
        if not isinstance(request, str) or not request or not isinstance(usage, dict):
            return None
        before = self._requests.get(request)
        now = used_by(usage, before)
        if now == before:
            return None
        self._requests[request] = now
        return Measured(usage=self._sum())

    def _sum(self) -> Usage:
        return summed(tuple(self._requests.values()))

    def _result(self, record: dict[str, Any]) -> Heard:
        self._ended, self.running = True, False
        found = record.get("session_id")
        if found != self.conversation:
            return Heard(end=_elsewhere(self.conversation, found))
        before, self.spent = self.spent, spent_of(record) or self.spent
        usage = risen(before, self.spent, self._sum(), window=window_of(record))
        end = end_of(record, acted=self.acted, interrupted=self.interrupting)
        return Heard(signals=(Measured(usage=usage),), end=end)

    # Its own files

    def _mirrored(self, line: bytes) -> Heard:
        """Rows that it has written to a file of its own, each with the bytes that it sent."""
        try:
            frame = _mirror.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Heard(signals=(_raw(line),))
        place = place_of(frame.file)
        if place is None:
            return Heard(signals=(_raw(line),))
        native_id, path = place
        return Heard(
            signals=(Mirrored(native_id=native_id, path=path, rows=tuple(map(bytes, frame.entries))),)
            if frame.entries
            else (),
            noise=None if frame.entries else "blank",
        )


def _control(record: dict[str, Any], line: bytes) -> Heard:
    match record:
        case {
            "type": "control_request",
            "request_id": str(id),
            "request": {"subtype": str(subtype)} as request,
        }:
            return Heard(ask=Ask(id=id, subtype=subtype, request=request))
        case {"type": "control_response", "response": {"request_id": str(id)} as response}:
            error = response.get("error")
            if response.get("subtype") == "error":
                return Heard(reply=Reply(id=id, error=str(error or "refused")))
            return Heard(reply=Reply(id=id, response=response.get("response")))
        case {"type": "control_cancel_request", "request_id": str(id)}:
            return Heard(withdrawn=id)
        case _:
            return Heard(signals=(_raw(line),))


def _elsewhere(asked: str, found: Any) -> Finished:
    return Finished(
        status="failed",
        code="protocol",
        reason=f"Claude Code was asked to work in its conversation {asked} and reports {found!r} instead; "
        "nothing that it says there is believed.",
    )


def _raw(line: bytes) -> Noted:
    return Noted(kind="raw", body=line)


def _plan(given: Any) -> Plan | None:
    """Return the list that ``TodoWrite`` was given as a plan. Its number in the log is for whoever writes it there."""
    todos = given.get("todos") if isinstance(given, dict) else None
    if not isinstance(todos, list) or not all(isinstance(todo, dict) for todo in todos):
        return None
    steps = tuple(
        PlanStep(
            id=str(todo.get("id") or number),
            text=str(todo.get("content") or ""),
            status=_PLAN_STATES.get(str(todo.get("status")), "open"),  # type: ignore[arg-type]
        )
        for number, todo in enumerate(todos, 1)
    )
    return Plan(revision=1, steps=steps)


def output_of(content: Any) -> Any:
    """Return a tool's result for the log: one block of text is that text, an image is named by size and digest.

    The image itself stays in the engine's own file, which is mirrored whole.
    """
    if not isinstance(content, list):
        return content
    blocks = [_without_image(block) for block in content]
    if len(blocks) == 1 and isinstance(blocks[0], dict) and blocks[0].get("type") == "text":
        return blocks[0].get("text")
    return blocks


def _without_image(block: Any) -> Any:
    data = _at(block, "source", "data")
    if not isinstance(data, str):
        return block
    return {
        "type": block.get("type"),
        "media_type": _at(block, "source", "media_type"),
        "base64_characters": len(data),
        "base64_digest": content_digest(data.encode("utf-8", "backslashreplace")),
    }


def _text(content: Any) -> str:
    """Return the text of a message, given as a string or as blocks."""
    if isinstance(content, str):
        return content
    texts = [_at(block, "text") for block in content] if isinstance(content, list) else []
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _at(value: Any, *names: str) -> Any:
    """Return what stands under these names, one inside the other; None where there is no such thing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
