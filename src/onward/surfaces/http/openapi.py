"""The description of the server in OpenAPI 3.1, made of the route table and of the types, and of nothing else.

Bounds come from the types, descriptions from their docstrings, statuses and codes from what a route says can be refused.
So it cannot say something that the server does not do, except about what can be refused; that is what the tests ask it,
every route with whatever its description allows. ``python -m onward.surfaces.http.openapi`` writes it, and with ``routes``
the tables of ``docs/api.md``.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

import onward
from onward import errors
from onward.core.continuing_command import MAX_KEY
from onward.errors import OnwardError
from onward.surfaces.http import failing
from onward.surfaces.http.live_streaming import MEDIA as STREAM
from onward.surfaces.http.routing import JSON, PARAMETERS, Route
from onward.surfaces.http.shapes import Shape

_REF: Final = "#/components/schemas/"
_ULID: Final = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
_EXAMPLE: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
_STATUS: Final = {
    400: "The request is not valid.",
    401: "There is no token, or it is not known, revoked or expired.",
    403: "The token has not that scope, or the request is not from here.",
    404: "It is not here, or not this account's.",
    409: "It is refused because of how things stand.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "Too much at a time.",
    500: "A fault of the server, or of its store.",
    501: "The server lacks what this needs.",
    503: "The server or its store is busy.",
    507: "The store has no room left.",
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the description of these routes."""
    types = _types(routes)
    refs, components = msgspec.json.schema_components(types, ref_template=_REF + "{name}")
    named = dict(zip(types, refs, strict=True))
    described = _described(types, components)
    by_name = {route.name: route for route in routes}
    paths: dict[str, dict[str, Any]] = {}
    refusals: dict[str, Any] = {}
    etag = {"description": "Another one for another answer.", "schema": {"type": "string"}}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, named, described, refusals)
        for status in map(str, (route.status, *route.also) if route.leads else ()):
            made = paths[route.path][route.method.lower()]["responses"][status]
            made["links"] = _links(route, by_name)
    made = {
        "openapi": "3.1.0",
        "info": {
            "title": "Onward",
            "version": onward.__version__,
            "summary": "Agent conversations that outlive their context window, their engine and their machine.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in dict.fromkeys(_tag(route) for route in routes)],
        "paths": paths,
        "components": {
            "schemas": described,
            "headers": {"ETag": etag},
            "responses": {
                "304": {
                    "description": "It is what the caller has already.",
                    "headers": {"ETag": {"$ref": "#/components/headers/ETag"}},
                },
                **dict(sorted(refusals.items())),
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of `onward tokens create`. `admin` includes the other scopes.",
                }
            },
        },
    }
    renamed = _renamed(made)
    _forget_unused(renamed)
    return renamed


def written(routes: Sequence[Route]) -> bytes:
    """Return the description as it is served and kept in the documentation."""
    return msgspec.json.format(msgspec.json.encode(document(routes)), indent=2) + b"\n"


def listed(routes: Sequence[Route]) -> str:
    """Return the routes and the codes that can be refused, as tables for people."""
    rows = ["| Route | Scope | What it does |", "|---|---|---|"]
    rows += [f"| `{r.method} {r.path}` | {r.scope or 'open'} | {r.does} |" for r in routes]
    statuses: dict[int, set[str]] = {}
    for route in routes:
        for status, found in codes(route).items():
            statuses.setdefault(status, set()).update(found)
    rows += ["", "| Status | What it means | Codes |", "|---|---|---|"]
    for status in sorted(statuses):
        spelled = ", ".join(f"`{code}`" for code in sorted(statuses[status]))
        rows.append(f"| {status} | {_STATUS[status]} | {spelled} |")
    return "\n".join(rows)


def codes(route: Route) -> dict[int, list[str]]:
    """Return the codes that a route may refuse a request with, by status."""
    found: dict[int, set[str]] = {}
    for status, code in _refusals(route):
        found.setdefault(status, set()).add(code)
    return {status: sorted(found[status]) for status in sorted(found)}


def _refusals(route: Route) -> Iterator[tuple[int, str]]:
    kinds: list[type[OnwardError]] = [
        errors.InvalidInput,
        errors.Forbidden,
        errors.TooManyRequests,
        errors.StoreError,
        errors.StoreBusy,
        *route.errors,
    ]
    yield 500, failing.INTERNAL
    if route.scope is not None:
        kinds.append(errors.Unauthorized)
    if route.query is not None or route.body is not None or route.keyed:
        kinds.append(errors.LimitExceeded)
    if route.body is not None:
        yield 413, failing.TOO_LARGE
        yield 415, failing.WRONG_MEDIA
    if route.method != "GET":
        kinds += (errors.StoreFull, errors.StoreReadOnly)
    kinds += (PARAMETERS[name].missing for name in _placeholders(route.path))
    for kind in kinds:
        yield failing.status_for(kind), kind.code


def _types(routes: Sequence[Route]) -> list[Any]:
    found: dict[Any, None] = {failing.Refusal: None}
    for route in routes:
        for kind in (route.answer, route.body, route.query):
            if kind not in (None, bytes, str):
                found[kind] = None
    return list(found)


def _placeholders(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)


def _tag(route: Route) -> str:
    return route.path.split("/")[2].partition(".")[0]


def _operation(
    route: Route, named: dict[Any, Any], schemas: dict[str, Any], refusals: dict[str, Any]
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.does,
        "tags": [_tag(route)],
        "parameters": list(_parameters(route, named, schemas)),
    }
    if route.body is not None:
        content: dict[str, Any] = {"schema": named[route.body]}
        if route.example is not None:
            content["example"] = route.example
        made["requestBody"] = {
            "required": not route.optional,
            "description": f"At most {route.limit:,} bytes.",
            "content": {JSON: content},
        }
    made["responses"] = _responses(route, named, refusals)
    made["security"] = [] if route.scope is None else [{"token": [route.scope]}]
    return made


def _parameters(route: Route, named: dict[Any, Any], schemas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in _placeholders(route.path):
        known = PARAMETERS[name]
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        example = f"run_{_EXAMPLE}.1"
        if known.prefixes:
            schema["pattern"] = f"^({'|'.join(known.prefixes)})_{_ULID}$"
            example = f"{known.prefixes[0]}_{_EXAMPLE}"
        elif name == "digest":
            schema["pattern"] = "^sha256:[0-9a-f]{64}$"
            example = "sha256:" + "0" * 64
        else:
            schema["pattern"] = "^[^/]+$"
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": known.does,
            "schema": schema,
            "example": example,
        }
    if route.query is not None:
        struct = schemas[named[route.query]["$ref"].removeprefix(_REF)]
        for name, schema in struct["properties"].items():
            schema = dict(schema)
            about = schema.pop("description", None)
            made = {
                "name": name,
                "in": "query",
                "required": name in struct.get("required", ()),
                "schema": _given(schema),
            }
            yield {**made, "description": about} if about else made
    if route.keyed:
        yield _header(
            "Idempotency-Key",
            "Repeated under the same key, it is done once, and answered as it was then.",
            {"type": "string", "minLength": 1, "maxLength": MAX_KEY, "pattern": "^[!-~]+$"},
        )
    if route.tag is not None:
        yield _header("If-None-Match", "Entity tags of answers that are known.", {"type": "string"})
    if route.media == STREAM:
        yield _header(
            "Last-Event-ID", "The last event that is known; it goes before `after`.", {"type": "string"}
        )


def _header(name: str, does: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": does, "schema": schema}


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of something in a query: it is there or not, and never null."""
    made = {name: value for name, value in schema.items() if name != "default" or value is not None}
    kinds = [kind for kind in made.pop("anyOf", ()) if kind != {"type": "null"}]
    if "enum" in made:
        made["enum"] = [value for value in made["enum"] if value is not None]
    return {**kinds[0], **made} if len(kinds) == 1 else made


def _responses(route: Route, named: dict[Any, Any], refusals: dict[str, Any]) -> dict[str, Any]:
    tagged = {"ETag": {"$ref": "#/components/headers/ETag"}}
    made: dict[str, Any] = {}
    for status, does in {route.status: route.does, **route.also}.items():
        made[str(status)] = {"description": does, "content": {route.media: _content(route, named)}}
        if route.tag is not None:
            made[str(status)]["headers"] = tagged
    if route.tag is not None:
        made["304"] = {"$ref": "#/components/responses/304"}
    for status, found in codes(route).items():
        name = ".".join((str(status), *found))
        code = {"properties": {"code": {"enum": found}}}
        schema = {"allOf": [named[failing.Refusal], {"properties": {"error": code}}]}
        refusals[name] = {"description": _STATUS[status], "content": {JSON: {"schema": schema}}}
        made[str(status)] = {"$ref": f"#/components/responses/{name}"}
    return dict(sorted(made.items()))


def _links(route: Route, by_name: Mapping[str, Route]) -> dict[str, Any]:
    return {
        name: {
            "operationId": name,
            "description": by_name[name].does,
            "parameters": {_placeholders(by_name[name].path)[0]: f"$response.body#{pointer}"},
        }
        for name, pointer in route.leads.items()
        if name in by_name
    }


def _content(route: Route, named: dict[Any, Any]) -> dict[str, Any]:
    if route.answer is bytes:
        return {}
    if route.answer is str:
        return {"schema": {"type": "string"}}
    return {"schema": named[route.answer]}


# -- words --------------------------------------------------------------------------------------------------------------


def _described(types: Sequence[Any], components: dict[str, Any]) -> dict[str, Any]:
    """Put the words that stand below each field into the schemas, and name every field that an answer always has."""
    by_name = {kind.__name__: kind for kind in _structs(types)}
    by_name |= {f"{kind.__module__}.{kind.__qualname__}": kind for kind in _structs(types)}
    for name, schema in components.items():
        if "description" in schema:
            schema["description"] = _plain(schema["description"])
        kind = by_name.get(name)
        if kind is None or "properties" not in schema:
            continue
        for base in reversed(kind.__mro__):
            for field, said in _said(base).items():
                if field in schema["properties"]:
                    schema["properties"][field]["description"] = said
        if issubclass(kind, Shape):
            schema["required"] = list(schema["properties"])
    return components


def _structs(types: Sequence[Any]) -> list[type[msgspec.Struct]]:
    """Return every struct that these types are made of."""
    found: dict[type[msgspec.Struct], None] = {}

    def visit(known: Any) -> None:
        if isinstance(known, msgspec.inspect.StructType):
            if known.cls in found:
                return
            found[known.cls] = None
            for field in known.fields:
                visit(field.type)
        elif isinstance(known, msgspec.Struct):
            for name in known.__struct_fields__:
                value = getattr(known, name)
                for one in value if isinstance(value, tuple) else (value,):
                    visit(one)

    for kind in types:
        visit(msgspec.inspect.type_info(kind))
    return list(found)


def _said(kind: type) -> dict[str, str]:
    """Return the sentence below each field of a class."""
    if not isinstance(kind, type(msgspec.Struct)) or not kind.__module__.startswith("onward."):
        return {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):  # installed without its source
        return {}
    made = tree.body[0]
    found: dict[str, str] = {}
    if not isinstance(made, ast.ClassDef):
        return found
    for before, after in zip(made.body, made.body[1:], strict=False):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            found[before.target.id] = _plain(after.value.value)
    return found


def _plain(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


# -- names --------------------------------------------------------------------------------------------------------------


def _renamed(made: dict[str, Any]) -> dict[str, Any]:
    """Give every type a short name of its own: what is answered goes by its plain name, others make way for it."""
    schemas = made["components"]["schemas"]
    short = {
        name: name.removesuffix("Shape") for name in schemas if name.endswith("Shape") and "." not in name
    }
    for name in schemas:
        if name not in short:
            short[name] = _short(name, short.values())

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [walk(item) for item in value]
        if isinstance(value, str) and value.startswith(_REF):
            return _REF + short[value.removeprefix(_REF)]
        return value

    out: dict[str, Any] = walk(made)
    found = {
        short[name]: {**schema, "title": short[name]} for name, schema in out["components"]["schemas"].items()
    }
    out["components"]["schemas"] = dict(sorted(found.items()))
    return out


def _short(name: str, taken: Collection[str]) -> str:
    *module, own = name.split(".")
    made = f"{module[-1].title().replace('_', '')}{own}" if module else own
    return f"{made}Record" if made in taken else made


def _forget_unused(made: dict[str, Any]) -> None:
    """Take away what only parameters were made of."""
    schemas = made["components"]["schemas"]
    wanted: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, str) and value.startswith(_REF):
            name = value.removeprefix(_REF)
            if name not in wanted:
                wanted.add(name)
                walk(schemas[name])

    walk(made["paths"])
    walk(made["components"]["responses"])
    for name in [name for name in schemas if name not in wanted]:
        del schemas[name]


if __name__ == "__main__":
    from onward.surfaces.http.table import ROUTES

    if sys.argv[1:] == ["routes"]:
        print(listed(ROUTES))
    else:
        sys.stdout.buffer.write(written(ROUTES))
