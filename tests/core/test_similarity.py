"""Similarity: what a share of the order may and may not change."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.similarity import blended, cosine

numbers = st.floats(-1e3, 1e3)


@given(st.lists(numbers, min_size=1, max_size=8))
def test_a_vector_is_most_similar_to_itself(vector: list[float]) -> None:
    expected = 1.0 if math.sqrt(sum(x * x for x in vector)) else 0.0
    assert cosine(vector, vector) == pytest.approx(expected)
    assert cosine(vector, [0.0] * len(vector)) == 0.0


def test_vectors_of_different_models_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        cosine([1.0, 0.0], [1.0])


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(-1, 1)), min_size=1, max_size=20))
def test_scores_stay_on_their_scale(pairs: list[tuple[float, float]]) -> None:
    scores, similar = [score for score, _ in pairs], [near for _, near in pairs]
    mixed = blended(scores, similar)
    assert len(mixed) == len(scores)
    assert all(-1e-6 <= score <= max(scores) + 1e-6 for score in mixed)


def test_equal_similarity_changes_nothing_and_a_greater_one_lifts() -> None:
    assert blended([3.0, 2.0], [0.5, 0.5]) == [3.0, 2.0]
    first, second = blended([3.0, 2.8], [0.1, 0.9])
    assert second > first
    assert blended([3.0, 2.8], [0.1, 0.9], share=0.0) == [3.0, 2.8]
    assert blended([], []) == []
