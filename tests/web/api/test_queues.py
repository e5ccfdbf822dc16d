"""Queues over HTTP, for those who look after them."""

from typing import Any

import pytest

from onceward import limits
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, serving, serving_to
from tests.work.apps import Apps


async def die(caller: Caller, *keys: str, reason: str = "x", body: Any = 1, **options: Any) -> None:
    """Let jobs die, one after the other."""
    for key in keys:
        message = {"body": body, "key": key, **options}
        await caller.ok("POST", "/v1/inbox/q", message)
        [job] = (await caller.ok("POST", "/v1/queues/q/claim", {"wait_ms": 1_000}))["jobs"]
        said = {"token": job["token"], "reason": reason, "final": True}
        await caller.ok("POST", f"/v1/jobs/{job['id']}/fail", said)
        await caller.app.store.clock.sleep(1)


async def failed_keys(caller: Caller, query: str = "") -> list[str]:
    page = await caller.ok("GET", f"/v1/queues/q/failed{query}")
    return [job["key"] for job in page["jobs"]]


@virtual
async def test_queues_are_listed_with_their_jobs_and_settings() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        assert await caller.ok("GET", "/v1/queues") == {"queues": []}
        now_ms = caller.app.store.clock.now_ms()
        await caller.ok("POST", "/v1/inbox/b", {"body": 1, "key": "k"})
        await caller.ok("PUT", "/v1/queues/a", {"limit": 3})
        await apps.sleep(2.5 * limits.CENSUS_S)
        first, second = (await caller.ok("GET", "/v1/queues"))["queues"]
        assert (first["name"], first["jobs"], first["settings"]) == ("a", {}, {"limit": 3})
        assert (second["name"], second["jobs"]) == ("b", {"queued": 1})
        assert second["oldest_queued_ms"] == now_ms
        assert second["counted_ms"] > now_ms
        assert await caller.ok("GET", "/v1/queues/b") == second
        unknown = await caller.ok("GET", "/v1/queues/c")
        assert (unknown["jobs"], unknown["settings"]) == ({}, {})


@virtual
async def test_settings_change_and_the_others_stay() -> None:
    async with serving() as caller:
        for change in (
            {"limit": 3, "key_fields": ["a", "b.c"]},
            {"attempts_max": 7, "fingerprint": ["a"]},
            {"limit": 0},
            {},
        ):
            found = await caller.ok("PUT", "/v1/queues/q", change)
        assert found["settings"] == {
            "key_fields": ["a", "b.c"],
            "attempts_max": 7,
            "fingerprint": ["a"],
        }
        assert await caller.ok("GET", "/v1/queues/q") == found
        # One that is wrong spoils all of them.
        wrong = {"limit": 5, "rate": -1}
        assert (await caller("PUT", "/v1/queues/q", wrong)).verdict == (400, "bad_request")
        assert await caller.ok("GET", "/v1/queues/q") == found


@virtual
async def test_a_paused_queue_hands_out_nothing_until_it_is_resumed() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        paused = await caller.ok("POST", "/v1/queues/q/pause")
        assert paused["settings"] == {"paused": True}
        assert await caller.ok("POST", "/v1/queues/q/claim", {"wait_ms": 5_000}) == {"jobs": []}
        resumed = await caller.ok("POST", "/v1/queues/q/resume")
        assert resumed["settings"] == {}
        assert len((await caller.ok("POST", "/v1/queues/q/claim", {"wait_ms": 5_000}))["jobs"]) == 1


@virtual
async def test_failed_jobs_are_listed_page_by_page() -> None:
    async with serving() as caller:
        keys = [f"k{n}" for n in range(7)]
        await die(caller, *keys)
        assert await failed_keys(caller) == keys
        seen: list[str] = []
        start = ""
        for size in (3, 3, 1):
            page = await caller.ok("GET", f"/v1/queues/q/failed?limit=3&after={start}")
            assert len(page["jobs"]) == size
            seen += [job["key"] for job in page["jobs"]]
            start = page["next"]
        assert (seen, start) == (keys, None)
        assert await failed_keys(caller, "?limit=1000") == keys
        exactly = await caller.ok("GET", "/v1/queues/q/failed?limit=7")
        assert len(exactly["jobs"]) == 7


@virtual
async def test_a_page_of_large_jobs_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAGE_BYTES_MAX", 25_000)
    monkeypatch.setattr(limits, "PAGE_JOBS", 4)
    async with serving() as caller:
        keys = [f"k{n}" for n in range(7)]
        await die(caller, *keys, body="x" * 10_000)
        seen: list[str] = []
        start: str | None = ""
        pages = 0
        while start is not None:
            page = await caller.ok("GET", f"/v1/queues/q/failed?after={start}")
            assert len(page["jobs"]) <= 3
            seen += [job["key"] for job in page["jobs"]]
            start, pages = page["next"], pages + 1
        assert (seen, pages) == (keys, 3)


@virtual
async def test_failed_jobs_are_redriven_as_chosen() -> None:
    async with serving() as caller:
        path = "/v1/queues/q/redrive"
        await die(caller, "a", reason="timeout in step 1")
        await die(caller, "b", reason="refused", order_key="o")
        since_ms = caller.app.store.clock.now_ms()
        await die(caller, "c", reason="refused")
        assert await caller.ok("POST", path, {"reason": "timeout"}) == {"jobs": 1, "next": None}
        assert await failed_keys(caller) == ["b", "c"]
        assert (await caller.ok("POST", path, {"order_key": "other"}))["jobs"] == 0
        assert (await caller.ok("POST", path, {"order_key": "o"}))["jobs"] == 1
        assert (await caller.ok("POST", path, {"since_ms": since_ms + 10_000}))["jobs"] == 0
        assert (await caller.ok("POST", path, {"since_ms": since_ms}))["jobs"] == 1
        assert await failed_keys(caller) == []
        assert await caller.ok("POST", path) == {"jobs": 0, "next": None}


@virtual
async def test_waiting_jobs_are_purged_but_not_those_at_work() -> None:
    async with serving() as caller:
        for n in range(30):
            await caller.ok("POST", "/v1/inbox/q", {"body": n, "key": str(n)})
        await caller.ok("POST", "/v1/inbox/other", {"body": 1, "key": "k"})
        [held] = (await caller.ok("POST", "/v1/queues/q/claim", {}))["jobs"]
        assert await caller.ok("POST", "/v1/queues/q/purge") == {"jobs": 29, "next": None}
        assert await caller.ok("POST", "/v1/queues/q/purge", {}) == {"jobs": 0, "next": None}
        await caller.ok("POST", f"/v1/jobs/{held['id']}/complete", {"token": held["token"]})
        assert len((await caller.ok("POST", "/v1/queues/other/claim", {}))["jobs"]) == 1


@pytest.mark.parametrize("verb", ["purge", "redrive"])
@virtual
async def test_long_work_is_done_in_pieces_that_go_on_where_the_last_one_ended(verb: str) -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        if verb == "purge":
            for n in range(60):
                await caller.ok("POST", "/v1/inbox/q", {"body": n, "key": str(n)})
        else:
            await die(caller, *[f"k{n}" for n in range(60)])
        apps.engines[0].latency_s = 0.4  # so that a request has time for one commit
        body: dict[str, Any] = {}
        counts = []
        while True:
            found = await caller.ok("POST", f"/v1/queues/q/{verb}", body)
            counts.append(found["jobs"])
            if found["next"] is None:
                break
            body = {"after": found["next"]}
        assert sum(counts) == 60
        assert len(counts) > 2


@virtual
async def test_a_search_that_finds_nothing_does_not_take_long_either() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        await die(caller, *[f"k{n}" for n in range(150)])
        apps.engines[0].latency_s = 1
        found = await caller.ok("POST", "/v1/queues/q/redrive", {"reason": "nowhere"})
        assert found["jobs"] == 0
        assert found["next"] is not None
        again = await caller.ok(
            "POST", "/v1/queues/q/redrive", {"reason": "nowhere", "after": found["next"]}
        )
        assert again == {"jobs": 0, "next": None}


ROUTES = [
    ("GET", "/v1/queues/q"),
    ("PUT", "/v1/queues/q"),
    ("POST", "/v1/queues/q/pause"),
    ("POST", "/v1/queues/q/resume"),
    ("GET", "/v1/queues/q/failed"),
    ("POST", "/v1/queues/q/redrive"),
    ("POST", "/v1/queues/q/purge"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@virtual
async def test_only_who_manages_a_queue_may_do_this(method: str, path: str) -> None:
    async with serving_to(
        manager="manage:q", boss="all", worker="work:q send:q", other="manage:other"
    ) as callers:
        for name, status in (("manager", 200), ("boss", 200), ("worker", 403), ("other", 403)):
            answer = await callers[name](method, path, {})
            assert answer.status == status
        assert (await Caller(callers["boss"].server)(method, path, {})).status == 401


@virtual
async def test_everyone_sees_the_queues_they_manage() -> None:
    async with serving_to(boss="all", manager="manage:a*", worker="work:*") as callers:
        for queue in ("a1", "a2", "b"):
            await callers["boss"].ok("PUT", f"/v1/queues/{queue}", {"limit": 1})
        listed = {
            name: [queue["name"] for queue in (await caller.ok("GET", "/v1/queues"))["queues"]]
            for name, caller in callers.items()
        }
        assert listed == {"boss": ["a1", "a2", "b"], "manager": ["a1", "a2"], "worker": []}


@virtual
async def test_notices_go_where_whoever_asks_for_them_may_send() -> None:
    async with serving_to(ann="manage:q", bob="manage:q send:told", root="all") as callers:
        told = {"failure_queue": "told"}
        for name, notice in (("ann", "told"), ("bob", "other"), ("root", "onceward.webhooks")):
            answer = await callers[name]("PUT", "/v1/queues/q", {"failure_queue": notice})
            assert answer.verdict == (403, "not_allowed")
        assert (await callers["bob"].ok("PUT", "/v1/queues/q", told))["settings"] == told
        # What is so already, and none at all, can be said by who manages the queue.
        changed = await callers["ann"].ok("PUT", "/v1/queues/q", {**told, "limit": 2})
        assert changed["settings"] == {**told, "limit": 2}
        assert (await callers["ann"].ok("PUT", "/v1/queues/q", {"failure_queue": ""}))[
            "settings"
        ] == {"limit": 2}
