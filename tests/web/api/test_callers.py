"""With its last key, a caller's timers and endpoints are suspended, until an operator decides."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onceward import limits
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, keyed, serving
from tests.webhooks.test_delivery import World, answering
from tests.work.apps import Apps

HOOK = "https://a.example/hook"
SCOPES = ["timer:*", "endpoint:*", "send:*"]


class Site:
    """A server whose operator makes and removes the key of `billing`."""

    def __init__(self, apps: Apps, world: World, anyone: Caller) -> None:
        self.apps, self.world, self.server = apps, world, anyone.server
        self.operator = Caller(anyone.server, "ow_op")
        self.key_ids: list[str] = []

    async def key(self, name: str = "billing") -> Caller:
        made = await self.operator.ok("POST", "/v1/keys", {"name": name, "scopes": SCOPES})
        self.key_ids.append(made["id"])
        return Caller(self.server, made["key"])

    async def remove_key(self) -> None:
        await self.operator.ok("DELETE", f"/v1/keys/{self.key_ids.pop()}")

    async def suspended(self) -> list[str]:
        found = await self.operator.ok("GET", "/v1/callers/suspended")
        return [one["caller"] for one in found["callers"]]


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    apps = Apps(shared=False)
    world = World(apps)
    auth, _ = keyed(op="all", other="timer:* endpoint:*", fixed="timer:*")
    async with serving(apps.make(outward=world.outward()), auth) as anyone:
        yield Site(apps, world, anyone)


async def daily(caller: Caller, **more: Any) -> None:
    timer = {"id": "daily", "url": HOOK, "every_ms": 10_000, "delay_ms": 10_000, **more}
    await caller.ok("POST", "/v1/timers", timer)


@virtual
async def test_timers_of_a_caller_without_keys_wait_until_it_has_one() -> None:
    async with site() as here:
        billing = await here.key()
        await daily(billing)
        await here.apps.sleep(11)
        assert len(here.world.posts) == 1
        await here.remove_key()
        assert await here.suspended() == ["key:billing"]
        await here.apps.sleep(100)
        assert len(here.world.posts) == 1
        path = "/v1/timers/daily?caller=key:billing"
        assert (await here.operator.ok("GET", path))["state"] == "suspended"
        billing = await here.key()
        assert await here.suspended() == []
        await here.apps.sleep(1)
        assert len(here.world.posts) > 1
        assert (await billing.ok("GET", "/v1/timers/daily"))["state"] == "active"


@virtual
async def test_a_caller_with_another_key_is_not_suspended() -> None:
    async with site() as here:
        await here.key()
        await here.key()
        await here.key("fixed")  # has a key in the settings
        await here.remove_key()
        await here.remove_key()
        assert await here.suspended() == []
        await here.remove_key()
        assert await here.suspended() == ["key:billing"]


@virtual
async def test_webhook_calls_of_a_suspended_caller_wait() -> None:
    async with site() as here:
        here.world.behaviour[HOOK] = answering(503)
        billing = await here.key()
        await billing.ok("POST", "/v1/timers", {"id": "t", "url": HOOK, "delay_ms": 1_000})
        await here.apps.sleep(2)
        await here.remove_key()
        tried = len(here.world.posts)
        assert tried
        await here.apps.sleep(limits.SUSPENDED_MS / 1_000 * 5)
        assert len(here.world.posts) == tried
        here.world.behaviour[HOOK] = answering(200)
        await here.operator.ok("POST", "/v1/callers/key:billing/resume")
        await here.apps.sleep(limits.SUSPENDED_MS / 1_000 * 2)
        assert len(here.world.posts) == tried + 1
        assert len({post.id for post in here.world.posts}) == 1


@virtual
async def test_an_operator_transfers_timers_and_endpoints_with_their_secrets() -> None:
    async with site() as here:
        billing, other = await here.key(), Caller(here.server, "ow_other")
        made = await billing.ok("POST", "/v1/endpoints", {"id": "shop", "url": HOOK})
        await daily(billing, url=None, endpoint="shop", headers={"X-A": "planted"})
        await billing.ok("POST", "/v1/timers", {"id": "same", "queue": "q", "delay_ms": 10**9})
        await other.ok("POST", "/v1/timers", {"id": "same", "url": HOOK, "delay_ms": 10**9})
        await here.remove_key()
        await here.apps.sleep(15)
        asked = ("POST", "/v1/callers/key:billing/transfer", {"to": "key:other"})
        moved = await here.operator.ok(*asked)
        assert (moved["timers"], moved["endpoints"], moved["kept"]) == (1, 1, ["same"])
        await here.apps.sleep(1)
        [post] = here.world.posts
        assert post.headers["x-a"] == "planted"
        shown = await other.ok("GET", "/v1/endpoints/shop?secret=true")
        assert shown["secrets"] == made["secrets"]
        assert (await other.ok("GET", "/v1/timers/daily"))["headers"] == {"X-A": "planted"}
        again = await here.operator.ok(*asked)
        assert (again["timers"], again["endpoints"]) == (0, 0)


@pytest.mark.parametrize(
    ("path", "body", "verdict"),
    [
        ("key:billing/transfer", {"to": "billing"}, (422, "bad_name")),
        ("key:billing/transfer", {"to": "key:billing"}, (400, "bad_request")),
        ("key:billing/transfer", {"to": ""}, (422, "bad_name")),
        ("key:billing/transfer", {"from": "x"}, (422, "unknown_member")),
        ("billing/suspend", None, (422, "bad_name")),
        ("billing/resume", None, (422, "bad_name")),
    ],
)
@virtual
async def test_a_caller_is_named_by_its_id(path: str, body: Any, verdict: tuple[int, str]) -> None:
    async with site() as here:
        assert (await here.operator("POST", f"/v1/callers/{path}", body)).verdict == verdict
        assert await here.suspended() == []


@virtual
async def test_only_who_may_do_everything_suspends_and_transfers() -> None:
    async with site() as here:
        other = Caller(here.server, "ow_other")
        for name in ("suspend", "resume", "transfer"):
            answer = await other("POST", f"/v1/callers/key:op/{name}", {"to": "key:other"})
            assert answer.verdict == (403, "not_allowed")
        assert (await other("GET", "/v1/callers/suspended")).verdict == (403, "not_allowed")
