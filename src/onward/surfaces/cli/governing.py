"""What a run may do and use, from the options of the command line to the options of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from onward.core.capabilities import need
from onward.core.policy import Action, Policy, ToolRule, merged
from onward.errors import InvalidInput
from onward.surfaces.cli.grammar import Call, UsageError

LIMITS: Final = {
    "calls": "max_tool_calls",
    "tokens": "max_total_tokens",
    "seconds": "max_seconds",
    "cost": "max_cost_usd",
}


def options(call: Call) -> dict[str, Any]:
    """Return the run options that the command line gives; nothing for what it does not say.

    Raises UsageError and InvalidInput for what cannot be meant, so before anything is stored.
    """
    policies = [policy for path in call.values.get("policy") or () for policy in read_policies(path)]
    if (own := own_policy(call)) is not None:
        policies.append(own)
    merged(policies)  # what together allows nothing is refused here
    for text in (*(call.values.get("require") or ()), *(call.values.get("wish") or ())):
        need(text)
    found = {
        "permission_mode": call.values.get("permissions"),
        "ask": call.values.get("ask"),
        "policies": [msgspec.to_builtins(policy) for policy in policies] or None,
        "requires": list(call.values.get("require") or ()) or None,
        "wishes": list(call.values.get("wish") or ()) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def own_policy(call: Call) -> Policy | None:
    """Return the policy that ``--allow``, ``--deny``, ``--limit`` and ``--beyond`` make together, if any is there."""
    allow, deny = tuple(call.values.get("allow") or ()), tuple(call.values.get("deny") or ())
    limits = dict(limit(text) for text in call.values.get("limit") or ())
    if not (allow or deny or limits):
        if call.values.get("beyond"):
            raise UsageError("--beyond says what happens beyond a --limit, --allow or --deny; there is none")
        return None
    rules = [ToolRule(effect="allow", tools=allow)] if allow else []
    rules += [ToolRule(effect="deny", tools=deny)] if deny else []
    action: Action = call.values.get("beyond") or "cancel"
    return Policy(name="command line", rules=tuple(rules), action=action, **limits)


def limit(text: str) -> tuple[str, Any]:
    """Read ``calls=20``, ``tokens=100000``, ``seconds=600`` or ``cost=0.50``. Raises UsageError for anything else."""
    name, _, given = text.partition("=")
    try:
        return LIMITS[name], float(given) if name in ("seconds", "cost") else int(given)
    except (KeyError, ValueError):
        taken = "calls=N, tokens=N, seconds=N or cost=DOLLARS"
        raise UsageError(f"--limit takes {taken}, found {text!r}") from None


def read_policies(path: str) -> list[Policy]:
    """Read policies from a file: one as a JSON object, or several in an array. Raises InvalidInput for anything else."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=list[Policy] | Policy)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(what=f"the policy in {path}", why=str(error)) from None
    return found if isinstance(found, list) else [found]
