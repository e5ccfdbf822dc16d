"""The OpenAPI document describes all operations of the server."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from onceward import __version__, limits
from onceward.api import NOUNS
from onceward.api import OPERATIONS as DECLARED
from onceward.errors import TABLE
from onceward.web.api import ROUTES
from onceward.web.openapi import at_root, document
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
    *("POST /v1/jobs/{id}/output", "GET /v1/jobs/{id}/output"),
    *("GET /v1/jobs/count", "GET /v1/jobs/{id}/children", "POST /v1/jobs/{id}/events"),
    "POST /v1/jobs/{id}/event-links",
    "GET /v1/jobs/{id}/children/count",
    *("GET /v1/jobs/{id}", "DELETE /v1/jobs/{id}", "POST /v1/jobs/{id}/retry"),
    *("GET /v1/queues", "GET /v1/queues/{queue}", "PUT /v1/queues/{queue}"),
    *("GET /v1/queues/{queue}/failed", "POST /v1/queues/{queue}/pause"),
    *("POST /v1/jobs/{id}/settle", "POST /v1/queues/{queue}/resume"),
    "POST /v1/queues/{queue}/redrive",
    *("POST /v1/queues/{queue}/purge", "GET /v1/locks/{name}", "POST /v1/locks/acquire"),
    *("POST /v1/locks/renew", "POST /v1/locks/release"),
    *("POST /v1/timers", "GET /v1/timers", "GET /v1/timers/{id}", "PATCH /v1/timers/{id}"),
    *("DELETE /v1/timers/{id}", "POST /v1/timers/{id}/resend", "POST /timers", "GET /timers/{id}"),
    *("POST /v1/timers/{id}/move", "POST /v1/timers/{id}/pause", "POST /v1/timers/{id}/resume"),
    *("GET /v1/timers/{id}/firings", "GET /v1/endpoints/{id}/deliveries"),
    "GET /v1/endpoints/{id}/deliveries/{delivery}",
    "POST /v1/endpoints/{id}/deliveries/{delivery}/resend",
    *("POST /v1/endpoints/{id}/resend", "POST /v1/endpoints/{id}/portal"),
    "DELETE /v1/endpoints/{id}/portal",
    "DELETE /timers/{id}",
    *("POST /v1/endpoints", "GET /v1/endpoints", "GET /v1/endpoints/{id}"),
    *("PUT /v1/endpoints/{id}", "PATCH /v1/endpoints/{id}", "DELETE /v1/endpoints/{id}"),
    *("POST /v1/endpoints/{id}/rotate", "POST /v1/endpoints/{id}/test"),
    *("GET /v1/ws", "POST /v1/rooms", "GET /v1/rooms", "GET /v1/rooms/{id}"),
    *("PATCH /v1/rooms/{id}", "DELETE /v1/rooms/{id}", "GET /v1/rooms/{id}/members"),
    *("GET /v1/rooms/{id}/snapshot", "GET /v1/rooms/{id}/history", "POST /v1/rooms/{id}/ops"),
    "POST /v1/rooms/{id}/broadcast",
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
            *("join", "leave", "watch", "ready", "heartbeat", "move", "result"),
            *("pause", "resume", "close"),
        )
    ),
    *("GET /v1/ladders/{ladder}", "GET /v1/ladders/{ladder}/{user}"),
    *("GET /v1/matches/{id}", "GET /v1/matches/{id}/log", "GET /v1/matches/{id}/replay"),
    *("GET /v1/jobs", "GET /v1/jobs/{id}/history", "GET /v1/locks"),
    *("GET /v1/agenda", "GET /v1/agenda/timers", "GET /v1/senders"),
    *("GET /v1/sessions", "DELETE /v1/sessions", "DELETE /v1/sessions/{id}"),
    *("GET /v1/activity", "GET /v1/overview", "GET /v1/settings"),
    *("POST /v1/session", "GET /v1/session", "DELETE /v1/session", "POST /v1/session/link"),
    *("GET /v1/keys", "POST /v1/keys", "DELETE /v1/keys/{id}"),
    *("GET /v1/callers/suspended", "POST /v1/callers/{id}/suspend"),
    *("POST /v1/callers/{id}/resume", "POST /v1/callers/{id}/transfer"),
    *("GET /v1/clock", "POST /v1/clock/confirm"),
    *("GET /healthz", "GET /readyz", "GET /metrics", "GET /openapi.json", "GET /docs"),
    *(f"GET /{name}" for name in NAMES),
}


def references(value: Any) -> set[str]:
    """All references to components."""
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*[references(inner) for inner in value.values()])
    if isinstance(value, list):
        return set().union(*[references(inner) for inner in value])
    return set()


def arrays(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All schemas with the type array, each with its path."""
    if isinstance(value, dict):
        if value.get("type") == "array":
            yield path, value
        for name, inner in value.items():
            yield from arrays(inner, f"{path}/{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from arrays(inner, f"{path}/{number}")


def resolved(response: dict[str, Any]) -> dict[str, Any]:
    """A response, which may be a reference."""
    name = response.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = DOCUMENT["components"]["responses"][name] if name else response
    return found


def test_every_route_is_in_the_document() -> None:
    assert set(OPERATIONS) == DEFINED
    assert DOCUMENT["info"]["version"] == __version__


def test_every_operation_has_its_name_as_id() -> None:
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(names)) == len(names)
    assert {name.replace(".", "_") for name in DECLARED} <= set(names)
    assert OPERATIONS["POST /v1/jobs/{id}/retry"]["operationId"] == "jobs_retry"


def test_every_operation_has_a_described_tag() -> None:
    tags = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}
    assert all(tags.values())
    assert {*NOUNS, "scripts"} == tags.keys()
    for operation in OPERATIONS.values():
        [tag] = operation["tags"]
        assert operation["operationId"].startswith(f"{tag}_")


def test_every_tag_is_in_one_group_and_every_operation_has_samples() -> None:
    grouped = [tag for group in DOCUMENT["x-tagGroups"] for tag in group["tags"]]
    assert sorted(grouped) == sorted(tag["name"] for tag in DOCUMENT["tags"])
    for name, operation in OPERATIONS.items():
        sources = [one["source"] for one in operation["x-codeSamples"]]
        assert sources, name
        assert "VALUE" not in str(sources), f"{name}: give its arguments in onceward/web/samples.py"


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_parameters_and_responses_are_described(name: str) -> None:
    operation = OPERATIONS[name]
    assert re.fullmatch(r"[A-Z].{1,59}", operation["summary"])
    parts = [operation, *operation.get("parameters", []), *operation["responses"].values()]
    for part in parts:
        assert resolved(part)["description"].endswith("."), part


def test_every_array_has_items() -> None:
    found = dict(arrays(DOCUMENT))
    assert [path for path, schema in found.items() if "items" not in schema] == []
    assert "/components/schemas/Job/properties/history" in found


def test_all_components_are_used_and_exist() -> None:
    components = {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "responses")
        for name in DOCUMENT["components"][kind]
    }
    assert references(DOCUMENT) == components
    names = {name.rpartition("/")[2] for name in components}
    assert {"Message", "Receipt", "Problem", "QueueSettings"} <= names


def test_fields_are_described_with_their_defaults() -> None:
    fields = DOCUMENT["components"]["schemas"]["QueueSettings"]["properties"]
    # Generated clients would send the defaults of all settings if they were in `default`.
    assert fields["attempts_max"] == {
        "type": "integer",
        "description": "The number of attempts after which a failure is final; 0: no limit. "
        "Default: `5`.",
    }
    assert fields["job_retention_ms"]["description"].startswith("How long a job is kept")
    assert "null: forever" in fields["job_retention_ms"]["description"]
    inherited = DOCUMENT["components"]["schemas"]["Message"]["properties"]["order_key"]
    assert inherited["description"].startswith("Jobs of one queue with the same order key")


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_parameter_is_in_the_document(name: str) -> None:
    parameters = OPERATIONS[name].get("parameters", [])
    in_path = [one["name"] for one in parameters if one["in"] == "path"]
    assert in_path == re.findall(r"\{(\w+)\}", name)
    in_query = {one["name"] for one in parameters if one["in"] == "query"}
    operation = DECLARED.get(OPERATIONS[name]["operationId"].replace("_", ".", 1))
    if operation is not None and operation.query is not None:
        assert in_query == set(operation.query.__struct_encode_fields__)


def test_parameters_have_the_limits_and_defaults_of_their_struct() -> None:
    found = {one["name"]: one for one in OPERATIONS["GET /v1/jobs"]["parameters"]}
    bounds = {"minimum": 1, "maximum": limits.LIST_MAX, "default": 50}
    assert found["limit"]["schema"] == {"type": "integer", **bounds}
    assert {"queued", "failed"} < set(found["state"]["schema"]["enum"])
    assert found["text"]["description"] == "A part of the id, the key or the order key."
    [id_] = OPERATIONS["GET /v1/matches/{id}"]["parameters"]
    assert id_["description"] == "The id of the match."


@pytest.mark.parametrize("name", OPERATIONS)
def test_problems_are_listed_under_their_status(name: str) -> None:
    operation = OPERATIONS[name]
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            problem = resolved(response)
            assert {TABLE[code].status for code in problem["x-codes"]} == {int(status)}
            assert all(f"`{code}`" in problem["description"] for code in problem["x-codes"])
            assert "application/problem+json" in problem["content"]
    security = operation.get("security")
    assert ("401" in operation["responses"]) is (security != [])
    public = security in ([], [{}, {"bearer": []}])
    assert public is (
        (" /v1/" not in name and " /timers" not in name) or name == "DELETE /v1/session"
    )
    assert (security == [{}]) is (name == "POST /v1/session")


def test_operations_have_their_scope_and_own_problems() -> None:
    retry = OPERATIONS["POST /v1/jobs/{id}/retry"]
    assert retry["x-scope"] == "manage:{queue of the job}"
    assert "`manage:{queue of the job}`" in retry["description"]
    assert retry["responses"]["409"]["x-codes"] == ["not_failed"]
    for operation in DECLARED.values():
        described = OPERATIONS[f"{operation.method} {operation.path}"]
        assert described.get("x-scope", "") == operation.scope
        codes = {c for r in described["responses"].values() for c in resolved(r).get("x-codes", [])}
        assert codes >= set(operation.errors)


def test_a_mounted_server_is_in_the_document_at_its_path() -> None:
    whole = document(Routes(ROUTES))
    assert json.loads(whole)["servers"][0]["url"] == "/"
    assert json.loads(at_root(whole, "/shop"))["servers"][0]["url"] == "/shop"
    assert at_root(whole, "") == whole


def test_limits_are_in_the_document() -> None:
    found = DOCUMENT["components"]["schemas"]
    assert found["ClaimJobs"]["properties"]["max"]["minimum"] == 1
    assert found["MessageBatch"]["properties"]["messages"]["maxItems"] == 1_000
    assert found["Message"]["required"] == ["body"]
    assert found["Message"]["additionalProperties"] is False
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
