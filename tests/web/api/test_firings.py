"""The history of timers and endpoints over HTTP, and calls that are sent again."""

from typing import Any

import pytest

from onceward import limits
from onceward.webhooks.timers import WEBHOOKS
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, serving, serving_to
from tests.work.apps import Apps

URL = "https://example.com/hook"
LOST = "01HF7YAT007NFS97B5X8K4E97T000"


async def end(caller: Caller, reason: str = "") -> str:
    """End the call that waits, with success unless there is a reason; returns its id."""
    [claim] = await caller.app.claim(WEBHOOKS, "w", lease_s=10, wait_s=100)
    if reason:
        await caller.app.fail(claim.id, claim.token, reason, final=True)
    else:
        await caller.app.complete(claim.id, claim.token, {"said": "200 OK in 3 ms"})
    return claim.id


@virtual
async def test_a_recurring_timer_has_a_history_of_outcomes_and_latencies() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        await caller.ok("POST", "/v1/timers", {"id": "a", "url": URL, "every_ms": 60_000})
        assert (await caller.ok("GET", "/v1/timers/a/firings"))["firings"] == []
        ids = [await end(caller, why) for why in ("", "503", "")]
        found = await caller.ok("GET", "/v1/timers/a/firings?limit=2")
        first, second = found["firings"]
        assert (first["id"], first["number"], first["state"]) == (ids[2], 3, "succeeded")
        assert (second["id"], second["state"]) == (ids[1], "failed")
        assert [one["said"] for one in second["attempts"]] == ["503"]
        assert second["latency_ms"] == second["ended_ms"] - second["due_ms"] >= 0
        rest = await caller.ok("GET", f"/v1/timers/a/firings?after={found['next']}")
        assert [one["id"] for one in rest["firings"]] == ids[:1]
        assert rest["next"] is None
        await caller.ok("PATCH", "/v1/timers/a", {"every_ms": 30_000})
        assert len((await caller.ok("GET", "/v1/timers/a/firings"))["firings"]) == 3


@virtual
async def test_a_timer_with_the_id_of_an_earlier_one_has_its_history() -> None:
    async with serving() as caller:
        ids = []
        for number in (1, 2):
            await caller.app.timers.set("a", url=URL, body=number, delay_s=0)
            ids.append(await end(caller))
        found = await caller.ok("GET", "/v1/timers/a/firings?app=true")
        assert [one["id"] for one in found["firings"]] == ids[::-1]


@virtual
async def test_calls_of_an_endpoint_are_listed_with_their_timers_and_states() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/endpoints", {"id": "e", "url": URL})
        ids = []
        for id_, why in (("a", ""), ("b", "503"), ("c", "410")):
            body = {"id": id_, "endpoint": "e", "delay_ms": 0, "body": {"n": id_}}
            await caller.ok("POST", "/v1/timers", body)
            ids.append(await end(caller, why))

        async def timers(query: str) -> list[str]:
            found = await caller.ok("GET", f"/v1/endpoints/e/deliveries?{query}")
            return [one["timer"] for one in found["deliveries"]]

        assert await timers("state=failed") == ["c", "b"]
        assert await timers("state=succeeded") == ["a"]
        page = await caller.ok("GET", "/v1/endpoints/e/deliveries?state=failed&limit=1")
        assert [one["timer"] for one in page["deliveries"]] == ["c"]
        assert await timers(f"state=failed&after={page['next']}") == ["b"]
        one = await caller.ok("GET", f"/v1/endpoints/e/deliveries/{ids[0]}")
        assert (one["timer"], one["body"], one["state"]) == ("a", {"n": "a"}, "succeeded")
        lost = await caller("GET", f"/v1/endpoints/e/deliveries/{LOST}")
        assert lost.verdict == (404, "no_such_firing")
        assert (await caller("GET", "/v1/endpoints/f/deliveries")).verdict == (
            404,
            "no_such_endpoint",
        )
        for query in ("state=lost", "limit=0", "after=x"):
            answer = await caller("GET", f"/v1/endpoints/e/deliveries?{query}")
            assert answer.verdict == (422, "bad_parameter")


@virtual
async def test_a_success_is_sent_again_under_the_same_webhook_id() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/endpoints", {"id": "e", "url": URL})
        await caller.ok(
            "POST", "/v1/timers", {"id": "a", "endpoint": "e", "delay_ms": 0, "body": 7}
        )
        first = await end(caller)
        again = await caller.ok("POST", f"/v1/endpoints/e/deliveries/{first}/resend")
        assert (again["resent"], again["timer"]) == (first, "a")
        busy = await caller("POST", f"/v1/endpoints/e/deliveries/{again['id']}/resend")
        assert busy.verdict == (409, "not_failed")
        [claim] = await caller.app.claim(WEBHOOKS, "w", lease_s=10, wait_s=100)
        assert (claim.id, claim.body["id"], claim.body["call"]["body"]) == (again["id"], first, 7)
        await caller.app.fail(claim.id, claim.token, "503", final=True)
        retried = await caller.ok("POST", f"/v1/endpoints/e/deliveries/{again['id']}/resend")
        assert retried["id"] == again["id"], "a failed call is retried"
        assert (await caller.ok("GET", "/v1/timers/a"))["state"] == "success"


@virtual
async def test_one_firing_of_a_timer_is_sent_again() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        await caller.ok("POST", "/v1/timers", {"id": "a", "url": URL, "every_ms": 60_000})
        first, second = await end(caller, "503"), await end(caller)
        await caller.ok("POST", "/v1/timers/a/resend", {"firing": first})
        assert await end(caller) == first
        await caller.ok("POST", "/v1/timers/a/resend", {"firing": second})
        again = await end(caller)
        assert again not in (first, second)
        listed = (await caller.ok("GET", "/v1/timers/a/firings"))["firings"]
        assert {one["id"]: one.get("resent") for one in listed}[again] == second
        answer = await caller("POST", "/v1/timers/a/resend", {"firing": LOST})
        assert answer.verdict == (404, "no_such_firing")
        await caller.app.timers.set("q", queue="work", delay_s=0)
        answer = await caller("POST", "/v1/timers/q/resend?app=true", {"firing": LOST})
        assert answer.verdict == (404, "no_such_firing")


@virtual
@pytest.mark.parametrize(("asked", "resent"), [({}, 2), ({"state": "succeeded"}, 1)])
async def test_many_calls_of_an_endpoint_are_sent_again(asked: Any, resent: int) -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/endpoints", {"id": "e", "url": URL})
        for id_, why in (("a", "503"), ("b", ""), ("c", "503")):
            await caller.ok("POST", "/v1/timers", {"id": id_, "endpoint": "e", "delay_ms": 0})
            await end(caller, why)
        done = await caller.ok("POST", "/v1/endpoints/e/resend", asked)
        assert done == {"resent": resent, "next": None}
        for _ in range(resent):
            await end(caller)
        later = {**asked, "since_ms": limits.KEY_NUMBER_MAX}
        assert (await caller.ok("POST", "/v1/endpoints/e/resend", later))["resent"] == 0
        answer = await caller("POST", "/v1/endpoints/e/resend", {"state": "lost"})
        assert answer.verdict == (422, "wrong_type")


@virtual
async def test_the_scope_portal_shows_one_endpoint_and_changes_nothing_of_it() -> None:
    async with serving_to(shop="endpoint:* timer:*", owner="portal:e") as callers:
        owner = callers["owner"]
        # The endpoint is that of the owner itself: callers have endpoints of their own.
        for method, path in (
            ("PATCH", "/v1/endpoints/e"),
            ("DELETE", "/v1/endpoints/e"),
            ("GET", "/v1/endpoints/f/deliveries"),
            ("POST", "/v1/endpoints/f/rotate"),
        ):
            assert (await owner(method, path, {} if method != "GET" else None)).status == 403
        assert (await owner("GET", "/v1/endpoints/e/deliveries")).verdict == (
            404,
            "no_such_endpoint",
        )


@virtual
async def test_a_call_of_a_disabled_endpoint_waits_if_that_is_its_policy() -> None:
    async with serving() as caller:
        body = {"id": "e", "url": URL, "disabled": True, "when_disabled": "wait"}
        made = await caller.ok("POST", "/v1/endpoints", body)
        assert made["when_disabled"] == "wait"
        changed = await caller.ok("PATCH", "/v1/endpoints/e", {"description": "shop"})
        assert (changed["when_disabled"], changed["disabled"]) == ("wait", True)
        other = {**body, "when_disabled": "fail"}
        assert (await caller("POST", "/v1/endpoints", other)).verdict == (422, "key_reused")
        wrong = await caller("PATCH", "/v1/endpoints/e", {"when_disabled": "drop"})
        assert wrong.verdict == (422, "wrong_type")
