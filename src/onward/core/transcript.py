"""The transcript: provider-neutral messages built from events.

The log may hold anything: calls without results, results without calls, results before their calls, the same call id
twice, a user who wrote while a tool was running. What a model is given may not. So a transcript is built in two steps:
events become *items* (one each, in order), and items become *messages* that are valid for any provider (invariant T1):

- every call has exactly one answer, and the answers of calls made side by side follow them in the same order;
- a call that was never answered gets an answer that says so, marked ``repair``;
- a result whose call is not in view is told as a user message that says so; so is a real result that arrives after the
  call was closed as unknown. Nothing is dropped in silence;
- a call id that appears twice gets a suffix, and its result follows it.

Each rule looks only backwards or at the item's own call, so later events extend the messages as a prefix (T2), except that
a result arriving for a still open call changes that call's answer.

Limits are in messages, characters and tokens of four characters (the lower effective limit wins); tool inputs and outputs
count. The most recent are kept. A cut never falls inside a message, nor between a call and its answer.

Aside messages (harness text), reasoning, terminal rows and imported raw records are not part of the model's dialogue. A
checkpoint shadows what it names; it does so for the model only, never in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from onward.core.bodies import (
    BriefContext,
    Checkpoint,
    Context,
    Instructions,
    Message,
    ProjectionContext,
    ToolCall,
    ToolResult,
)
from onward.core.codec import Unreadable, body_of, flat
from onward.core.events import Event
from onward.core.fencing import fence
from onward.errors import LimitExceeded

CHARS_PER_TOKEN: Final = 4
OVERHEAD_CHARS: Final = 16
"""What a message costs beside its text: its role and its separators, about four tokens."""

Status = Literal["ok", "error", "not_started", "outcome_unknown"]

UNANSWERED: Final[dict[str, str]] = {
    "not_started": "This call was never started.",
    "outcome_unknown": "No result was recorded for this call. It may or may not have taken effect; check before repeating it.",
}


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


class _Item(msgspec.Struct, frozen=True):
    """One event as it bears on the model's input."""

    order: tuple[int, int, int, str]
    seq: int
    session: str
    kind: Literal["text", "call", "result"]
    message: TranscriptMessage
    closer: bool = False
    shadows: tuple[int, int] | None = None
    kept: tuple[str, ...] = ()
    event_id: str = ""


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """Messages built from events, and how far the log was read to build them."""

    session_id: str
    messages: tuple[TranscriptMessage, ...] = ()
    last_sequence: int = 0
    last_timestamp: int | None = None
    metadata: dict[str, Any] = {}
    """``omitted``: how many messages the limits left out; ``repairs``: what was mended, by event number."""
    items: tuple[Any, ...] = ()
    """What the messages were built from; ``update`` goes on from here."""

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
    ranks: dict[str, int] = {}
    items: dict[str, _Item] = {}
    for item in transcript.items:
        ranks.setdefault(item.session, len(ranks))
        items[item.event_id] = item
    last_seq, last_at = transcript.last_sequence, transcript.last_timestamp
    for event in events:
        rank = ranks.setdefault(event.session_id, len(ranks))
        if event.id not in items and (item := _item(event, rank)):
            items[event.id] = item
        if event.session_id == transcript.session_id and event.seq > last_seq:
            last_seq, last_at = event.seq, event.at
    ordered = tuple(sorted(items.values(), key=lambda i: i.order))
    messages, repairs = _repaired(_surface(ordered))
    kept = limited(messages, limits)
    return Transcript(
        session_id=transcript.session_id,
        messages=kept,
        last_sequence=last_seq,
        last_timestamp=last_at,
        metadata={"omitted": len(messages) - len(kept), "repairs": repairs},
        items=ordered,
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
    body = body_of(event)
    order = (rank, event.seq, event.at, event.id)
    text: str | None = None
    role: Literal["system", "user", "assistant", "tool"] = "user"
    metadata: dict[str, Any] = {}
    shadows: tuple[int, int] | None = None
    kept: tuple[str, ...] = ()
    match body:
        case ToolCall():
            call = TranscriptMessage(
                role="assistant",
                tool_call_id=body.call,
                tool_name=body.name,
                tool_input=body.input,
                seq=event.seq,
            )
            return _Item(order, event.seq, event.session_id, "call", call, event_id=event.id)
        case ToolResult():
            answer = TranscriptMessage(
                role="tool",
                tool_call_id=body.call,
                tool_name=body.name,
                tool_output=flat(body.output)
                or (UNANSWERED.get(body.status, "") if body.status != "ok" else ""),
                status=body.status,
                seq=event.seq,
            )
            return _Item(order, event.seq, event.session_id, "result", answer, body.closer, event_id=event.id)
        case Message(aside=False):
            role, text = body.role, body.text
            if body.parts:
                metadata["parts"] = [p.blob for p in body.parts]
                text = "\n".join(
                    [text, *(f"[{p.media_type} {p.name or p.blob}]" for p in body.parts)]
                ).strip()
            if body.interrupted:
                metadata["interrupted"] = True
                text = f"{text} [interrupted here]"
        case Checkpoint():
            text = fence(body.text, "earlier_summary", written_by=event.source.engine or "an engine")
            metadata["checkpoint"] = True
            if body.first_seq is not None and body.last_seq is not None:
                shadows, kept = (body.first_seq, body.last_seq), body.kept
        case ProjectionContext() | BriefContext() | Instructions():
            text = body.text  # written by Onward; what is foreign inside is fenced already (T3)
        case Context():
            text = fence(body.text, str(type(body).__struct_config__.tag))
        case Unreadable() if event.kind == "message":
            text = f"[message {event.seq} cannot be read here: {body.why}]"
            metadata["repair"] = "unreadable"
    if not text or not text.strip():
        return None
    message = TranscriptMessage(role=role, content=text, seq=event.seq, metadata=metadata)
    return _Item(order, event.seq, event.session_id, "text", message, False, shadows, kept, event.id)


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


def _repaired(items: Sequence[_Item]) -> tuple[list[TranscriptMessage], list[dict[str, Any]]]:
    """Give every call exactly one answer and every answer its place."""
    answers, names = _paired(items)
    late = {id(item) for group in answers.values() for item in group[1:]}
    used = {id(group[0]) for group in answers.values() if group}
    out: list[TranscriptMessage] = []
    repairs: list[dict[str, Any]] = []
    batch: list[tuple[_Item, str]] = []

    def close() -> None:
        """End a batch of calls: their answers follow them, in the same order."""
        for call, name in batch:
            out.append(replaced(call.message, tool_call_id=name))
        for call, name in batch:
            found = answers.get(name)
            if found:
                answer = found[0].message
                out.append(replaced(answer, tool_call_id=name, tool_name=call.message.tool_name))
            else:
                repairs.append({"seq": call.seq, "repair": "no_result"})
                out.append(
                    TranscriptMessage(
                        role="tool",
                        tool_call_id=name,
                        tool_name=call.message.tool_name,
                        tool_output=UNANSWERED["outcome_unknown"],
                        status="outcome_unknown",
                        seq=call.seq,
                        metadata={"repair": "no_result"},
                    )
                )
        batch.clear()

    for item in items:
        if item.kind == "call":
            name = names[id(item)]
            if name != item.message.tool_call_id:
                repairs.append({"seq": item.seq, "repair": "repeated_call_id"})
            batch.append((item, name))
        elif item.kind == "result" and id(item) in used:
            # Its place is behind its call. A batch that was answered is closed: the next call starts a new one.
            if any(answers.get(name, [None])[0] is item for _, name in batch) and all(
                answers.get(name) and answers[name][0].order <= item.order for _, name in batch
            ):
                close()
        else:
            close()
            if item.kind == "text":
                out.append(item.message)
            else:
                why = "late_result" if id(item) in late else "no_call"
                repairs.append({"seq": item.seq, "repair": why})
                out.append(_told(item, why))
    close()
    return out, repairs


def _paired(items: Sequence[_Item]) -> tuple[dict[str, list[_Item]], dict[int, str]]:
    """Match results to calls. Return the results of each call, the first being its answer, and the name of each call.

    A call id may repeat: the n-th result of an id belongs to the n-th call of it, a closer's successor to the same call.
    """
    names: dict[int, str] = {}
    calls: dict[str, list[str]] = {}
    taken = {i.message.tool_call_id for i in items if i.kind == "call"}
    for item in items:
        if item.kind != "call":
            continue
        given = item.message.tool_call_id or "call"
        group = calls.setdefault(given, [])
        name, n = (given, 1) if item.message.tool_call_id else (f"call~{item.seq}", 1)
        while group and (name in group or (n > 1 and name in taken)):
            n += 1
            name = f"{given}~{n}"
        group.append(name)
        names[id(item)] = name
    answers: dict[str, list[_Item]] = {}
    for item in items:
        if item.kind != "result":
            continue
        group = calls.get(item.message.tool_call_id or "", [])
        free = next((n for n in group if n not in answers), None)
        closed = next((n for n in group if n in answers and answers[n][-1].closer), None)
        target = closed if closed and not item.closer else free
        if target is None and group:
            target = group[-1]
        if target is not None:
            answers.setdefault(target, []).append(item)
    return answers, names


def _told(item: _Item, why: str) -> TranscriptMessage:
    """Tell a result that has no place of its own as a user message."""
    answer = item.message
    what = (
        "The result of an earlier call arrived after the call had been closed"
        if why == "late_result"
        else "A tool result whose call is not in view"
    )
    text = f"{what} (call {answer.tool_call_id}, {answer.status}):\n" + fence(
        answer.tool_output or "", "tool_result"
    )
    return TranscriptMessage(role="user", content=text, seq=item.seq, metadata={"repair": why})


def replaced(message: TranscriptMessage, **changes: Any) -> TranscriptMessage:
    """Return a copy of a message with some fields changed."""
    return msgspec.structs.replace(message, **changes)
