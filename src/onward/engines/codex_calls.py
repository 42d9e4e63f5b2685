"""What Codex does and what fails it, in our words: the part that its two streams have in common.

``codex app-server`` writes its items in camelCase and ``codex exec --json`` the same items in snake_case, so both
translators ask here: which call an item is, how it was answered, what kind of failure an error is, and how a history
becomes the items of the provider's API (``thread/inject_items``).

Pure, and deliberately lenient: a field that is missing or of another type than expected is simply not there. What an
item *is*, the translators decide; an item that is no call is none here.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from onward.core.bodies import Plan, PlanStep
from onward.core.transcript import TranscriptMessage

Item = Mapping[str, Any]
AnswerStatus = Literal["ok", "error", "not_started", "outcome_unknown"]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A call that an item tells of."""

    name: str
    input: Any = None


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended."""

    output: Any = None
    status: AnswerStatus = "ok"


def kind_of(item: Item) -> str:
    """Return the type of an item in camelCase, whichever stream it comes from."""
    first, *rest = str(item.get("type", "")).split("_")
    return first + "".join(word.capitalize() for word in rest)


def ident(text: str) -> bool:
    """Whether a text is a thread id as Codex makes them. Anything else it may take for a name, and begin a new thread."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def call_of(item: Item) -> Asked | None:
    """Return the call that an item is; None for an item that is none.

    The names are those of Codex's own tools where an item has one, and ``mcp__SERVER__TOOL`` for the tools of servers,
    as in its native files.
    """
    match kind_of(item):
        case "commandExecution":
            asked = {"command": item.get("command"), "cwd": item.get("cwd")}
            return Asked(name="exec_command", input={k: v for k, v in asked.items() if v is not None})
        case "fileChange":
            return Asked(name="apply_patch", input={"changes": item.get("changes") or []})
        case "mcpToolCall":
            name = f"mcp__{item.get('server')}__{item.get('tool')}"
            return Asked(name=name, input=item.get("arguments"))
        case "webSearch":
            asked = {"query": item.get("query"), "action": item.get("action")}
            return Asked(name="web_search", input={k: v for k, v in asked.items() if v})
        case "imageView":
            return Asked(name="view_image", input={"path": item.get("path")})
        case "dynamicToolCall":
            space = item.get("namespace")
            return Asked(
                name=f"{f'{space}__' if space else ''}{item.get('tool')}", input=item.get("arguments")
            )
        case "collabAgentToolCall" | "collabToolCall":
            told = ("prompt", "model", "receiverThreadIds", "receiver_thread_ids")
            return Asked(name=str(item.get("tool")), input={k: item[k] for k in told if item.get(k)})
        case _:
            return None


def says_what(item: Item) -> bool:
    """Whether an item that has just started says already what is asked for. A search may tell its query only at its end."""
    return kind_of(item) != "webSearch" or bool(item.get("query"))


def answer_of(item: Item) -> Answered:
    """Return how the call of a completed item ended."""
    said = str(item.get("status", "completed"))
    status: AnswerStatus = {"completed": "ok", "failed": "error", "declined": "not_started"}.get(
        said, "outcome_unknown"
    )  # type: ignore[assignment]
    match kind_of(item):
        case "commandExecution":
            output = _first(item, "aggregatedOutput", "aggregated_output")
            code = _first(item, "exitCode", "exit_code")
            if status == "not_started":
                return Answered(output="It was not permitted, and did not run.", status=status)
            if status == "ok" and code not in (0, None):
                status = "error"
            return Answered(output={"exit_code": code, "output": output or ""}, status=status)
        case "mcpToolCall":
            error = item.get("error")
            if error:
                return Answered(
                    output=error.get("message") if isinstance(error, dict) else error, status="error"
                )
            return Answered(output=_content(item.get("result")), status=status)
        case "dynamicToolCall":
            failed = item.get("success") is False
            return Answered(output=item.get("contentItems"), status="error" if failed else status)
        case "webSearch":
            return Answered(output=item.get("results"), status=status)
        case "collabAgentToolCall" | "collabToolCall":
            return Answered(output=_first(item, "agentsStates", "agents_states"), status=status)
        case "imageView":
            return Answered(status=status)
        case _:
            return Answered(output=said, status=status)


def _first(item: Item, *names: str) -> Any:
    return next((item[name] for name in names if item.get(name) is not None), None)


def _content(result: Any) -> Any:
    """Return what a server's tool answered: its text where it is only text, else the blocks as they are."""
    if not isinstance(result, dict):
        return result
    blocks = result.get("content")
    texts = entries(blocks)
    if texts and all(isinstance(block, dict) and block.get("type") == "text" for block in texts):
        return "\n".join(str(block.get("text", "")) for block in texts)
    return blocks or _first(result, "structuredContent", "structured_content")


_STEPS: Final = {"inProgress": "active", "in_progress": "active", "completed": "done"}


def entries(told: Any) -> list[Any]:
    """Return what stands in a list; nothing where something else was sent."""
    return told if isinstance(told, list) else []


def plan_of(revision: int, told: Any) -> Plan:
    """Return a plan that was updated. Codex gives its steps no ids, so their places are their ids."""
    made = []
    for number, step in enumerate((step for step in entries(told) if isinstance(step, dict)), 1):
        done = "completed" if step.get("completed") is True else str(step.get("status", ""))
        text = str(step.get("step", step.get("text", "")))
        made.append(PlanStep(id=str(number), text=text, status=_STEPS.get(done, "open")))  # type: ignore[arg-type]
    return Plan(revision=revision, steps=tuple(made))


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of failure an error is."""

    reason: str
    code: str
    passes: bool = False
    """The cause will pass by itself."""


_BY_NAME: Final = {
    "unauthorized": "authentication",
    "usageLimitExceeded": "quota",
    "sessionBudgetExceeded": "quota",
    "rateLimitExceeded": "rate_limited",
    "serverOverloaded": "unavailable",
    "internalServerError": "unavailable",
    "flexUnavailable": "unavailable",
    "policyCapacityUnavailable": "unavailable",
    "httpConnectionFailed": "unavailable",
    "responseStreamConnectionFailed": "unavailable",
    "responseStreamDisconnected": "unavailable",
    "responseTooManyFailedAttempts": "unavailable",
    "badRequest": "invalid_request",
    "contextWindowExceeded": "invalid_request",
    "modelNotFound": "invalid_request",
}
"""``codexErrorInfo`` of the app-server's protocol."""
_PASSES: Final = ("rate_limited", "unavailable", "busy")
_STATUS: Final = re.compile(r'\bstatus:? (\d{3})\b|"(?:code|status)": ?(\d{3})\b')
_BUSY: Final = "already has an active writer"


def failure_of(error: Any) -> Failure:
    """Return what an error says: a ``TurnError`` of the protocol, or any text.

    An HTTP status, where one is told, says more than the name that Codex gives to the error.
    """
    told = error if isinstance(error, dict) else {"message": str(error)}
    message = str(told.get("message") or "Codex gave no reason.")
    details = told.get("additionalDetails")
    reason = f"{message} ({details})" if details else message
    info = told.get("codexErrorInfo")
    name, status = (info, None) if isinstance(info, str) else ("", None)
    if isinstance(info, dict) and info:
        name, inner = next(iter(info.items()))
        told_status = inner.get("httpStatusCode") if isinstance(inner, dict) else None
        status = told_status if isinstance(told_status, int) else None
    if status is None and (found := _STATUS.search(reason)):
        status = int(found[1] or found[2])
    if _BUSY in message:
        code = "busy"
    else:
        code = _of_status(status) or _BY_NAME.get(name or "") or "unknown"
        if code == "unknown" and "stream disconnected" in message:
            code = "unavailable"
    return Failure(reason=reason, code=code, passes=code in _PASSES)


def _of_status(status: int | None) -> str | None:
    match status:
        case 401 | 403:
            return "authentication"
        case 402:
            return "quota"
        case 429:
            return "rate_limited"
        case 408 | 409:
            return "unavailable"
        case None:
            return None
        case _:
            return "unavailable" if status >= 500 else "invalid_request" if status >= 400 else None


def response_items(history: Iterable[TranscriptMessage]) -> list[dict[str, Any]]:
    """Return a history as items of the Responses API: messages, and calls with their outputs.

    System messages are told as the developer's. Reasoning is left to its provider: an item that was signed for another
    conversation is refused there.
    """
    items: list[dict[str, Any]] = []
    for message in history:
        if message.role == "tool":
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": message.tool_call_id or "",
                    "output": message.tool_output or "",
                }
            )
            continue
        if message.content:
            role = {"system": "developer"}.get(message.role, message.role)
            kind = "output_text" if role == "assistant" else "input_text"
            content = [{"type": kind, "text": message.content}]
            items.append({"type": "message", "role": role, "content": content})
        if message.tool_call_id is not None and message.role == "assistant":
            given = msgspec.json.encode({} if message.tool_input is None else message.tool_input).decode()
            items.append(
                {
                    "type": "function_call",
                    "name": message.tool_name or "tool",
                    "arguments": given,
                    "call_id": message.tool_call_id,
                }
            )
    return items
