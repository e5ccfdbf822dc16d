"""Locks over HTTP."""

import asyncio
from typing import Any

import pytest

from onceward import limits
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, serving, serving_to
from tests.work.apps import Apps

REQUEST = "0123456789ABCDEFGHJKMNPQRS"


async def acquire(caller: Caller, *names: str, **options: Any) -> Any:
    return await caller.ok("POST", "/v1/locks/acquire", {"names": names, **options})


@virtual
async def test_a_lock_is_held_renewed_and_released() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        now_ms = caller.app.store.clock.now_ms()
        held = await acquire(caller, "a", lease_ms=10_000)
        assert (held["token"], held["tokens"]) == (1, {"a": 1})
        assert held["lease_until_ms"] == now_ms + 10_000
        again = await caller("POST", "/v1/locks/acquire", {"names": ["a"]})
        assert again.verdict == (423, "lock_held")
        assert (again.json["retry"], again.json["names"]) == (True, ["a"])
        await apps.sleep(8)
        renewed = await caller.ok("POST", "/v1/locks/renew", {"id": held["id"]})
        assert renewed == {"lease_until_ms": now_ms + 18_000}
        longer = {"id": held["id"], "lease_ms": 60_000}
        assert (await caller.ok("POST", "/v1/locks/renew", longer))[
            "lease_until_ms"
        ] == now_ms + 68_000
        for released in (True, False):
            found = await caller.ok("POST", "/v1/locks/release", {"id": held["id"]})
            assert found == {"released": released}
        lost = await caller("POST", "/v1/locks/renew", {"id": held["id"]})
        assert lost.verdict == (409, "lock_lost")
        assert (await acquire(caller, "a"))["token"] == 2


@virtual
async def test_a_lease_that_is_not_renewed_runs_out() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        held = await acquire(caller, "a", lease_ms=5_000)
        next_ = await acquire(caller, "a", wait_ms=60_000)
        assert 5 <= apps.loop.time() < 6
        assert next_["token"] > held["token"]
        lost = await caller("POST", "/v1/locks/renew", {"id": held["id"]})
        assert lost.verdict == (409, "lock_lost")


@virtual
async def test_all_names_are_held_or_none() -> None:
    async with serving() as caller:
        held = await acquire(caller, "a", "b")
        assert held["token"] == held["tokens"]["a"]
        refused = await caller("POST", "/v1/locks/acquire", {"names": ["c", "b"]})
        assert refused.verdict == (423, "lock_held")
        assert (await acquire(caller, "c"))["token"] == 1


@virtual
async def test_several_may_hold_a_name_if_all_say_how_many() -> None:
    async with serving() as caller:
        await acquire(caller, "a", capacity=2)
        await acquire(caller, "a", capacity=2)
        full = await caller("POST", "/v1/locks/acquire", {"names": ["a"], "capacity": 2})
        assert full.verdict == (423, "lock_held")
        other = await caller("POST", "/v1/locks/acquire", {"names": ["a"], "capacity": 3})
        assert other.verdict == (409, "lock_capacity")


@virtual
async def test_who_holds_and_who_waits_is_shown_without_what_releases_it() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        now_ms = caller.app.store.clock.now_ms()
        held = await acquire(caller, "a/ü", owner="ann")
        waiting = asyncio.create_task(acquire(caller, "a/ü", owner="bob", wait_ms=60_000))
        await apps.sleep(1)
        shown = await caller("GET", "/v1/locks/a%2F%C3%BC")
        assert held["id"].encode() not in shown.body
        view = shown.json
        assert (view["name"], view["capacity"], view["token"]) == ("a/ü", 1, 1)
        assert (view["held"], view["waiting"]) == (1, 1)
        assert view["holders"] == [{"owner": "ann", "since_ms": now_ms, "number": 1}]
        assert [waiter["owner"] for waiter in view["waiters"]] == ["bob"]
        await caller.ok("POST", "/v1/locks/release", {"id": held["id"]})
        assert (await waiting)["token"] == 2


@pytest.mark.parametrize("name", ["acquire", "renew", "release"])
@virtual
async def test_a_lock_may_have_the_name_of_a_verb(name: str) -> None:
    async with serving() as caller:
        await acquire(caller, name)
        assert (await caller.ok("GET", f"/v1/locks/{name}"))["held"] == 1


@virtual
async def test_the_owner_is_the_caller_unless_it_says_otherwise() -> None:
    async with serving_to(ann="lock:*") as callers:
        await acquire(callers["ann"], "a")
        await acquire(callers["ann"], "b", owner="host 7")
        owners = [
            (await callers["ann"].ok("GET", f"/v1/locks/{name}"))["holders"][0]["owner"]
            for name in "ab"
        ]
        assert owners == ["key:ann", "host 7"]


@virtual
async def test_a_request_that_is_made_again_is_one_request() -> None:
    async with serving() as caller:
        first = await acquire(caller, "a", request=REQUEST, lease_ms=60_000)
        again = await acquire(caller, "a", request=REQUEST, lease_ms=60_000)
        assert (again["id"], again["token"]) == (first["id"], first["token"])
        other = await caller("POST", "/v1/locks/acquire", {"names": ["a"]})
        assert other.verdict == (423, "lock_held")


@virtual
async def test_whoever_goes_away_does_not_stand_in_line_any_more() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        held = await acquire(caller, "a", lease_ms=3_600_000)
        ask = {"names": ["a"], "wait_ms": 60_000, "lease_ms": 3_600_000}
        call = caller.call("POST", "/v1/locks/acquire", ask)
        waiting = asyncio.create_task(call.run())
        await apps.sleep(1)
        assert (await caller.ok("GET", "/v1/locks/a"))["waiting"] == 1
        call.gone.set()
        await waiting
        await apps.sleep(1)
        assert (await caller.ok("GET", "/v1/locks/a"))["waiting"] == 0
        await caller.ok("POST", "/v1/locks/release", {"id": held["id"]})
        assert (await acquire(caller, "a"))["token"] == 2


@virtual
async def test_a_line_that_is_full_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOCK_WAITERS_MAX", 1)
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        await acquire(caller, "a", lease_ms=3_600_000)
        ask = {"names": ["a"], "wait_ms": 10_000}
        waiting = asyncio.create_task(caller("POST", "/v1/locks/acquire", ask))
        await apps.sleep(1)
        full = await caller("POST", "/v1/locks/acquire", ask)
        assert full.verdict == (429, "too_many_waiters")
        assert full.headers["retry-after"] == "1"
        assert (await waiting).verdict == (423, "lock_held")


@virtual
async def test_locks_are_for_those_whose_scopes_cover_all_their_names() -> None:
    async with serving_to(ann="lock:a*", bob="lock:b*", eve="send:* work:* manage:*") as callers:
        held = await acquire(callers["ann"], "a1", "a2")
        both = await callers["ann"]("POST", "/v1/locks/acquire", {"names": ["a3", "b1"]})
        assert both.verdict == (403, "not_allowed")
        for name in ("bob", "eve"):
            for request in (
                ("POST", "/v1/locks/acquire", {"names": ["a3"]}),
                ("POST", "/v1/locks/renew", {"id": held["id"]}),
                ("POST", "/v1/locks/release", {"id": held["id"]}),
                ("GET", "/v1/locks/a1"),
            ):
                assert (await callers[name](*request)).verdict == (403, "not_allowed")
        assert (await callers["ann"].ok("GET", "/v1/locks/a1"))["held"] == 1


@virtual
async def test_locks_are_listed_by_name_for_those_who_may_use_them() -> None:
    async with serving_to(ann="lock:*", bob="lock:b*") as callers:
        ann, bob = callers["ann"], callers["bob"]
        for name in ("b2", "a1", "c#3", "b1"):
            await ann.ok("POST", "/v1/locks/acquire", {"names": [name], "capacity": 2})
        await ann.ok("POST", "/v1/locks/acquire", {"names": ["b1"], "capacity": 2})
        page = await ann.ok("GET", "/v1/locks?limit=3")
        assert [lock["name"] for lock in page["locks"]] == ["a1", "b1", "b2"]
        assert [lock["held"] for lock in page["locks"]] == [1, 2, 1]
        page = await ann.ok("GET", f"/v1/locks?after={page['next']}")
        assert [lock["name"] for lock in page["locks"]] == ["c#3"]
        assert page["next"] is None
        assert [lock["name"] for lock in (await bob.ok("GET", "/v1/locks"))["locks"]] == [
            "b1",
            "b2",
        ]
        page = await ann.ok("GET", "/v1/locks?prefix=b")
        assert [lock["name"] for lock in page["locks"]] == ["b1", "b2"]
        assert (await ann("GET", "/v1/locks?after=%00")).verdict == (422, "bad_parameter")
        assert (await ann("GET", "/v1/locks?limit=0")).verdict == (422, "bad_parameter")


@virtual
async def test_the_same_request_of_another_caller_is_another_one() -> None:
    async with serving_to(ann="lock:x", bob="lock:x") as callers:
        asked = {"names": ["x"], "request": "0" * 26, "owner": "us"}
        held = await callers["ann"].ok("POST", "/v1/locks/acquire", asked)
        answer = await callers["bob"]("POST", "/v1/locks/acquire", asked)
        assert answer.verdict == (423, "lock_held")
        again = await callers["ann"].ok("POST", "/v1/locks/acquire", asked)
        assert (again["id"], again["token"]) == (held["id"], held["token"])
        # Nor does what was made up tell the id that releases it.
        assert asked["request"] not in held["id"]
        await callers["ann"].ok("POST", "/v1/locks/release", {"id": held["id"]})
        await callers["bob"].ok("POST", "/v1/locks/acquire", asked)
