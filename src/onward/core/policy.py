"""Policies: what a run may use and how much, and what happens when it goes beyond.

A ``Policy`` names limits (tokens, seconds, tool calls, cost) and rules about tools, and one action for all of them:
``cancel`` stops the engine, ``ask`` stops it and puts the question before a person, ``warn`` only says so. Several policies
are merged into one before a run: names are joined, a later limit takes the place of an earlier one, rules add up, and the
strictest action holds.

``Watch`` judges one run while it happens. It is told what the engine did and answers with violations, each once: a tool
call is judged when it is made and not again when it is answered, and a limit that was exceeded is not reported at every
event that follows. A limit is exceeded only by more than it allows.

What an engine does with tools of its own is known when it says so, which may be after it began. So rules are given to
the engine as well (``allowed``, ``denied``), and the watch is the second line.

Pure: time comes in as seconds since the run began.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec

from onward.core.bodies import Usage
from onward.errors import InvalidInput

Action = Literal["warn", "ask", "cancel"]

ACTIONS: Final = ("warn", "ask", "cancel")
"""From the mildest to the strictest."""


class ToolRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tools may be used, by their names; ``*`` and ``?`` stand for parts of a name.

    Of several ``allow`` rules a tool needs all; one ``deny`` rule is enough to refuse it.
    """

    effect: Literal["allow", "deny"]
    tools: tuple[str, ...]

    def covers(self, tool: str) -> bool:
        """Whether this rule speaks of a tool."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run may use. None is no limit; a name that is none of these is a mistake, and not no limit."""

    name: str = "policy"
    max_total_tokens: int | None = None
    """Input and output tokens of all model requests together."""
    max_seconds: float | None = None
    max_tool_calls: int | None = None
    max_cost_usd: float | None = None
    rules: tuple[ToolRule, ...] = ()
    action: Action = "cancel"

    def __post_init__(self) -> None:
        """Refuse what nothing could satisfy: the run would be over before it began. Raises InvalidInput."""
        for field in ("max_total_tokens", "max_seconds", "max_tool_calls", "max_cost_usd"):
            limit = getattr(self, field)
            none_at_all = limit is not None and (not limit >= 0 or (limit == 0 and field in _NEVER_ZERO))
            if none_at_all:
                raise InvalidInput(what=f"{field} of policy {self.name!r}", why=f"nothing fits into {limit}")
        allows = [rule for rule in self.rules if rule.effect == "allow"]
        for rule in self.rules:
            if not rule.tools:
                raise InvalidInput(what=f"policy {self.name!r}", why=f"its {rule.effect} rule names no tool")
        denied = {tool for rule in self.rules if rule.effect == "deny" for tool in rule.tools}
        for rule in allows:
            if all(tool in denied for tool in rule.tools):
                named = ", ".join(rule.tools)
                raise InvalidInput(what=f"policy {self.name!r}", why=f"it allows and denies {named}")

    def permits(self, tool: str) -> bool:
        """Whether a tool may be used."""
        return all(rule.covers(tool) == (rule.effect == "allow") for rule in self.rules)

    def allowed(self) -> tuple[str, ...] | None:
        """Return the names that every ``allow`` rule has, less the denied ones: for engines that take a list. None: any.

        Patterns are kept as they are where the other rules have them word for word.
        """
        allows = [rule.tools for rule in self.rules if rule.effect == "allow"]
        if not allows:
            return None
        first, rest = allows[0], allows[1:]
        denied = self.denied()
        return tuple(tool for tool in first if all(tool in other for other in rest) and tool not in denied)

    def denied(self) -> tuple[str, ...]:
        """Return the names that a ``deny`` rule has, each once, in order."""
        return tuple(
            dict.fromkeys(tool for rule in self.rules if rule.effect == "deny" for tool in rule.tools)
        )


_NEVER_ZERO: Final = ("max_total_tokens", "max_tool_calls", "max_seconds")
"""A cost of nothing can be meant: a model that is free."""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A run went beyond its policy."""

    policy: str
    rule: str
    """``tool``, or the name of the limit."""
    limit: float | int | None = None
    found: float | int | None = None
    tool: str | None = None
    action: Action = "cancel"

    def told(self) -> str:
        """Return it as a sentence."""
        if self.rule == "tool":
            return f"Policy “{self.policy}” does not allow the tool {self.tool}."
        return (
            f"Policy “{self.policy}” allows {_amount(self.rule, self.limit)}; "
            f"this run is at {_amount(self.rule, self.found)}."
        )


def _amount(rule: str, value: float | None) -> str:
    """Return a limit, or what was used of it, with its unit."""
    told = _UNITS[rule].format(value)
    return told[:-1] if value == 1 and told.endswith("s") else told


_UNITS: Final = {
    "max_total_tokens": "{:,} tokens",
    "max_seconds": "{:g} seconds",
    "max_tool_calls": "{:,} tool calls",
    "max_cost_usd": "${:.4f}",
}


def merged(policies: Sequence[Policy]) -> Policy | None:
    """Return several policies as one, or None for none. Raises InvalidInput if together they allow nothing."""
    if not policies:
        return None
    limits = {}
    for field in _UNITS:
        given = [getattr(policy, field) for policy in policies if getattr(policy, field) is not None]
        limits[field] = given[-1] if given else None
    return Policy(
        name=" + ".join(policy.name for policy in policies),
        rules=tuple(rule for policy in policies for rule in policy.rules),
        action=max((policy.action for policy in policies), key=ACTIONS.index),
        **limits,
    )


class Watch:
    """Judges one run against its policy, as it is told what happens."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.tool_calls = 0
        self._reported: set[str] = set()

    def called(self, tool: str) -> tuple[Violation, ...]:
        """A tool is called: the rules about it, and the number of calls."""
        self.tool_calls += 1
        found = []
        if not self.policy.permits(tool):
            found.append(
                Violation(policy=self.policy.name, rule="tool", tool=tool, action=self.policy.action)
            )
        found += self._over("max_tool_calls", self.tool_calls)
        return tuple(found)

    def measured(self, usage: Usage, cost: float | None = None) -> tuple[Violation, ...]:
        """The usage of the run so far; ``cost`` stands in where the engine did not say what it cost."""
        tokens = (usage.input_tokens or 0) + (usage.output_tokens or 0)
        spent = usage.cost_usd if usage.cost_usd is not None else cost
        return (
            *self._over("max_total_tokens", tokens),
            *(self._over("max_cost_usd", spent) if spent is not None else ()),
        )

    def elapsed(self, seconds: float) -> tuple[Violation, ...]:
        """So many seconds have passed since the run began."""
        return tuple(self._over("max_seconds", seconds))

    def _over(self, field: str, found: float) -> Iterable[Violation]:
        limit = getattr(self.policy, field)
        if limit is None or found <= limit or field in self._reported:
            return ()
        self._reported.add(field)
        return (
            Violation(
                policy=self.policy.name, rule=field, limit=limit, found=found, action=self.policy.action
            ),
        )
