"""The tree that the rows of a Claude Code transcript form, and the strands it falls into.

Rows point at their parent. The active branch is the path to the dialogue row that was written last; what was abandoned
hangs off it. Not every second child is a branch, though: parallel calls put their results on different rows of one
response, and progress and hook rows hang wherever the harness stood. So rows are first gathered into **knots**: one
response or one prompt with its results and its noise. Only knots can part ways.

Files are not always trees. An id that comes twice keeps its first place; a parent that is not in the file is replaced by
the row before; a parent that comes later is resolved at the end; circles are cut. No row is ever left out for what it
points at. Sidechain rows (subagents, in old versions inline) never enter the main line: each tree of them is a child.

Memory is one dictionary entry a row and a few numbers a knot.
"""

from __future__ import annotations

from array import array
from typing import Final

from onward.importers.claude_rows import LightRow
from onward.importers.contract import NeedsWhole, Strand

NO_KNOT: Final = -1
"""A row outside the tree: it belongs to the main line."""

_DIALOGUE: Final = ("user", "assistant")

_POINTS_BACK: Final = ("stop_hook_summary", "turn_duration", "api_error")
"""System rows that a harness writes late and hangs where its pointer stood: they are no way back into the tree."""


class Knot:
    """A response or a prompt, with the rows that belong to it."""

    __slots__ = (
        "agent",
        "first",
        "hangs_on",
        "last",
        "message",
        "noise",
        "parent",
        "preferred",
        "side",
        "strand",
    )

    def __init__(self, parent: int, first: str, hangs_on: str | None, *, side: bool, noise: bool) -> None:
        self.parent = parent
        self.first = first
        self.hangs_on = hangs_on
        self.side = side
        self.noise = noise
        self.agent: str | None = None
        self.message: str | None = None
        self.last = -1
        self.preferred = False
        self.strand: str | None = None


class Tree:
    """Collects rows in the order of the file, then assigns a strand to each."""

    def __init__(self, known: dict[str, Strand], *, whole: bool, agent_file: bool) -> None:
        self.rows = array("l")
        """The knot of every line, in order; ``NO_KNOT`` for lines outside the tree."""
        self.copies: set[int] = set()
        """The lines whose id an earlier line had already."""
        self.copied: set[str] = set()
        """Those ids."""
        self._knots: list[Knot] = []
        self._where: dict[str, int] = {}
        self._later: list[tuple[int, str]] = []
        self._previous: int = NO_KNOT
        self._previous_side: dict[str | None, int] = {}
        self._known = known
        self._whole = whole
        self._agent_file = agent_file
        self._related = False
        self._lone_roots: list[tuple[int, int]] = []
        if not whole:
            for strand in known.values():
                self._seed(strand)

    def _seed(self, strand: Strand) -> None:
        side = (
            strand.kind == "child" and strand.key != ""
        )  # an agent file's own main line is no side line of it
        index = self._add(Knot(NO_KNOT, strand.key, None, side=side, noise=False))
        knot = self._knots[index]
        knot.strand, knot.message, knot.last = strand.key, strand.tip_message, 0
        for uuid in strand.tips:
            self._where[uuid] = index
        if strand.key == "":
            self._previous = index
        elif strand.kind == "child":
            self._previous_side[strand.key.partition(":")[2]] = index

    def _add(self, knot: Knot) -> int:
        self._knots.append(knot)
        return len(self._knots) - 1

    def skip(self) -> None:
        """Count a line that holds no row."""
        self.rows.append(NO_KNOT)

    def add(self, row: LightRow, *, answers_only: bool, spoken: bool) -> None:
        """Put a row in its place.

        ``answers_only``: a user row of nothing but tool results. ``spoken``: a user row in which someone speaks.
        """
        ordinal = len(self.rows)
        dialogue = row.type in _DIALOGUE
        if row.uuid is None and not dialogue:
            by_agent = (
                self._previous_side.get(row.agent, NO_KNOT) if row.agent and not self._agent_file else NO_KNOT
            )
            self.rows.append(by_agent)
            return
        side = bool(row.sidechain) and not self._agent_file
        known = self._where.get(row.uuid, NO_KNOT) if row.uuid else NO_KNOT
        if known >= 0 and self._knots[known].side == side:
            self.copies.add(ordinal)
            self.copied.add(row.uuid or "")
            # An id that comes twice keeps its first place.
            self.rows.append(known)
            return
        parent, missing = self._parent_of(row, side=side, known=known, spoken=spoken)
        message = row.message.id if row.message else None
        knot = self._knots[parent] if parent >= 0 else None
        joins = (
            knot is not None
            and knot.side == side
            and (
                not dialogue
                or answers_only
                or bool(row.compact_summary)
                or (row.type == "assistant" and message is not None and message == knot.message)
            )
        )
        if joins and missing is None:
            index = parent
        else:
            start = parent if knot is None or knot.side == side else (NO_KNOT if side else self._previous)
            hangs_on = row.parent if isinstance(row.parent, str) else None
            index = self._add(
                Knot(start, row.uuid or f"line {ordinal}", hangs_on, side=side, noise=not dialogue)
            )
            self._knots[index].agent = row.agent
            if missing is not None:
                self._later.append((index, missing))
            elif spoken and row.parent is None and not side and parent == NO_KNOT and self._previous >= 0:
                self._lone_roots.append((index, self._previous))
        target = self._knots[index]
        if row.type == "assistant":
            target.message = message or target.message
        if dialogue:
            target.last = ordinal
        if row.uuid:
            self._where[row.uuid] = index
        if side:
            self._previous_side[row.agent] = index
        else:
            self._previous = index
        self.rows.append(index)

    def _parent_of(self, row: LightRow, *, side: bool, known: int, spoken: bool) -> tuple[int, str | None]:
        """Return the parent's knot, or the id of a parent that may still come."""
        uuid = row.parent if isinstance(row.parent, str) else row.logical_parent
        if uuid is not None and uuid != row.uuid:
            found = self._where.get(uuid, NO_KNOT)
            if found >= 0:
                self._related = True
                if row.subtype in _POINTS_BACK and not side and self._is_below(self._previous, found):
                    found = self._previous
                return found, None
            if not self._whole:
                raise NeedsWhole
            return (known, None) if known >= 0 else (NO_KNOT, uuid)
        if known >= 0:
            return known, None
        if side:
            # Only a prompt begins a subagent; anything else without a parent goes on with what came before it.
            before = self._previous_side.get(row.agent, NO_KNOT)
            return (NO_KNOT if row.type == "user" and row.parent is None else before), None
        if row.parent is None and spoken:
            if not self._whole:
                raise NeedsWhole
            return NO_KNOT, None
        return self._previous, None

    def finish(self) -> dict[str, Strand]:
        """Assign a strand to every knot. Return the strands that are new, by key."""
        self._resolve()
        knots = self._knots
        if self._whole:
            self._prefer_known()
        best = self._active_children()
        new: dict[str, Strand] = {}
        for index in range(len(knots)):
            self._assign(index, best, new)
        return new

    def strand_of(self, line: int) -> str:
        """Return the key of the strand that the ``line``-th line of this pass (from 0) belongs to."""
        index = self.rows[line]
        return "" if index < 0 else self._knots[index].strand or ""

    def knot_of(self, line: int) -> int:
        """Return the number of the knot of a line of this pass; later knots have higher numbers."""
        return self.rows[line] if 0 <= line < len(self.rows) else NO_KNOT

    def holds(self, uuid: str) -> bool:
        """Whether a row with this id was seen."""
        return uuid in self._where

    def _resolve(self) -> None:
        """Give parents to the knots that wait for one. None ends up below itself: whoever walks up comes to an end."""
        knots = self._knots
        forward = False
        for index, uuid in self._later:
            found = self._where.get(uuid, NO_KNOT)
            if found >= 0 and knots[found].side == knots[index].side and not self._is_below(found, index):
                knots[index].parent = found
                forward = forward or found > index
                continue
            before = self._side_before(index) if knots[index].side else self._main_before(index)
            # What came before may by now hang on this knot, through one whose parent is written later.
            knots[index].parent = NO_KNOT if forward and self._is_below(before, index) else before
        for index, before in self._lone_roots:
            # Rows that all lack a parent are a list, not a forest.
            if not self._related and not (forward and self._is_below(before, index)):
                knots[index].parent = before

    def _main_before(self, index: int) -> int:
        for other in range(index - 1, -1, -1):
            if not self._knots[other].side:
                return other
        return NO_KNOT

    def _side_before(self, index: int) -> int:
        agent = self._knots[index].agent
        for other in range(index - 1, -1, -1):
            if self._knots[other].side and (agent is None or self._knots[other].agent == agent):
                return other
        return NO_KNOT

    def _is_below(self, index: int, ancestor: int) -> bool:
        steps = 0
        while index >= 0 and steps <= len(self._knots):
            if index == ancestor:
                return True
            index = self._knots[index].parent
            steps += 1
        return steps > len(self._knots)

    def _prefer_known(self) -> None:
        """Keep what earlier imports took for a strand in that strand: the log cannot be reordered."""
        for knot in self._knots:
            key = f"agent:{knot.agent or knot.first}" if knot.side else f"fork:{knot.first}"
            if key in self._known:
                knot.strand = key
        for strand in self._known.values():
            index = max((self._where.get(uuid, NO_KNOT) for uuid in strand.tips), default=NO_KNOT)
            while index >= 0 and self._knots[index].strand is None:
                self._knots[index].preferred = True
                index = self._knots[index].parent

    def _active_children(self) -> dict[int, int]:
        """Return, for every knot (and ``NO_KNOT`` for the roots of the main line), the child that goes on with it."""
        knots = self._knots
        late = [index for index, _ in self._later if knots[index].parent > index]
        for index in range(len(knots) - 1, -1, -1):
            parent = knots[index].parent
            if parent >= 0 and knots[parent].last < knots[index].last:
                knots[parent].last = knots[index].last
        for index in late:
            last, at = knots[index].last, knots[index].parent
            while at >= 0 and knots[at].last < last:
                knots[at].last = last
                at = knots[at].parent
        best: dict[int, int] = {}
        for index, knot in enumerate(knots):
            if knot.strand is not None or (knot.side and knot.parent < 0):
                continue  # the first knot of a strand that is known already, or of a child
            current = best.get(knot.parent)
            if current is None or self._rank(index) > self._rank(current):
                best[knot.parent] = index
        return best

    def _rank(self, index: int) -> tuple[bool, int]:
        knot = self._knots[index]
        return knot.preferred, knot.last

    def _assign(self, index: int, best: dict[int, int], new: dict[str, Strand]) -> None:
        """Give a knot its strand, and its ancestors theirs before it (parents may stand later in the file)."""
        knots = self._knots
        chain: list[int] = []
        while index >= 0 and knots[index].strand is None and len(chain) <= len(knots):
            chain.append(index)
            index = knots[index].parent
        for at in reversed(chain):
            knot = knots[at]
            above = knots[knot.parent].strand if knot.parent >= 0 else None
            if knot.side and above is None:
                knot.strand = self._new_child(knot, new)
            elif above is None and (best.get(NO_KNOT) == at or knot.noise):
                knot.strand = ""
            elif above is not None and knot.noise:
                knot.strand, knot.preferred = (
                    above,
                    best.get(knot.parent) == at and not self._is_dead(knot.parent),
                )
            elif above is not None and best.get(knot.parent) == at and not self._is_dead(knot.parent):
                knot.strand = above
            else:
                knot.strand = self._new_fork(knot, above or "", new)

    def _is_dead(self, index: int) -> bool:
        """Whether a knot is noise beside the path: it stays in the strand, what hangs on it does not."""
        knot = self._knots[index]
        return knot.noise and knot.parent >= 0 and not knot.preferred

    def _new_fork(self, knot: Knot, parent: str, new: dict[str, Strand]) -> str:
        key = f"fork:{knot.first}"
        if key not in self._known:
            new[key] = Strand(key=key, kind="fork", parent=parent, hangs_on=knot.hangs_on)
        return key

    def _new_child(self, knot: Knot, new: dict[str, Strand]) -> str:
        key = f"agent:{knot.agent or knot.first}"
        parent = "" if knot.hangs_on is None else self._strand_at(knot.hangs_on)
        if key not in self._known and key not in new:
            new[key] = Strand(key=key, kind="child", parent=parent, hangs_on=knot.hangs_on)
        return key

    def _strand_at(self, uuid: str) -> str:
        index = self._where.get(uuid, NO_KNOT)
        return (self._knots[index].strand or "") if index >= 0 else ""
