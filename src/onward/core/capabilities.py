"""Capabilities: what an engine offers, what a run needs, and whether the two fit.

A run may require capabilities and may wish for others. What is required and missing is an error before anything is
claimed; what is wished for and missing leaves the run *degraded*, with one warning each, so that nobody learns of it
from a strange answer. A capability that is switched off counts as missing.

The kinds are those of the session managers in the field: ``tool``, ``resource``, ``prompt``, ``sampling``, ``file_access``,
``network_access``, ``code_execution``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from onward.errors import InvalidInput, MissingCapability

KINDS: Final = (
    "tool",
    "resource",
    "prompt",
    "sampling",
    "file_access",
    "network_access",
    "code_execution",
)


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an engine offers."""

    name: str
    kind: str
    enabled: bool = True
    description: str = ""
    config: dict[str, Any] = {}
    permissions: tuple[str, ...] = ()
    """What has to be permitted before it can be used."""

    def __post_init__(self) -> None:
        """Refuse a kind that does not exist and a name that is none. Raises InvalidInput."""
        if self.kind not in KINDS:
            raise InvalidInput(
                what=f"kind {self.kind!r} of a capability", why=f"there are {', '.join(KINDS)}"
            )
        if not self.name.strip():
            raise InvalidInput(what="a capability", why="it has no name")


class Need(msgspec.Struct, frozen=True):
    """What a run needs: any capability of a kind, or the one of this name."""

    kind: str
    name: str | None = None

    def met_by(self, offered: Capability) -> bool:
        """Whether a capability meets this need."""
        return offered.enabled and offered.kind == self.kind and self.name in (None, offered.name)

    def told(self) -> str:
        """Return it as text, ``kind`` or ``kind:name``."""
        return self.kind if self.name is None else f"{self.kind}:{self.name}"


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine fits a run."""

    status: Literal["full", "degraded"]
    missing: tuple[Need, ...] = ()
    """What was wished for and is not there."""
    warnings: tuple[str, ...] = ()
    """One sentence for each of them."""


def need(text: str) -> Need:
    """Read ``kind`` or ``kind:name``. Raises InvalidInput for a kind that does not exist."""
    kind, _, name = text.partition(":")
    if kind not in KINDS:
        raise InvalidInput(what=f"capability {text!r}", why=f"kinds are {', '.join(KINDS)}")
    return Need(kind, name or None)


def resolve(
    offered: Sequence[Capability],
    required: Iterable[Need] = (),
    wished: Iterable[Need] = (),
    *,
    engine: str = "the engine",
) -> Resolution:
    """Return how what is offered fits. Raises MissingCapability, naming all that is required and missing."""
    absent = [n for n in dict.fromkeys(required) if not any(n.met_by(c) for c in offered)]
    if absent:
        raise MissingCapability(
            engine=engine,
            missing=", ".join(n.told() for n in absent),
            offered=", ".join(f"{c.kind}:{c.name}" for c in offered if c.enabled) or "nothing",
        )
    missing = tuple(n for n in dict.fromkeys(wished) if not any(n.met_by(c) for c in offered))
    return Resolution(
        status="degraded" if missing else "full",
        missing=missing,
        warnings=tuple(f"{engine} has no {n.told()}; the run goes on without it." for n in missing),
    )
