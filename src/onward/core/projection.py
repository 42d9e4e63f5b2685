"""The projection: the successor's first model context, compiled from sources within a budget.

``compile_projection`` is a pure function: the same inputs give the same bytes, and the manifest holds them all (P1). It
fills in this order: control text; identity and state; the initiating message (charged here, but said by its own event,
never paraphrased or repeated); lineage; handoff; list of sources; the cited ranges of the predecessor in the agent's
order, each whole or left out; recent exchanges newest backwards, stopping at the first that does not fit; then other
relevant excerpts by rank. The first six are never dropped: if they alone exceed the budget, ``BudgetTooSmall`` says so
with numbers before anything is written (P3). Everything else in the predecessor is listed as omitted with a cause (P2).

Foreign text is fenced once (T3). Cited ranges of other sessions stay links. Nothing here reads a log or a clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from onward.core import digests
from onward.core.bodies import Message
from onward.core.budget import MESSAGE_OVERHEAD, Counter
from onward.core.codec import body_of, text_of
from onward.core.events import Event, iso
from onward.core.fencing import RULE, fence
from onward.core.lines import brief_line, whole
from onward.core.manifest import (
    CarriedState,
    Cause,
    Cost,
    Handoff,
    Included,
    Omitted,
    Scope,
)
from onward.core.references import Source
from onward.errors import BudgetTooSmall

DEFAULT_BUDGET: Final = 8000
"""Tokens. Small against any current window: what is missing can be recalled."""

SILENT_KINDS: Final = frozenset(("raw", "run", "session", "recalled", "reasoning", "plan", "pins"))
"""Kinds that are not part of an exchange: imported records without counterpart, bookkeeping, and state (moved as state)."""

_FRAMES: Final = "session_continuation|state|handoff|sources"
_frame_mark: Final = re.compile(rf"<(?=\s*/?\s*(?:{_FRAMES})\b)", re.IGNORECASE)


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A source with what stands behind it: its events, or the reason why it is only a link."""

    source: Source
    events: tuple[Event, ...] = ()
    cause: Cause | None = None
    note: str | None = None


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a projection is made from."""

    manifest: str
    link: str
    predecessor: str
    predecessor_title: str
    successor: str
    origin: str
    reason: str
    created_at: int
    initiating: Event
    handoff: Handoff
    written_by: str = "agent"
    offers: tuple[Offer, ...] = ()
    state: CarriedState = CarriedState()
    identity: tuple[tuple[str, str], ...] = ()
    """Facts recomputed from today's policy: account, workspace, engine, tools."""
    scope: tuple[Scope, ...] = ()
    recent: tuple[Event, ...] = ()
    """The newest events of the predecessor's history, oldest first. Those that belong to no exchange are listed."""
    relevant: tuple[Event, ...] = ()
    """Other events worth having, best first."""
    budget: int = DEFAULT_BUDGET


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """The compiled text and its account."""

    text: str
    digest: str
    tokens: int
    costs: tuple[Cost, ...]
    included: tuple[Included, ...]
    omitted: tuple[Omitted, ...]


class _Block(msgspec.Struct, frozen=True, kw_only=True):
    """An optional piece of the projection."""

    section: Literal["cited", "recent", "relevant"]
    text: str
    tokens: int
    events: tuple[Event, ...]
    pointers: int = 0
    source: int | None = None


def compile_projection(inputs: Inputs, counter: Counter) -> Projection:
    """Compile a projection. Raises BudgetTooSmall when the fixed parts alone do not fit."""
    fixed = _fixed(inputs)
    asked = counter.count(text_of(body_of(inputs.initiating))) + MESSAGE_OVERHEAD
    costs = {name: counter.count(text + "\n\n") for name, text in fixed}
    costs["initiating message"] = asked
    head = "\n\n".join(text for _, text in fixed)
    needed = counter.count(head) + asked
    if needed > inputs.budget:
        raise BudgetTooSmall(
            needed=needed,
            budget=inputs.budget,
            counter=counter.name,
            sections={k: v for k, v in costs.items()},
        )
    room = inputs.budget - max(needed, sum(costs.values()))
    taken = {inputs.initiating.id}
    omitted: list[Omitted] = []
    blocks: list[_Block] = []
    room = _cite(inputs, counter, room, taken, blocks, omitted)
    recent_from = _recall_recent(inputs, counter, room, taken, blocks)
    room -= sum(b.tokens for b in blocks if b.section == "recent")
    _add_relevant(inputs, counter, room, taken, blocks, omitted)
    # A real tokenizer may count a token more at a seam: the whole decides, and the least important block goes first.
    text = _assemble(head, blocks)
    while blocks and counter.count(text) + asked > inputs.budget:
        dropped = blocks.pop()
        if dropped.source is not None:
            omitted.append(_omit(inputs.offers[dropped.source], dropped.source, "budget", dropped.tokens))
        text = _assemble(head, blocks)
    for section in ("cited", "recent", "relevant"):
        if spent := sum(b.tokens for b in blocks if b.section == section):
            costs[section] = spent
    included = [piece for block in blocks for piece in _pieces(block)]
    omitted += _rest(inputs, included, recent_from)
    return Projection(
        text=text,
        digest=digests.content_digest(text.encode("utf-8", "surrogatepass")),
        tokens=counter.count(text) + asked,
        costs=tuple(Cost(section=name, tokens=tokens) for name, tokens in costs.items()),
        included=tuple(included),
        omitted=tuple(omitted),
    )


def _fixed(inputs: Inputs) -> list[tuple[str, str]]:
    """Return the parts that are never dropped, in order."""
    return [
        ("control", CONTROL),
        ("state", _state(inputs)),
        ("lineage", _lineage(inputs)),
        ("handoff", _handoff(inputs)),
        ("source list", _sources(inputs)),
    ]


CONTROL: Final = (
    "You are continuing earlier work in a fresh session. Below is background that Onward compiled from the log of the "
    "earlier session: a selection, not the whole record and not your own memory. "
    f"{RULE} "
    "Use the background to answer the message that follows it. If something you need is not here, read it exactly "
    "instead of guessing."
)


def _state(inputs: Inputs) -> str:
    lines = [f"{name}: {_safe(value)}" for name, value in inputs.identity]
    plan = inputs.state.plan
    if plan.transfer == "carry" and plan.steps:
        lines.append(f"plan (revision {plan.revision}, carried):")
        for step in plan.steps:
            told = f" ({_safe(step.resolution)})" if step.resolution else ""
            lines.append(f"- [{step.status}] {_safe(step.id)}: {_safe(step.text)}{told}")
    elif plan.event:
        lines.append(
            f"plan: revision {plan.revision} was left behind ({plan.transfer}d)".replace("omitd", "omitted")
        )
    lines += [f"pinned: {_safe(pin)}" for pin in inputs.state.pins]
    lines += [f"delegated and still working, reports here: {child}" for child in inputs.state.children]
    lines += [f"input that waits here: {run}" for run in inputs.state.runs]
    lines += [
        f"open tool call of the earlier session, outcome unknown: {_safe(call)}"
        for call in inputs.state.calls
    ]
    return "<state>\n" + "\n".join(lines or ["nothing was carried"]) + "\n</state>"


def _lineage(inputs: Inputs) -> str:
    return (
        "<session_continuation>\n"
        f'  <origin session="{inputs.origin}" />\n'
        f'  <predecessor session="{inputs.predecessor}" edge="{inputs.link}" title="{_attribute(inputs.predecessor_title)}" />\n'
        f'  <initiating_event id="{inputs.initiating.id}" seq="{inputs.initiating.seq}" />\n'
        f'  <projection manifest="{inputs.manifest}" reason="{inputs.reason}" at="{iso(inputs.created_at)}" />\n'
        f"  <recall>Numbers in brackets are events. read_events(session, from, to) gives any of them exactly; "
        f"search(query) finds others in this lineage.</recall>\n"
        "</session_continuation>"
    )


def _handoff(inputs: Inputs) -> str:
    note = inputs.handoff
    lines = [f"purpose: {_safe(note.purpose)}"]
    if note.current_request:
        lines.append(f"current request: {_safe(note.current_request)}")
    named: Iterable[tuple[str, tuple[str, ...]]] = [
        ("established facts", note.established_facts),
        ("decisions", note.decisions),
        ("open questions", note.open_questions),
        ("next actions", note.next_actions),
        ("cautions", note.cautions),
        *((name.replace("_", " "), values) for name, values in note.extra.items()),
    ]
    for name, values in named:
        if values:
            lines.append(f"{_safe(name)}:")
            lines += [f"- {_safe(value)}" for value in values]
    return f'<handoff written_by="{inputs.written_by}">\n' + "\n".join(lines) + "\n</handoff>"


def _sources(inputs: Inputs) -> str:
    if not inputs.offers:
        return "<sources>none cited</sources>"
    lines = []
    for offer in inputs.offers:
        why = f": {_safe(offer.source.relevance)}" if offer.source.relevance else ""
        gone = f" [unavailable: {offer.cause}]" if offer.cause in ("revoked", "missing") else ""
        lines.append(f"- {_safe(offer.source.address())}{gone}{why}")
    return "<sources>\n" + "\n".join(lines) + "\n</sources>"


def _cite(
    inputs: Inputs, counter: Counter, room: int, taken: set[str], blocks: list[_Block], omitted: list[Omitted]
) -> int:
    """Add cited ranges in the agent's order, each whole or omitted. Return the room that is left."""
    for number, offer in enumerate(inputs.offers):
        if offer.cause is not None:
            omitted.append(_omit(offer, number, offer.cause))
            continue
        fresh = tuple(e for e in offer.events if e.id not in taken)
        if not fresh:
            omitted.append(_omit(offer, number, "duplicate"))
            continue
        first, last = offer.events[0].seq, offer.events[-1].seq
        block = _block(
            fresh,
            [whole(e) for e in fresh],
            "cited",
            counter,
            f"events {first}-{last}",
            offer.source.relevance,
        )
        if block.tokens > room:
            omitted.append(_omit(offer, number, "budget", block.tokens))
            continue
        room -= block.tokens
        taken.update(e.id for e in fresh)
        blocks.append(msgspec.structs.replace(block, source=number))
    return room


def _recall_recent(
    inputs: Inputs, counter: Counter, room: int, taken: set[str], blocks: list[_Block]
) -> dict[str, int]:
    """Add recent exchanges, newest backwards, until one does not fit. Return the first number shown of each session."""
    chosen: list[_Block] = []
    shown_from: dict[str, int] = {}
    for exchange in reversed(exchanges(inputs.recent)):
        fresh = tuple(e for e in exchange if e.id not in taken and e.kind not in SILENT_KINDS)
        if fresh:
            lines = [brief_line(e) for e in fresh]
            pointers = sum(1 for _, is_whole in lines if not is_whole)
            block = _block(fresh, [text for text, _ in lines], "recent", counter, "recent exchange", "")
            if block.tokens > room:
                break
            room -= block.tokens
            chosen.append(msgspec.structs.replace(block, pointers=pointers))
        shown_from[exchange[0].session_id] = exchange[0].seq
    chosen.reverse()
    taken.update(e.id for b in chosen for e in b.events)
    blocks += chosen
    return shown_from


def _add_relevant(
    inputs: Inputs, counter: Counter, room: int, taken: set[str], blocks: list[_Block], omitted: list[Omitted]
) -> None:
    """Add other excerpts by rank, each whole or omitted."""
    for event in inputs.relevant:
        if event.id in taken:
            continue
        block = _block((event,), [whole(event)], "relevant", counter, "related", "")
        if block.tokens > room:
            omitted.append(
                Omitted(address=f"{event.session_id}:{event.seq}", cause="budget", tokens=block.tokens)
            )
            continue
        room -= block.tokens
        taken.add(event.id)
        blocks.append(block)


def exchanges(events: Sequence[Event]) -> list[tuple[Event, ...]]:
    """Cut a history into exchanges: each begins with what a person or trigger said and holds what followed."""
    out: list[list[Event]] = []
    for event in events:
        starts = event.kind == "message" and event.actor in ("user", "trigger")
        if starts or not out or out[-1][0].session_id != event.session_id:
            out.append([])
        out[-1].append(event)
    return [tuple(group) for group in out]


def _block(
    events: tuple[Event, ...],
    lines: Sequence[str],
    section: Literal["cited", "recent", "relevant"],
    counter: Counter,
    label: str,
    relevance: str,
) -> _Block:
    text = fence("\n".join(lines), label, session=events[0].session_id, relevance=relevance or None)
    return _Block(section=section, text=text, tokens=counter.count(text + "\n\n"), events=events)


def _assemble(head: str, blocks: Sequence[_Block]) -> str:
    return "\n\n".join([head, *(b.text for b in blocks)])


def _omit(offer: Offer, number: int, cause: Cause, tokens: int | None = None) -> Omitted:
    return Omitted(address=offer.source.address(), cause=cause, tokens=tokens, source=number, note=offer.note)


def _pieces(block: _Block) -> list[Included]:
    """Return the contiguous ranges of a block. Tokens are those of the block, charged to its first range."""
    runs: list[list[Event]] = []
    for event in block.events:
        if runs and runs[-1][-1].seq + 1 == event.seq and runs[-1][-1].session_id == event.session_id:
            runs[-1].append(event)
        else:
            runs.append([event])
    return [
        Included(
            session=run[0].session_id,
            from_seq=run[0].seq,
            to_seq=run[-1].seq,
            section=block.section,
            tokens=block.tokens if n == 0 else 0,
            digest=digests.content_digest(b"".join(e.digest for e in run)),
            pointers=block.pointers if n == 0 else 0,
            source=block.source,
        )
        for n, run in enumerate(runs)
    ]


def _rest(inputs: Inputs, included: Sequence[Included], recent_from: dict[str, int]) -> list[Omitted]:
    """List everything of the scope that is not in: older than the exchanges shown, or not part of any exchange."""
    out: list[Omitted] = []
    shown = {(i.session, seq) for i in included for seq in range(i.from_seq, i.to_seq + 1)}
    shown.add((inputs.initiating.session_id, inputs.initiating.seq))
    for stretch in inputs.scope:
        edges = sorted(
            {stretch.from_seq, stretch.to_seq + 1, recent_from.get(stretch.session, stretch.to_seq + 1)}
            | {s for session, seq in shown if session == stretch.session for s in (seq, seq + 1)}
        )
        edges = [e for e in edges if stretch.from_seq <= e <= stretch.to_seq + 1]
        for first, after in zip(edges, edges[1:], strict=False):
            if (stretch.session, first) in shown:
                continue
            old = first < recent_from.get(stretch.session, stretch.to_seq + 1)
            span = str(first) if after - first == 1 else f"{first}-{after - 1}"
            out.append(
                Omitted(address=f"{stretch.session}:{span}", cause="budget" if old else "not_dialogue")
            )
    return out


def _safe(text: str) -> str:
    """Neutralise the tags of our own frames inside somebody else's words."""
    return _frame_mark.sub("&#x3C;", text)


def _attribute(text: str) -> str:
    """Escape an attribute value."""
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace("\n", " ")


def initiating_text(event: Event) -> str:
    """Return what the initiating message says."""
    body = body_of(event)
    return body.text if isinstance(body, Message) else text_of(body)
