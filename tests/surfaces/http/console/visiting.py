"""Visiting the console without a browser: requests go straight into the application, with a browser's cookie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx2
from starlette.testclient import TestClient

from onward.core import bodies
from onward.core.bodies import Body
from onward.core.codec import encode
from onward.core.events import Event
from onward.core.records import Session
from onward.service import sessions
from onward.service.platform import Platform
from onward.store.contract import Append, Batch
from onward.store.memory import MemoryStore
from onward.surfaces.http import signing_in
from onward.surfaces.http.app import application
from onward.surfaces.http.house import House

HERE = "http://127.0.0.1:8421"


class Visitor:
    """Somebody who is signed in on a server with a store in memory. ``out`` is the same browser before that."""

    def __init__(self, platform: Platform | None = None, *, signed: bool = True) -> None:
        self.platform = platform or Platform(store=MemoryStore(), host="home")
        self.house = House(self.platform)
        self.app = application(self.house, rate=0)
        self.client = TestClient(self.app, base_url=HERE, follow_redirects=False)
        if signed:
            assert (
                self.get(f"/login?code={self.house.doors.link(self.platform.account_id)}").status_code == 303
            )

    def get(self, path: str, **headers: str) -> httpx2.Response:
        """Ask for a page."""
        return self.client.get(
            path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )

    def page(self, path: str) -> str:
        """Return a page that has to be there."""
        answer = self.get(path)
        assert answer.status_code == 200, (answer.status_code, answer.text[:400])
        return answer.text

    @property
    def secret(self) -> str:
        """The secret in the cookie."""
        return self.client.cookies.get("onward_8421") or self.client.cookies.get("onward_80") or ""

    def post(
        self, path: str, form: Mapping[str, Any] | None = None, *, csrf: str | None = None
    ) -> httpx2.Response:
        """Send a form, with what its page had put into it."""
        own = csrf if csrf is not None else signing_in.csrf_of(self.secret)
        return self.client.post(
            path,
            content=urlencode({"csrf": own, **(form or {})}),
            headers={"content-type": "application/x-www-form-urlencoded", "origin": HERE},
        )

    def session(self, title: str = "A session", **options: Any) -> Session:
        """Open a session."""
        return sessions.start(self.platform, title, **options)

    def log(self, session: Session, *found: tuple[str, Body | bytes, str]) -> list[Event]:
        """Write events: kind, body, actor."""
        events = tuple(self.platform.event(kind, body, actor) for kind, body, actor in found)
        written = self.platform.store.commit(Batch(appends=(Append(session_id=session.id, events=events),)))
        return list(written.events)

    def say(self, session: Session, *texts: str) -> list[Event]:
        """Write messages, a person's and an agent's in turn."""
        roles: tuple[tuple[Any, str], ...] = (("user", "user"), ("assistant", "agent"))
        return self.log(
            session,
            *(
                ("message", bodies.Message(role=roles[n % 2][0], text=text), roles[n % 2][1])
                for n, text in enumerate(texts)
            ),
        )


def call(name: str, number: str, given: Any = None) -> tuple[str, Body, str]:
    """Return a tool call as ``Visitor.log`` takes it."""
    return "tool_call", bodies.ToolCall(call=number, name=name, input=given or {}), "agent"


def result(number: str, output: Any = "done", **more: Any) -> tuple[str, Body, str]:
    """Return its result."""
    return "tool_result", bodies.ToolResult(call=number, output=output, **more), "tool"


def anchors(page: str) -> list[str]:
    """Return the ids of a page's articles, in order."""
    return re.findall(r'<article id="e(\d+)"', page)


def shown(page: str) -> set[int]:
    """Return the numbers of all events that a page shows: its articles, and what is folded into them."""
    folded = re.findall(r'<div class="outcome" id="e(\d+)"', page)
    return {int(seq) for seq in [*anchors(page), *folded]}


def raw(value: Any) -> bytes:
    """Return a value as the body of an event."""
    return encode(value)
