"""The OpenAPI document says what the server does."""

import json
import re
from typing import Any

import pytest

from onceward import __version__
from onceward.errors import TABLE
from onceward.web.api import ROUTES
from onceward.web.openapi import document
from onceward.web.routes import Routes
from onceward.web.scripts import NAMES

DOCUMENT = json.loads(document(Routes(ROUTES)))
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
DEFINED = {
    *("POST /v1/inbox/{queue}", "POST /v1/inbox/{queue}/batch", "POST /v1/queues/{queue}/claim"),
    *("POST /v1/jobs/{id}/complete", "POST /v1/jobs/{id}/fail", "POST /v1/jobs/{id}/extend"),
    *("GET /v1/jobs/{id}", "DELETE /v1/jobs/{id}", "POST /v1/jobs/{id}/redrive"),
    *("GET /v1/queues", "GET /v1/queues/{queue}", "PUT /v1/queues/{queue}"),
    *("GET /v1/queues/{queue}/dead", "POST /v1/queues/{queue}/pause"),
    *("POST /v1/jobs/{id}/settle", "POST /v1/queues/{queue}/resume"),
    "POST /v1/queues/{queue}/redrive",
    *("POST /v1/queues/{queue}/purge", "GET /v1/locks/{name}", "POST /v1/locks/acquire"),
    *("POST /v1/locks/renew", "POST /v1/locks/release"),
    *("POST /v1/timers", "GET /v1/timers", "GET /v1/timers/{id}", "PATCH /v1/timers/{id}"),
    *("DELETE /v1/timers/{id}", "POST /v1/timers/{id}/resend", "POST /timers", "GET /timers/{id}"),
    "DELETE /timers/{id}",
    *("POST /v1/endpoints", "GET /v1/endpoints", "GET /v1/endpoints/{id}"),
    *("PUT /v1/endpoints/{id}", "PATCH /v1/endpoints/{id}", "DELETE /v1/endpoints/{id}"),
    *("POST /v1/endpoints/{id}/rotate", "POST /v1/endpoints/{id}/test"),
    *("GET /v1/ws", "POST /v1/rooms", "GET /v1/rooms", "GET /v1/rooms/{id}"),
    *("PATCH /v1/rooms/{id}", "DELETE /v1/rooms/{id}", "GET /v1/rooms/{id}/members"),
    *("GET /v1/rooms/{id}/snapshot", "GET /v1/rooms/{id}/history", "POST /v1/rooms/{id}/ops"),
    "POST /v1/rooms/{id}/say",
    *(
        f"{method} /v1/rooms/{{id}}/{kind}/{{name}}"
        for method in ("GET", "PUT", "DELETE")
        for kind in ("maps", "lists", "presences")
    ),
    *("POST /v1/tables", "GET /v1/tables", "GET /v1/tables/{id}", "GET /v1/tables/{id}/place"),
    "GET /v1/tables/{id}/waitlist",
    *(
        f"POST /v1/tables/{{id}}/{name}"
        for name in (
            *("join", "leave", "watch", "ready", "alive", "move", "result"),
            *("pause", "resume", "close"),
        )
    ),
    *("GET /v1/ladders/{ladder}", "GET /v1/ladders/{ladder}/{user}"),
    *("GET /v1/matches/{id}", "GET /v1/matches/{id}/log", "GET /v1/matches/{id}/replay"),
    *("GET /v1/jobs", "GET /v1/jobs/{id}/story", "GET /v1/locks"),
    *("GET /v1/agenda", "GET /v1/agenda/timers", "GET /v1/senders"),
    *("GET /v1/sessions", "DELETE /v1/sessions", "DELETE /v1/sessions/{id}"),
    *("GET /v1/pulse", "GET /v1/overview", "GET /v1/settings"),
    *("POST /v1/session", "GET /v1/session", "DELETE /v1/session", "POST /v1/session/link"),
    *("GET /v1/keys", "POST /v1/keys", "DELETE /v1/keys/{id}"),
    *("GET /v1/callers/suspended", "POST /v1/callers/{id}/suspend"),
    *("POST /v1/callers/{id}/resume", "POST /v1/callers/{id}/transfer"),
    *("GET /v1/clock", "POST /v1/clock/confirm"),
    *("GET /healthz", "GET /readyz", "GET /metrics", "GET /openapi.json", "GET /docs"),
    *(f"GET /{name}" for name in NAMES),
}


def references(value: Any) -> set[str]:
    """The names of all schemas that are referred to."""
    if isinstance(value, dict):
        own = {value["$ref"].split("/")[-1]} if "$ref" in value else set()
        return own.union(*[references(inner) for inner in value.values()])
    if isinstance(value, list):
        return set().union(*[references(inner) for inner in value])
    return set()


def test_every_route_is_in_the_document() -> None:
    assert set(OPERATIONS) == DEFINED
    assert DOCUMENT["info"]["version"] == __version__


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z0-9_]+", name) for name in names)


def test_what_is_referred_to_is_there() -> None:
    schemas = set(DOCUMENT["components"]["schemas"])
    assert references(DOCUMENT) == schemas
    assert {"Message", "Receipt", "Problem", "QueueSettings"} <= schemas


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_parameter_of_the_path_is_described(name: str) -> None:
    in_path = [p["name"] for p in OPERATIONS[name].get("parameters", []) if p["in"] == "path"]
    assert in_path == re.findall(r"\{(\w+)\}", name)


@pytest.mark.parametrize("name", OPERATIONS)
def test_problems_stand_under_their_status(name: str) -> None:
    operation = OPERATIONS[name]
    for status, answer in operation["responses"].items():
        if int(status) >= 400:
            assert {TABLE[code].status for code in answer["description"].split(", ")} == {
                int(status)
            }
            assert "application/problem+json" in answer["content"]
    security = operation.get("security")
    assert ("401" in operation["responses"]) is (security != [])
    public = security in ([], [{}, {"bearer": []}])
    assert public is (" /v1/" not in name and " /timers" not in name)


def test_limits_are_in_the_document() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["ClaimJobs"]["properties"]["max"]["minimum"] == 1
    assert schemas["MessageBatch"]["properties"]["messages"]["maxItems"] == 1_000
    assert schemas["Message"]["required"] == ["body"]
    assert schemas["Message"]["additionalProperties"] is False
    accept = OPERATIONS["POST /v1/inbox/{queue}"]
    assert {p["name"] for p in accept["parameters"]} == {"queue", "wait_ms", "Idempotency-Key"}
    assert {"200", "202", "413", "415", "422"} <= set(accept["responses"])


def test_bodies_that_may_be_forms_are_in_the_document() -> None:
    types = {
        name: set(operation["requestBody"]["content"])
        for name, operation in OPERATIONS.items()
        if "requestBody" in operation
    }
    json_, form = "application/json", "application/x-www-form-urlencoded"
    assert types.pop("POST /timers") == {json_, form}
    assert all(found == {json_} for found in types.values())
    content = OPERATIONS["POST /timers"]["requestBody"]["content"]
    assert content[form]["schema"] == {"$ref": "#/components/schemas/PlainTimer"}
