"""A manifest to read: what was handed over, beside what is loaded and what is not, at what cost.

``manifest_text`` gives lines for a width in columns. The handoff stands on the left and the two lists on the right where
there is room for both, one below the other where there is not. Every entry of the manifest appears, none is shortened: the
text is another way to read the record, not a summary of it. What can no longer be shown today is named at the end, when
whoever prints looked (``recompiling.manifest_view``).

Widths are counted in terminal columns: wide characters take two, marks that sit on others none. Control characters are the
printer's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Final

from onward.core.columns import columns
from onward.core.events import iso
from onward.core.manifest import CarriedState, Handoff, Included, Manifest, Omitted, Shown

BESIDE_FROM: Final = 88
"""Columns from which the handoff and the lists stand side by side."""
BAR: Final = 24
"""Columns of the longest bar."""
NARROWEST: Final = 20

_LISTS: Final = ("established_facts", "decisions", "open_questions", "next_actions", "cautions")
_RULE: Final = " │ "


def manifest_text(record: Manifest, sources: Sequence[Shown] = (), *, width: int = 100) -> list[str]:
    """Return a manifest as lines of at most ``width`` columns; a single character may be wider than a very narrow one."""
    width = max(width, NARROWEST)
    left = ["Handoff", *_handoff(record.handoff)]
    right = ["Included", *_included(record), "", "Left out", *_omitted(record.omitted)]
    cost = f"Cost: {record.tokens:,} of {record.budget:,} tokens ({record.tokenizer})"
    out = [*_head(record, width), "", *_wrapped([cost], width), *_costs(record, width), ""]
    if width >= BESIDE_FROM:
        out += _beside(left, right, width)
    else:
        out += [*_wrapped(left, width), "", *_wrapped(right, width)]
    for heading, told in (
        ("State that moved along", _state(record.state)),
        ("What can no longer be shown", gone_text(sources)),
        ("What stands elsewhere by now", _elsewhere(sources)),
    ):
        if told:
            out += ["", *_wrapped([heading, *told], width)]
    return [*out, "", *_wrapped([f"projection {record.digest} ({record.compiler})"], width)]


def _head(record: Manifest, width: int) -> list[str]:
    asked = record.initiating
    where = f" of {asked.session}" if asked.session not in (None, record.predecessor) else ""
    lines = [
        f"{record.id} · {iso(record.created_at)[:16].replace('T', ' ')} · {_plain(record.reason)}, by {record.actor}",
        f"  from {record.predecessor} “{_one(record.predecessor_title)}”",
        f"  to {record.successor} “{_one(record.title)}”",
    ]
    if record.origin != record.predecessor:
        lines.append(f"  origin {record.origin}")
    lines.append(f"  initiating message: event {asked.seq}{where} ({asked.event})")
    if record.description.strip():
        lines.append(f"  {_one(record.description)}")
    resting = record.coverage
    told = ", ".join(
        f"{count} {name if count == 1 else name + 's'}"
        for count, name in (
            (resting.facts, "fact"),
            (resting.decisions, "decision"),
            (resting.sources, "source"),
        )
    )
    lines.append(f"  the handoff has {told}")
    lines += [f"  read as it was meant: {_one(told)}" for told in record.adjusted]
    return _wrapped(lines, width)


def _costs(record: Manifest, width: int) -> list[str]:
    """Return a line a section: figure, share of the budget, bar."""
    most = max((c.tokens for c in record.costs), default=0)
    figures = max((len(f"{c.tokens:,}") for c in record.costs), default=1)
    names = max((columns(c.section) for c in record.costs), default=1)
    room = min(BAR, width - (2 + names + 2 + figures + 7 + 1))
    out = []
    for cost in record.costs:
        bar = "█" * max(round(cost.tokens * room / most), 1) if most and cost.tokens and room > 0 else ""
        share = f"{cost.tokens / record.budget:6.1%}" if record.budget > 0 else ""
        name = cost.section + " " * (names - columns(cost.section))
        out.append(f"  {name}  {cost.tokens:>{figures},} {share} {bar}".rstrip())
    return out if all(columns(line) <= width for line in out) else _wrapped(out, width)


def _handoff(note: Handoff) -> list[str]:
    out = [f"  purpose: {note.purpose}"]
    if note.current_request:
        out.append(f"  current request: {note.current_request}")
    named: Iterable[tuple[str, tuple[str, ...]]] = [
        *((name.replace("_", " "), getattr(note, name)) for name in _LISTS),
        *note.extra.items(),
    ]
    for name, entries in named:
        if entries:
            out.append(f"  {_one(name)}:")
            out += [f"    - {entry}" for entry in entries]
    return out


def _included(record: Manifest) -> list[str]:
    out = []
    for part in record.included:
        pointers = f", {part.pointers} as pointers" if part.pointers else ""
        cost = f", {part.tokens:,} tokens" if part.text else ""  # given with the first range of a quotation
        out.append(f"  {spelled(part)} · {part.section}{cost}{pointers}")
    for content in record.contents:
        if content.included:
            address = _address(record, content.source)
            out.append(f"  {address} · {content.resolver}, {content.tokens:,} tokens, {content.digest}")
    return out or ["  nothing"]


def _address(record: Manifest, source: int) -> str:
    return (
        _one(record.sources[source].address())
        if 0 <= source < len(record.sources)
        else f"source {source + 1}"
    )


def spelled(part: Included) -> str:
    """Return the address of a range."""
    span = str(part.from_seq) if part.from_seq == part.to_seq else f"{part.from_seq}-{part.to_seq}"
    return f"{part.session}:{span}"


def _omitted(omitted: Sequence[Omitted]) -> list[str]:
    out = []
    for left in omitted:
        cost = f", {left.tokens:,} tokens" if left.tokens is not None else ""
        note = f" ({_one(left.note)})" if left.note else ""
        out.append(f"  {_one(left.address)} · {_plain(left.cause)}{cost}{note}")
    return out or ["  nothing"]


def _state(state: CarriedState) -> list[str]:
    plan = state.plan
    if plan.event is None:
        out = ["  plan: there was none"]
    else:
        how = {"carry": "carried", "close": "closed", "omit": "left behind"}[plan.transfer]
        out = [f"  plan: revision {plan.revision} of {plan.event}, {how}"]
    for step in plan.steps:
        told = f" ({_one(step.resolution)})" if step.resolution else ""
        out.append(f"    {_one(step.id)} [{step.status}] {_one(step.text)}{told}")
    for what, names in (
        ("pinned", state.pins),
        ("delegated work that reports to the successor", state.children),
        ("input that waits in the successor", state.runs),
        ("open calls, given up with unknown outcome", state.calls),
    ):
        if names:
            out.append(f"  {what}: {', '.join(map(_one, names))}")
    return out


def gone_text(sources: Sequence[Shown]) -> list[str]:
    """Return a line for each part of the projection whose words are not here any more."""
    out = []
    for shown in sources:
        if not shown.included or shown.kept or shown.now == "available":
            continue
        which = f": events {', '.join(map(str, shown.erased))}" if shown.erased else ""
        note = f" ({_one(shown.note)})" if shown.note else ""
        out.append(f"  {_one(shown.address)} · {shown.section} · {shown.now}{which}{note}")
    return out


def _elsewhere(sources: Sequence[Shown]) -> list[str]:
    """Return a line for each source whose place holds something else now, or nothing; its words may be kept all the same."""
    return [
        f"  {_one(s.address)} · {s.now}" + (f" ({_one(s.note)})" if s.note else "")
        for s in sources
        if s.now not in ("available", "external") and (s.kept or not s.included)
    ]


def _beside(left: Sequence[str], right: Sequence[str], width: int) -> list[str]:
    """Return two columns of equal width, side by side."""
    room = (width - len(_RULE)) // 2
    rows = zip_longest(_wrapped(left, room), _wrapped(right, width - len(_RULE) - room), fillvalue="")
    return [f"{a}{' ' * (room - columns(a))}{_RULE}{b}".rstrip() for a, b in rows]


def _wrapped(lines: Iterable[str], width: int) -> list[str]:
    """Return lines broken to a width at white space, and inside words that are longer; later ones stand further in."""
    out: list[str] = []
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        # What was meant as a paragraph stays one; the continuation of an entry stands under its text.
        hang = " " * min(indent + 2, width // 2)
        for number, paragraph in enumerate(line.strip().split("\n") if line.strip() else [""]):
            out += _broken(paragraph, " " * min(indent, width // 2) if number == 0 else hang, hang, width)
    return out


def _broken(paragraph: str, first: str, hang: str, width: int) -> list[str]:
    rows: list[str] = []
    row, used, empty = first, len(first), True
    for word in paragraph.split():
        size = columns(word)
        if not empty and used + 1 + size <= width:
            row, used = f"{row} {word}", used + 1 + size
            continue
        if not empty:
            rows.append(row)
            row, used = hang, len(hang)
        for char in word:
            wide = columns(char)
            if used + wide > width and row.strip():
                rows.append(row)
                row, used = hang, len(hang)
            row, used = row + char, used + wide
        empty = False
    rows.append(row if not empty else "")
    return rows


def _one(text: str) -> str:
    return " ".join(text.split())


def _plain(name: str) -> str:
    return name.replace("_", " ")
