"""A model server that says what it is told: real HTTP on this machine, no model behind it.

``StubModels`` speaks Anthropic Messages, OpenAI chat completions, OpenAI Responses and Gemini, streaming and not, on a
port that the system picks. It is for tests of whatever talks to models, real agent programs included, and for demos
without one. What it answers comes from a script given in Python (one ``Reply`` a request), or else from directives in
the last user message:

    [[say TEXT]]  [[think TEXT]]  [[call NAME {json}]]  [[usage N]]  [[status CODE]]  [[drop N]]  [[slow N SECONDS]]

Calls are made one a request: a request that already holds results after the last user message gets the next one, and
then the text. Every request that asks a model is kept in ``requests``, so that a test can look at exactly what a
provider would get; ``heard`` and ``asked`` give its texts whatever its format.

Agent programs also ask on their own account: for a title, for which model to use, for a number of tokens, for a list of
models. Those requests get a plausible answer, take nothing from the script, and are kept in ``side_requests``.

It is deliberately not a validator of requests; tests that care look at ``requests`` themselves.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from onward.testing import stub_directives
from onward.testing.stub_anthropic import ANTHROPIC
from onward.testing.stub_gemini import GEMINI
from onward.testing.stub_openai import OPENAI
from onward.testing.stub_responses import RESPONSES
from onward.testing.stub_wire import Format, Frame, Heard, Reply, Request

__all__ = ["GATE_LIMIT", "Answers", "Heard", "Reply", "Request", "StubModels", "heard", "texts_of"]

GATE_LIMIT: Final = 30.0
"""Seconds that a reply waits for its gate before it goes on."""

FORMATS: Final[dict[str, Format]] = {wire.name: wire for wire in (OPENAI, ANTHROPIC, RESPONSES, GEMINI)}

PROGRAMS: Final = ("claude-cli/", "codex", "opencode/", "GeminiCLI", "pi/", "QwenCode")
"""How the user agents of agent programs begin. They offer tools whenever they work for their user, so a request of theirs
without any is on their own account."""

Answers = Iterable[Reply] | Callable[[Request], Reply]


def heard(request: Request) -> tuple[Heard, ...]:
    """Return every text of a request in order, with who said it; none for one that asks no model."""
    return tuple(FORMATS[request.api].heard(request.body)) if request.api else ()


def texts_of(request: Request) -> tuple[str, ...]:
    """Return what the user said in a request, in order: without a program's additions, and with briefs as they are."""
    said = (stub_directives.said_by_user(one.text) for one in heard(request) if one.who == "user")
    return tuple(text for text in said if text)


class StubModels:
    """The server. Use it as a context manager; ``url`` is its address without a path.

    ``script`` gives the replies in order, or is a function from a request to its reply; when a list is used up,
    requests fail with status 500. ``model`` is what it calls itself.
    """

    def __init__(self, script: Answers | None = None, *, model: str = "stub-model") -> None:
        self.model = model
        self.requests: list[Request] = []
        self.side_requests: list[Request] = []
        """What programs asked on their own account, and requests that this server does not know (status 404)."""
        self.broken_off = threading.Event()
        """Set when a client went away before its answer was complete."""
        self._answer = script if callable(script) else None
        self._replies = None if script is None or callable(script) else iter(script)
        self._arrival = threading.Condition()
        self.closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        self._server.stub = self  # type: ignore[attr-defined]
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="stub-models")

    def __enter__(self) -> Self:
        self._server.server_bind()
        self._server.server_activate()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, found: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Return ``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def base_url(self, api: str) -> str:
        """Return the base URL for a client that speaks ``openai``, ``anthropic``, ``responses`` or ``gemini``."""
        if api not in FORMATS:
            raise ValueError(f"api is one of {', '.join(FORMATS)}, not {api!r}")
        return self.url + FORMATS[api].base

    def heard(self, index: int = -1) -> tuple[Heard, ...]:
        """Return every text of a request in order, with who said it."""
        return heard(self.requests[index])

    def asked(self, index: int = -1) -> tuple[str, ...]:
        """Return what the user said in a request, in order; earlier turns that the program sends again come first."""
        return texts_of(self.requests[index])

    def wait_for(self, count: int, *, seconds: float = 60.0) -> None:
        """Wait until this many requests have arrived. Raises TimeoutError, with what did arrive."""
        with self._arrival:
            if not self._arrival.wait_for(lambda: len(self.requests) >= count, seconds):
                raise TimeoutError(
                    f"{len(self.requests)} of {count} requests arrived within {seconds} s; on the programs' own "
                    f"account: {[f'{request.method} {request.path}' for request in self.side_requests]}"
                )

    def reply_to(self, request: Request) -> Reply:
        """Record a request and return what answers it."""
        with self._arrival:
            self.requests.append(request)
            self._arrival.notify_all()
            if self._replies is not None:
                return next(self._replies, Reply(status=500, error="the script has no more replies"))
        return self._answer(request) if self._answer else reply_by_directives(request)

    def reply_aside(self, request: Request) -> Reply:
        """Record a request on a program's own account and return what answers it."""
        with self._arrival:
            self.side_requests.append(request)
        schema = FORMATS[request.api].schema(request.body) if request.api else None
        return Reply(text=json.dumps(stub_directives.least(schema)) if schema else "A conversation")


def reply_by_directives(request: Request) -> Reply:
    """Return the reply that the last user message asks for; without directives, a short echo of it."""
    return stub_directives.reply_to(heard(request), size=len(request.raw))


def is_aside(request: Request) -> bool:
    """Whether an agent program asks on its own account: it offers no tools, as it does whenever it works for its user."""
    known = request.headers.get("user-agent", "").startswith(PROGRAMS)
    return known and not FORMATS[request.api].offered(request.body)


def _api(path: str) -> str:
    path = path.partition("?")[0]
    return next((name for name, wire in FORMATS.items() if path.endswith(wire.paths)), "")


class _Handler(BaseHTTPRequestHandler):
    timeout = 10

    @property
    def stub(self) -> StubModels:
        return self.server.stub  # type: ignore[attr-defined, no-any-return]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name is the base class's)
        pass

    def do_GET(self) -> None:
        request = self._request(b"", {}, "")
        self.stub.reply_aside(request)
        if self.path.partition("?")[0].endswith("/models"):
            self._send(200, _models(self.stub.model))
        elif self.path == "/":
            self._send(200, {})
        else:
            self._fail(404, "no such path", ())

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        stub = self.stub
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        api = _api(self.path)
        request = self._request(raw, body if isinstance(body, dict) else {}, api)
        if not api:
            stub.reply_aside(request)
            self._count(len(raw))
            return
        if not isinstance(body, dict):
            self._fail(400, "no JSON object", ())
            return
        reply = stub.reply_aside(request) if is_aside(request) else stub.reply_to(request)
        number = len(stub.requests) + len(stub.side_requests)
        if reply.status != 200:
            self._fail(reply.status, reply.error, reply.headers)
            return
        wire = FORMATS[api]
        if reply.raw is None and not wire.streamed(request):
            self._send(200, wire.whole(reply, request, stub.model, number), reply.headers)
            return
        self.send_response(200)
        if not any(name == "content-type" for name, _ in reply.headers):
            self.send_header("content-type", "text/event-stream")
        for name, value in reply.headers:
            self.send_header(name, value)
        self.end_headers()
        try:
            self._stream(reply, wire.frames(reply, request, stub.model, number))
        except OSError:
            stub.broken_off.set()

    def _request(self, raw: bytes, body: dict[str, Any], api: str) -> Request:
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Request(method=self.command, path=self.path, headers=headers, raw=raw, body=body, api=api)

    def _stream(self, reply: Reply, frames: Iterator[Frame]) -> None:
        if reply.raw is not None:
            self.wfile.write(reply.raw)
            return
        pieces = 0
        for name, data, is_text in frames:
            if is_text and reply.drop is not None and pieces >= reply.drop:
                return
            if is_text and pieces and reply.pause:
                self._hold(threading.Event(), reply.pause, silent=reply.silent)
            head = f"event: {name}\n" if name else ""
            text = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"{head}data: {text}\n\n".encode())
            self.wfile.flush()
            pieces += is_text
            if is_text and pieces == 1 and reply.gate is not None:
                self._hold(reply.gate, GATE_LIMIT, silent=reply.silent)

    def _hold(self, gate: threading.Event, seconds: float, *, silent: bool) -> None:
        """Wait for the gate, and notice meanwhile when the client goes away or the server closes."""
        end = time.monotonic() + seconds
        while not self.stub.closing.is_set() and (left := end - time.monotonic()) > 0:
            if gate.wait(min(left, 0.02)):
                return
            if not silent:
                self.wfile.write(b": waiting\n\n")
                self.wfile.flush()

    def _count(self, size: int) -> None:
        """Answer a request for a number of tokens; there is no other POST that asks no model."""
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._send(200, {"input_tokens": size // 4})
        elif path.endswith(":countTokens"):
            self._send(200, {"totalTokens": size // 4})
        else:
            self._fail(404, "no such path", ())

    def _send(self, status: int, answer: dict[str, Any], headers: Iterable[tuple[str, str]] = ()) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _fail(self, status: int, message: str, headers: Iterable[tuple[str, str]]) -> None:
        error = {"type": "stub_error", "code": status, "message": message, "status": "STUB_ERROR"}
        self._send(status, {"type": "error", "error": error}, headers)


def _models(model: str) -> dict[str, Any]:
    one = {"id": model, "object": "model", "type": "model", "display_name": model, "created": 0}
    return {"object": "list", "data": [one], "has_more": False}
