"""The list of requirements and the tests agree, in both directions."""

from __future__ import annotations

import pytest

from tests import requirements
from tests.conftest import Collected
from tests.findings import none
from tests.requirements import REQUIREMENTS

GROUPS = {"L": 6, "C": 8, "P": 6, "O": 5, "T": 3, "A": 1}


def test_the_list_holds_every_invariant_of_the_design_once() -> None:
    ids = [requirement.id for requirement in REQUIREMENTS]
    assert ids == [f"{group}{number}" for group, count in GROUPS.items() for number in range(1, count + 1)]


def test_every_requirement_is_one_sentence_with_a_source_and_a_status() -> None:
    for requirement in REQUIREMENTS:
        assert requirement.says.endswith("."), requirement.id
        assert ". " not in requirement.says, requirement.id
        assert requirement.source.startswith("design, section "), requirement.id
        assert requirement.planned is None or requirement.planned > 0, requirement.id


def test_every_built_requirement_has_a_test(collected: Collected) -> None:
    if not collected.whole():
        pytest.skip("only part of the suite was collected; run pytest without arguments to check this")
    none(requirements.gaps(collected.tagged))


def test_every_tag_names_a_requirement(collected: Collected) -> None:
    malformed = [
        f'{name}: the tag is @pytest.mark.requirement("L1", "L2", …)' for name in collected.malformed
    ]
    none(requirements.strays(collected.tagged) + malformed)


def test_no_requirement_with_a_test_is_still_called_planned(collected: Collected) -> None:
    none(requirements.early(collected.tagged))


def tagged_as_built() -> dict[str, list[str]]:
    return {requirement.id: ["test_it"] for requirement in REQUIREMENTS if requirement.planned is None}


def test_a_list_that_is_fully_tested_has_no_findings() -> None:
    tagged = tagged_as_built()
    assert requirements.gaps(tagged) + requirements.strays(tagged) + requirements.early(tagged) == []


def test_a_built_requirement_without_a_test_is_a_finding() -> None:
    tagged = tagged_as_built()
    del tagged["L2"]
    [finding] = requirements.gaps(tagged)
    assert finding.startswith("L2 is built and no test carries it")


def test_a_tag_that_is_no_requirement_is_a_finding() -> None:
    tagged = tagged_as_built() | {"L99": ["test_nothing"]}
    assert requirements.strays(tagged) == ["L99 is no requirement; it is named by test_nothing"]


@pytest.mark.skipif(all(requirement.planned is None for requirement in REQUIREMENTS), reason="all is built")
def test_a_test_for_a_planned_requirement_is_a_finding() -> None:
    planned = next(requirement for requirement in REQUIREMENTS if requirement.planned is not None)
    [finding] = requirements.early(tagged_as_built() | {planned.id: ["test_already"]})
    assert finding == f"{planned.id} is {planned.status} and has a test, test_already: call it built"
