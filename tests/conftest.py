"""What every test gets: the needs, the watch over the network, a home of its own, and the record of requirement tags."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
import pytest

from tests import needs, network

ASKED_FOR = (
    "ONWARD_CHROMIUM",
    "ONWARD_CLIS",
    "ONWARD_KILLS",
    "ONWARD_MANIFESTS",
    "ONWARD_REQUIRE",
    "ONWARD_SAMPLES",
    "ONWARD_SESSIONS",
)
"""What somebody who runs the tests may say to them."""
TESTS = Path(__file__).resolve().parent
GUARD = network.Guard()

hypothesis.settings.register_profile(
    "default",
    deadline=None,
    max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "ci",
    hypothesis.settings.get_profile("default"),
    # The same questions each time: what fails then is the change. `HYPOTHESIS_PROFILE=search` looks further, at random.
    derandomize=True,
    max_examples=250,
    print_blob=True,
)
hypothesis.settings.register_profile(
    "search",
    hypothesis.settings.get_profile("default"),
    max_examples=1000,
    print_blob=True,
)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default")
)


@dataclass(slots=True)
class Collected:
    """What collection found, before any test was deselected."""

    tagged: dict[str, list[str]] = field(default_factory=dict)
    """Requirement id to the node ids of the tests that carry it."""
    malformed: list[str] = field(default_factory=list)
    """Node ids of tests whose tag names nothing, or names it by keyword."""
    modules: set[Path] = field(default_factory=set)
    """The test files that were collected in full."""

    def whole(self) -> bool:
        """Whether every test file of the suite was collected: only then does a missing tag mean anything."""
        return self.modules >= {
            file for pattern in ("test_*.py", "*_test.py") for file in TESTS.rglob(pattern)
        }


COLLECTED = pytest.StashKey[Collected]()
HOME = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    needs.required()
    config.stash[COLLECTED] = Collected()
    # The data folder of whoever runs the tests is no place for them, and their settings decide nothing here.
    for name in os.environ:
        if name.startswith("ONWARD_") and name not in ASKED_FOR:
            del os.environ[name]
    config.stash[HOME] = home = tempfile.mkdtemp(prefix="onward-tests-")
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        os.environ[name] = str(Path(home, name.lower()))
    # Shells start background jobs deaf to interrupts, and children inherit that: tests that press Ctrl-C need an ear.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    GUARD.install()


def pytest_unconfigure(config: pytest.Config) -> None:
    if home := config.stash.get(HOME, None):
        shutil.rmtree(home, ignore_errors=True)


def pytest_collectstart(collector: pytest.Collector) -> None:
    # Run again only what failed, or name one test of a file, and the file is not collected in full.
    config = collector.config
    if (
        isinstance(collector, pytest.Module)
        and not config.getoption("lf", False)
        and "::" not in "".join(config.args)
    ):
        config.stash[COLLECTED].modules.add(collector.path.resolve())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    collected = config.stash[COLLECTED]
    for item in items:
        for marker in item.iter_markers("requirement"):
            if marker.kwargs or not marker.args or not all(isinstance(id, str) for id in marker.args):
                collected.malformed.append(item.nodeid)
                continue
            for id in marker.args:
                collected.tagged.setdefault(id, []).append(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    GUARD.attempts.clear()
    yield
    if GUARD.attempts:
        raise network.LeftTheMachine(f"this test tried to leave the machine: {'; '.join(GUARD.attempts)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    # A quiet run prints no header, and the header is where the seed would have been.
    config = terminalreporter.config
    if exitstatus and (seed := config.getoption("randomly_seed", None)) is not None:
        terminalreporter.write_line(f"order and random numbers: --randomly-seed={seed}")


@pytest.fixture(scope="session")
def collected(request: pytest.FixtureRequest) -> Collected:
    """What collection found, with the requirement tags."""
    return request.config.stash[COLLECTED]


@pytest.fixture(scope="session")
def network_guard() -> network.Guard:
    """The watch over the network, for a test that means to be refused."""
    return GUARD


@pytest.fixture(scope="session")
def need() -> Callable[[str], Path]:
    """`need("model")` gives its place, skips the test without it, or fails where `ONWARD_REQUIRE` names it."""
    return needs.need


@pytest.fixture
def sessions_folder() -> Path:
    """The folder of recorded native sessions, one subfolder an engine; skips or fails without it."""
    return needs.need("sessions")


@pytest.fixture
def model_file() -> Path:
    """The GGUF file of the local model; skips or fails without it or its server."""
    return needs.need("model")
