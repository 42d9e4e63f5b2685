"""What an engine offers, in the field's words for capabilities, so that a run can require or wish for it.

Derived from what the engine says of itself (``contract.Capabilities``): nothing here knows an engine by name.
"""

from __future__ import annotations

from onward.core.capabilities import Capability
from onward.engines.contract import Capabilities


def offered(can: Capabilities) -> tuple[Capability, ...]:
    """Return the capabilities of an engine, those that it lacks among them, switched off."""
    return (
        Capability(
            name="offered_tools", kind="tool", enabled=can.tools, description="calls tools that we offer"
        ),
        Capability(
            name="memory", kind="resource", enabled=can.memory, description="keeps its own conversation"
        ),
        Capability(name="restore", kind="resource", enabled=can.restore, description="takes our record back"),
        Capability(
            name="permissions", kind="prompt", enabled=can.permissions, description="asks before it acts"
        ),
        Capability(
            name="streaming", kind="sampling", enabled=can.streaming, description="says text as it comes"
        ),
        Capability(name="files", kind="file_access", enabled=can.acts),
        Capability(name="network", kind="network_access", enabled=can.acts),
        Capability(name="commands", kind="code_execution", enabled=can.acts),
    )
