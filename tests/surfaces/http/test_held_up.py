"""Those who read are not held up by those who wait to write."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from tests.surfaces.http.asking import Asked

from onward.store.contract import Batch, Committed

THREADS = min(32, (os.cpu_count() or 1) + 4)
"""Those that Python has for work that is handed over, unless told otherwise."""


@pytest.mark.timeout(60)
def test_reading_goes_on_while_very_many_wait_for_a_store_that_is_locked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = Asked()
    session = ask("POST", "/v1/sessions", {"title": "Here"}).json()["id"]
    written, unlocked = ask.platform.store.commit, threading.Event()

    async def both() -> None:
        loop, waiting = asyncio.get_running_loop(), asyncio.Semaphore(0)

        def locked(batch: Batch) -> Committed:
            loop.call_soon_threadsafe(waiting.release)
            assert unlocked.wait(30)
            return written(batch)

        monkeypatch.setattr(ask.platform.store, "commit", locked)
        path = f"/v1/sessions/{session}/messages"
        writing = [asyncio.create_task(ask.send("POST", path, {"text": f"{n}"})) for n in range(THREADS * 2)]
        try:
            for _ in range(THREADS):
                await asyncio.wait_for(waiting.acquire(), 10)
            for read in ("/v1/health", f"/v1/sessions/{session}", "/v1/sessions", "/login"):
                answer = await asyncio.wait_for(ask.send("GET", read), 10)
                assert answer.status_code == 200, read
        finally:
            unlocked.set()
        assert {answer.status_code for answer in await asyncio.gather(*writing)} == {202}

    asyncio.run(both())
