"""The OpenAPI document, generated from operations and structs."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import inspect as types

from onceward import __version__
from onceward.api import NOUNS
from onceward.api.field_docs import field_docs
from onceward.api.operation import Operation
from onceward.errors import TABLE
from onceward.web.forms import FORM
from onceward.web.routes import Route, Routes
from onceward.web.samples import code_samples

_SCHEMA = "#/components/schemas/{name}"
_DESCRIPTION = (
    "Durable jobs, locks, timers, live rooms and tables over HTTP. Request and response bodies are "
    "JSON. Errors are problem documents (RFC 9457) with a stable `code`. Times are milliseconds "
    "since 1970-01-01 UTC, durations are milliseconds. Unknown members and parameters are rejected."
)
# The problems of all operations; of those with a body; of those that need credentials.
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
# The name and description of problems by status. A separate table, because the phrases of
# `http.HTTPStatus` differ between versions of Python.
_STATUSES = {
    400: ("BadRequest", "The request is malformed."),
    401: ("Unauthorized", "The request has no valid credentials."),
    403: ("Forbidden", "The scopes of the caller or the origin of the page do not allow this."),
    404: ("NotFound", "It does not exist, or the caller cannot see it."),
    405: ("MethodNotAllowed", "The path does not support this method."),
    408: ("RequestTimeout", "The request did not arrive in time."),
    409: ("Conflict", "The current state does not allow this."),
    410: ("Gone", "It was removed."),
    413: ("ContentTooLarge", "The request, or the value to store, is too large."),
    415: ("UnsupportedMediaType", "The body has an unsupported content type."),
    421: ("MisdirectedRequest", "The server does not serve this host name."),
    422: ("UnprocessableContent", "A parameter or a member of the body is not valid."),
    423: ("Locked", "Another caller holds the lock."),
    426: ("UpgradeRequired", "The path supports WebSocket only."),
    429: ("TooManyRequests", "The caller exceeds a rate limit. Retry later."),
    431: ("HeadersTooLarge", "The headers of the request are too large."),
    500: ("InternalServerError", "The server failed to handle the request."),
    501: ("NotImplemented", "The server does not implement this part of HTTP."),
    503: ("ServiceUnavailable", "The server cannot handle the request now. Retry later."),
    507: ("InsufficientStorage", "The storage is full."),
}
_HEADERS = {
    "Idempotency-Key": "The idempotency key. A repeated request with the same key has no effect."
}
_TAGS = {"scripts": "Scripts: the client for browsers."}
# The nouns of each capability, for pages that group operations.
_GROUPS = {
    "Jobs and queues": ("messages", "jobs", "queues"),
    "Locks": ("locks",),
    "Timers and webhooks": ("timers", "endpoints", "callers", "plain_timers"),
    "Rooms": ("rooms",),
    "Tables and games": ("tables", "matches"),
    "Server": ("server", "keys", "sessions", "session", "scripts"),
}
_SCOPE = re.compile(r"(\w+(?::\*|:\{[^}]*\})?)(| of .*)")
_TEXT = {"type": "string", "minLength": 1}


class Problem(msgspec.Struct):
    """A problem document (RFC 9457)."""

    type: str
    """A URI of the kind of problem."""
    title: str
    """A short description of the kind of problem, for people."""
    status: int
    """The HTTP status."""
    detail: str
    """What failed, for people."""
    code: str
    """The stable code, for programs."""
    retry: bool
    """Whether the same request can succeed later."""


def document(routes: Routes) -> bytes:
    """The document as JSON. It has the server at `/`; `at_root` moves it."""
    operations = [_declared(route) for route in routes]
    schemas, components = _schemas(operations)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    problems: dict[str, Any] = {}
    for operation in operations:
        described = _operation(operation, schemas, components, problems)
        paths[operation.path][operation.method.lower()] = described
    for operation in operations:
        if operation.query is not None:
            components.pop(operation.query.__name__, None)
    tags = {operation.noun: None for operation in operations}
    whole = {
        "openapi": "3.1.0",
        "info": {
            "title": "Onceward",
            "version": __version__,
            "summary": "Durable jobs, locks, timers and live rooms.",
            "description": _DESCRIPTION,
            "contact": {"name": "The Onceward developers"},
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This server"}],
        "tags": [{"name": tag, "description": (NOUNS | _TAGS)[tag]} for tag in tags],
        "x-tagGroups": [
            {"name": name, "tags": [one for one in nouns if one in tags]}
            for name, nouns in _GROUPS.items()
        ],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": dict(sorted(problems.items())),
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


def at_root(text: bytes, root: str) -> bytes:
    """The document of a server that is mounted at a path."""
    return text.replace(b'"url": "/"', b'"url": ' + msgspec.json.encode(root or "/"), 1)


def _declared(route: Route) -> Operation[Any]:
    assert route.operation is not None, f"{route.method} {route.path} has no operation"
    return route.operation


def _schemas(operations: list[Operation[Any]]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """The schemas of structs, and the components that they refer to, with descriptions."""
    structs: dict[Any, None] = {Problem: None}
    for one in operations:
        structs |= dict.fromkeys(s for s in (one.body, one.response, one.query) if s is not None)
    schemas, components = msgspec.json.schema_components(list(structs), ref_template=_SCHEMA)
    queries = {one.query for one in operations}
    for struct in _inner_structs(types.multi_type_info(list(structs)), set()):
        _describe(components[struct.__name__].get("properties", {}), struct, struct in queries)
    _complete(components)
    return dict(zip(structs, schemas, strict=True)), components


def _describe(properties: dict[str, Any], struct: type[msgspec.Struct], is_query: bool) -> None:
    """Add descriptions to properties.

    Defaults become a part of them. Clients made from a schema with `default` send the defaults of
    all members, which would reset settings, and expect them in responses, which omit them.
    """
    docs = field_docs(struct)
    names = dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
    for encoded, schema in properties.items():
        text = re.sub(r"\bNone\b", "null", docs.get(names.get(encoded, ""), ""))
        if not is_query or schema.get("default") == "":
            default = schema.pop("default", None)
            if default:
                text += f" Default: `{msgspec.json.encode(default).decode()}`."
        if text:
            schema["description"] = text.strip()


def _inner_structs(
    infos: Iterable[Any], seen: set[type[msgspec.Struct]]
) -> Iterator[type[msgspec.Struct]]:
    """The structs in types, each once."""
    for info in infos:
        if isinstance(info, types.StructType):
            if info.cls in seen:
                continue
            seen.add(info.cls)
            yield info.cls
            yield from _inner_structs([field.type for field in info.fields], seen)
        elif isinstance(info, types.Metadata):
            yield from _inner_structs([info.type], seen)
        elif isinstance(info, types.UnionType):
            yield from _inner_structs(info.types, seen)
        elif isinstance(info, types.DictType):
            yield from _inner_structs([info.value_type], seen)
        elif isinstance(info, types.CollectionType):
            yield from _inner_structs([info.item_type], seen)


def _complete(schema: Any) -> None:
    """Write schemas as code generators want them: arrays of anything with `items`, and a choice of
    texts as one enumeration."""
    if isinstance(schema, list):
        for inner in schema:
            _complete(inner)
    elif isinstance(schema, dict):
        if schema.get("type") == "array":
            schema.setdefault("items", {})
        choices = schema.get("anyOf")
        if isinstance(choices, list) and all(choice.keys() == {"enum"} for choice in choices):
            schema["enum"] = [text for choice in schema.pop("anyOf") for text in choice["enum"]]
        for inner in schema.values():
            _complete(inner)


def _operation(
    operation: Operation[Any],
    schemas: dict[Any, Any],
    components: dict[str, Any],
    problems: dict[str, Any],
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name.replace(".", "_"),
        "tags": [operation.noun],
        "summary": operation.summary,
        "description": " ".join(_sentences(operation)),
        "responses": _responses(operation, schemas) | _problems(operation, schemas, problems),
    }
    if operation.scope:
        described["x-scope"] = operation.scope
    if samples := code_samples(operation):
        described["x-codeSamples"] = samples
    if operation.signs_in:
        described["security"] = [{}]
    elif operation.public:
        may_ask = "no_credentials" in operation.errors  # by a setting
        described["security"] = [{}, {"bearer": []}] if may_ask else []
    parameters = [*_parameters(operation, components)]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        kinds = ("application/json", FORM) if operation.form else ("application/json",)
        described["requestBody"] = {
            "required": not operation.body_optional,
            "content": {kind: {"schema": schemas[operation.body]} for kind in kinds},
        }
    return described


def _sentences(operation: Operation[Any]) -> Iterator[str]:
    """The description of an operation."""
    if operation.description:
        yield operation.description
    if operation.waits:
        yield "It waits up to `wait_ms` milliseconds."
    if operation.done_errors:
        codes = " or ".join(f"`{code}`" for code in operation.done_errors)
        yield f"Safe to retry: after a lost response, {codes} means that it is done."
    if operation.public:
        by_default = " by default" if "no_credentials" in operation.errors else ""
        yield f"It needs no credentials{by_default}."
    elif operation.signs_in:
        yield "The body has the credentials."
    elif operation.scope:
        alternatives = operation.scope.split(" | ")
        yield f"Required scope: {' or '.join(map(_code, alternatives))}."
    else:
        yield "Any caller with credentials can use it."


def _code(scope: str) -> str:
    """A scope as code, unless it is a description in words."""
    found = _SCOPE.fullmatch(scope)
    return f"`{found[1]}`{found[2]}" if found else scope


def _parameters(operation: Operation[Any], components: dict[str, Any]) -> Iterator[dict[str, Any]]:
    before = ""
    for word in operation.path.split("/"):
        if word.startswith("{"):
            name = word[1:-1]
            text = f"The {name} of the {_singular(before)}." if name in ("id", "name") else ""
            text = text or f"The name of the {name}."
            yield _parameter(name, "path", {"description": text, **_TEXT})
        before = word
    if operation.query is not None:
        for name, schema in components[operation.query.__name__]["properties"].items():
            yield _parameter(name, "query", schema)
    for name in operation.headers:
        yield _parameter(name, "header", {"description": _HEADERS[name], **_TEXT})


def _parameter(name: str, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    schema = dict(schema)
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": schema.pop("description", ""),
        "schema": schema,
    }


def _singular(noun: str) -> str:
    return noun.removesuffix("es") if noun.endswith("ches") else noun.removesuffix("s")


def _responses(operation: Operation[Any], schemas: dict[Any, Any]) -> dict[str, Any]:
    """The responses that are not problems, by status."""
    text = f"{operation.summary}."
    content: dict[str, Any] = {}
    if operation.response is not None:
        text = " ".join((operation.response.__doc__ or text).split())
        content = {"content": {"application/json": {"schema": schemas[operation.response]}}}
    elif operation.media_type:
        kind = "object" if operation.media_type == "application/json" else "string"
        content = {"content": {operation.media_type: {"schema": {"type": kind}}}}
    titles = {101: "The connection continues as a WebSocket. ", 202: "Accepted. "}
    if 202 in operation.statuses:
        titles[200] = "Accepted by an earlier request. "
    return {
        str(status): {"description": titles.get(status, "") + text, **content}
        for status in operation.statuses
    }


def _problems(
    operation: Operation[Any], schemas: dict[Any, Any], shared: dict[str, Any]
) -> dict[str, Any]:
    """The responses that are problems, by status. Those that operations have in common are added
    to `shared`, and referred to."""
    by_status: dict[int, list[str]] = defaultdict(list)
    has_body, guarded = operation.body is not None, not operation.public
    for code in (*operation.errors, *_ALL, *has_body * _BODY, *guarded * _GUARDED):
        if code not in by_status[TABLE[code].status]:
            by_status[TABLE[code].status].append(code)
    content = {"application/problem+json": {"schema": schemas[Problem]}}
    found: dict[str, Any] = {}
    for status, codes in sorted(by_status.items()):
        name, sentence = _STATUSES[status]
        listed = ", ".join(f"`{code}`" for code in codes)
        response = {
            "description": f"{sentence} Codes: {listed}.",
            "content": content,
            "x-codes": codes,
        }
        if set(codes).isdisjoint(operation.errors):
            name += "Body" if not set(codes).isdisjoint(_BODY) else ""
            name += "Public" if operation.public and _adds(_GUARDED, status) else ""
            assert shared.setdefault(name, response) == response, name
            response = {"$ref": f"#/components/responses/{name}"}
        found[str(status)] = response
    return found


def _adds(codes: tuple[str, ...], status: int) -> bool:
    return any(TABLE[code].status == status for code in codes)
