"""The map of a lineage: nodes and edges laid out as a picture. Pure, and the same tree always gives the same picture.

One row a session, in the order of the list: what a conversation went on in stands straight below it, everything that left
it further in. So the picture grows downwards only and can be read beside the list. What kind an edge is shows in its line
(solid, dashed, dotted, thin) and in words in the legend, never in colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from onward.surfaces.http.console import words

STEP: Final = 28
"""How far something stands further in than what it left. All figures are units of the picture."""
ROW: Final = 52
WIDTH: Final = 256
HEIGHT: Final = 32
MARGIN: Final = 12
DEEPEST: Final = 8
"""Steps after which boxes go no further in, so that the picture stays on the page."""
LABEL: Final = 30
"""Characters of a title that fit into a box."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A session to draw."""

    id: str
    title: str
    href: str | None
    depth: int
    here: bool
    about: str
    """How it belongs, in words."""


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """A relation to draw."""

    start: str
    end: str
    type: str
    """``continuation``, ``fork``, ``child`` or ``reference``."""


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A session in its place."""

    node: Node
    label: str
    x: int
    y: int


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A relation in its place."""

    type: str
    path: str
    """The commands of an SVG path."""


class Map(msgspec.Struct, frozen=True, kw_only=True):
    """The picture."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    box: int
    """The width of every box."""
    types: tuple[str, ...]
    """The kinds of relation that are in it, for the legend."""


def drawn(nodes: Sequence[Node], edges: Sequence[Edge]) -> Map:
    """Return nodes and edges in their places. Edges whose ends are not both there are left out."""
    boxes = {
        node.id: Box(
            node=node,
            label=words.cut(node.title, LABEL),
            x=MARGIN + min(node.depth, DEEPEST) * STEP,
            y=MARGIN + number * ROW,
        )
        for number, node in enumerate(nodes)
    }
    lines = tuple(
        Line(type=edge.type, path=_path(boxes[edge.start], boxes[edge.end], edge.type))
        for edge in edges
        if edge.start in boxes and edge.end in boxes and edge.start != edge.end
    )
    most = max((box.x for box in boxes.values()), default=0)
    curved = any(line.type == "reference" for line in lines)
    return Map(
        width=most + WIDTH + MARGIN + (48 if curved else 0),
        height=MARGIN * 2 + max(0, len(boxes) - 1) * ROW + HEIGHT,
        boxes=tuple(boxes.values()),
        box=WIDTH,
        lines=lines,
        types=tuple(dict.fromkeys(line.type for line in lines)),
    )


def _path(start: Box, end: Box, kind: str) -> str:
    if kind == "reference":  # along the right side, away from the tree
        x1, y1 = start.x + WIDTH, start.y + HEIGHT // 2
        x2, y2 = end.x + WIDTH, end.y + HEIGHT // 2
        out = max(x1, x2) + 40
        return f"M{x1} {y1}C{out} {y1} {out} {y2} {x2 + 2} {y2}"
    down = start.x + (8 if kind == "continuation" else 18)
    y1, y2 = start.y + HEIGHT, end.y + HEIGHT // 2
    if end.x < down:  # no further in: straight from one to the next
        return f"M{down} {y1}V{end.y - 2}"
    return f"M{down} {y1}V{y2 - 6}Q{down} {y2} {down + 6} {y2}H{end.x - 2}"
