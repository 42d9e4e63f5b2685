"""How a check that walks over much reports: every finding on a line of its own, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def none(findings: Iterable[str]) -> None:
    """Passes when there are no findings, and fails with all of them when there are."""
    if lines := list(findings):
        pytest.fail("\n".join(lines), pytrace=False)
