"""Generates the OpenAPI 3.1 document of the API from the table of routes and the types of the documents."""

import re
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.model.documents.actions import ErrorDocument
from holdfast.model.documents.jobs import LogLine
from holdfast.model.documents.live import IncidentChanged, JobChanged, StreamEnded, StreamReset
from holdfast.model.documents.output import OutputLine
from holdfast.web.access.access import CONFIRM_HEADER, CSRF_HEADER
from holdfast.web.api.route_table import PREFIX, ROUTES, Route

_REFERENCE = "#/components/schemas/{name}"
# What a part of a path may look like; `job`: as names of jobs are, with the folder's number where there are several.
PATH_PARTS: dict[str, dict[str, Any]] = {
    "job": {
        "type": "string",
        "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(~[A-Za-z0-9][A-Za-z0-9._-]{0,127})?$",
    },
    "number": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
    "evidence": {"type": "string", "pattern": r"^[0-9]{1,7}\.[0-9]{1,7}$"},
    "node": {"type": "string", "pattern": r"^[^/\s]{1,253}$"},
    "serial": {"type": "string", "pattern": r"^[^/\s]{1,128}$"},
}
# The data of each server-sent event.
EVENTS: dict[str, type[msgspec.Struct]] = {
    "job": JobChanged,
    "incident": IncidentChanged,
    "log": LogLine,
    "output": OutputLine,
    "reset": StreamReset,
    "end": StreamEnded,
}
_STATUSES = {
    304: "Not modified: the cached document is current",
    400: "The request is invalid",
    401: "A token is needed",
    403: "The role does not allow it, or the request comes from another site",
    404: "The requested object does not exist",
    409: "The action is not possible now",
    410: "The object existed, but can no longer be read",
    413: "The request is too large",
    429: "Too many requests; retry after the time in Retry-After",
    503: "Temporarily unavailable; retry after the time in Retry-After",
}


def document() -> dict[str, Any]:
    kinds = [one for route in ROUTES for one in (route.answer, route.body, route.query) if one is not None]
    kinds += [ErrorDocument, *EVENTS.values()]
    found, components = msgspec.json.schema_components(kinds, schema_hook=_anything, ref_template=_REFERENCE)
    schemas = {id(kind): schema for kind, schema in zip(kinds, found, strict=True)}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(
            route, schemas, components
        )
    queries = {route.query.__name__ for route in ROUTES}
    plain = {name: _plain(schema) for name, schema in components.items() if name not in queries}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": __version__,
            "description": "Jobs, incidents, output and nodes as documents. Times are seconds since the epoch.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {"cookie": []}, {}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(plain.items())),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "holdfast"},
            },
        },
    }


def encoded() -> bytes:
    return msgspec.json.format(msgspec.json.encode(document()), indent=1) + b"\n"


def _anything(kind: type) -> dict[str, Any]:
    """Returns the schema of `object`, for settings, whose values have many types."""
    if kind is object:
        return {"description": "A value of any kind."}
    raise NotImplementedError(kind)


def _operation(route: Route, schemas: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    parts = [
        {"name": name, "in": "path", "required": True, "schema": PATH_PARTS[name]}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.path.split("/")[1]],
        "parameters": [*parts, *_query(components[route.query.__name__]), *_headers(route)],
        "responses": _answers(route, schemas),
    }
    if route.role is None:
        operation["security"] = [{}]
    if route.body is not None:
        content = {"application/json": {"schema": schemas[id(route.body)]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _query(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": False, "schema": _plain(_without_null(one))}
        for name, one in schema["properties"].items()
    ]


def _headers(route: Route) -> list[dict[str, Any]]:
    found = []
    if route.is_action:
        found.append(_header("X-Holdfast-Confirm", {"type": "string", "enum": ["yes"]}, required=True))
    if route.method == "POST" and route.role is not None:
        found.append(_header("X-Holdfast-CSRF", {"type": "string"}, required=False))
    if route.name == "events":
        found.append(_header("Last-Event-ID", {"type": "string", "maxLength": 100}, required=False))
    assert CONFIRM_HEADER == "x-holdfast-confirm" and CSRF_HEADER == "x-holdfast-csrf"
    return found


def _header(name: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": required, "schema": schema}


def _answers(route: Route, schemas: dict[int, Any]) -> dict[str, Any]:
    schema = schemas[id(route.answer)] if route.answer is not None else {"type": "string"}
    if route.media != "application/json":
        schema = {"type": "string"}
    if route.media == "text/event-stream":
        data = "; ".join(f"{event}: {kind.__name__}" for event, kind in EVENTS.items())
        schema["description"] = f"The data of each event has the schema for its event name: {data}"
    answers: dict[str, Any] = {
        "200": {"description": "The document", "content": {route.media: {"schema": schema}}}
    }
    usual = {400, 429, 503} | ({401, 403} if route.role is not None else set())
    if route.method == "POST":
        usual |= {403, 413}
    for status in sorted(usual | set(route.statuses)):
        content = {"application/json": {"schema": {"$ref": _REFERENCE.format(name="ErrorDocument")}}}
        answers[str(status)] = {"description": _STATUSES[status], "content": content}
    if route.method == "GET" and route.media == "application/json":
        answers["304"] = {"description": _STATUSES[304]}
    return answers


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Removes null from the schema of a parameter, because an omitted parameter means null."""
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return {**choices[0], **rest}
    return {key: value for key, value in schema.items() if not (key == "default" and value is None)}


def _plain(schema: Any) -> Any:
    """Replaces tuples by lists, as in JSON."""
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items()}
    if isinstance(schema, list | tuple):
        return [_plain(value) for value in schema]
    return schema
