"""Endpoints over HTTP: made, changed, rotated, tested and removed by their owners."""

from typing import Any

import pytest

from onceward.webhooks import endpoints
from onceward.webhooks.delivery import Outward
from onceward.webhooks.signing import admit_secret
from onceward.webhooks.timers import WEBHOOKS
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, serving, serving_to
from tests.work.apps import Apps

URL = "https://example.com/hook"
SECRET = "whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
OTHER = "whsec_" + "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4"


async def make(caller: Caller, id_: str = "shop", **members: Any) -> Any:
    return await caller.ok("POST", "/v1/endpoints", {"id": id_, "url": URL, **members})


async def secrets(caller: Caller, id_: str = "shop") -> list[str]:
    found = await caller.ok("GET", f"/v1/endpoints/{id_}?secret=true")
    return [secret["secret"] for secret in found["secrets"]]


@virtual
async def test_an_endpoint_is_made_once_and_tells_its_secret() -> None:
    async with serving() as caller:
        asked = {"id": "shop", "url": URL, "headers": {"X-A": "1"}, "description": "The shop"}
        first = await caller("POST", "/v1/endpoints", asked)
        again = await caller("POST", "/v1/endpoints", asked)
        assert (first.status, again.status) == (202, 200)
        assert again.json == {**first.json, "duplicate": True}
        [secret] = first.json["secrets"]
        assert admit_secret(secret["secret"]) == secret["secret"]
        found = await caller.ok("GET", "/v1/endpoints/shop")
        assert found == {
            **asked,
            "created_ms": found["created_ms"],
            "disabled": False,
            "health": {"failing": False},
        }
        for change in ({"url": URL + "2"}, {"headers": {}}, {"secret": SECRET}):
            other = await caller("POST", "/v1/endpoints", {**asked, **change})
            assert other.verdict == (422, "key_reused")
        made_up = await caller.ok("POST", "/v1/endpoints", {"url": URL})
        assert (await caller.ok("GET", f"/v1/endpoints/{made_up['id']}"))["url"] == URL


@virtual
async def test_the_secret_is_told_only_to_who_asks_for_it() -> None:
    async with serving() as caller:
        made = await make(caller, secret=SECRET.rstrip("="))
        assert [s["secret"] for s in made["secrets"]] == [SECRET]
        for path in ("/v1/endpoints", "/v1/endpoints/shop", "/v1/endpoints/shop?secret=false"):
            assert b"whsec" not in (await caller("GET", path)).body
        assert await secrets(caller) == [SECRET]


@virtual
async def test_an_endpoint_is_changed_in_part_or_as_a_whole() -> None:
    async with serving() as caller:
        await make(caller, secret=SECRET, headers={"X-A": "1"}, description="d")
        part = await caller.ok("PATCH", "/v1/endpoints/shop", {"disabled": True})
        assert (part["disabled"], part["headers"], part["description"]) == (True, {"X-A": "1"}, "d")
        changed = await caller.ok("PATCH", "/v1/endpoints/shop", {"headers": {}, "url": URL + "2"})
        assert (changed["url"], changed["disabled"], "headers" in changed) == (
            URL + "2",
            True,
            False,
        )
        retry = {"pauses_ms": [60_000]}
        changed = await caller.ok("PATCH", "/v1/endpoints/shop", {"retry": retry})
        assert changed["retry"] == retry
        kept = await caller.ok("PATCH", "/v1/endpoints/shop", {"description": "e"})
        assert kept["retry"] == retry
        assert "retry" not in await caller.ok("PATCH", "/v1/endpoints/shop", {"retry": None})
        whole = await caller.ok("PUT", "/v1/endpoints/shop", {"url": URL})
        assert (whole["url"], whole["disabled"], "description" in whole) == (URL, False, False)
        assert await secrets(caller) == [SECRET]
        await caller.ok("PUT", "/v1/endpoints/new", {"url": URL, "secret": OTHER})
        assert await secrets(caller, "new") == [OTHER]


@virtual
async def test_the_old_secret_counts_for_a_while_beside_the_new_one() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        await make(caller, secret=SECRET)
        body = {"secret": OTHER, "overlap_ms": 60_000}
        for _ in range(2):  # the same again changes nothing
            rotated = await caller.ok("POST", "/v1/endpoints/shop/rotate", body)
            until_ms = apps.clock.now_ms() + 60_000
            assert rotated["secrets"] == [
                {"secret": OTHER},
                {"secret": SECRET, "until_ms": until_ms},
            ]
        await apps.sleep(60)
        assert await secrets(caller) == [OTHER]
        made_up = await caller.ok("POST", "/v1/endpoints/shop/rotate", {"overlap_ms": 0})
        assert len(made_up["secrets"]) == 1
        assert made_up["secrets"][0]["secret"] not in (OTHER, SECRET)


@virtual
async def test_the_endpoint_of_bare_urls_is_there_once_it_is_asked_for() -> None:
    async with serving() as caller:
        first = await secrets(caller, "default")
        assert await secrets(caller, "default") == first
        found = await caller.ok("GET", "/v1/endpoints/default")
        assert found["url"] == ""
        rotated = await caller.ok("POST", "/v1/endpoints/default/rotate", {"secret": SECRET})
        assert [s["secret"] for s in rotated["secrets"]] == [SECRET, *first]
        changed = await caller.ok("PATCH", "/v1/endpoints/default", {"headers": {"X-A": "1"}})
        assert (changed["url"], changed["headers"]) == ("", {"X-A": "1"})
        refused = await caller("POST", "/v1/endpoints/default/test")
        assert refused.verdict == (422, "bad_endpoint")


@virtual
async def test_a_test_is_a_call_that_is_tried_once() -> None:
    async with serving() as caller:
        await make(caller)
        header = [("Idempotency-Key", "k")]
        answer = await caller("POST", "/v1/endpoints/shop/test", headers=header)
        again = await caller.ok("POST", "/v1/endpoints/shop/test", headers=header)
        assert (answer.status, again["id"]) == (202, answer.json["id"])
        assert (answer.json["endpoint"], answer.json["attempts_max"]) == ("shop", 1)
        [claim] = await caller.app.claim(WEBHOOKS, "w", lease_s=10, wait_s=10)
        assert claim.body["call"]["body"] == {"type": "test", "endpoint": "shop"}
        assert await caller.app.fail(claim.id, claim.token, "404 Not Found") == "failed"
        found = await caller.ok("GET", f"/v1/timers/{answer.json['id']}")
        assert (found["state"], found["last"]["attempts"][0]["said"]) == ("failed", "404 Not Found")


@virtual
async def test_health_says_since_when_calls_fail() -> None:
    async with serving() as caller:
        await make(caller)
        now_ms = caller.app.store.clock.now_ms()
        await caller.app.store.run(
            lambda tx: endpoints.note(
                tx, "shop", failing=True, said="no answer", caller="user:developer"
            )
        )
        health = (await caller.ok("GET", "/v1/endpoints/shop"))["health"]
        assert (health["failing"], health["since_ms"], health["said"]) == (
            True,
            now_ms,
            "no answer",
        )
        assert health["since"].endswith("Z")


@virtual
async def test_endpoints_are_listed_in_pages() -> None:
    async with serving() as caller:
        for id_ in ("c", "a", "b"):
            await make(caller, id_)
        page = await caller.ok("GET", "/v1/endpoints?limit=2")
        assert [one["id"] for one in page["endpoints"]] == ["a", "b"]
        rest = await caller.ok("GET", f"/v1/endpoints?limit=2&after={page['next']}")
        assert ([one["id"] for one in rest["endpoints"]], rest["next"]) == (["c"], None)


@virtual
async def test_what_is_removed_is_not_there() -> None:
    async with serving() as caller:
        await make(caller)
        assert await caller.ok("DELETE", "/v1/endpoints/shop") == {"id": "shop"}
        for method, path, body in (
            ("GET", "", None),
            ("PATCH", "", {}),
            ("DELETE", "", None),
            ("POST", "/rotate", {}),
            ("POST", "/test", None),
        ):
            answer = await caller(method, f"/v1/endpoints/shop{path}", body)
            assert answer.verdict == (404, "no_such_endpoint")


@virtual
async def test_an_endpoint_is_its_owners_alone() -> None:
    async with serving_to(ann="endpoint:* timer:*", ben="endpoint:b.* timer:*") as callers:
        ann, ben = callers["ann"], callers["ben"]
        await make(ann, "b.1", secret=SECRET)
        assert (await ben("GET", "/v1/endpoints/b.1?secret=true")).verdict == (
            404,
            "no_such_endpoint",
        )
        set_ = await ben("POST", "/v1/timers", {"endpoint": "b.1", "delay_ms": 0})
        assert set_.verdict == (404, "no_such_endpoint")
        await make(ben, "b.1")
        assert await secrets(ben, "b.1") != [SECRET]
        assert (await ben("GET", "/v1/endpoints/a")).verdict == (403, "not_allowed")
        unnamed = await ben("POST", "/v1/endpoints", {"url": URL})
        assert unnamed.verdict == (403, "not_allowed")
        assert await secrets(ann, "default") != await secrets(ann, "b.1")


@virtual
async def test_nobody_makes_a_call_in_the_name_of_another() -> None:
    """Which would go wherever one likes, with the headers of the other one and its signature."""
    async with serving_to(ann="endpoint:*", ben="all", cat="send:* timer:* work:*") as callers:
        await make(callers["ann"], "b.1", headers={"authorization": "of ann"})
        call = {"url": "https://evil.example", "endpoint": "b.1"}
        forged = {"timer": "t", "due_ms": 0, "number": 1, "caller": "ann", "call": call}
        for name in ("ben", "cat"):
            sent = callers[name]
            for path, body in (
                (f"/v1/inbox/{WEBHOOKS}", {"key": "k", "body": forged}),
                (f"/v1/inbox/{WEBHOOKS}/batch", {"messages": [{"key": "k", "body": forged}]}),
                ("/v1/timers", {"queue": WEBHOOKS, "delay_ms": 0, "body": forged}),
                (f"/v1/queues/{WEBHOOKS}/claim", {}),
            ):
                assert (await sent("POST", path, body)).verdict == (403, "not_allowed"), path
            assert await sent.app.claim(WEBHOOKS, "w", lease_s=1, wait_s=5) == []


@virtual
@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"url": "example.com"}, "bad_url"),
        ({"url": ""}, "bad_url"),
        ({"url": None}, "wrong_type"),
        ({"headers": {"Host": "a"}}, "bad_endpoint"),
        ({"headers": {"a": "b\r\nc: d"}}, "bad_endpoint"),
        ({"secret": "hunter2"}, "bad_secret"),
        ({"secret": "whsec_AAAA"}, "bad_secret"),
        ({"id": ""}, "bad_name"),
        ({"id": "x" * 129}, "bad_name"),
        ({"description": "x" * 2_001}, "wrong_type"),
        ({"disabled": 1}, "wrong_type"),
        ({"color": "red"}, "unknown_member"),
    ],
)
async def test_what_can_be_no_endpoint_is_refused(members: Any, code: str) -> None:
    async with serving() as caller:
        asked = {"id": "shop", "url": URL, **members}
        assert (await caller("POST", "/v1/endpoints", asked)).verdict == (422, code)
        whole = {name: value for name, value in asked.items() if name != "id"}
        if "id" not in members:
            assert (await caller("PUT", "/v1/endpoints/shop", whole)).verdict == (422, code)
        assert (await caller.ok("GET", "/v1/endpoints"))["endpoints"] == []


@virtual
@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("PATCH", "", {"url": "nowhere"}, "bad_url"),
        ("PATCH", "", {"headers": {"te": "x"}}, "bad_endpoint"),
        ("PATCH", "", {"secret": SECRET}, "unknown_member"),
        ("POST", "/rotate", {"secret": "x"}, "bad_secret"),
        ("POST", "/rotate", {"overlap_ms": -1}, "wrong_type"),
        ("POST", "/rotate", {"overlap_ms": 10**12}, "wrong_type"),
        ("GET", "?secret=yes", None, "bad_parameter"),
        ("GET", "?color=red", None, "bad_parameter"),
    ],
)
async def test_a_change_that_cannot_be_is_refused(
    method: str, path: str, body: Any, code: str
) -> None:
    async with serving() as caller:
        await make(caller, secret=SECRET)
        answer = await caller(method, f"/v1/endpoints/shop{path}", body)
        assert answer.verdict == (422, code)
        assert await secrets(caller) == [SECRET]


@virtual
async def test_a_list_of_what_there_is_not_is_refused() -> None:
    async with serving() as caller:
        for query in ("limit=0", "limit=1001", f"after={'x' * 129}", "prefix=a"):
            answer = await caller("GET", f"/v1/endpoints?{query}")
            assert answer.verdict == (422, "bad_parameter")


@virtual
async def test_an_address_that_this_server_may_not_call_is_refused_at_once() -> None:
    async with serving(Apps(shared=False).make(outward=Outward())) as caller:
        asked = {"url": "http://169.254.169.254/latest/meta-data"}
        assert (await caller("POST", "/v1/endpoints", asked)).verdict == (422, "address_refused")


@virtual
async def test_headers_of_calls_to_bare_urls_are_admitted_like_others() -> None:
    async with serving() as caller:
        for headers in ({"Host": "evil.example"}, {"X-A": "1\r\nX-B: 2"}, {"webhook-id": "1"}):
            answer = await caller("PATCH", "/v1/endpoints/default", {"headers": headers})
            assert answer.verdict == (422, "bad_endpoint")
        assert "headers" not in await caller.ok("GET", "/v1/endpoints/default")
