"""A session store for people who drive Claude Code with its own SDK: their conversations are kept by Onward.

``OnwardSessionStore`` has the methods that ``claude_agent_sdk.SessionStore`` names, and passes the conformance run that it
comes with. Give it to ``ClaudeAgentOptions(session_store=…)``: what Claude Code writes is mirrored here, and a conversation
resumes on a machine that has never seen it.

    async with ClaudeSDKClient(ClaudeAgentOptions(session_store=OnwardSessionStore(log.platform))) as client: ...

It keeps rows, not sessions: to read and continue such a conversation in Onward, import it. It needs nothing of the SDK, so
importing it does not import that. Summaries are deliberately left out; the SDK then makes them from the rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onward.core.codec import encode, loads
from onward.service import native_records
from onward.service.platform import Platform

ENGINE: Final = "claude-code"


class OnwardSessionStore:
    """Keeps Claude Code's conversations in a store of Onward's, for one account. For asyncio.

    A key is the SDK's: ``project_key`` and ``session_id``, and ``subpath`` for a file beside the main one.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    async def append(self, key: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> None:
        """Keep rows behind those that are there, in one commit. Rows that came before, by ``uuid``, are told once."""
        rows = [encode(dict(entry)) for entry in entries]
        await asyncio.to_thread(
            native_records.keep,
            self._platform,
            ENGINE,
            key["session_id"],
            rows,
            path=key.get("subpath") or "",
            scope=key["project_key"],
        )

    async def load(self, key: Mapping[str, Any]) -> list[Any] | None:
        """Return the rows of a file in the order in which they came; None for one that was never written."""
        path = key.get("subpath") or ""
        for file in await self._files(key):
            if file.path == path:
                return [loads(row) for row in file.rows]
        return None

    async def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        """Return the conversations of a project, each with the time of its newest row, in milliseconds since 1970."""
        found = await asyncio.to_thread(native_records.listed, self._platform, ENGINE, scope=project_key)
        return [{"session_id": kept.native_id, "mtime": kept.at // 1000} for kept in found if not kept.path]

    async def delete(self, key: Mapping[str, Any]) -> None:
        """Take a conversation away with the files beside it; with a ``subpath``, that file alone."""
        await asyncio.to_thread(
            native_records.delete,
            self._platform,
            ENGINE,
            key["session_id"],
            path=key.get("subpath") or None,
            scope=key["project_key"],
        )

    async def list_subkeys(self, key: Mapping[str, Any]) -> list[str]:
        """Return the subpaths of the files beside the main one."""
        return [file.path for file in await self._files(key) if file.path]

    async def _files(self, key: Mapping[str, Any]) -> tuple[Any, ...]:
        return await asyncio.to_thread(
            native_records.kept, self._platform, ENGINE, key["session_id"], scope=key["project_key"]
        )
