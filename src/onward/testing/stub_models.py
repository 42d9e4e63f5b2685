"""A model server that says what it is told: real HTTP on this machine, no model behind it.

``StubModels`` speaks OpenAI chat completions and Anthropic Messages, streaming, on a port that the system picks. It is
for tests of whatever talks to models, and for demos without one. What it answers comes from a script given in Python
(one ``Reply`` a request), or else from directives in the last user message:

    [[say TEXT]]  [[think TEXT]]  [[call NAME {json}]]  [[usage N]]  [[status CODE]]  [[drop N]]

Calls are made one a request: a request that already holds results after the last user message gets the next one, and
then the text. Every request body is kept in ``requests``, so that a test can look at exactly what a provider would
get.

It is deliberately not a validator of requests; tests that care look at ``requests`` themselves.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from onward.core.bodies import Usage
from onward.engines.script import Call, Fail, Measure, Say, Step, Think, directives

GATE_LIMIT: Final = 30.0
"""Seconds that a reply waits for its gate before it goes on."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What one request is answered with."""

    text: str | None = None
    thought: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()
    """``(name, input)`` each, made side by side. An input that is a string is sent as it is, valid JSON or not."""
    chunks: int = 3
    """In how many pieces the text comes."""
    usage: Usage = Usage(input_tokens=12, output_tokens=3)
    """As ``bodies.Usage`` counts: input tokens include those read from a cache."""
    stop: str | None = None
    """The stop reason, if it should be another than the usual one."""
    status: int = 200
    error: str = "scripted error"
    """What the error says when ``status`` is not 200."""
    headers: tuple[tuple[str, str], ...] = ()
    drop: int | None = None
    """Close the connection after this many pieces of text, without an end."""
    raw: bytes | None = None
    """Send exactly this as the stream."""
    gate: threading.Event | None = None
    """Wait for this event after the first piece of the text."""
    silent: bool = False
    """While waiting, send nothing at all; otherwise comments show that the connection lives."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    raw: bytes
    body: dict[str, Any]


Answers = Iterable[Reply] | Callable[[Request], Reply]


class StubModels:
    """The server. Use it as a context manager; ``url`` is its address without a path.

    ``script`` gives the replies in order, or is a function from a request to its reply; when a list is used up,
    requests fail with status 500. ``model`` is what it calls itself.
    """

    def __init__(self, script: Answers | None = None, *, model: str = "stub-model") -> None:
        self.model = model
        self.requests: list[Request] = []
        self.broken_off = threading.Event()
        """Set when a client went away before its answer was complete."""
        self._answer = script if callable(script) else None
        self._replies = None if script is None or callable(script) else iter(script)
        self._lock = threading.Lock()
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
        """Return the base URL for a client that speaks ``openai`` or ``anthropic``; both have the same here."""
        if api not in _DIALECTS:
            raise ValueError(f"api is one of {', '.join(_DIALECTS)}, not {api!r}")
        return f"{self.url}/v1"

    def reply_to(self, request: Request) -> Reply:
        """Record a request and return what answers it."""
        with self._lock:
            self.requests.append(request)
            if self._replies is not None:
                return next(self._replies, Reply(status=500, error="the script has no more replies"))
        return self._answer(request) if self._answer else reply_by_directives(request)


def reply_by_directives(request: Request) -> Reply:
    """Return the reply that the last user message asks for; without directives, a short echo of it."""
    text, results = _last_user(request.body)
    at = text.find("[[status ")
    if at >= 0:
        return Reply(status=int(text[at + 9 :].partition("]]")[0]))
    at = text.find("[[drop ")
    drop = int(text[at + 7 :].partition("]]")[0]) if at >= 0 else None
    steps: list[Step] = list(directives(text))
    calls = [step for step in steps if isinstance(step, Call)]
    says = [step.text for step in steps if isinstance(step, Say)]
    usage = next((step.usage for step in steps if isinstance(step, Measure)), None)
    reply = Reply(
        thought=next((step.text for step in steps if isinstance(step, Think)), None),
        usage=usage or Usage(input_tokens=len(request.raw) // 4, output_tokens=3),
        drop=drop,
    )
    if fail := next((step for step in steps if isinstance(step, Fail)), None):
        return Reply(status=500, error=fail.reason)
    if results < len(calls):
        return msgspec.structs.replace(reply, calls=((calls[results].name, calls[results].input),))
    return msgspec.structs.replace(reply, text=" ".join(says) if says else f"You said: {text.strip()[:120]}")


def _last_user(body: dict[str, Any]) -> tuple[str, int]:
    """Return the text of the last user message with words in it, and how many tool results came after it."""
    text, results = "", 0
    for message in body.get("messages") or ():
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        if message.get("role") == "tool":
            results += 1
            continue
        if message.get("role") != "user":
            continue
        results += sum(block.get("type") == "tool_result" for block in blocks)
        words = [block["text"] for block in blocks if block.get("type") == "text"]
        if words:
            text, results = words[-1], 0
    return text, results


def _text_pieces(reply: Reply) -> list[str]:
    text = reply.text or ""
    size = max(1, -(-len(text) // max(1, reply.chunks)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _arguments(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given)


Frame = tuple[str | None, dict[str, Any] | str, bool]
"""The name of a server-sent event, its data, and whether it is a piece of text."""


def _openai(reply: Reply, model: str, number: int) -> Iterator[Frame]:
    def chunk(delta: dict[str, Any], *, stop: str | None = None, text: bool = False) -> Frame:
        choice = {"index": 0, "delta": delta, "finish_reason": stop}
        return None, head | {"choices": [choice]}, text

    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": model}
    yield chunk({"role": "assistant", "content": ""})
    if reply.thought:
        yield chunk({"reasoning_content": reply.thought})
    for piece in _text_pieces(reply):
        yield chunk({"content": piece}, text=True)
    for index, (name, given) in enumerate(reply.calls):
        arguments = _arguments(given)
        half = len(arguments) // 2
        first = {"name": name, "arguments": arguments[:half]}
        call = {"index": index, "id": f"call_{number}_{index}", "type": "function", "function": first}
        yield chunk({"tool_calls": [call]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]})
    yield chunk({}, stop=reply.stop or ("tool_calls" if reply.calls else "stop"))
    usage: dict[str, Any] = {
        "prompt_tokens": reply.usage.input_tokens,
        "completion_tokens": reply.usage.output_tokens,
    }
    if reply.usage.cache_read_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": reply.usage.cache_read_tokens}
    yield None, head | {"choices": [], "usage": usage}, False
    yield None, "[DONE]", False


def _anthropic(reply: Reply, model: str, number: int) -> Iterator[Frame]:
    def event(kind: str, *, text: bool = False, **fields: Any) -> Frame:
        return kind, {"type": kind} | fields, text

    usage = reply.usage
    read, wrote = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    counts = {
        "input_tokens": (usage.input_tokens or 0) - read - wrote,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": wrote,
        "output_tokens": 1,
    }
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": []}
    yield event("message_start", message=message | {"stop_reason": None, "usage": counts})
    yield event("ping")
    index = 0
    if reply.thought:
        yield event("content_block_start", index=index, content_block={"type": "thinking", "thinking": ""})
        yield event(
            "content_block_delta", index=index, delta={"type": "thinking_delta", "thinking": reply.thought}
        )
        yield event(
            "content_block_delta", index=index, delta={"type": "signature_delta", "signature": "signed"}
        )
        yield event("content_block_stop", index=index)
        index += 1
    if reply.text:
        yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for piece in _text_pieces(reply):
            yield event(
                "content_block_delta", index=index, delta={"type": "text_delta", "text": piece}, text=True
            )
        yield event("content_block_stop", index=index)
        index += 1
    for name, given in reply.calls:
        block = {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": name, "input": {}}
        yield event("content_block_start", index=index, content_block=block)
        arguments = _arguments(given)
        half = len(arguments) // 2
        for piece in (arguments[:half], arguments[half:]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
        index += 1
    stop = {"stop_reason": reply.stop or ("tool_use" if reply.calls else "end_turn")}
    yield event("message_delta", delta=stop, usage={"output_tokens": usage.output_tokens})
    yield event("message_stop")


_DIALECTS: Final[dict[str, tuple[str, Callable[[Reply, str, int], Iterator[Frame]]]]] = {
    "openai": ("/chat/completions", _openai),
    "anthropic": ("/messages", _anthropic),
}


class _Handler(BaseHTTPRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name is the base class's)
        pass

    def do_POST(self) -> None:
        stub: StubModels = self.server.stub  # type: ignore[attr-defined]
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        frames = next(
            (write for path, write in _DIALECTS.values() if self.path.partition("?")[0].endswith(path)), None
        )
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if frames is None or not isinstance(body, dict):
            self._fail(
                404 if frames is None else 400, "no such path" if frames is None else "no JSON object", ()
            )
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = stub.reply_to(Request(path=self.path, headers=headers, raw=raw, body=body))
        if reply.status != 200:
            self._fail(reply.status, reply.error, reply.headers)
            return
        self.send_response(200)
        if not any(name == "content-type" for name, _ in reply.headers):
            self.send_header("content-type", "text/event-stream")
        for name, value in reply.headers:
            self.send_header(name, value)
        self.end_headers()
        try:
            self._stream(stub, reply, frames(reply, stub.model, len(stub.requests)))
        except OSError:
            stub.broken_off.set()

    def _stream(self, stub: StubModels, reply: Reply, frames: Iterator[Frame]) -> None:
        if reply.raw is not None:
            self.wfile.write(reply.raw)
            return
        pieces = 0
        for name, data, is_text in frames:
            if is_text and reply.drop is not None and pieces >= reply.drop:
                return
            head = f"event: {name}\n" if name else ""
            text = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"{head}data: {text}\n\n".encode())
            self.wfile.flush()
            pieces += is_text
            if is_text and pieces == 1 and reply.gate is not None:
                self._wait(stub, reply.gate, reply.silent)

    def _wait(self, stub: StubModels, gate: threading.Event, silent: bool) -> None:
        """Wait for the gate, and notice meanwhile when the client goes away or the server closes."""
        waited = 0.0
        while not gate.wait(0.02) and not stub.closing.is_set() and waited < GATE_LIMIT:
            waited += 0.02
            if not silent:
                self.wfile.write(b": waiting\n\n")
                self.wfile.flush()

    def _fail(self, status: int, message: str, headers: Iterable[tuple[str, str]]) -> None:
        error = {"type": "error", "error": {"type": "stub_error", "message": message}}
        data = json.dumps(error).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
