"""Portal tokens: what the owner of one endpoint can do with a link, and nothing else."""

from typing import Any

import pytest

from onceward import limits
from onceward.api import OPERATIONS
from onceward.webhooks.timers import WEBHOOKS
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, keyed, serving, serving_to
from tests.work.apps import Apps

URL = "https://example.com/hook"
ENDPOINT = {"id": "e", "url": URL, "headers": {"X-Token": "hush"}, "description": "Shop"}


async def portal_of(shop: Caller, **options: Any) -> Caller:
    made = await shop.ok("POST", "/v1/endpoints/e/portal", options or None)
    assert made["path"] == f"/portal#token={made['token']}"
    return Caller(shop.server, made["token"])


async def called(shop: Caller, reason: str = "") -> str:
    [claim] = await shop.app.claim(WEBHOOKS, "w", lease_s=10, wait_s=100)
    if reason:
        await shop.app.fail(claim.id, claim.token, reason, final=True)
    else:
        await shop.app.complete(claim.id, claim.token, {"said": "200 OK in 3 ms"})
    return claim.id


@virtual
async def test_a_portal_token_shows_tests_and_resends_the_calls_of_its_endpoint() -> None:
    async with serving_to(shop="endpoint:* timer:*") as callers:
        shop = callers["shop"]
        await shop.ok("POST", "/v1/endpoints", ENDPOINT)
        await shop.ok("POST", "/v1/timers", {"id": "a", "endpoint": "e", "delay_ms": 0})
        first = await called(shop, "503")
        owner = await portal_of(shop)
        seen = await owner.ok("GET", "/v1/endpoints/e")
        assert (seen["url"], seen["headers"]) == (URL, {"X-Token": "***"})
        [listed] = (await owner.ok("GET", "/v1/endpoints/e/deliveries"))["deliveries"]
        assert (listed["id"], listed["timer"], listed["state"]) == (first, "a", "failed")
        assert (await owner.ok("GET", f"/v1/endpoints/e/deliveries/{first}"))["id"] == first
        await owner.ok("POST", f"/v1/endpoints/e/deliveries/{first}/resend")
        assert await called(shop, "503") == first
        assert (await owner.ok("POST", "/v1/endpoints/e/resend"))["resent"] == 1
        assert await called(shop) == first
        await owner.ok("POST", "/v1/endpoints/e/test")
        test = await called(shop)
        found = (await owner.ok("GET", "/v1/endpoints/e/deliveries?state=succeeded"))["deliveries"]
        assert [one["id"] for one in found] == [test, first]


@virtual
async def test_a_portal_token_rotates_the_secret_and_both_are_valid_for_the_overlap() -> None:
    apps = Apps(shared=False)
    auth, keys = keyed(shop="endpoint:* timer:*")
    async with serving(apps.make(), auth) as anyone:
        shop = Caller(anyone.server, keys["shop"])
        await shop.ok("POST", "/v1/endpoints", ENDPOINT)
        owner = await portal_of(shop)
        [before] = (await owner.ok("GET", "/v1/endpoints/e?secret=true"))["secrets"]
        rotated = await owner.ok("POST", "/v1/endpoints/e/rotate", {"overlap_ms": 60_000})
        assert (rotated["headers"], len(rotated["secrets"])) == ({"X-Token": "***"}, 2)
        assert rotated["secrets"][1]["secret"] == before["secret"]
        await apps.sleep(61)
        [after] = (await shop.ok("GET", "/v1/endpoints/e?secret=true"))["secrets"]
        assert after["secret"] == rotated["secrets"][0]["secret"] != before["secret"]


@virtual
async def test_a_portal_token_ends_at_its_time_or_when_it_is_revoked() -> None:
    apps = Apps(shared=False)
    auth, keys = keyed(shop="endpoint:*")
    async with serving(apps.make(), auth) as anyone:
        shop = Caller(anyone.server, keys["shop"])
        await shop.ok("POST", "/v1/endpoints", ENDPOINT)
        short, long = await portal_of(shop, expires_ms=limits.PORTAL_MS_MIN), await portal_of(shop)
        await apps.sleep(limits.PORTAL_MS_MIN / 1_000)
        assert (await short("GET", "/v1/endpoints/e")).code == "token_expired"
        await long.ok("GET", "/v1/endpoints/e")
        await shop.ok("DELETE", "/v1/endpoints/e/portal")
        for method, path in (
            ("GET", "/v1/endpoints/e"),
            ("GET", "/v1/endpoints/e/deliveries"),
            ("POST", "/v1/endpoints/e/rotate"),
            ("POST", "/v1/endpoints/e/test"),
            ("POST", "/v1/endpoints/e/resend"),
        ):
            body = {} if method == "POST" and not path.endswith("test") else None
            assert (await long(method, path, body)).verdict == (401, "no_credentials")
        await (await portal_of(shop)).ok("GET", "/v1/endpoints/e")
        await shop.ok("DELETE", "/v1/endpoints/e")
        assert (await short("GET", "/v1/endpoints/e")).status == 401


@virtual
async def test_tokens_of_a_deleted_endpoint_are_not_for_another_one_with_its_id() -> None:
    apps = Apps(shared=False)
    auth, keys = keyed(shop="endpoint:*")
    async with serving(apps.make(), auth) as anyone:
        shop = Caller(anyone.server, keys["shop"])
        await shop.ok("POST", "/v1/endpoints", ENDPOINT)
        owner = await portal_of(shop)
        await shop.ok("DELETE", "/v1/endpoints/e/portal")
        await shop.ok("DELETE", "/v1/endpoints/e")
        await apps.sleep(1)
        await shop.ok("POST", "/v1/endpoints", ENDPOINT)
        first = await portal_of(shop)
        await shop.ok("DELETE", "/v1/endpoints/e")
        await apps.sleep(1)
        await shop.ok("POST", "/v1/endpoints", ENDPOINT)
        for former in (owner, first):
            for path in ("", "/deliveries", "?secret=true"):
                answer = await former("GET", f"/v1/endpoints/e{path}")
                assert answer.verdict == (401, "no_credentials")


@virtual
async def test_a_portal_token_is_not_for_calls_of_a_deleted_endpoint_with_its_id() -> None:
    apps = Apps(shared=False)
    auth, keys = keyed(shop="endpoint:* timer:*")
    async with serving(apps.make(), auth) as anyone:
        shop = Caller(anyone.server, keys["shop"])
        await shop.ok("POST", "/v1/endpoints", ENDPOINT)
        await shop.ok("POST", "/v1/timers", {"endpoint": "e", "delay_ms": 0, "body": "hush"})
        former = await called(shop, "503")
        await shop.ok("DELETE", "/v1/endpoints/e")
        await apps.sleep(1)
        await shop.ok("POST", "/v1/endpoints", ENDPOINT)
        owner, path = await portal_of(shop), f"/v1/endpoints/e/deliveries/{former}"
        assert (await owner.ok("GET", "/v1/endpoints/e/deliveries"))["deliveries"] == []
        assert (await owner("GET", path)).verdict == (404, "no_such_firing")
        assert (await owner("POST", f"{path}/resend")).verdict == (404, "no_such_firing")
        assert (await owner.ok("POST", "/v1/endpoints/e/resend"))["resent"] == 0
        assert (await shop.ok("GET", path))["body"] == "hush"
        await owner.ok("POST", "/v1/endpoints/e/test")
        test = await called(shop)
        [one] = (await owner.ok("GET", "/v1/endpoints/e/deliveries"))["deliveries"]
        assert one["id"] == test


@virtual
async def test_a_portal_token_has_idempotency_keys_of_its_own() -> None:
    async with serving_to(shop="endpoint:* timer:*") as callers:
        shop = callers["shop"]
        await shop.ok("POST", "/v1/endpoints", ENDPOINT)
        owner, named = await portal_of(shop), [("idempotency-key", "order-7")]
        tests = [await owner("POST", "/v1/endpoints/e/test", headers=named) for _ in range(2)]
        assert [one.status for one in tests] == [202, 202]
        assert tests[0].json["id"] == tests[1].json["id"]
        timer = {"endpoint": "e", "delay_ms": 60_000}
        made = await shop("POST", "/v1/timers", timer, headers=named)
        assert made.status == 202, "the key of a portal is none of the owner of the endpoint"
        assert made.json["id"] != tests[0].json["id"]


@virtual
async def test_a_repeated_resend_with_a_key_sends_once() -> None:
    async with serving_to(shop="endpoint:* timer:*") as callers:
        shop = callers["shop"]
        await shop.ok("POST", "/v1/endpoints", ENDPOINT)
        await shop.ok("POST", "/v1/timers", {"id": "a", "endpoint": "e", "delay_ms": 0})
        id_ = await called(shop, "503")
        owner, path = await portal_of(shop), f"/v1/endpoints/e/deliveries/{id_}/resend"
        assert (await owner.ok("POST", path, {"key": "1"}))["id"] == id_
        assert await called(shop) == id_
        again = await owner.ok("POST", path, {"key": "1"})  # after a timeout: it has succeeded
        assert (again["id"], again["state"]) == (id_, "succeeded")
        resent = [await owner.ok("POST", path, {"key": "2\x00#é"}) for _ in range(2)]
        assert resent[0]["id"] == resent[1]["id"] != id_
        firing = {"firing": id_, "key": "2"}
        for _ in range(2):
            await shop.ok("POST", "/v1/timers/a/resend", firing)
        assert await called(shop) == resent[0]["id"]
        listed = (await owner.ok("GET", "/v1/endpoints/e/deliveries"))["deliveries"]
        assert len(listed) == 3
        for key in ("x" * 129, 7, None):
            answer = await owner("POST", path, {"key": key})
            assert answer.verdict == (422, "wrong_type")
        answer = await owner("POST", path, {"kee": "1"})
        assert answer.verdict == (422, "unknown_member")


@virtual
async def test_a_portal_token_is_for_its_endpoint_and_its_operations_only() -> None:
    async with serving_to(shop="all", ben="endpoint:*", eve="") as callers:
        shop = callers["shop"]
        await shop.ok("POST", "/v1/endpoints", ENDPOINT)
        await shop.ok("POST", "/v1/endpoints", {"id": "f", "url": URL})
        await shop.ok("POST", "/v1/timers", {"id": "a", "endpoint": "e", "delay_ms": 10**9})
        owner, eve = await portal_of(shop), callers["eve"]
        for operation in OPERATIONS.values():
            if operation.kind != "call" or operation.scope.startswith("portal:"):
                continue
            path = operation.path
            for name in operation.parameters:
                path = path.replace(f"{{{name}}}", "a" if operation.noun == "timers" else "e")
            body = {} if operation.body is not None else None
            answers = [await caller(operation.method, path, body) for caller in (owner, eve)]
            if answers[0].status == 401:
                continue  # it cannot sign in at the console
            found, wanted = [
                {k: v for k, v in one.json.items() if k not in ("now_ms", "detail")}
                for one in answers
            ]
            assert found == wanted, f"{operation.name}: more than for a caller without scopes"
        for path in ("/v1/endpoints/f", "/v1/endpoints/f/deliveries"):
            assert (await owner("GET", path)).verdict == (403, "not_allowed")
        assert (await callers["ben"]("POST", "/v1/endpoints/e/portal")).verdict == (
            404,
            "no_such_endpoint",
        )
        assert (await owner("POST", "/v1/endpoints/e/portal")).verdict == (403, "not_allowed")


@virtual
@pytest.mark.parametrize("change", [lambda t: t[:-1] + "0", lambda t: t.replace(".", "x.", 1)])
async def test_a_portal_token_that_was_changed_is_refused(change: Any) -> None:
    async with serving_to(shop="endpoint:*") as callers:
        shop = callers["shop"]
        await shop.ok("POST", "/v1/endpoints", ENDPOINT)
        token = (await shop.ok("POST", "/v1/endpoints/e/portal"))["token"]
        wrong = Caller(shop.server, change(token) if change(token) != token else token + "0")
        assert (await wrong("GET", "/v1/endpoints/e")).verdict == (401, "no_credentials")
        assert (await Caller(shop.server, "owp_")("GET", "/v1/endpoints/e")).status == 401


@virtual
@pytest.mark.parametrize("expires_ms", [0, limits.PORTAL_MS_MAX + 1, "long"])
async def test_a_portal_token_has_a_bounded_time(expires_ms: Any) -> None:
    async with serving_to(shop="endpoint:*") as callers:
        await callers["shop"].ok("POST", "/v1/endpoints", ENDPOINT)
        asked = {"expires_ms": expires_ms}
        answer = await callers["shop"]("POST", "/v1/endpoints/e/portal", asked)
        assert answer.verdict == (422, "wrong_type")


@virtual
async def test_the_endpoint_of_plain_urls_has_no_portal() -> None:
    async with serving_to(shop="endpoint:*") as callers:
        await callers["shop"].ok("GET", "/v1/endpoints/default")
        answer = await callers["shop"]("POST", "/v1/endpoints/default/portal")
        assert answer.verdict == (422, "bad_endpoint")
