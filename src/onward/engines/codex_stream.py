"""What ``codex app-server`` notifies during a turn, as signals. Pure: no process, no clock, no file.

One ``AppServerStream`` follows one turn of one thread. It is given notifications in the order in which they came and
answers each with the signals that it means; the same notifications give the same signals. Every method of the protocol
is one of three things: translated below, listed in ``NOISE`` with the reason why nothing is lost, or kept as a ``raw``
record. Threads that the agent opened beside its own (subagents) are kept as raw records where an item of theirs is
complete.

Two things it deliberately leaves to its caller: calls to tools of ours, which only the bridge reports (``own_call``
names them), and the text of a compaction, which the protocol does not carry (``take`` is given it).

Source: the schema that ``codex app-server generate-json-schema --experimental`` prints, version 0.171, and what was
seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from onward.core.bodies import Checkpoint, Terminal, Usage
from onward.core.codec import encode, loads
from onward.engines.codex_calls import (
    Item,
    answer_of,
    call_of,
    entries,
    failure_of,
    kind_of,
    plan_of,
    says_what,
)
from onward.engines.contract import (
    Finished,
    Measured,
    Noted,
    Said,
    Signal,
    TextDelta,
    Thought,
    ToolAnswered,
    ToolCalled,
)

NOISE: Final[dict[str, str]] = {
    "account/rateLimits/updated": "about the account, not the conversation",
    "account/updated": "about the account, not the conversation",
    "app/list/updated": "about the installation",
    "configWarning": "about the installation; repeated at every start",
    "deprecationNotice": "about the protocol",
    "fs/changed": "nothing is watched",
    "hook/started": "its end is kept",
    "item/autoApprovalReview/started": "its end is kept",
    "item/fileChange/outputDelta": "the completed item says it",
    "item/fileChange/patchUpdated": "the completed item holds the whole change",
    "item/mcpToolCall/progress": "the completed item has the answer",
    "item/reasoning/summaryPartAdded": "the completed item holds the whole text",
    "item/reasoning/summaryTextDelta": "the completed item holds the whole text",
    "item/reasoning/textDelta": "the completed item holds the whole text",
    "rawResponse/completed": "thread/tokenUsage/updated says the same",
    "remoteControl/status/changed": "about the installation",
    "serverRequest/resolved": "the answer was ours",
    "skills/changed": "about the installation",
    "thread/closed": "we let go of the thread",
    "thread/compacted": "the completed item of the compaction says it",
    "thread/environment/connected": "about the installation",
    "thread/goal/cleared": "said of every thread that is opened without a goal",
    "thread/name/updated": "Codex's own title of its thread",
    "thread/readState/changed": "Codex's own book of what a person has read",
    "thread/settings/updated": "the settings are ours",
    "thread/started": "the answer to the request that started it says the same",
    "thread/status/changed": "turn/started and turn/completed say when a turn begins and ends",
    "turn/diff/updated": "the sum of the file changes, each of which is kept",
    "turn/started": "the answer to turn/start says the same",
}
"""Notifications that are not kept, and why nothing is lost."""

_SELDOM: Final = frozenset(("item/completed", "turn/completed", "error"))
"""What is kept of threads beside ours."""


class AppServerStream:
    """The notifications of one turn, translated as they come.

    ``next_call`` gives our id of the next call; ``ours`` is the name of our server of tools. ``signed`` says that the
    provider's items come too (``experimentalRawEvents``), which is where reasoning has its encrypted content.
    """

    def __init__(
        self,
        *,
        thread: str,
        next_call: Callable[[], str],
        model: str | None = None,
        ours: str = "onward",
        signed: bool = False,
    ) -> None:
        self.thread, self.model = thread, model
        self.turn: str | None = None
        """The id of the turn, once it is known; notifications of another turn then change nothing."""
        self.finished: Finished | None = None
        """How the turn ended, once Codex has said so."""
        self.interrupted = False
        """It ended because somebody interrupted it."""
        self.acted = False
        """The agent has called a tool."""
        self.trouble = ""
        """The last error that Codex told, for a turn that never ends."""
        self._next_call, self._ours, self._signed = next_call, ours, signed
        self._calls: dict[str, str] = {}
        """Our ids of the calls that are open, by the ids of Codex's items."""
        self._outputs: dict[str, list[str]] = {}
        self._unsigned: dict[str, str] = {}
        """Reasoning that waits for its encrypted content."""
        self._before: Mapping[str, int] | None = None
        """What the thread had used before this turn."""
        self._compacting = False
        self._revision = 0

    def over(self) -> bool:
        """Codex has said how the turn ended."""
        return self.finished is not None

    def line(self, data: bytes) -> tuple[Signal, ...]:
        """Translate one line of the stream as it was written. What is no notification is kept as a raw record."""
        try:
            record = loads(data)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("method"), str):
            return (Noted(kind="raw", body=data),)
        params = record.get("params")
        return self.take(record["method"], params if isinstance(params, dict) else {}, raw=data)

    def take(
        self, method: str, params: Mapping[str, Any], *, raw: bytes | None = None, summary: str = ""
    ) -> tuple[Signal, ...]:
        """Translate one notification. ``summary`` is the text of a compaction that it ends, where that is known."""
        if method == "rawResponseItem/completed":
            return self._provider_item(params.get("item"))
        kept = self._kept(method, params, raw)
        if method in NOISE:
            return ()
        about = params.get("threadId", self.thread)
        if about != self.thread:
            return (kept,) if method in _SELDOM else ()
        before = self._unsigned_thoughts()
        return (*before, *self._ours_to_tell(method, params, kept, summary))

    def _ours_to_tell(
        self, method: str, params: Mapping[str, Any], kept: Noted, summary: str
    ) -> tuple[Signal, ...]:
        """Translate what is about our own thread."""
        item = params.get("item")
        match method:
            case "item/started" if isinstance(item, dict):
                return self._item_started(item, kept)
            case "item/completed" if isinstance(item, dict):
                return self._item_completed(item, kept, summary)
            case "item/agentMessage/delta" | "item/plan/delta":
                return (TextDelta(text=str(params.get("delta", ""))),)
            case "item/commandExecution/outputDelta":
                self._outputs.setdefault(str(params.get("itemId")), []).append(str(params.get("delta", "")))
                return ()
            case "thread/tokenUsage/updated":
                return self._measured(params)
            case "turn/plan/updated":
                self._revision += 1
                return (Noted(kind="plan", body=plan_of(self._revision, params.get("plan"))),)
            case "turn/completed":
                return self._turn_completed(params.get("turn"), kept)
            case "model/rerouted":
                self.model = str(params.get("toModel") or self.model)
                return (kept,)
            case "error":
                failure = failure_of(params.get("error"))
                self.trouble = failure.reason
                return (
                    (kept,) if params.get("willRetry") else ()
                )  # what is final ends the turn, with the same words
            case "mcpServer/startupStatus/updated":
                return (kept,) if params.get("status") == "failed" else ()
            case _:
                return (kept,)

    def left(self) -> tuple[Signal, ...]:
        """Return what was heard and not told yet, when the stream has ended in the middle of a turn.

        That is what running commands had written by then. Their calls stay open: nobody knows how they ended.
        """
        said = [
            Noted(kind="terminal", body=Terminal(text="".join(pieces)))
            for native, pieces in self._outputs.items()
            if native in self._calls
        ]
        self._outputs.clear()
        return (*self._unsigned_thoughts(), *said)

    def call_id(self, native: Any) -> str | None:
        """Return our id of the call that an item of Codex is, while it is open."""
        return self._calls.get(str(native))

    def _item_started(self, item: Item, kept: Noted) -> tuple[Signal, ...]:
        asked = call_of(item)
        self._compacting = kind_of(item) == "contextCompaction"
        if asked is None:
            known = ("agentMessage", "reasoning", "plan", "contextCompaction", "userMessage")
            return () if kind_of(item) in known else (kept,)
        if self._is_ours(item) or not says_what(item):
            return ()
        return (self._called(item),)

    def _item_completed(self, item: Item, kept: Noted, summary: str) -> tuple[Signal, ...]:
        native = str(item.get("id"))
        match kind_of(item):
            case "agentMessage" | "plan":
                text = str(item.get("text") or "")
                return (Said(text=text, model=self.model),) if text else ()
            case "reasoning":
                text = _reasoning(item)
                if self._signed:
                    self._unsigned[native] = text
                    return ()
                return (Thought(text=text),) if text else ()
            case "contextCompaction":
                self._compacting = False
                point = Checkpoint(text=summary, trigger="auto")
                return (Noted(kind="checkpoint", body=point, actor="system"),) if summary else (kept,)
            case "userMessage":
                return ()  # what was asked is in the log before the engine is
        if call_of(item) is None:
            return (kept,)
        if self._is_ours(item):
            return ()
        first = () if native in self._calls else (self._called(item),)
        ended = answer_of(item)
        self._outputs.pop(native, None)
        asked = call_of(item)
        answered = ToolAnswered(
            call=self._calls.pop(native),
            output=ended.output,
            status=ended.status,
            name=asked.name if asked else None,
        )
        return (*first, answered)

    def _called(self, item: Item) -> ToolCalled:
        asked = call_of(item)
        assert asked is not None
        native = str(item.get("id"))
        self.acted = True
        self._calls[native] = self._next_call()
        return ToolCalled(call=self._calls[native], name=asked.name, input=asked.input, provider_call=native)

    def _is_ours(self, item: Item) -> bool:
        return kind_of(item) == "mcpToolCall" and item.get("server") == self._ours

    def _provider_item(self, item: Any) -> tuple[Signal, ...]:
        """Take the encrypted content of reasoning from the provider's own item; the rest of those says nothing new."""
        if not isinstance(item, dict) or item.get("type") != "reasoning":
            return ()
        text = self._unsigned.pop(str(item.get("id")), None)
        signature = item.get("encrypted_content")
        if text is None or not (text or signature):
            return ()  # a compaction's own reasoning has no item, and is not the agent's
        return (Thought(text=text, signature=signature if isinstance(signature, str) else None),)

    def _unsigned_thoughts(self) -> tuple[Signal, ...]:
        """Return the reasoning that waited for its encrypted content in vain."""
        waiting = tuple(Thought(text=text) for text in self._unsigned.values() if text)
        self._unsigned.clear()
        return waiting

    def _measured(self, params: Mapping[str, Any]) -> tuple[Signal, ...]:
        """Return what the turn has used. Codex counts for the whole thread, so what was before is taken off."""
        used = params.get("tokenUsage")
        if not isinstance(used, dict):
            return ()
        total, last = _counts(used.get("total")), _counts(used.get("last"))
        repeated = self.turn is not None and params.get("turnId") != self.turn
        if self._before is None:
            # Told again when a thread is opened, and when a turn begins with a compaction.
            nothing = repeated or self._compacting
            self._before = total if nothing else {name: total[name] - last[name] for name in total}
        if repeated:
            return ()
        turn = {name: max(0, count - self._before[name]) for name, count in total.items()}
        window = used.get("modelContextWindow")
        usage = Usage(
            input_tokens=turn["inputTokens"],
            output_tokens=turn["outputTokens"],
            cache_read_tokens=turn["cachedInputTokens"],
            cache_write_tokens=turn["cacheWriteInputTokens"],
            window=window if isinstance(window, int) else None,
            # After a compaction Codex estimates what the new context holds, as a total.
            context_tokens=last["inputTokens"] or last["totalTokens"] or None,
        )
        return (Measured(usage=usage),)

    def _turn_completed(self, turn: Any, kept: Noted) -> tuple[Signal, ...]:
        if not isinstance(turn, dict) or (self.turn is not None and turn.get("id") != self.turn):
            return (kept,)
        match turn.get("status"):
            case "completed":
                self.finished = Finished(status="completed")
            case "interrupted":
                self.interrupted = True
                self.finished = Finished(status="cancelled", reason="Codex was interrupted")
            case "failed":
                failure = failure_of(turn.get("error"))
                self.finished = Finished(
                    status="failed",
                    reason=failure.reason,
                    code=failure.code,
                    retryable=failure.passes and not self.acted,
                )
            case other:
                self.finished = Finished(
                    status="failed",
                    reason=f"Codex ended its turn as {other!r}, which is no end",
                    code="protocol",
                )
        return ()

    @staticmethod
    def _kept(method: str, params: Mapping[str, Any], raw: bytes | None) -> Noted:
        body = raw if raw is not None else encode({"method": method, "params": dict(params)})
        return Noted(kind="raw", body=body, actor="system")


def own_call(method: str, params: Mapping[str, Any], ours: str = "onward") -> str | None:
    """Return the name of the tool of ours that a notification says is being called, if it says so."""
    item = params.get("item")
    if method != "item/started" or not isinstance(item, dict) or kind_of(item) != "mcpToolCall":
        return None
    return str(item.get("tool")) if item.get("server") == ours else None


def ends_compaction(method: str, params: Mapping[str, Any]) -> bool:
    """Whether a notification says that Codex has compacted its context."""
    item = params.get("item")
    return method == "item/completed" and isinstance(item, dict) and kind_of(item) == "contextCompaction"


def _reasoning(item: Item) -> str:
    shown = [str(part) for part in entries(item.get("summary")) if part]
    return "\n\n".join(shown or [str(part) for part in entries(item.get("content")) if part])


_COUNTED: Final = (
    "totalTokens",
    "inputTokens",
    "cachedInputTokens",
    "cacheWriteInputTokens",
    "outputTokens",
)


def _counts(told: Any) -> dict[str, int]:
    given = told if isinstance(told, dict) else {}
    return {name: given[name] if isinstance(given.get(name), int) else 0 for name in _COUNTED}
