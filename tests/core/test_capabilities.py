"""Capabilities: what is required and missing is an error, what is wished for and missing is said."""

from __future__ import annotations

import pytest

from onward.core.capabilities import Capability, Need, need, resolve
from onward.errors import InvalidInput, MissingCapability

SHELL = Capability(name="shell", kind="code_execution")
FILES = Capability(name="files", kind="file_access", permissions=("ask",))
OFF = Capability(name="web", kind="network_access", enabled=False)


def test_an_engine_that_has_everything_fits_fully() -> None:
    found = resolve([SHELL, FILES], [need("code_execution:shell")], [need("file_access")])
    assert (found.status, found.missing, found.warnings) == ("full", (), ())


def test_what_is_required_and_missing_is_an_error_that_names_all_of_it() -> None:
    with pytest.raises(MissingCapability) as caught:
        resolve([SHELL, OFF], [need("network_access"), need("tool:x"), need("tool:x")], engine="claude-code")
    assert caught.value.details["missing"] == "network_access, tool:x"
    assert caught.value.details["offered"] == "code_execution:shell"
    assert caught.value.code == "missing_capability"


def test_what_is_wished_for_and_missing_degrades_with_one_warning_each() -> None:
    wishes = [need("tool:x"), need("sampling"), need("tool:x"), need("file_access")]
    found = resolve([FILES], wished=wishes, engine="pi")
    assert found.status == "degraded"
    assert found.missing == (Need("tool", "x"), Need("sampling"))
    assert found.warnings == (
        "pi has no tool:x; the run goes on without it.",
        "pi has no sampling; the run goes on without it.",
    )


def test_a_capability_that_is_switched_off_counts_as_missing() -> None:
    assert resolve([OFF], wished=[need("network_access")]).status == "degraded"


@pytest.mark.parametrize("text", ["", "shell", "Tool", ":x"])
def test_a_kind_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="kinds are tool, resource"):
        need(text)
    with pytest.raises(InvalidInput):
        Capability(name="x", kind=text)


def test_a_capability_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidInput):
        Capability(name=" ", kind="tool")
