"""Every operation checks credentials and scopes, and shows nothing of other callers."""

import re
from typing import Any
from unittest.mock import ANY
from urllib.parse import quote

import pytest

from onceward import limits
from onceward.api import OPERATIONS
from onceward.api.operation import Operation
from onceward.capabilities import SCOPES
from onceward.tokens import ACTIONS
from onceward.web.api import ROUTES
from tests.schedule.cluster import virtual
from tests.web.asgi import Answer, Caller, serving_to

# Those of the routes: with the scripts, which are not declared one by one.
SERVED = [route.operation for route in ROUTES if route.operation is not None]
GUARDED = [one for one in OPERATIONS.values() if not (one.public or one.signs_in)]
PUBLIC = [one for one in SERVED if one.public]
ENFORCED = {one: one.enforced for one in OPERATIONS.values() if one.enforced is not None}
# The names that are planted for the nouns of operations.
_NAMES = {
    "messages": "queue",
    "jobs": "queue",
    "queues": "queue",
    "locks": "lock",
    "rooms": "room",
    "tables": "table",
    "plain_timers": "timer",
    "endpoints": "endpoint",
}
# Every name of what is planted has this in it, and no program has.
MARK = "hush"
BODIES: dict[str, Any] = {
    "/v1/inbox/{queue}": {"body": 1, "key": "k"},
    "/v1/inbox/{queue}/batch": {"messages": [{"body": 1, "key": "k"}]},
    "/v1/locks/acquire": {"names": [f"{MARK}-lock"]},
    "/v1/timers": {"queue": f"{MARK}-queue", "delay_ms": 1},
    "/v1/rooms": {"id": f"{MARK}-other"},
    "/v1/tables": {"id": f"{MARK}-other"},
    "/v1/keys": {"name": "eve", "scopes": ["all"]},
    "/v1/endpoints": {"url": "https://example.com/"},
    "/timers": {"hours": 0, "minutes": 0, "seconds": 1, "url": "https://example.com/"},
}


async def planted(owner: Caller) -> dict[str, str]:
    """One of everything, and how each is called."""
    sent = await owner.ok("POST", f"/v1/inbox/{MARK}-queue", {"body": MARK, "key": f"{MARK}-key"})
    await owner.ok("PUT", f"/v1/queues/{MARK}-queue", {"limit": 3})
    timer = {"id": f"{MARK}-timer", "queue": f"{MARK}-queue", "delay_ms": 60_000}
    await owner.ok("POST", "/v1/timers", timer)
    await owner.ok("POST", "/v1/rooms", {"id": f"{MARK}-room"})
    step = {"ops": [{"op": "map.set", "map": "m", "key": "k", "value": MARK}]}
    await owner.ok("POST", f"/v1/rooms/{MARK}-room/ops", step)
    await owner.ok("POST", "/v1/tables", {"id": f"{MARK}-table"})
    await owner.ok("POST", f"/v1/tables/{MARK}-table/join", {"user": f"{MARK}-user"})
    await owner.ok("POST", "/v1/locks/acquire", {"names": [f"{MARK}-lock"], "owner": MARK})
    await owner.ok(
        "POST", "/v1/endpoints", {"id": f"{MARK}-endpoint", "url": "https://example.com/"}
    )
    await owner.ok("POST", "/v1/keys", {"name": f"{MARK}-program", "scopes": ["send:x"]})
    return {
        "/v1/jobs": sent["id"],
        "/v1/inbox": f"{MARK}-queue",
        "/v1/queues": f"{MARK}-queue",
        "/v1/timers": f"{MARK}-timer",
        "/timers": f"{MARK}-timer",
        "/v1/rooms": f"{MARK}-room",
        "/v1/tables": f"{MARK}-table",
        "/v1/locks": f"{MARK}-lock",
        "/v1/endpoints": f"{MARK}-endpoint",
        "/v1/keys": f"{MARK}-program",
        "/v1/ladders": MARK,
        "/v1/matches": MARK,
    }


async def ask(caller: Caller, operation: Operation, names: dict[str, str]) -> Answer:
    """A request for what is planted, as an operation takes it."""
    path = operation.path
    for prefix, name in names.items():
        if path.startswith(f"{prefix}/"):
            words = [name if word[:1] == "{" else word for word in path.split("/")]
            path = "/".join(words)
            break
    body = None if operation.body is None else BODIES.get(operation.path, {})
    query = "?queue=hush-queue" if operation.path == "/v1/jobs" else ""
    return await caller(operation.method, f"{path}{query}", body)


def test_every_route_has_a_declared_operation() -> None:
    assert len(SERVED) == len(ROUTES)
    assert {one.name for one in SERVED if one.noun != "scripts"} == OPERATIONS.keys()
    assert all(one.public for one in SERVED if one.noun == "scripts")


@virtual
async def test_every_operation_but_public_ones_needs_credentials() -> None:
    async with serving_to(owner="all") as callers:
        names = await planted(callers["owner"])
        nobody = Caller(callers["owner"].server)
        for operation in GUARDED:
            answer = await ask(nobody, operation, names)
            # A connection for WebSocket gets its credentials in the handshake or later.
            plain = operation.name != "rooms.connect"
            expected = (401, "no_credentials") if plain else (426, "upgrade_required")
            assert answer.verdict == expected, operation.name
        for operation in PUBLIC:
            assert (await ask(nobody, operation, names)).status == 200, operation.name
    assert len(GUARDED) > 100


@virtual
async def test_a_key_that_lacks_just_the_scope_of_an_operation_gets_403() -> None:
    without = {
        action: " ".join(f"{one}:*" for one in ACTIONS if one not in _that_include(action))
        for action, _ in ENFORCED.values()
    }
    # The scope itself for another name does not suffice.
    others = {action: f"{scopes} {action}:other" for action, scopes in without.items()}
    others["all"] = without["all"]
    async with serving_to(owner="all", **others) as callers:
        names = await planted(callers["owner"])
        before = await _state(callers["owner"])
        for operation, (action, _) in ENFORCED.items():
            answer = await ask(callers[action], operation, names)
            assert answer.verdict == (403, "not_allowed"), operation.name
        assert await _state(callers["owner"]) == before
    assert len(ENFORCED) > 50


@pytest.mark.parametrize("operation", ENFORCED, ids=lambda operation: operation.name)
@virtual
async def test_a_key_with_just_the_scope_of_an_operation_is_let_in(operation: Operation) -> None:
    action, parameter = ENFORCED[operation]
    name = f"{MARK}-{_NAMES[operation.noun]}" if parameter else "*"
    scope = "all" if action == "all" else f"{action}:{name}"
    async with serving_to(owner="all", exact=scope) as callers:
        names = await planted(callers["owner"])
        answer = await ask(callers["exact"], operation, names)
        assert answer.status not in (401, 403), (scope, answer.body)


def _that_include(action: str) -> set[str]:
    return {action, *(SCOPES[action].included_in if action in SCOPES else ())}


@virtual
async def test_every_answer_forbids_browsers_to_guess_its_type() -> None:
    async with serving_to(owner="all") as callers:
        names = await planted(callers["owner"])
        for caller in (callers["owner"], Caller(callers["owner"].server)):
            for operation in SERVED:
                answer = await ask(caller, operation, names)
                assert answer.headers["x-content-type-options"] == "nosniff", operation.name
        for path in ("/nowhere", "/v1/%00", "/console", "/onceward.js"):
            answer = await callers["owner"]("GET", path)
            assert answer.headers["x-content-type-options"] == "nosniff", path


@virtual
async def test_who_has_no_scope_learns_and_changes_nothing() -> None:
    async with serving_to(owner="all", eve="") as callers:
        names = await planted(callers["owner"])
        before = await _state(callers["owner"])
        for operation in GUARDED:
            if operation.path in ("/v1/session", "/v1/session/link"):
                continue  # a caller's own session, at the console
            answer = await ask(callers["eve"], operation, names)
            if answer.status < 300:
                # A list of what one may see, which is nothing; ladders are for all callers.
                # And one may end one's own sessions, of which there are none.
                own = (operation.method, operation.path) == ("DELETE", "/v1/sessions")
                assert operation.method == "GET" or own, (operation.method, operation.path)
                echoed = MARK if operation.path.startswith("/v1/ladders/") else "nothing"
                body = answer.body.decode().replace(f'"ladder":"{echoed}"', "")
                assert MARK not in body.replace(f'"user":"{echoed}"', ""), (operation.path, body)
            else:
                allowed = (400, 403, 404, 409, 422, 426)
                assert answer.status in allowed, (operation.name, answer.status)
        assert await _state(callers["owner"]) == before


@virtual
async def test_a_scope_is_checked_before_the_query_and_the_body() -> None:
    async with serving_to(eve="") as callers:
        for operation in ENFORCED:
            path = re.sub(r"{\w+}", MARK, operation.path)
            answer = await callers["eve"](operation.method, f"{path}?none=1", {"none": 1})
            assert answer.verdict == (403, "not_allowed"), operation.name
        assert {"rooms.apply", "tables.join", "queues.pause"} < {one.name for one in ENFORCED}


@virtual
async def test_a_caller_without_the_action_is_rejected_before_the_body() -> None:
    asked = [one for one in OPERATIONS.values() if one.body is not None and one.scope]
    async with serving_to(eve="", other="timer:other") as callers:
        for operation in asked:
            path = re.sub(r"{\w+}", MARK, operation.path)
            answer = await callers["eve"](operation.method, path, raw=b"not JSON")
            assert answer.verdict == (403, "not_allowed"), operation.name
        # The name is in the path: the scope for another name does not suffice.
        for query in ("", "?caller=key:ann"):
            answer = await callers["other"]("PATCH", f"/v1/timers/{MARK}{query}", raw=b"not JSON")
            assert answer.verdict == (403, "not_allowed"), query
    assert {"timers.move", "timers.create", "jobs.settle"} < {one.name for one in asked}


def test_scopes_with_alternatives_name_their_actions() -> None:
    assert OPERATIONS["timers.move"].actions == {"timer", "manage", "operate"}
    assert OPERATIONS["rooms.create"].actions == {"write", "room"}
    assert OPERATIONS["sessions.revoke"].actions == set()


@virtual
async def test_what_is_public_tells_nothing_of_what_is_stored() -> None:
    async with serving_to(owner="all") as callers:
        names = await planted(callers["owner"])
        nobody = Caller(callers["owner"].server)
        for operation in PUBLIC:
            body = (await ask(nobody, operation, names)).body.decode(errors="replace")
            # Metrics name queues, which is said in the guide, and nothing else.
            assert MARK not in body.replace(f'queue="{MARK}-queue"', ""), operation.path
            assert '"ow_' not in body.replace('"ow_…"', "")  # in a sample


async def _state(owner: Caller) -> list[Any]:
    paths = [
        *(f"/v1/queues/{MARK}-queue", f"/v1/timers/{MARK}-timer", f"/v1/tables/{MARK}-table"),
        *(f"/v1/rooms/{MARK}-room/snapshot", f"/v1/endpoints/{MARK}-endpoint", "/v1/keys"),
        *("/v1/rooms", "/v1/tables", f"/v1/locks/{MARK}-lock", f"/v1/jobs?queue={MARK}-queue"),
    ]
    found = [(await owner.ok("GET", path)) for path in paths]
    return [found[0]["settings"], *found[1:]]  # its jobs are counted again and again


@pytest.mark.parametrize("name", ["access_token", "token", "key", "api_key", "authorization"])
@virtual
async def test_credentials_in_an_address_count_for_nothing(name: str) -> None:
    async with serving_to(owner="all") as callers:
        nobody = Caller(callers["owner"].server)
        key = callers["owner"].token
        for path in ("/v1/queues", "/v1/timers", "/v1/keys", "/v1/overview"):
            answer = await nobody("GET", f"{path}?{name}={key}")
            assert answer.verdict == (401, "no_credentials")
            assert str(key) not in answer.body.decode()


@virtual
async def test_where_the_next_page_begins_names_nothing_of_others() -> None:
    some = "operate:seen* lock:seen* play:seen* timer:* read:seen*"
    async with serving_to(owner="all", eve="", some=some) as callers:
        owner = callers["owner"]
        for number in range(limits.PAGE_JOBS + 1):
            name = f"{MARK}-{number:03}" if number % 10 else f"seen-{number:03}"
            await owner.ok("POST", "/v1/locks/acquire", {"names": [name]})
            await owner.ok("POST", "/v1/rooms", {"id": name})
            await owner.ok("POST", "/v1/tables", {"id": name})
            endpoint = {"id": name, "url": "https://example.com/"}
            await owner.ok("POST", "/v1/endpoints", endpoint)
            timer = {"id": name, "url": "https://example.com/", "delay_ms": 10**9}
            await owner.ok("POST", "/v1/timers", timer)
        for path in (
            *("/v1/locks?limit=1", "/v1/rooms?limit=1", "/v1/tables?limit=1"),
            *("/v1/endpoints?everyone=true&limit=1", "/v1/agenda/timers?limit=1"),
        ):
            empty = (await callers["eve"].ok("GET", path)).items()
            assert {name: value for name, value in empty if value} in ({}, {"now_ms": ANY}), path
            found, next_ = 0, ""
            while True:
                after = f"&after={quote(next_)}" if next_ else ""
                answer = await callers["some"]("GET", path + after)
                assert MARK not in answer.body.decode(), path
                found += answer.body.count(b'"id":"seen-') or answer.body.count(b'"name":"seen-')
                next_ = answer.json["next"]
                if next_ is None:
                    break
            assert found == 6, path
