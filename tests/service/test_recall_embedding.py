"""Embedding: off unless configured, a second order of what was found, and loud where it cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.service.conversations import World
from tests.service.test_recall_search import said

from onward.errors import EmbeddingFailed
from onward.service import embedding, searching
from onward.service.embedding import MODEL_VARIABLE, GgufEmbedder
from onward.testing.embedding import HashingEmbedder

SAME = {"patience": "timeout", "45": "timeout"}


def order(
    world: World, query: str, embedder: embedding.Embedder | None = None, **options: object
) -> list[str]:
    found = searching.find(world.platform, query, embedder=embedder, **options)  # type: ignore[arg-type]
    return [hit.text for hit in found.hits]


def test_nothing_is_embedded_unless_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MODEL_VARIABLE, raising=False)
    assert embedding.configured() is None
    monkeypatch.setenv(MODEL_VARIABLE, "/models/small.gguf")
    one, two = embedding.configured(), embedding.configured()
    assert one is two
    assert one is not None
    assert one.name == "small.gguf"


def test_what_means_the_same_in_other_words_is_lifted(world: World) -> None:
    said(world, "the gateway waits 45", "unrelated", "lunch", "dinner", "the gateway in blue colours")
    words = order(world, "patience of the gateway")
    meant = order(world, "patience of the gateway", HashingEmbedder(same=SAME))
    assert words[0] == "the gateway in blue colours"
    assert meant[0] == "the gateway waits 45"
    assert sorted(words) == sorted(meant)


def test_only_the_best_hits_are_embedded_each_once_and_in_one_call(world: World) -> None:
    said(world, *(f"gateway {n}" for n in range(searching.RERANKED * 2)))
    embedder = HashingEmbedder()
    found = order(world, "gateway", embedder, limit=100)
    assert [len(texts) for texts in embedder.asked] == [1 + searching.RERANKED]
    assert len(found) == 100
    assert len(set(found)) == 100


def test_texts_that_are_all_alike_to_it_stay_in_order(world: World) -> None:
    class Alike(HashingEmbedder):
        def _embedded(self, text: str) -> list[float]:
            return [1.0]

    session = said(world, "gateway one", "gateway bank", "the bank", "gateway gateway bank")
    words = order(world, "gateway bank", session_id=session)
    assert order(world, "gateway bank", Alike(), session_id=session) == words


def test_a_configured_model_that_is_not_there_fails_the_search_and_says_what_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said(world, "gateway one", "gateway two")
    monkeypatch.setenv(MODEL_VARIABLE, str(tmp_path / "missing.gguf"))
    with pytest.raises(EmbeddingFailed, match=r"missing\.gguf failed: ONWARD_EMBEDDING_MODEL names no file"):
        world.log.search("gateway")


def test_a_file_that_is_no_model_fails_the_search(tmp_path: Path, model_file: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF, or so it says")
    with pytest.raises(EmbeddingFailed, match=r"broken\.gguf failed: it cannot be loaded"):
        GgufEmbedder(broken).embed(["x"])


def test_a_real_model_gives_vectors_and_one_that_writes_text_is_told_apart(model_file: Path) -> None:
    with pytest.raises(EmbeddingFailed, match="a model that writes text, not one that embeds it"):
        GgufEmbedder(model_file).embed(["x"])
    embedder = GgufEmbedder(model_file, pooling="mean")
    texts = ["the port is 8417", "", "y" * 5000]
    vectors = embedder.embed(texts)
    assert len({len(vector) for vector in vectors}) == 1
    assert len(vectors) == len(texts)
    assert embedder.embed(texts[:1])[0] == pytest.approx(vectors[0], abs=1e-4)
