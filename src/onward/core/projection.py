"""The projection: the successor's first model context, compiled from sources within a budget.

``compile_projection`` is a pure function: the same inputs give the same bytes, and the manifest holds them all (P1). It
fills in this order: control text; identity and state; the initiating message (charged here, but said by its own event,
never paraphrased or repeated); lineage; handoff; list of sources; the cited ranges of the predecessor in the agent's
order, each whole or left out; recent exchanges newest backwards, stopping at the first that does not fit; then other
relevant excerpts by rank. The first six are never dropped: if they alone exceed the budget, ``BudgetTooSmall`` says so
with numbers before anything is written (P3). Everything else in the predecessor is listed as omitted with a cause (P2).

An exchange that is too long for the room is folded to what was said in it before it counts as one that does not fit; and
as long as nothing that anyone said is in, the newest lines of that last one are shown (``exchanges.py``).

Foreign text is fenced once and can close neither its fence nor our frames; inside a frame only we begin a line at the
margin (T3). Cited ranges of other sessions stay links. A resource or memory whose content was read for this projection is
treated like a cited range, whole or left out; one that was not read stays an address. Nothing here reads a log or a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, Literal

import msgspec

from onward.core import digests
from onward.core.budget import MESSAGE_OVERHEAD, Counter
from onward.core.codec import call_of
from onward.core.events import Event, iso
from onward.core.exchanges import Line, exchanges, folded, in_full, newest_lines
from onward.core.fencing import RULE, attribute, disarmed, fence
from onward.core.lines import said, whole
from onward.core.manifest import (
    CarriedState,
    Cause,
    Content,
    Cost,
    Handoff,
    Included,
    Omitted,
    Scope,
)
from onward.core.plans import CLOSED
from onward.core.references import Source
from onward.errors import BudgetTooSmall

DEFAULT_BUDGET: Final = 8000
"""Tokens. Small against any current window: what is missing can be recalled."""

SILENT_KINDS: Final = frozenset(("raw", "run", "session", "recalled", "reasoning", "plan", "pins"))
"""Kinds that are not part of an exchange: imported records without counterpart, bookkeeping, and state (moved as state)."""

GONE: Final = frozenset(("revoked", "changed", "missing"))
"""Causes for which a source is shown as unavailable: its address stays, and nothing newer is put in its place (P5)."""

FRAMES: Final = ("session_continuation", "state", "handoff", "sources")
"""The tags that Onward writes around its own parts; nobody else's words can open or close one."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A source with what stands behind it: its events or its content, or the reason why it is only a link."""

    source: Source
    events: tuple[Event, ...] = ()
    pinned: Content | None = None
    """Of a resource or memory that was read: which bytes."""
    text: str | None = None
    """Those bytes as text, if they are text."""
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
    contents: tuple[Content, ...] = ()


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
    asked = counter.count(said(inputs.initiating)) + MESSAGE_OVERHEAD
    texts = {**dict(fixed), "initiating message": said(inputs.initiating)}
    costs = {name: counter.count(text + "\n\n") for name, text in fixed}
    costs["initiating message"] = asked
    head = "\n\n".join(text for _, text in fixed)
    needed = counter.count(head) + asked
    if needed > inputs.budget:
        raise BudgetTooSmall(needed=needed, budget=inputs.budget, counter=counter.name, sections=dict(costs))
    filling = _Filling(inputs, counter, inputs.budget - max(needed, sum(costs.values())))
    filling.cite()
    filling.add_recent()
    filling.add_relevant()
    # A real tokenizer may count a token more at a seam: the whole decides, and the least important block goes first.
    text = _assemble(head, filling.blocks)
    while filling.blocks and counter.count(text) + asked > inputs.budget:
        filling.drop_least()
        text = _assemble(head, filling.blocks)
    for section in ("cited", "recent", "relevant"):
        if chosen := [b for b in filling.blocks if b.section == section]:
            costs[section] = sum(b.tokens for b in chosen)
            texts[section] = "\n\n".join(b.text for b in chosen)
    included = [piece for block in filling.blocks for piece in _pieces(block)]
    return Projection(
        text=text,
        digest=_digest(text),
        tokens=counter.count(text) + asked,
        costs=tuple(
            Cost(section=name, tokens=tokens, digest=_digest(texts[name])) for name, tokens in costs.items()
        ),
        included=tuple(included),
        omitted=(*filling.omitted, *_rest(inputs, included, filling)),
        contents=_contents(inputs, filling.blocks),
    )


def _digest(text: str) -> str:
    return digests.content_digest(text.encode("utf-8", "surrogatepass"))


def _contents(inputs: Inputs, blocks: Sequence[_Block]) -> tuple[Content, ...]:
    """Return the resources and memories that were read, each with what became of it."""
    shown = {block.source: block for block in blocks if block.source is not None}
    out = []
    for number, offer in enumerate(inputs.offers):
        if offer.pinned is None:
            continue
        block = shown.get(number)
        out.append(
            msgspec.structs.replace(
                offer.pinned,
                source=number,
                included=block is not None,
                tokens=block.tokens if block else 0,
                text=_digest(block.text) if block else "",
            )
        )
    return tuple(out)


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
    lines = [f"{_safe(name)}: {_safe(value)}" for name, value in inputs.identity]
    plan = inputs.state.plan
    if plan.transfer == "carry" and plan.event:
        lines.append(f"plan (revision {plan.revision}, carried):{'' if plan.steps else ' no steps'}")
        for step in plan.steps:
            told = f" ({_safe(step.resolution)})" if step.resolution else ""
            lines.append(f"- [{step.status}] {_safe(step.id)}: {_safe(step.text)}{told}")
    elif plan.event:
        left = "closed" if plan.transfer == "close" else "omitted"
        lines.append(f"plan: revision {plan.revision} was left behind ({left})")
        if dropped := [
            _safe(s.id) for s in plan.steps if plan.transfer == "close" and s.resolution == CLOSED
        ]:
            lines.append(f"steps closed unfinished: {', '.join(dropped)}")
    lines += [f"pinned: {_safe(pin)}" for pin in inputs.state.pins]
    lines += [f"delegated and still working, reports here: {_safe(child)}" for child in inputs.state.children]
    lines += [f"input that waits here: {_safe(run)}" for run in inputs.state.runs]
    lines += [
        f"open tool call of the earlier session, outcome unknown: {_safe(call)}"
        for call in inputs.state.calls
    ]
    return "<state>\n" + "\n".join(lines or ["nothing was carried"]) + "\n</state>"


def _lineage(inputs: Inputs) -> str:
    asked = inputs.initiating
    where = f' session="{asked.session_id}"' if asked.session_id != inputs.predecessor else ""
    title = attribute(inputs.predecessor_title)
    return (
        "<session_continuation>\n"
        f'  <origin session="{inputs.origin}" />\n'
        f'  <predecessor session="{inputs.predecessor}" edge="{inputs.link}" title="{title}" />\n'
        f'  <initiating_event id="{asked.id}"{where} seq="{asked.seq}" />\n'
        f'  <projection manifest="{inputs.manifest}" reason="{attribute(inputs.reason)}" at="{iso(inputs.created_at)}" />\n'
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
    return f'<handoff written_by="{attribute(inputs.written_by)}">\n' + "\n".join(lines) + "\n</handoff>"


def _sources(inputs: Inputs) -> str:
    if not inputs.offers:
        return "<sources>none cited</sources>"
    lines = []
    for offer in inputs.offers:
        why = f": {_safe(offer.source.relevance)}" if offer.source.relevance else ""
        cause = _cause(offer)
        gone = f" [unavailable: {cause}]" if cause in GONE else ""
        if offer.pinned is not None and cause not in GONE:
            gone = f" [as read: {offer.pinned.digest}]"
        lines.append(f"- {_safe(offer.source.address())}{gone}{why}")
    return "<sources>\n" + "\n".join(lines) + "\n</sources>"


class _Filling:
    """The optional part while it is filled: blocks that are in, and what was left out."""

    def __init__(self, inputs: Inputs, counter: Counter, room: int) -> None:
        self.inputs, self.counter, self.room = inputs, counter, room
        self.blocks: list[_Block] = []
        self.omitted: list[Omitted] = []
        self.listed: set[tuple[str, int]] = set()
        """Events that are listed as omitted one by one."""
        self._taken = {inputs.initiating.id}
        self._seen: list[tuple[tuple[Event, ...], _Block | None]] = []
        """The exchanges that were gone through, newest first, each with its block; without one, all of it was in already."""

    def _take(self, block: _Block) -> None:
        self.room -= block.tokens
        self._taken.update(e.id for e in block.events)
        self.blocks.append(block)

    def cite(self) -> None:
        """Add cited ranges in the agent's order, each whole or omitted."""
        for number, offer in enumerate(self.inputs.offers):
            fresh = tuple(e for e in offer.events if e.id not in self._taken)
            cause = _cause(offer) or (None if fresh or offer.text is not None else "duplicate")
            if cause is not None:
                self.omitted.append(_omit(offer, number, cause))
                continue
            if offer.text is not None:
                block = self._content(number, offer, offer.text)
            else:
                label = f"events {offer.events[0].seq}-{offer.events[-1].seq}"
                lines = [Line(text=whole(e), events=(e,), pointers=0) for e in fresh]
                block = _block(lines, "cited", self.counter, label, offer.source.relevance, source=number)
            if block.tokens > self.room:
                self.omitted.append(_omit(offer, number, "budget", block.tokens))
            else:
                self._take(block)

    def _content(self, number: int, offer: Offer, content: str) -> _Block:
        """Return the block of a resource or memory that was read: all of it, as it was."""
        text = fence(
            content,
            offer.source.kind,
            frames=FRAMES,
            address=offer.source.address(),
            digest=offer.pinned.digest if offer.pinned else None,
            relevance=offer.source.relevance or None,
        )
        tokens = self.counter.count(text + "\n\n")
        return _Block(section="cited", text=text, tokens=tokens, events=(), source=number)

    def add_recent(self) -> None:
        """Add recent exchanges, newest backwards, until one does not fit."""
        chosen: list[_Block] = []
        spoken = False
        for exchange in reversed(exchanges(self.inputs.recent)):
            fresh = [e for e in exchange if e.id not in self._taken and e.kind not in SILENT_KINDS]
            if not fresh:
                self._seen.append((exchange, None))
                continue
            full, short = in_full(fresh), folded(fresh)
            lines = next((form for form in (full, short) if self._recent(form).tokens <= self.room), None)
            cut = lines is None
            if lines is None and not spoken:
                lines = newest_lines(short, self.room, self.counter.count, lambda ls: self._recent(ls).tokens)
            if not lines:
                break
            block = self._recent(lines)
            self.room -= block.tokens
            chosen.append(block)
            spoken = spoken or any(line.dialogue for line in lines)
            if cut:
                first = block.events[0].seq
                self._seen.append((tuple(e for e in exchange if e.seq >= first), block))
                break
            self._seen.append((exchange, block))
        self._taken.update(e.id for b in chosen for e in b.events)
        self.blocks += reversed(chosen)

    def _recent(self, lines: Sequence[Line]) -> _Block:
        return _block(lines, "recent", self.counter, "recent exchange")

    def add_relevant(self) -> None:
        """Add other excerpts by rank, each whole or omitted; a call that is followed by its result is one with it."""
        for excerpt in _excerpts(self.inputs.relevant):
            if any(e.id in self._taken or (e.session_id, e.seq) in self.listed for e in excerpt):
                continue
            lines = [Line(text=whole(e), events=(e,), pointers=0) for e in excerpt]
            block = _block(lines, "relevant", self.counter, "related")
            if block.tokens > self.room:
                self._leave_out(block)
            else:
                self._take(block)

    def _leave_out(self, block: _Block) -> None:
        for n, event in enumerate(block.events):
            self.listed.add((event.session_id, event.seq))
            tokens = block.tokens if n == 0 else 0
            address = f"{event.session_id}:{event.seq}"
            self.omitted.append(Omitted(address=address, cause="budget", tokens=tokens))

    def drop_least(self) -> None:
        """Take one block out again: the last excerpt, else the oldest exchange, else the last citation."""
        sections = [block.section for block in self.blocks]
        at = sections.index("recent") if sections[-1] == "recent" else -1
        block = self.blocks.pop(at)
        if block.source is not None:
            offer = self.inputs.offers[block.source]
            self.omitted.append(_omit(offer, block.source, "budget", block.tokens))
        elif block.section == "relevant":
            self._leave_out(block)

    def shown(self) -> list[Event]:
        """Return the events of the recent exchanges that are in, with those that belong to no exchange."""
        kept = {id(block) for block in self.blocks}
        out: list[Event] = []
        for exchange, block in self._seen:
            if block is not None and id(block) not in kept:
                break
            out += exchange
        return out


def _excerpts(events: Sequence[Event]) -> list[tuple[Event, ...]]:
    """Return the excerpts among related events: a call with the result behind it, every other event by itself."""
    out: list[tuple[Event, ...]] = []
    for event in events:
        before = out[-1][-1] if out else None
        call, _ = call_of(event.kind, event.body)
        if (
            before is not None
            and (before.kind, event.kind) == ("tool_call", "tool_result")
            and before.session_id == event.session_id
            and call_of(before.kind, before.body)[0] == call
        ):
            out[-1] = (before, event)
        else:
            out.append((event,))
    return out


def _cause(offer: Offer) -> Cause | None:
    """Return why a source can only be a link, or None."""
    if offer.cause is None and not offer.events and offer.text is None:
        return "missing" if offer.source.is_events else "external"
    return offer.cause


def _block(
    lines: Sequence[Line],
    section: Literal["cited", "recent", "relevant"],
    counter: Counter,
    label: str,
    relevance: str = "",
    source: int | None = None,
) -> _Block:
    events = tuple(event for line in lines for event in line.events)
    text = fence(
        "\n".join(line.text for line in lines),
        label,
        frames=FRAMES,
        session=events[0].session_id,
        relevance=relevance or None,
    )
    return _Block(
        section=section,
        text=text,
        tokens=counter.count(text + "\n\n"),
        events=events,
        pointers=sum(line.pointers for line in lines),
        source=source,
    )


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
            text=_digest(block.text) if n == 0 else "",
        )
        for n, run in enumerate(runs)
    ]


def _rest(inputs: Inputs, included: Sequence[Included], filling: _Filling) -> list[Omitted]:
    """List everything of the scope that is not in: it did not fit, or it is no part of the exchanges that are shown."""
    out: list[Omitted] = []
    told = {(i.session, seq) for i in included for seq in range(i.from_seq, i.to_seq + 1)} | filling.listed
    told.add((inputs.initiating.session_id, inputs.initiating.seq))
    silent = {(e.session_id, e.seq) for e in filling.shown() if e.kind in SILENT_KINDS} - told
    for stretch in inputs.scope:
        marks = {stretch.from_seq, stretch.to_seq + 1}
        marks |= {n for session, seq in told | silent if session == stretch.session for n in (seq, seq + 1)}
        causes: list[tuple[int, int, Cause]] = []
        for first, after in pairwise(sorted(n for n in marks if stretch.from_seq <= n <= stretch.to_seq + 1)):
            if (stretch.session, first) in told:
                continue
            cause: Cause = "not_dialogue" if (stretch.session, first) in silent else "budget"
            if causes and causes[-1][1:] == (first, cause):
                causes[-1] = (causes[-1][0], after, cause)
            else:
                causes.append((first, after, cause))
        for first, after, cause in causes:
            span = str(first) if after - first == 1 else f"{first}-{after - 1}"
            out.append(Omitted(address=f"{stretch.session}:{span}", cause=cause))
    return out


def _safe(text: str) -> str:
    """Return somebody else's words for the inside of a frame: no tag of ours, nothing hidden, no line at the margin."""
    return disarmed(text, FRAMES).replace("\n", "\n  ")
