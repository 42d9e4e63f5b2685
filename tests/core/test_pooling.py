"""Pooling: which questions are put to the store, what words weigh, and which matches are loaded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onward.core import pooling

places = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 500)), unique=True, max_size=40)


def at(*numbers: int, session: str = "a") -> list[pooling.Place]:
    return [(session, number) for number in numbers]


def test_a_word_with_few_matches_weighs_more_than_one_with_many() -> None:
    weighed = pooling.weights({"rare": at(500), "common": at(*range(1, 400))}, full=())
    assert weighed["rare"] > weighed["common"] > 0


def test_of_two_words_with_more_matches_than_named_the_denser_one_weighs_less() -> None:
    dense, sparse = at(*range(1000, 900, -1)), at(*range(1000, 0, -10))
    weighed = pooling.weights({"dense": dense, "sparse": sparse}, full=("dense", "sparse"))
    assert len(dense) == len(sparse)
    assert weighed["sparse"] > weighed["dense"]


@given(st.dictionaries(st.sampled_from("uvwxyz"), places, max_size=6), st.sets(st.sampled_from("uvwxyz")))
def test_every_word_has_a_positive_weight(found: dict[str, list[pooling.Place]], full: set[str]) -> None:
    weighed = pooling.weights(found, full)
    assert weighed.keys() == found.keys()
    assert all(weight >= pooling.FLOOR for weight in weighed.values())


@given(st.lists(st.text("abc", min_size=1, max_size=3), unique=True, max_size=30), st.integers(0, 40))
def test_the_questions_to_the_store_are_bounded(terms: list[str], asked: int) -> None:
    single = pooling.alone(terms)
    assert len(single) <= pooling.MOST_TERMS
    assert [term for term in terms if term in single] == single
    pairs = pooling.together(single, asked)
    assert len(pairs) <= max(0, pooling.MOST_ASKED - asked)
    triples = pooling.wider(pairs, single, asked + len(pairs))
    assert asked + len(pairs) + len(triples) <= max(asked, pooling.MOST_ASKED)
    assert all(len(set(triple)) == 3 for triple in triples)


def test_an_old_match_with_a_rare_word_is_loaded_before_newer_ones_with_a_common_word() -> None:
    held = {place: {"common"} for place in at(*range(1000, 500, -1))} | {("a", 3): {"common", "rare"}}
    chosen = pooling.chosen(held, {"common": 0.2, "rare": 5.0}, 100)
    assert chosen[0] == ("a", 3)
    assert len(chosen) == 100
    assert chosen[1:] == at(*range(1000, 901, -1))


def test_a_match_beside_a_weighty_one_is_loaded_before_others_of_its_kind() -> None:
    held = {place: {"common"} for place in at(*range(1000, 500, -1))}
    held |= {("a", 2): {"common"}, ("a", 3): {"rare"}}
    assert set(pooling.chosen(held, {"common": 0.2, "rare": 5.0}, 2)) == {("a", 2), ("a", 3)}


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(1, 99)), st.sets(st.sampled_from("xyz"), min_size=1)
    )
)
def test_what_fits_is_loaded_whole_in_the_order_it_came(held: dict[pooling.Place, set[str]]) -> None:
    weighed = {"x": 1.0, "y": 2.0, "z": 0.5}
    assert pooling.chosen(held, weighed, len(held)) == list(held)
    some = pooling.chosen(held, weighed, 3)
    assert len(some) == min(3, len(held))
    assert set(some) <= set(held)
