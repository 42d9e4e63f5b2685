"""Every route is asked whatever its own description allows, and what it forbids; every answer is held to the description.

Requests go straight into the application, on a real store that has one of everything. What a request names is mostly there
(a path of random ids would only ever find nothing). The server is about to close, so that nothing waits and streams end.

``ONWARD_FUZZ=200`` asks each route so often; CI asks less often of each, and of all of them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.parameters import ParameterLocation
from tests.surfaces.http.seeded import Seeded

from onward.service import tokens
from onward.service.platform import Platform
from onward.store import open_store
from onward.surfaces.http import openapi
from onward.surfaces.http.app import application
from onward.surfaces.http.house import House
from onward.surfaces.http.routing import Route
from onward.surfaces.http.table import ROUTES

EXAMPLES = int(os.environ.get("ONWARD_FUZZ", "8"))
load_all_checks()
CHECKED = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
    ]
)
REFUSED = [*CHECKED, *CHECKS.get_by_names(["negative_data_rejection"])]


def named(route: Route) -> str:
    """What a route is called here and in the description."""
    return f"{route.method} {route.path}"


SCHEMA = schemathesis.openapi.from_dict(openapi.document(ROUTES))
OPERATIONS = {operation.ok().label: operation.ok() for operation in SCHEMA.get_all_operations()}


class Served:
    """A server on a copy of what there is."""

    def __init__(self, store: Path, seeded: Seeded, secret: str) -> None:
        self.platform = Platform(store=open_store(f"sqlite:///{store}"), host="home")
        self.named, self.secret = seeded.named, secret
        house = House(self.platform)
        house.close()
        self.app = application(house, names=["testserver"], rate=0)
        self.answered: list[int] = []

    def case(self, data: st.DataObject, route: Route, mode: GenerationMode) -> Any:
        """Draw a request."""
        case = data.draw(OPERATIONS[named(route)].as_strategy(generation_mode=mode))
        for name in case.path_parameters or ():
            there = self.named.get(name, [])
            if there and data.draw(st.integers(0, 4)):
                case.path_parameters[name] = data.draw(st.sampled_from(there))
        return case

    def ask(self, case: Any) -> None:
        """Send it, and hold the answer to the description; what is wrong with its query or body has to be refused."""
        parts = {} if case.meta is None else case.meta.components
        wrong = [place for place, part in parts.items() if part.mode.is_negative]
        checks = REFUSED if set(wrong) & {ParameterLocation.QUERY, ParameterLocation.BODY} else CHECKED
        headers = {"authorization": f"Bearer {self.secret}"}
        answer = case.call_and_validate(headers=headers, checks=checks, app=self.app)
        self.answered.append(answer.status_code)


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Seeded, str]:
    file = tmp_path_factory.mktemp("seeded") / "onward.db"
    platform = Platform(store=open_store(f"sqlite:///{file}"), host="home")
    made = Seeded(platform)
    secret = tokens.create(platform, "t", ["admin"])[1]
    platform.store.close()
    return file, made, secret


@pytest.fixture
def served(tmp_path: Path, seeded: tuple[Path, Seeded, str]) -> Iterator[Served]:
    file, made, secret = seeded
    served = Served(Path(shutil.copy(file, tmp_path / "onward.db")), made, secret)
    yield served
    served.platform.store.close()


def often(most: int) -> Any:
    """How a route is asked: bounded, without a database of earlier failures, whatever the machine's speed.

    The same questions each time, unless more were asked for: now and then a query is made up as forbidden and loses what
    forbids it on its way into an address, which tells nothing about the route.
    """
    return settings(
        max_examples=most,
        derandomize="ONWARD_FUZZ" not in os.environ,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_what_a_route_allows_is_answered_as_it_says(served: Served, route: Route) -> None:
    @often(EXAMPLES)
    @given(data=st.data())
    def asked(data: st.DataObject) -> None:
        served.ask(served.case(data, route, GenerationMode.POSITIVE))

    asked()


@pytest.mark.parametrize("route", [r for r in ROUTES if r.body is not None or r.query is not None], ids=named)
def test_what_a_route_forbids_is_refused_as_it_says(served: Served, route: Route) -> None:
    @often(EXAMPLES)
    @given(data=st.data())
    def asked(data: st.DataObject) -> None:
        served.ask(served.case(data, route, GenerationMode.NEGATIVE))

    asked()


def test_what_a_route_answers_is_what_the_next_one_takes(served: Served) -> None:
    steps = {name for route in ROUTES if route.leads for name in (route.name, *route.leads)}
    chosen = SCHEMA.include(operation_id=sorted(steps))

    class Story(chosen.as_state_machine()):  # type: ignore[misc]
        """Sessions that are opened, spoken in, continued and branched, each step from the answer of the one before."""

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"headers": {"authorization": f"Bearer {served.secret}"}, "app": served.app}

        def validate_response(self, response: Any, case: Any, **more: Any) -> None:
            case.validate_response(response, checks=CHECKED)
            served.answered.append(response.status_code)

    run_state_machine_as_test(Story, settings=settings(often(EXAMPLES), stateful_step_count=6))
    assert served.answered
