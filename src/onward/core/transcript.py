"""The transcript: provider-neutral messages built from events.

The log may hold anything: calls without results, results without calls, results before their calls, the same call id
twice, a user who wrote while a tool was running. What a model is given may not. So a transcript is built in two steps:
events become *items* (one each, in order), and items become *messages* that are valid for any provider (invariant T1):

- every call has exactly one answer, and the answers of calls made side by side follow them in the same order;
- a call that was never answered gets an answer that says so;
- what has no place as an answer is told as a user message: a result whose call is not in view, a real result that came
  after its call was closed as unknown, another result of a call that has one. One that says the same again is listed only;
- call ids are unique and spelled as providers take them; so are tool names; an answer is never empty.

What was mended is listed in ``metadata["repairs"]`` and marked on the message. Nothing is dropped in silence: what cannot
be read or was erased is told as such, or listed where it is no part of a dialogue.

Later turns extend the messages as a prefix (T2). A turn begins with what a person or trigger says; every rule looks back,
or ahead within its own turn. Three things rewrite what came before, on purpose: a result that arrives for a call that is
still open, a checkpoint (it shadows what it names, for the model only, never in the log), and an erasure.

Limits are in messages, characters and tokens of four characters (the lower effective limit wins); tool inputs and outputs
count. The most recent are kept. A cut never falls inside a message, nor between a call and its answer.

Harness text (asides), reasoning, terminal rows, commands, bookkeeping and imported raw records are not part of the model's
dialogue.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from onward.core.bodies import (
    BriefContext,
    Checkpoint,
    Context,
    Instructions,
    Message,
    Part,
    ProjectionContext,
    Recall,
    ToolCall,
    ToolResult,
)
from onward.core.codec import Erased, Unreadable, body_of, call_of, flat
from onward.core.events import Event
from onward.core.fencing import fence
from onward.core.session_references import is_framed
from onward.errors import LimitExceeded

CHARS_PER_TOKEN: Final = 4
OVERHEAD_CHARS: Final = 16
"""What a message costs beside its text: its role and its separators, about four tokens."""

Status = Literal["ok", "error", "not_started", "outcome_unknown"]

UNANSWERED: Final[dict[str, str]] = {
    "not_started": "This call was never started.",
    "outcome_unknown": (
        "No result was recorded for this call. It may or may not have taken effect; check before repeating it."
    ),
}
NO_OUTPUT: Final = "(no output)"
"""The answer of a tool that gave an empty one: some providers take none."""

MAX_NAME: Final = 64
"""Characters of a call id or tool name; the letters are A-Z, a-z, 0-9, ``_`` and ``-``.

The narrowest of OpenAI (64 for names and call ids) and Anthropic (the same letters).
"""

_DIALOGUE: Final = frozenset(("message", "context", "checkpoint", "tool_call", "tool_result"))
"""Kinds that a model is given; what cannot be read of these is told in its place."""

_strange: Final = re.compile(r"[^A-Za-z0-9_-]")


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
    status: Status = "ok"
    signature: str | None = None
    """The provider's signature, when this is reasoning that must go back untouched."""
    seq: int | None = None
    """The event it comes from."""
    metadata: dict[str, Any] = {}

    def chars(self) -> int:
        """Return what it costs against a limit: all its text, tool inputs and outputs included, and its overhead."""
        size = len(self.content) + OVERHEAD_CHARS
        if self.tool_name:
            size += len(self.tool_name)
        if self.tool_input is not None:
            size += len(flat(self.tool_input))
        return size + len(self.tool_output or "")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a transcript is kept. None is no limit."""

    max_messages: int | None = None
    max_chars: int | None = None
    max_tokens_approx: int | None = None

    def __post_init__(self) -> None:
        """Refuse limits below one."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise LimitExceeded(what=f"a transcript limit ({name})", limit="1 or more", found=value)

    @property
    def chars(self) -> int | None:
        """The lower of the two size limits, in characters."""
        sizes = [
            s
            for s in (self.max_chars, self.max_tokens_approx and self.max_tokens_approx * CHARS_PER_TOKEN)
            if s
        ]
        return min(sizes) if sizes else None


class EventReader(Protocol):
    """The part of a store that a transcript is read from."""

    def events(
        self, session_id: str, *, after: int = 0, limit: int = 200, newest_first: bool = False
    ) -> list[Event]:
        """Return events, see ``store.contract.Store.events``."""
        ...


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    """One event as it bears on the model's input."""

    order: tuple[int, int, int, str]
    seq: int
    session: str
    event_id: str
    kind: Literal["text", "call", "result", "listed"]
    """``listed``: it is in no message, only among the repairs."""
    message: TranscriptMessage
    opens_turn: bool = False
    closer: bool = False
    shadows: tuple[int, int] | None = None
    kept: tuple[str, ...] = ()


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """Messages built from events, and how far the log was read to build them."""

    session_id: str
    messages: tuple[TranscriptMessage, ...] = ()
    last_sequence: int = 0
    last_timestamp: int | None = None
    metadata: dict[str, Any] = {}
    """``omitted``: how many messages the limits left out; ``shadowed``: how many items checkpoints stand for; ``repairs``:
    what was mended, by event number."""
    items: tuple[Any, ...] = ()
    """What the messages were built from; ``update`` goes on from here."""
    sessions: tuple[str, ...] = ()
    """The sessions that events came from, in the order in which they are told."""

    def chars(self) -> int:
        """Return the size of all messages in characters, as the limits count them."""
        return sum(m.chars() for m in self.messages)


def from_events(events: Iterable[Event], session_id: str, limits: Limits | None = None) -> Transcript:
    """Build a transcript. Events are ordered by number, then time, then id; those of a fork's source come first.

    When events of several sessions are given (a branch and its source), sessions keep the order of their first event.
    """
    return update(Transcript(session_id=session_id), events, limits)


def from_store(
    store: EventReader, session_id: str, limit: int = 1000, limits: Limits | None = None
) -> Transcript:
    """Build a transcript from the newest ``limit`` events of a session."""
    events = store.events(session_id, limit=limit, newest_first=True)
    return from_events(reversed(events), session_id, limits)


def update_from_store(store: EventReader, transcript: Transcript, limits: Limits | None = None) -> Transcript:
    """Read on from where a transcript ends. The result is the one that reading everything at once would give."""
    added: list[Event] = []
    while True:
        after = added[-1].seq if added else transcript.last_sequence
        page = store.events(transcript.session_id, after=after, limit=1000)
        added += page
        if len(page) < 1000:
            return update(transcript, added, limits)


def update(transcript: Transcript, events: Iterable[Event], limits: Limits | None = None) -> Transcript:
    """Add events to a transcript. Events that it already holds are ignored."""
    ranks = {session: rank for rank, session in enumerate(transcript.sessions)}
    items: dict[str, _Item] = {item.event_id: item for item in transcript.items}
    last_seq, last_at = transcript.last_sequence, transcript.last_timestamp
    for event in events:
        rank = ranks.setdefault(event.session_id, len(ranks))
        if event.id not in items and (item := _item(event, rank)):
            items[event.id] = item
        if event.session_id == transcript.session_id and event.seq > last_seq:
            last_seq, last_at = event.seq, event.at
    ordered = tuple(sorted(items.values(), key=lambda i: i.order))
    surface = _surface(ordered)
    messages, repairs = _repaired(surface)
    kept = limited(messages, limits)
    return Transcript(
        session_id=transcript.session_id,
        messages=kept,
        last_sequence=last_seq,
        last_timestamp=last_at,
        metadata={
            "omitted": len(messages) - len(kept),
            "shadowed": len(ordered) - len(surface),
            "repairs": repairs,
        },
        items=ordered,
        sessions=tuple(ranks),
    )


def limited(messages: Sequence[TranscriptMessage], limits: Limits | None) -> tuple[TranscriptMessage, ...]:
    """Keep the most recent messages within the limits. Calls stay with their answers, batches stay whole."""
    if limits is None or not messages:
        return tuple(messages)
    most, room = limits.max_messages, limits.chars
    start, count, size = len(messages), 0, 0
    for first, last in reversed(_units(messages)):
        count += last - first
        size += sum(m.chars() for m in messages[first:last])
        if (most is not None and count > most) or (room is not None and size > room):
            break
        start = first
    return tuple(messages[start:])


def _units(messages: Sequence[TranscriptMessage]) -> list[tuple[int, int]]:
    """Return the ranges that may not be cut: single messages, and batches of calls with their answers."""
    units: list[tuple[int, int]] = []
    i = 0
    while i < len(messages):
        start = i
        if messages[i].tool_call_id and messages[i].role == "assistant":
            while i < len(messages) and messages[i].tool_call_id and messages[i].role == "assistant":
                i += 1
            while i < len(messages) and messages[i].role == "tool":
                i += 1
        else:
            i += 1
        units.append((start, i))
    return units


def _item(event: Event, rank: int) -> _Item | None:
    """Return what an event is to a model, or None if it is no part of the dialogue."""
    body = body_of(event)

    def item(
        kind: Literal["text", "call", "result", "listed"], message: TranscriptMessage, **more: Any
    ) -> _Item:
        order = (rank, event.seq, event.at, event.id)
        return _Item(
            order=order,
            seq=event.seq,
            session=event.session_id,
            event_id=event.id,
            kind=kind,
            message=message,
            **more,
        )

    match body:
        case ToolCall():
            return item("call", _asked(event.seq, body.call, body.name, body.input))
        case ToolResult():
            output = _with_parts(flat(body.output), body.parts)
            return item("result", _answered(event.seq, body.call, output, body.status), closer=body.closer)
        case Erased() | Unreadable():
            return _gone(event, body, item)
        case Message(aside=False):
            text = _with_parts(body.text, body.parts)
            metadata: dict[str, Any] = {"parts": [p.blob for p in body.parts]} if body.parts else {}
            if body.interrupted:
                metadata["interrupted"] = True
                text = f"{text} [interrupted here]" if text else "[interrupted here]"
            if not text.strip():
                return None
            message = TranscriptMessage(role=body.role, content=text, seq=event.seq, metadata=metadata)
            return item("text", message, opens_turn=body.role == "user")
        case Checkpoint() if body.text.strip():
            told = fence(body.text, "earlier_summary", written_by=event.source.engine or "an engine")
            if body.first_seq is None or body.last_seq is None:
                return item("text", _told(event.seq, told, checkpoint=True))
            shadows = (body.first_seq, body.last_seq)
            message = _told(event.seq, told, checkpoint=True, shadows=list(shadows))
            return item("text", message, shadows=shadows, kept=body.kept)
        case BriefContext(scope="session" | "projection"):
            return None  # it repeats what is in view; one of the workspace does not
        case ProjectionContext() | BriefContext() | Instructions() if body.text.strip():
            # Written by Onward; what is foreign inside is fenced already (T3).
            return item("text", _told(event.seq, body.text))
        case Recall() if is_framed(body.text):
            return item("text", _told(event.seq, body.text))  # its snapshots are inside a fence of their own
        case Context() if body.text.strip():
            return item("text", _told(event.seq, fence(body.text, str(type(body).__struct_config__.tag))))
    return None


def _gone(event: Event, body: Erased | Unreadable, item: Callable[..., _Item]) -> _Item | None:
    """Return the item of an event whose body was erased, or that this version cannot read."""
    seq = event.seq
    if isinstance(body, Erased):
        mark, call = "erased", body.call
        told = f"[{event.kind.replace('_', ' ')} {seq} was erased]"
    else:
        mark, call = "unreadable", call_of(event.kind, event.body)[0]
        told = f"[{event.kind.replace('_', ' ')} {seq} cannot be read here: {body.why}]"
        if body.raw.strip():
            told += "\n" + fence(body.raw, f"unreadable {event.kind}")
    if event.kind not in _DIALOGUE:
        return item("listed", _told(seq, "", repair=mark)) if mark == "unreadable" else None
    if event.kind == "tool_call" and call:
        asked = _asked(seq, call, f"{mark}_call", {"note": told})
        return item("call", replaced(asked, metadata={"repair": mark}))
    if event.kind == "tool_result" and call:
        return item("result", replaced(_answered(seq, call, told, "ok"), metadata={"repair": mark}))
    return item("text", _told(seq, told, repair=mark))


def _asked(seq: int, call: str, name: str, given: Any) -> TranscriptMessage:
    return TranscriptMessage(role="assistant", tool_call_id=call, tool_name=name, tool_input=given, seq=seq)


def _answered(seq: int, call: str, output: str, status: Status) -> TranscriptMessage:
    if not output.strip():
        output = UNANSWERED.get(status, NO_OUTPUT)
    return TranscriptMessage(role="tool", tool_call_id=call, tool_output=output, status=status, seq=seq)


def _told(seq: int, text: str, **metadata: Any) -> TranscriptMessage:
    # A plain string: what was fenced here is a message now, and encoders know no other strings.
    return TranscriptMessage(role="user", content=str(text), seq=seq, metadata=metadata)


def _with_parts(text: str, parts: Sequence[Part]) -> str:
    """Return a text followed by a line for each of its images and files."""
    return "\n".join([*([text] if text else []), *(f"[{p.media_type} {p.name or p.blob}]" for p in parts)])


def _surface(items: Sequence[_Item]) -> list[_Item]:
    """Drop what a later checkpoint shadows, for the model only."""
    shadowed: list[tuple[str, int, int, frozenset[str], tuple[int, int, int, str]]] = [
        (i.session, *i.shadows, frozenset(i.kept), i.order) for i in items if i.shadows
    ]
    if not shadowed:
        return list(items)
    return [
        i
        for i in items
        if not any(
            i.session == session and first <= i.seq <= last and i.event_id not in kept and i.order < order
            for session, first, last, kept, order in shadowed
        )
    ]


class _Call(msgspec.Struct, kw_only=True):
    """A call while the log is read: its name for the model, and what answers it."""

    item: _Item
    name: str
    turn: int
    answer: _Item | None = None


def _repaired(items: Sequence[_Item]) -> tuple[list[TranscriptMessage], list[dict[str, Any]]]:
    """Give every call exactly one answer and every answer its place."""
    calls, extra, repairs = _paired(items)
    out: list[TranscriptMessage] = []
    batch: list[_Call] = []

    def close() -> None:
        """End a batch of calls: their answers follow them, in the same order."""
        out.extend(_question(call) for call in batch)
        out.extend(_answer(call) for call in batch)
        batch.clear()

    position = {id(item): n for n, item in enumerate(items)}

    def close_if_answered(upto: int) -> None:
        """A batch whose answers have all come is complete: the next call starts a new one."""
        if batch and all(c.answer is not None and position[id(c.answer)] <= upto for c in batch):
            close()

    for n, item in enumerate(items):
        if item.kind == "call":
            batch.append(calls[id(item)])
            close_if_answered(n)
        elif item.kind == "text":
            close()
            out.append(item.message)
        elif item.kind == "result":
            if (why := extra.get(id(item))) is None:
                close_if_answered(n)  # its own place is behind its call
            elif told := _TOLD.get(why):
                close()
                out.append(_told_result(item, told, why))
    close()
    return out, repairs


_TOLD: Final = {
    "no_call": "A tool result whose call is not in view",
    "late_result": "The result of an earlier call arrived after the call had been closed",
    "another_result": "Another result of a call that has one",
}
"""Why a result is told as a message, in words. The other reasons (``same_result``, ``closed_again``) are only listed."""


def _paired(
    items: Sequence[_Item],
) -> tuple[dict[int, _Call], dict[int, str], list[dict[str, Any]]]:
    """Match results to calls. Return each call, why a result answers none, and what was mended.

    An id may come back, in the same turn or, from a provider that counts anew, in each. A result answers the oldest open
    call of its id in the newest turn that has one. Before its call it waits until the turn ends.
    """
    calls: dict[int, _Call] = {}
    newest: dict[str, _Call] = {}
    unanswered: dict[str, list[_Call]] = {}
    closed: dict[str, _Call] = {}
    early: dict[str, list[_Item]] = {}
    extra: dict[int, str] = {}
    repairs: list[dict[str, Any]] = []
    names, turn = _Names(), 0
    for item in items:
        given = item.message.tool_call_id or ""
        if item.kind == "call":
            name, repeated = names.give(given, item.seq)
            call = calls[id(item)] = _Call(item=item, name=name, turn=turn)
            newest[given] = call
            if repeated:
                repairs.append({"seq": item.seq, "repair": "repeated_call_id"})
            waiting = early.pop(given, [])
            for result in waiting:
                extra.pop(id(result))
                if call.answer is None:
                    call.answer = result
                else:
                    extra[id(result)] = _surplus(result, call)
            if call.answer is None:
                unanswered.setdefault(given, []).append(call)
        elif item.kind == "result":
            owner = newest.get(given)
            if waiting_calls := unanswered.get(given):
                last = waiting_calls[-1].turn
                call = next(c for c in waiting_calls if c.turn == last)
                waiting_calls.remove(call)
                call.answer = item
                if item.closer:
                    closed[given] = call
            elif (owner and owner.turn == turn) or (owner := closed.get(given)):
                extra[id(item)] = _surplus(item, owner)
            else:
                extra[id(item)] = "no_call"
                early.setdefault(given, []).append(item)
        elif item.opens_turn:
            turn += 1
            early.clear()
    repairs += [{"seq": c.item.seq, "repair": "no_result"} for c in calls.values() if c.answer is None]
    for item in items:
        if why := extra.get(id(item)) or item.message.metadata.get("repair"):
            repairs.append({"seq": item.seq, "repair": why})
    repairs.sort(key=lambda r: (r["seq"], r["repair"]))
    return calls, extra, repairs


def _surplus(result: _Item, call: _Call) -> str:
    """Return why a result is not the answer of a call that has one."""
    assert call.answer is not None
    if result.closer:
        return "closed_again"
    mine, its = result.message, call.answer.message
    if (mine.tool_output, mine.status) == (its.tool_output, its.status):
        return "same_result"
    return "late_result" if call.answer.closer else "another_result"


class _Names:
    """Gives calls ids that are unique and that providers take. What was given out is never changed by what comes later."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._count: dict[str, int] = {}

    def give(self, given: str, seq: int) -> tuple[str, bool]:
        """Return the name of a call and whether its own id could not be kept apart from an earlier one."""
        wanted = spelled(given) if given else f"call_{seq}"
        name, n = wanted, self._count.get(wanted, 1)
        while name in self._taken:
            n += 1
            name = f"{wanted[: MAX_NAME - 8]}_{n}"
        self._count[wanted] = n
        self._taken.add(name)
        return name, not given or name != wanted


def spelled(name: str) -> str:
    """Return a call id or tool name as every provider takes it; one that is fine already comes back as it is."""
    plain = _strange.sub("_", name)
    if len(plain) <= MAX_NAME:
        return plain
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain[: MAX_NAME - 17]}_{digest[:16]}"


def _question(call: _Call) -> TranscriptMessage:
    """Return the message of a call. Where its id or tool had to be spelled otherwise, the metadata has the original."""
    message = call.item.message
    tool = spelled(message.tool_name or "") or "unnamed_tool"
    was: dict[str, Any] = {}
    if call.name != message.tool_call_id:
        was["call"] = message.tool_call_id
    if tool != message.tool_name:
        was["tool"] = message.tool_name
    return replaced(message, tool_call_id=call.name, tool_name=tool, metadata={**message.metadata, **was})


def _answer(call: _Call) -> TranscriptMessage:
    """Return the message that answers a call."""
    tool = spelled(call.item.message.tool_name or "") or "unnamed_tool"
    if call.answer is not None:
        return replaced(call.answer.message, tool_call_id=call.name, tool_name=tool)
    missing = _answered(call.item.seq, call.name, "", "outcome_unknown")
    return replaced(missing, tool_name=tool, metadata={"repair": "no_result"})


def _told_result(item: _Item, told: str, why: str) -> TranscriptMessage:
    """Tell a result that answers no call as a user message."""
    answer = item.message
    quoted = fence(answer.tool_output or "", "tool_result", call=answer.tool_call_id, status=answer.status)
    return _told(item.seq, f"{told}:\n{quoted}", repair=why)


def replaced(message: TranscriptMessage, **changes: Any) -> TranscriptMessage:
    """Return a copy of a message with some fields changed."""
    return msgspec.structs.replace(message, **changes)
