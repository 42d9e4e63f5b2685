"""The agents of the Agent Client Protocol that are engines by their own name, and the care that one of them needs.

What differs is data (``acp_agents``), but for Gemini: resuming a conversation there can lose it, so its engine looks
before it resumes and tidies up after (``gemini_files``).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from onward.engines.acp import AcpEngine
from onward.engines.acp_agents import agent_named
from onward.engines.gemini_files import gemini_home, seconds_until_safe, sweep


class _Preset(AcpEngine):
    """An agent that is known by name; ``program`` says where it is, as a path or as words."""

    def __init__(
        self,
        *,
        program: str | Sequence[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        warm: bool = False,
        timeout: float | None = None,
        auth: str | None = None,
    ) -> None:
        super().__init__(command=program or (), env=env, warm=warm, timeout=timeout, auth=auth)


class OpencodeEngine(_Preset):
    """opencode."""

    _agent = agent_named("opencode")


class QwenEngine(_Preset):
    """Qwen Code."""

    _agent = agent_named("qwen")


class GeminiEngine(_Preset):
    """Gemini CLI. A turn that resumes a conversation within the minute in which it began waits for the next minute.

    ``now`` gives the time in seconds since 1970.
    """

    _agent = agent_named("gemini")

    def __init__(
        self,
        *,
        program: str | Sequence[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        warm: bool = False,
        timeout: float | None = None,
        auth: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(program=program, env=env, warm=warm, timeout=timeout, auth=auth)
        self._now = now

    async def before_resuming(self, native_id: str) -> None:
        home = self._home()
        await asyncio.to_thread(sweep, home, native_id)
        if wait := seconds_until_safe(home, native_id, self._now()):
            await asyncio.sleep(wait)

    def after_stopping(self, native_id: str) -> None:
        sweep(self._home(), native_id)

    def _home(self) -> Path:
        given = {name: value for name, value in self._env.items() if value is not None}
        return gemini_home({**os.environ, **given})
