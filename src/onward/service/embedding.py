"""Embedding: an optional second look at what a search found, by a model that the user supplies.

``ONWARD_EMBEDDING_MODEL`` names a GGUF file of an embedding model; it runs in this process through llama.cpp (the ``local``
extra), with no key and no network. Without it nothing here is loaded and nothing changes. With it, the best candidates of a
search are embedded at query time and ordered again (``core.similarity``). There is deliberately no vector index: what was
logged is not embedded, stored or kept, and what the words did not find is not found.

A model that is configured and cannot be used is an error of the search that asked, never a silent return to words alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, Protocol

from onward.errors import EmbeddingFailed, MissingExtra

MODEL_VARIABLE: Final = "ONWARD_EMBEDDING_MODEL"
EMBEDDED_CHARS: Final = 800
"""Characters of a text that are embedded: the beginning says what it is about, and models read little more."""
WINDOW: Final = 2048
"""Tokens of one text at most."""
_AT_ONCE: Final = 16


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str:
        """What it is called in messages and reports."""
        ...

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, in order, all of one length. Safe to call from many threads.

        Raises EmbeddingFailed, or MissingExtra where something is not installed.
        """
        ...


_lock: Final = threading.Lock()
_loaded: Final[dict[tuple[str, str | None], Any]] = {}
"""Models by file and pooling. They stay until the process ends: one that refused a request cannot be let go of."""


class GgufEmbedder:
    """Embeds with a GGUF file in this process. It is loaded at the first use, once a process.

    ``pooling`` overrides how the model combines its tokens (``mean``, ``cls`` or ``last``); by default the file says it,
    and one that says nothing is no embedding model.
    """

    def __init__(self, path: str | os.PathLike[str], *, pooling: str | None = None) -> None:
        self._path = os.path.expanduser(os.fspath(path))
        self._pooling = pooling

    @property
    def name(self) -> str:
        """Return the name of the file, without its folder."""
        return os.path.basename(self._path)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, see ``Embedder``."""
        out: list[list[float]] = []
        with _lock:
            key = (self._path, self._pooling)
            if key not in _loaded:
                _loaded[key] = self._load()
            for start in range(0, len(texts), _AT_ONCE):
                given = [text[:EMBEDDED_CHARS].strip() or "." for text in texts[start : start + _AT_ONCE]]
                out += self._embedded(_loaded[key], given)
        return out

    def _embedded(self, server: Any, texts: list[str]) -> list[list[float]]:
        try:
            answer = server.handle_embeddings({"input": texts})
        except Exception as failed:
            raise EmbeddingFailed(model=self.name, why=str(failed)) from failed
        if error := answer.get("error"):
            why = str(error.get("message") or error)
            if "Pooling type 'none'" in why:
                why = "the file is a model that writes text, not one that embeds it"
            raise EmbeddingFailed(model=self.name, why=why)
        found = sorted(answer["data"], key=lambda item: item["index"])
        if len(found) != len(texts):
            raise EmbeddingFailed(model=self.name, why=f"{len(texts)} texts gave {len(found)} vectors")
        return [item["embedding"] for item in found]

    def _load(self) -> Any:
        if not os.path.isfile(self._path):
            raise EmbeddingFailed(model=self.name, why=f"{MODEL_VARIABLE} names no file")
        import importlib.util
        import secrets
        import socket
        import tempfile

        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtra(feature="Embedding", extra="local")
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = self._path
        params.embedding = True
        if self._pooling is not None:
            kinds = xllamacpp.llama_pooling_type
            params.pooling_type = getattr(kinds, f"LLAMA_POOLING_TYPE_{self._pooling.upper()}")
        params.n_ctx = params.n_batch = params.n_ubatch = WINDOW
        params.n_parallel = 1
        # Threads that wait for each other spin; with one core left to others and no spinning, nothing else stands still.
        cores = os.cpu_count() or 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, min(4, cores - 1))
        params.cpuparams.poll = params.cpuparams_batch.poll = 0
        params.n_gpu_layers = 0  # the same vectors everywhere
        params.verbosity = -1
        params.api_keys = [secrets.token_hex(32)]
        params.ui = params.endpoint_slots = False
        with tempfile.TemporaryDirectory(prefix="onward-") as folder:
            if hasattr(socket, "AF_UNIX"):
                # llama.cpp insists on a listener; this one is gone with its folder.
                params.hostnames = [os.path.join(folder, "s.sock")]
            try:
                return xllamacpp.Server(params)
            except Exception as failed:
                raise EmbeddingFailed(model=self.name, why=f"it cannot be loaded ({failed})") from failed


def configured() -> Embedder | None:
    """Return the embedder that the environment names, or None. One a process for each file."""
    named = os.environ.get(MODEL_VARIABLE)
    return _of(named) if named else None


@cache
def _of(path: str) -> GgufEmbedder:
    return GgufEmbedder(path)
