"""Engines: what produces the agent's side of a conversation, one file each behind one contract.

``contract.py`` is the whole of what they promise. This file knows their names and imports one only when it is asked
for, because some of them need packages that are large or not installed.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any, Final

from onward.errors import InvalidInput

if TYPE_CHECKING:
    from onward.engines.contract import Engine

_PLACES: Final = {
    "script": ("onward.engines.script", "ScriptEngine"),
    "local": ("onward.engines.local", "LocalEngine"),
    "model": ("onward.engines.model", "ModelEngine"),
    "claude-code": ("onward.engines.claude_code", "ClaudeCodeEngine"),
    "codex": ("onward.engines.codex", "CodexEngine"),
    "pi": ("onward.engines.pi", "PiEngine"),
    "command": ("onward.engines.command", "CommandEngine"),
    "acp": ("onward.engines.acp", "AcpEngine"),
    "opencode": ("onward.engines.acp_presets", "OpencodeEngine"),
    "gemini": ("onward.engines.acp_presets", "GeminiEngine"),
    "qwen": ("onward.engines.acp_presets", "QwenEngine"),
}

ENGINES: Final = tuple(_PLACES)
"""The names that ``engine_by_name`` knows."""


def engine_by_name(name: str, **options: Any) -> Engine:
    """Return the engine of this name, constructed with these options (``docs/engines.md`` lists them).

    Constructing starts nothing and loads no model; ``Engine.unavailable`` says whether it can run here. Raises
    InvalidInput for a name or an option that nobody knows.
    """
    if name not in _PLACES:
        raise InvalidInput(what=f"engine {name!r}", why=f"known engines are {', '.join(ENGINES)}")
    module, attribute = _PLACES[name]
    engine = getattr(importlib.import_module(module), attribute)
    known = list(inspect.signature(engine).parameters)
    if unknown := sorted(set(options) - set(known)):
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        raise InvalidInput(what=f"option {', '.join(unknown)} of engine {name!r}", why=takes)
    made: Engine = engine(**options)
    return made
