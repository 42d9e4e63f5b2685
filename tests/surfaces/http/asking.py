"""Asking the server without a network: requests go straight into the application."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from onward.service import tokens
from onward.service.platform import Platform
from onward.store.memory import MemoryStore
from onward.surfaces.http.app import application
from onward.surfaces.http.house import House


class Asked:
    """A server on a store in memory, and a token for it."""

    def __init__(self, platform: Platform | None = None, *, rate: float = 0, **house: Any) -> None:
        self.platform = platform or Platform(store=MemoryStore(), host="home")
        self.house = House(self.platform, **house)
        self.app = application(self.house, names=["onward.lan"], rate=rate)
        self.secret = self.token("admin")

    def token(self, *scopes: str, platform: Platform | None = None) -> str:
        """Make a token; return its secret."""
        return tokens.create(platform or self.platform, "t", scopes)[1]

    async def send(
        self,
        method: str,
        path: str,
        content: Any = None,
        *,
        secret: str | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        **query: Any,
    ) -> httpx2.Response:
        """Send a request."""
        given = self.secret if secret is None else secret
        own = {"authorization": f"Bearer {given}"} if given else {}
        transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=True)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8421") as client:
            more: dict[str, Any] = {"content": raw} if raw is not None else {"json": content}
            if raw is not None:
                own["content-type"] = "application/json"
            elif content is None:
                more = {}
            return await client.request(
                method, path, headers={**own, **(headers or {})}, params=query or None, **more
            )

    def __call__(self, method: str, path: str, content: Any = None, **more: Any) -> httpx2.Response:
        """Send a request and wait for its answer."""
        return asyncio.run(self.send(method, path, content, **more))

    def all_at_once(self, *requests: Sequence[Any]) -> list[httpx2.Response]:
        """Send several requests together."""

        async def together() -> list[httpx2.Response]:
            return await asyncio.gather(*(self.send(*request) for request in requests))

        return asyncio.run(together())


def code(response: httpx2.Response) -> tuple[int, str]:
    """Return the status and the code of an error, which has the one shape that errors have."""
    told = response.json()
    assert set(told) == {"error"}
    assert set(told["error"]) == {"code", "message", "details"}
    assert response.headers["content-type"] == "application/json"
    return response.status_code, told["error"]["code"]
