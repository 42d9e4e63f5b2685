"""The description of the server: that it is valid, that it is the newest, and that it says everything."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import msgspec
import pytest
import schemathesis
from tests.needs import ROOT
from tests.surfaces.http.asking import Asked

from onward.surfaces.http import openapi
from onward.surfaces.http.live_streaming import MEDIA as STREAM
from onward.surfaces.http.routing import PARAMETERS, Route
from onward.surfaces.http.table import ROUTES

DOCUMENT: dict[str, Any] = json.loads(openapi.written(ROUTES))
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


def operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][route.path][route.method.lower()]
    return found


every = pytest.mark.parametrize("route", ROUTES, ids=named)


def test_it_is_valid_openapi() -> None:
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_the_copy_in_the_documentation_is_the_newest() -> None:
    kept = (ROOT / "docs" / "openapi.json").read_bytes()
    assert kept == openapi.written(ROUTES), "run `python -m onward.surfaces.http.openapi > docs/openapi.json`"


def test_it_is_served_and_a_copy_that_is_known_is_not_sent_again() -> None:
    ask = Asked()
    served = ask("GET", "/v1/openapi.json", secret="")
    assert served.json() == DOCUMENT
    again = ask("GET", "/v1/openapi.json", secret="", headers={"if-none-match": served.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_every_route_is_in_it_and_nothing_else() -> None:
    found = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert found == {(route.method, route.path) for route in ROUTES}
    names = [operation(route)["operationId"] for route in ROUTES]
    assert len(names) == len(set(names))


def test_every_reference_leads_somewhere_and_every_type_is_used() -> None:
    used = set(re.findall(r'"#/components/(\w+)/([^"]+)"', json.dumps(DOCUMENT)))
    there = {
        (kind, name) for kind in ("schemas", "responses", "headers") for name in DOCUMENT["components"][kind]
    }
    assert used == there


@every
def test_a_route_says_what_it_takes(route: Route) -> None:
    found = operation(route)
    by_place: dict[str, set[str]] = {"path": set(), "query": set(), "header": set()}
    for parameter in found["parameters"]:
        by_place[parameter["in"]].add(parameter["name"])
        assert parameter["in"] != "path" or parameter["schema"].get("pattern")
    assert by_place["path"] == set(re.findall(r"\{(\w+)\}", route.path)) <= set(PARAMETERS)
    fields = () if route.query is None else route.query.__struct_fields__
    assert by_place["query"] == set(fields)
    assert ("Idempotency-Key" in by_place["header"]) is route.keyed
    assert ("Last-Event-ID" in by_place["header"]) is (route.media == STREAM)
    assert ("requestBody" in found) is (route.body is not None)
    assert found["security"] == ([] if route.scope is None else [{"token": [route.scope]}])


@every
def test_a_list_has_a_limit_and_the_limit_a_maximum(route: Route) -> None:
    for parameter in operation(route)["parameters"]:
        if parameter["in"] != "query":
            continue
        schema = parameter["schema"]
        bounded = {"integer": "maximum", "number": "maximum", "string": "maxLength"}.get(schema.get("type"))
        assert bounded is None or bounded in schema or "enum" in schema or route.media == STREAM, parameter


@every
def test_what_a_route_shows_as_an_example_is_what_it_takes(route: Route) -> None:
    if route.body is None:
        return
    msgspec.convert(route.example, route.body)
    schema = operation(route)["requestBody"]["content"]["application/json"]["schema"]
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(whole).validate(route.example)


@every
def test_what_a_person_sends_may_have_no_field_that_is_not_known(route: Route) -> None:
    if route.path.startswith("/v1/runner/"):
        return  # a runner may be newer than the server
    for kind in (route.body, route.query):
        if kind is not None:
            assert kind.__struct_config__.forbid_unknown_fields


@every
def test_a_route_says_what_it_refuses(route: Route) -> None:
    refused = openapi.codes(route)
    said = operation(route)["responses"]
    assert set(said) == {str(s) for s in (route.status, *route.also, *refused, *([304] if route.tag else []))}
    assert {400, 403, 429, 500, 503} <= set(refused)
    assert (401 in refused) is (route.scope is not None)
    assert ({413, 415} <= set(refused)) is (route.body is not None)
    for status in refused:
        assert said[str(status)]["$ref"].startswith(f"#/components/responses/{status}.")


def test_the_tables_in_the_documentation_are_the_newest() -> None:
    kept = (ROOT / "docs" / "api.md").read_text("utf-8")
    assert kept.partition("openapi routes -->\n")[2].strip() == openapi.listed(ROUTES), (
        "end docs/api.md with what `python -m onward.surfaces.http.openapi routes` prints"
    )
