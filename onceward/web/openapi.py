"""The OpenAPI document, generated from routes and structs."""

from collections import defaultdict
from typing import Any

import msgspec

from onceward import __version__
from onceward.errors import TABLE
from onceward.web.routes import FORM, Route, Routes

_REF = "#/components/schemas/{name}"
# What can go wrong with any request; with any that has a body; with any that needs credentials.
_ALL = (
    *("not_text", "bad_parameter", "bad_header", "method_not_allowed", "bad_request"),
    *("head_too_large", "too_slow", "not_implemented", "wrong_host", "origin_refused", "internal"),
    *("engine_unreachable", "storage_full", "node_stopped", "contention", "overloaded"),
)
_BODY = (
    *("not_json", "not_a_number", "duplicate_member", "too_deep", "body_too_large"),
    *("not_this_type", "wrong_type", "unknown_member", "missing_member", "bad_value"),
)
_GUARDED = ("no_credentials", "token_expired", "not_allowed", "rate_limited")


class Problem(msgspec.Struct):
    """A problem document (RFC 9457). Its code is stable; title and detail are for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retry: bool
    """Whether the same request may succeed later."""


def document(routes: Routes) -> bytes:
    """The document as JSON."""
    structs = {Problem: None}
    for route in routes:
        structs.update(dict.fromkeys([s for s in (route.takes, route.gives) if s is not None]))
    schemas, components = msgspec.json.schema_components(list(structs), ref_template=_REF)
    found = dict(zip(structs, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in routes:
        paths[route.path][route.method.lower()] = _operation(route, found)
    whole = {
        "openapi": "3.1.0",
        "info": {
            "title": "Onceward",
            "version": __version__,
            "description": "A coordination backend: once, in order, on time.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key or a JSON Web Token",
                }
            },
        },
        "security": [{"bearer": []}],
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1)


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{route.path}".translate(_PLAIN).strip("_"),
        "summary": route.summary,
        "responses": _responses(route, schemas),
    }
    if route.public:
        may_ask = "no_credentials" in route.problems  # by a setting
        operation["security"] = [{}, {"bearer": []}] if may_ask else []
    parameters = [
        {"name": word[1:-1], "in": "path", "required": True, "schema": _TEXT}
        for word in route.path.split("/")
        if word.startswith("{")
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": _QUERY.get(name, _TEXT)}
        for name in route.query
    ]
    parameters += [
        {"name": name, "in": "header", "required": False, "schema": _TEXT} for name in route.headers
    ]
    if parameters:
        operation["parameters"] = parameters
    if route.takes is not None:
        types = ("application/json", FORM) if route.forms else ("application/json",)
        operation["requestBody"] = {
            "required": True,
            "content": {type_: {"schema": schemas[route.takes]} for type_ in types},
        }
    return operation


def _responses(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if route.gives is not None:
        content = {"content": {"application/json": {"schema": schemas[route.gives]}}}
    titles = {202: "Accepted for the first time", 200: "Done"}
    answers: dict[str, Any] = {
        str(status): {"description": titles[status], **content} for status in route.statuses
    }
    codes = [*route.problems, *_ALL]
    codes += _BODY if route.takes is not None else []
    codes += [] if route.public else _GUARDED
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in codes:
        by_status[TABLE[code].status].append(code)
    for status, its_codes in sorted(by_status.items()):
        answers[str(status)] = {
            "description": ", ".join(dict.fromkeys(its_codes)),
            "content": {"application/problem+json": {"schema": schemas[Problem]}},
        }
    return answers


_TEXT = {"type": "string", "minLength": 1}
_NUMBER = {"type": "integer", "minimum": 0}
_QUERY = {
    "wait_ms": _NUMBER,
    "limit": {"type": "integer", "minimum": 1},
    "secret": {"type": "boolean"},
    "app": {"type": "boolean"},
    "everyone": {"type": "boolean"},
}
_PLAIN = str.maketrans({"/": "_", "{": "", "}": "", ".": "_"})
