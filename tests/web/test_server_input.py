"""Every bad input has its problem document."""

import json
from typing import Any

import pytest

from onceward import limits
from tests.schedule.cluster import virtual
from tests.web.asgi import serving

LONG = "x" * 3_000
NO_ID = "0" * 29
TOO_LARGE = "x" * (limits.BODY_BYTES_MAX + 1)
SEND = ("POST", "/v1/inbox/q")
MESSAGE = {"body": 1, "key": "k"}
CLAIM = ("POST", "/v1/queues/q/claim")
COMPLETE = ("POST", f"/v1/jobs/{NO_ID}/complete")
QUEUE = "/v1/queues/q"
DEAD = f"{QUEUE}/failed"
SET = ("PUT", QUEUE)
ACQUIRE = ("POST", "/v1/locks/acquire")


def raw(text: bytes, *where: str) -> tuple[Any, ...]:
    return *(where or SEND), {"raw": text}


def body(value: Any, *where: str) -> tuple[Any, ...]:
    return *(where or SEND), {"body": value}


def message(**members: Any) -> tuple[Any, ...]:
    return body({**MESSAGE, **members})


def headed(*headers: tuple[str, str | bytes], value: Any = MESSAGE) -> tuple[Any, ...]:
    return *SEND, {"body": value, "headers": headers}


def get(path: str, method: str = "GET") -> tuple[Any, ...]:
    return method, path, {}


# what: (the request, status, code)
BAD: dict[str, tuple[tuple[Any, ...], int, str]] = {
    # The body.
    "not JSON": (raw(b"hello"), 400, "not_json"),
    "no body": (raw(b""), 400, "not_json"),
    "not UTF-8": (raw(b'{"body":"\xff","key":"k"}'), 400, "not_text"),
    "too large": (raw(b" " * (limits.REQUEST_BYTES_MAX + 1)), 413, "body_too_large"),
    "too large in pieces": (
        raw([b" " * limits.REQUEST_BYTES_MAX, b" "]),  # type: ignore[arg-type]
        413,
        "body_too_large",
    ),
    "too large for a record": (message(body=TOO_LARGE), 413, "value_too_large"),
    "too deep": (raw(b'{"body":' + b"[" * 100 + b"]" * 100 + b',"key":"k"}'), 400, "too_deep"),
    "much too deep": (raw(b"[" * 100_000), 400, "too_deep"),
    "NaN": (raw(b'{"body":NaN,"key":"k"}'), 400, "not_a_number"),
    "too large a number": (raw(b'{"body":1e999,"key":"k"}'), 400, "not_a_number"),
    "duplicate member": (raw(b'{"body":1,"key":"a","key":"b"}'), 400, "duplicate_member"),
    "duplicate inner member": (raw(b'{"body":{"a":1,"a":2},"key":"k"}'), 400, "duplicate_member"),
    "wrong type": (message(key=5), 422, "wrong_type"),
    "wrong type of all": (body([MESSAGE]), 422, "wrong_type"),
    "priority out of bounds": (message(priority=10), 422, "wrong_type"),
    "tags that are a text": (message(tags="red"), 422, "wrong_type"),
    "tags that are null": (message(tags=None), 422, "wrong_type"),
    "a tag that is a number": (message(tags=[1]), 422, "wrong_type"),
    "an empty tag": (message(tags=[""]), 422, "bad_name"),
    "a long tag": (message(tags=["x" * 65]), 422, "bad_name"),
    "a tag with a line break": (message(tags=["a\nb"]), 422, "bad_name"),
    "a tag twice": (message(tags=["a", "a"]), 400, "bad_request"),
    "too many tags": (message(tags=list("abcdefghijk")), 400, "bad_request"),
    "an empty tag to list": (get("/v1/jobs?tag="), 422, "bad_parameter"),
    "a long tag to count": (get(f"/v1/jobs/count?tag={'x' * 65}"), 422, "bad_parameter"),
    "unknown member": (message(colour="red"), 422, "unknown_member"),
    "missing member": (body({"key": "k"}), 422, "missing_member"),
    "form": (headed(("content-type", "application/x-www-form-urlencoded")), 415, "not_this_type"),
    # Keys.
    "missing key": (body({"body": 1}), 422, "missing_key"),
    "empty key": (message(key=""), 422, "bad_key"),
    "long key": (message(key=LONG), 422, "bad_key"),
    "NUL in the key": (message(key="a\0b"), 422, "bad_key"),
    "lone surrogate in the key": (raw(rb'{"body":1,"key":"\ud800"}'), 400, "not_text"),
    "two keys": (headed(("idempotency-key", "other")), 422, "bad_key"),
    "key twice": (headed(("idempotency-key", "k"), ("idempotency-key", "k")), 400, "bad_header"),
    "key that is no text": (headed(("idempotency-key", b"\xff")), 400, "not_text"),
    "empty order key": (message(order_key=""), 422, "bad_key"),
    "long order key": (message(order_key=LONG), 422, "bad_key"),
    "long limit key": (message(limit_key=LONG), 422, "bad_key"),
    "two times": (message(delay_ms=5, due_ms=5), 400, "bad_request"),
    # Names.
    "long queue": (body(MESSAGE, "POST", f"/v1/inbox/{'x' * 129}"), 422, "bad_name"),
    "queue with other characters": (body(MESSAGE, "POST", "/v1/inbox/a%20b"), 422, "bad_name"),
    "NUL in the queue": (body(MESSAGE, "POST", "/v1/inbox/a%00"), 422, "bad_name"),
    "queue that is no text": (body(MESSAGE, "POST", "/v1/inbox/%ff"), 400, "not_text"),
    "queue to claim from": (body({}, "POST", "/v1/queues/a%20b/claim"), 422, "bad_name"),
    "queue to look at": (get(f"/v1/queues/{LONG}"), 422, "bad_name"),
    "long name of a lock": (body({"names": [LONG]}, *ACQUIRE), 422, "bad_name"),
    "NUL in the name of a lock": (body({"names": ["a\0"]}, *ACQUIRE), 422, "bad_name"),
    "empty name of a lock": (body({"names": [""]}, *ACQUIRE), 422, "bad_name"),
    "long name of a lock to look at": (get(f"/v1/locks/{LONG}"), 422, "bad_name"),
    # Tokens and ids.
    "unknown job": (get(f"/v1/jobs/{NO_ID}"), 404, "no_such_job"),
    "no id of a job": (get("/v1/jobs/hello"), 404, "no_such_job"),
    "long id of a job": (get(f"/v1/jobs/{LONG}"), 404, "no_such_job"),
    "unknown job to complete": (body({"token": "t"}, *COMPLETE), 404, "no_such_job"),
    "unknown job to cancel": (get(f"/v1/jobs/{NO_ID}", "DELETE"), 404, "no_such_job"),
    "unknown job to redrive": (get(f"/v1/jobs/{NO_ID}/retry", "POST"), 404, "no_such_job"),
    "empty token": (body({"token": ""}, *COMPLETE), 422, "wrong_type"),
    "no token": (body({}, *COMPLETE), 422, "missing_member"),
    "unknown lock": (get("/v1/locks/unused"), 404, "no_such_lock"),
    "no id of a lock": (body({"id": "x"}, "POST", "/v1/locks/renew"), 422, "bad_key"),
    "unknown id of a lock": (body({"id": NO_ID}, "POST", "/v1/locks/renew"), 409, "lock_lost"),
    "made-up id of a request": (
        body({"names": ["a"], "request": "x"}, *ACQUIRE),
        400,
        "bad_request",
    ),
    "no locks": (body({"names": []}, *ACQUIRE), 400, "bad_request"),
    "a lock twice": (body({"names": ["a", "a"]}, *ACQUIRE), 400, "bad_request"),
    "too many locks": (body({"names": [str(n) for n in range(17)]}, *ACQUIRE), 400, "bad_request"),
    "long name of an owner": (body({"names": ["a"], "owner": LONG}, *ACQUIRE), 400, "bad_request"),
    "long name of a worker": (body({"worker": LONG}, *CLAIM), 400, "bad_request"),
    "no time at all": (body({"lease_ms": 0}, *CLAIM), 422, "wrong_type"),
    "too long a wait": (body({"wait_ms": limits.WAIT_MS_MAX + 1}, *CLAIM), 422, "wrong_type"),
    "too many jobs": (body({"max": limits.LIST_MAX + 1}, *CLAIM), 422, "wrong_type"),
    # The address.
    "nothing there": (get("/v2/inbox/q"), 404, "not_found"),
    "another method": (get("/v1/inbox/q"), 405, "method_not_allowed"),
    "unknown parameter": (get(f"/v1/jobs/{NO_ID}?wait=1"), 422, "bad_parameter"),
    "parameter twice": (get(f"/v1/jobs/{NO_ID}?wait_ms=1&wait_ms=1"), 422, "bad_parameter"),
    "parameter that is no number": (get(f"/v1/jobs/{NO_ID}?wait_ms=-1"), 422, "bad_parameter"),
    "parameter too large": (get(f"/v1/jobs/{NO_ID}?wait_ms=60001"), 422, "bad_parameter"),
    "parameter that is no text": (get(DEAD + "?after=%ff"), 422, "bad_parameter"),
    "page too long": (get(DEAD + "?limit=1001"), 422, "bad_parameter"),
    "page too long, with zeros": (
        get(DEAD + "?limit=0000000011001"),
        422,
        "bad_parameter",
    ),
    "page of nothing": (get(DEAD + "?limit=0"), 422, "bad_parameter"),
    "page that starts nowhere": (get(DEAD + "?after=%00"), 422, "bad_parameter"),
    # Settings.
    "unknown setting": (body({"colour": 1}, *SET), 422, "unknown_member"),
    "setting of another type": (body({"limit": "1"}, *SET), 422, "wrong_type"),
    "setting twice": (
        raw(b'{"limit":1,"limit":2}', *SET),
        400,
        "duplicate_member",
    ),
    "setting out of bounds": (body({"limit": -1}, *SET), 400, "bad_request"),
    "notice to no queue": (body({"failure_queue": "a b"}, *SET), 422, "bad_name"),
    "redrive from nowhere": (
        body({"after": "x/y"}, "POST", "/v1/queues/q/redrive"),
        422,
        "bad_parameter",
    ),
    "purge from nowhere": (
        body({"after": "x"}, "POST", QUEUE + "/purge"),
        422,
        "bad_parameter",
    ),
    # The head.
    "length and transfer encoding": (
        headed(("content-length", "22"), ("transfer-encoding", "chunked")),
        400,
        "bad_request",
    ),
    "length over the limit": (headed(("content-length", "9999999")), 413, "body_too_large"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_input_gets_the_problem_document_of_its_kind(what: str) -> None:
    (method, path, options), status, code = BAD[what]

    @virtual
    async def test() -> None:
        async with serving() as caller:
            answer = await caller(method, path, **options)
            assert answer.verdict == (status, code)
            assert len(answer.body) < 2_000
            # Nothing came of it.
            assert await caller.ok("POST", CLAIM[1], {}) == {"jobs": []}

    test()


@virtual
async def test_another_body_under_the_same_key_is_refused_with_the_id_of_the_first() -> None:
    async with serving() as caller:
        first = await caller.ok(*SEND, MESSAGE)
        answer = await caller(*SEND, {**MESSAGE, "body": 2})
        assert answer.verdict == (422, "key_reused")
        assert answer.json["id"] == first["id"]


@virtual
async def test_a_token_that_moved_on_is_refused() -> None:
    async with serving() as caller:
        await caller.ok(*SEND, MESSAGE)
        [first] = (await caller.ok(*CLAIM, {"lease_ms": 1_000}))["jobs"]
        await caller.app.store.clock.sleep(5)
        [second] = (await caller.ok(*CLAIM, {"wait_ms": 5_000}))["jobs"]
        assert second["id"] == first["id"]
        for verb, more in (
            ("complete", {}),
            ("fail", {"reason": "late"}),
            ("extend", {"lease_ms": 1_000}),
        ):
            path = f"/v1/jobs/{first['id']}/{verb}"
            answer = await caller("POST", path, {"token": first["token"], **more})
            assert answer.verdict == (409, "stale_token")
        assert await caller.ok(
            "POST", f"/v1/jobs/{first['id']}/complete", {"token": second["token"]}
        )


@virtual
async def test_what_is_told_of_a_bad_input_is_json_whatever_was_sent() -> None:
    async with serving() as caller:
        for text in ('"\\', "\x7f\u2028", "😀"):
            answer = await caller("PUT", "/v1/queues/q", {text: 1})
            assert json.loads(answer.body)["code"] == "unknown_member"
