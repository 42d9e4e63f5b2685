"""One turn of an agent that speaks the Agent Client Protocol, from its messages to signals. Pure.

``AcpStream`` takes what the agent says in the middle of a prompt (``session/update``, the question of
``session/request_permission``, the answer to the prompt) and gives the signals that follow, in order. It reads no clock
and does no I/O: the same messages give the same signals, which is what recorded exchanges are checked with.

Three rules carry it. A message is finished when something else begins, so ``Said`` comes before the call that follows
it. A call is ``ToolCalled`` as soon as the agent says that it runs, asks whether it may, or has told its input, whichever
is first; a call that never came that far was not started. And calls to our own tools are not reported from here at all:
the bridge is their only source, and is only told that one is coming (``coming``).

It deliberately does not repair an agent's account: an update about a call that nobody announced is a record of an unknown
kind, and what it does not know becomes ``Noted(kind="raw")``, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from onward.core.bodies import Plan, PlanStep, Terminal, Usage
from onward.core.codec import encode
from onward.engines.acp_agents import PLAIN, AcpAgent
from onward.engines.acp_words import Option, cut, in_words, read_options, text_of
from onward.engines.contract import (
    Finished,
    Measured,
    Noted,
    Permission,
    Said,
    Signal,
    TextDelta,
    Thought,
    ToolAnswered,
    ToolCalled,
)

NOISE: Final = frozenset(
    {
        "available_commands_update",
        "config_option_update",
        "current_mode_update",
        "session_info_update",
        "user_message_chunk",
    }
)
"""Kinds of update that say nothing about the work: menus, settings that we made ourselves, titles, the echo of a prompt."""
_STEP_STATUS: Final = {"pending": "open", "in_progress": "active", "completed": "done"}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question whether the agent may do something."""

    permission: Permission
    options: tuple[Option, ...]
    kind: str
    """The kind of the call in the words of the protocol: read, edit, execute …"""
    ours: str | None = None
    """The tool of ours that it is about."""


class _Call:
    """What was reported about one call so far."""

    def __init__(self, native: str) -> None:
        self.native = native
        self.name = ""
        self.title = ""
        self.kind = "other"
        self.status = "pending"
        self.input: Any = None
        self.output: Any = None
        self.content: list[Any] = []
        self.paths: list[str] = []
        self.ours: str | None = None
        self.call: str | None = None
        self.told = False
        """The bridge knows that it is coming."""
        self.closed = False
        self.refused = ""

    def merge(self, report: dict[str, Any]) -> None:
        """Take what a report says; what it leaves out stays as it was."""
        if isinstance(title := report.get("title"), str) and title:
            self.title = title
        if isinstance(kind := report.get("kind"), str):
            self.kind = kind
        if isinstance(status := report.get("status"), str):
            self.status = status
        if report.get("rawInput") not in (None, {}):
            self.input = report["rawInput"]
        if report.get("rawOutput") is not None:
            self.output = report["rawOutput"]
        if isinstance(content := report.get("content"), list):
            self.content = content
        if isinstance(places := report.get("locations"), list):
            self.paths = [
                str(place["path"]) for place in places if isinstance(place, dict) and "path" in place
            ]

    def told_input(self) -> Any:
        """Return the input, or what a report that leaves it out says instead."""
        if self.input is not None:
            return self.input
        told = {"title": self.title, "kind": self.kind, "paths": self.paths, "content": self.content}
        return {key: value for key, value in told.items() if value and value != "other"}

    def told_output(self) -> Any:
        """Return what came out: the raw output, else the content, as text where it is nothing but text."""
        if self.output is not None:
            return self.output
        texts = [text_of(block.get("content")) for block in self.content if isinstance(block, dict)]
        if len(texts) == len(self.content) and None not in texts:
            return "\n".join(text for text in texts if text)
        return self.content


class AcpStream:
    """The messages of one turn, see the module."""

    def __init__(
        self,
        *,
        next_call: Callable[[], str],
        agent: AcpAgent = PLAIN,
        server: str = "onward",
        tools: Iterable[str] = (),
        native_id: str | None = None,
        model: str | None = None,
        cost_before: float | None = 0.0,
    ) -> None:
        """``next_call`` gives our id of the next call; ``cost_before`` is what the conversation has cost so far."""
        self.coming: list[str] = []
        """Calls of our tools that were reported and that the bridge has not been told about: take them out once the signals
        that came with them are logged."""
        self.dropped: Counter[str] = Counter()
        """What was left out on purpose, by kind (see ``NOISE``)."""
        self.cost: float | None = cost_before
        """What the agent says that the conversation has cost so far, in US dollars."""
        self.effects = False
        """Whether a call of the agent's own was made."""
        self._next, self._agent, self._native, self._model = next_call, agent, native_id, model
        self._ours = {
            form.format(server=server, tool=tool): tool for tool in tools for form in agent.our_tools
        }
        self._cost_before = cost_before
        self._text: list[str] = []
        self._thought: list[str] = []
        self._message: str | None = None
        self._calls: dict[str, _Call] = {}
        self._plans = 0
        self._usage = Usage()
        self._requests = Usage()

    def update(self, params: Any, line: bytes = b"") -> tuple[Signal, ...]:
        """Return what follows from one ``session/update``; ``line`` is the message as it came."""
        update = params.get("update") if isinstance(params, dict) else None
        kind = update.get("sessionUpdate") if isinstance(update, dict) else None
        if not isinstance(update, dict) or not isinstance(kind, str):
            return self.stray(line or encode(params))
        if self._native is not None and params.get("sessionId") != self._native:
            return self.stray(line or encode(params))
        if kind in NOISE:
            self.dropped[kind] += 1
            return ()
        taken: tuple[Signal, ...] | None = None
        if kind == "agent_message_chunk":
            taken = self._chunk(update)
        elif kind == "agent_thought_chunk":
            taken = self._thinking(update)
        elif kind in ("tool_call", "tool_call_update"):
            taken = self._reported(update, first=kind == "tool_call")
        elif kind == "plan":
            taken = self._planned(update)
        elif kind == "usage_update":
            taken = self._used(update)
        return self.stray(line or encode(params)) if taken is None else taken

    def stray(self, line: bytes) -> tuple[Signal, ...]:
        """Return a record of an unknown kind, in its place between the others."""
        return (*self.flush(), Noted(kind="raw", body=line))

    def asked(self, params: Any) -> tuple[tuple[Signal, ...], Asked]:
        """Return what follows from a question for permission, and the question.

        A call that is asked about is ``ToolCalled`` before it is answered: if it is granted it may run at once.
        """
        given = params if isinstance(params, dict) else {}
        report = given.get("toolCall")
        report = report if isinstance(report, dict) else {}
        call, signals = self._about(report, first=True, asks=True)
        subject = cut(call.title or call.name or "a tool call")
        permission = Permission(
            subject=subject,
            tool=call.name,
            input=call.told_input(),
            call=call.call,
            edits=call.kind == "edit",
        )
        options = read_options(given.get("options"))
        return signals, Asked(permission=permission, options=options, kind=call.kind, ours=call.ours)

    def refused(self, params: Any, why: str) -> None:
        """Take note that a call was not permitted: unless the agent reports how it went on, it was not started."""
        report = params.get("toolCall") if isinstance(params, dict) else None
        native = report.get("toolCallId") if isinstance(report, dict) else None
        if isinstance(native, str) and native in self._calls:
            self._calls[native].refused = why

    def flush(self) -> tuple[Signal, ...]:
        """Finish the message or the thought that was going on."""
        signals: list[Signal] = []
        if thought := "".join(self._thought).strip():
            signals.append(Thought(text=thought))
        if (text := "".join(self._text)).strip():
            signals.append(Said(text=text, model=self._model))
        self._text, self._thought, self._message = [], [], None
        return tuple(signals)

    def answered(self, result: Any) -> tuple[Signal, ...]:
        """Return the end of the turn, from the answer to the prompt: the only message that can say it was a success."""
        given = result if isinstance(result, dict) else {}
        signals = [*self.flush(), *self._unfinished(), *self._measured(given)]
        status, reason, code = in_words(given.get("stopReason"))
        return (*signals, Finished(status=status, reason=reason, code=code))

    def broken(self) -> tuple[Signal, ...]:
        """Return what was known when the agent died or was stopped, short of an end.

        Text that was not finished stays a draft, and calls stay open; what an open call had put out is kept. A call that
        was announced and never said to run counts as made, because nobody can tell any more.
        """
        signals: list[Signal] = []
        if thought := "".join(self._thought).strip():
            signals.append(Thought(text=thought))
            self._thought = []
        for call in self._calls.values():
            if call.ours is not None or call.closed:
                continue
            signals += self._called(call)
            shown = call.told_output()
            if call.status == "in_progress" and isinstance(shown, str) and shown.strip():
                signals.append(Noted(kind="terminal", body=Terminal(text=shown), actor="tool"))
        return tuple(signals)

    def _chunk(self, update: dict[str, Any]) -> tuple[Signal, ...] | None:
        text, meta, message = text_of(update.get("content")), _meta(update), update.get("messageId")
        claude = meta.get("claudeCode")
        if text is None or (isinstance(claude, dict) and "kind" in claude):
            return None  # an image, or the harness speaking in the agent's name
        signals: list[Signal] = []
        if self._thought or (self._text and message != self._message):
            signals += self.flush()
        if text:
            self._message = message if isinstance(message, str) else None
            self._text.append(text)
            signals.append(TextDelta(text=text))
        if isinstance(usage := meta.get("usage"), dict):
            signals += self._request_used(usage)
        return tuple(signals)

    def _thinking(self, update: dict[str, Any]) -> tuple[Signal, ...] | None:
        text = text_of(update.get("content"))
        if text is None:
            return None
        signals = self.flush() if self._text else ()
        self._thought.append(text)
        return signals

    def _reported(self, update: dict[str, Any], *, first: bool) -> tuple[Signal, ...] | None:
        native = update.get("toolCallId")
        if not isinstance(native, str):
            return None
        if not first and native not in self._calls and update.get("status") not in ("completed", "failed"):
            return None
        return self._about(update, first=first)[1]

    def _about(
        self, report: dict[str, Any], *, first: bool, asks: bool = False
    ) -> tuple[_Call, tuple[Signal, ...]]:
        """Take a report about a call; return the call and what follows."""
        native = report.get("toolCallId")
        native = native if isinstance(native, str) else f"unnamed {len(self._calls) + 1}"
        call = self._calls.get(native)
        if call is None:
            call = self._calls[native] = _Call(native)
        if call.closed:
            self.dropped["tool_call_update after its end"] += 1
            return call, ()
        if not (asks and call.call is not None):
            call.merge(report)  # a question about a call that runs tells less than its reports did
        if not call.name:
            self._name(call, report)
        if call.ours is not None:
            closed = call.status in ("completed", "failed")
            signals = self.flush()
            if not closed and not call.told:
                self.coming.append(call.ours)
            call.told, call.closed = True, closed
            return call, signals
        told = call.input is not None and not (first and self._agent.input_comes_later)
        if call.status == "pending" and not asks and not told:
            return call, ()
        signals = self._called(call)
        if call.status in ("completed", "failed") and not asks:
            signals = (*signals, self._closed(call))
        return call, signals

    def _name(self, call: _Call, report: dict[str, Any]) -> None:
        """Find out which tool is called, and whether it is one of ours."""
        meta = _meta(report)
        claude = meta.get("claudeCode")
        named = meta.get("toolName") or (claude.get("toolName") if isinstance(claude, dict) else None)
        if isinstance(named, str):
            call.name = named
        elif self._agent.names == "id" and "__" in call.native:
            # A name may itself hold double underscores; the id behind it never does.
            call.name = call.native.rpartition("__")[0]
        else:
            call.name = call.title or call.kind
        for name in (call.name, call.title, call.native.rpartition("__")[0]):
            if name in self._ours:
                call.ours = self._ours[name]
                return

    def _called(self, call: _Call) -> tuple[Signal, ...]:
        if call.call is not None:
            return ()
        before = self.flush()
        call.call, self.effects = self._next(), True
        called = ToolCalled(
            call=call.call, name=call.name, input=call.told_input(), provider_call=call.native
        )
        return (*before, called)

    def _closed(self, call: _Call) -> ToolAnswered:
        assert call.call is not None
        call.closed = True
        status = "error" if call.status == "failed" else "ok"
        if call.refused and call.status == "failed":
            status = "not_started"
        output = call.told_output()
        if output in ("", []) and call.refused:
            output = call.refused
        return ToolAnswered(call=call.call, output=output, status=status, name=call.name)  # type: ignore[arg-type]

    def _unfinished(self) -> list[Signal]:
        """Close the calls that the agent stopped talking about although its turn is over."""
        signals: list[Signal] = []
        for call in self._calls.values():
            if call.ours is not None or call.closed:
                continue
            started = call.status != "pending"
            signals += self._called(call)
            assert call.call is not None
            call.closed = True
            why = call.refused or (
                "The agent ended its turn without saying how this ended."
                if started
                else "The agent ended its turn before it started this."
            )
            status = "outcome_unknown" if started and not call.refused else "not_started"
            signals.append(ToolAnswered(call=call.call, output=why, status=status, name=call.name))  # type: ignore[arg-type]
        return signals

    def _planned(self, update: dict[str, Any]) -> tuple[Signal, ...] | None:
        entries = update.get("entries")
        if not isinstance(entries, list):
            return None
        steps: list[PlanStep] = []
        for number, entry in enumerate(entries, 1):
            text = entry.get("content") if isinstance(entry, dict) else None
            status = _STEP_STATUS.get(str(entry.get("status"))) if isinstance(entry, dict) else None
            if not isinstance(text, str) or status is None:
                return None
            steps.append(PlanStep(id=f"step-{number}", text=text, status=status))  # type: ignore[arg-type]
        self._plans += 1
        return (*self.flush(), Noted(kind="plan", body=Plan(revision=self._plans, steps=tuple(steps))))

    def _used(self, update: dict[str, Any]) -> tuple[Signal, ...] | None:
        cost = update.get("cost")
        amount = cost.get("amount") if isinstance(cost, dict) and cost.get("currency") == "USD" else None
        if isinstance(amount, int | float):
            self.cost = float(amount)
        return self._now_used(
            context_tokens=_count(update, "used") or None, window=_count(update, "size") or None
        )

    def _request_used(self, usage: dict[str, Any]) -> tuple[Signal, ...]:
        """Add the usage of one request to the model to that of the turn."""
        prompt = _count(usage, "inputTokens")
        sums = {
            "input_tokens": prompt,
            "output_tokens": _count(usage, "outputTokens"),
            "cache_read_tokens": _count(usage, "cachedReadTokens"),
        }
        self._requests = msgspec.structs.replace(
            self._requests,
            **{name: (getattr(self._requests, name) or 0) + (count or 0) for name, count in sums.items()},
        )
        total = {name: getattr(self._requests, name) for name in sums}
        return self._now_used(**total, context_tokens=prompt or None)

    def _measured(self, result: dict[str, Any]) -> tuple[Signal, ...]:
        """Return the usage that the answer to the prompt tells."""
        usage = result.get("usage")
        quota = _meta(result).get("quota")
        counts = quota.get("token_count") if isinstance(quota, dict) else None
        if isinstance(usage, dict):
            sums = {
                "input_tokens": _count(usage, "inputTokens"),
                "output_tokens": _count(usage, "outputTokens"),
                "cache_read_tokens": _count(usage, "cachedReadTokens"),
                "cache_write_tokens": _count(usage, "cachedWriteTokens"),
            }
        elif isinstance(counts, dict):
            sums = {
                "input_tokens": _count(counts, "input_tokens"),
                "output_tokens": _count(counts, "output_tokens"),
            }
        else:
            return ()
        if self._agent.usage_of == "request":
            return self._now_used(context_tokens=sums["input_tokens"] or None)
        return self._now_used(**sums)

    def _now_used(self, **counts: int | None) -> tuple[Signal, ...]:
        known = {name: count for name, count in counts.items() if count is not None}
        usage = msgspec.structs.replace(self._usage, **known)
        if self.cost is not None and self._cost_before is not None and (self.cost or self._usage.cost_usd):
            usage = msgspec.structs.replace(usage, cost_usd=round(max(0.0, self.cost - self._cost_before), 9))
        if usage == self._usage:
            return ()
        self._usage = usage
        return (Measured(usage=usage),)


def _meta(holder: dict[str, Any]) -> dict[str, Any]:
    meta = holder.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _count(holder: dict[str, Any], name: str) -> int | None:
    value = holder.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
