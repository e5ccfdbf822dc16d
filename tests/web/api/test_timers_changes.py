"""Timers over HTTP: changed, paused, resumed and filtered."""

from typing import Any

import pytest

from onceward.webhooks.delivery import Outward
from onceward.webhooks.timers import WEBHOOKS
from tests.schedule.cluster import virtual
from tests.web.asgi import serving, serving_to
from tests.work.apps import Apps

URL = "https://example.com/hook"
EVERY = {"url": URL, "every_ms": 60_000}


@virtual
async def test_members_of_a_timer_change_and_it_goes_on_with_its_beat() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        made = await caller.ok("POST", "/v1/timers", {"id": "a", **EVERY, "headers": {"X-A": "1"}})
        changes = {"body": {"n": 2}, "method": "PUT", "times": 5, "overlap": "queue"}
        changed = await caller.ok("PATCH", "/v1/timers/a", changes)
        assert {name: changed[name] for name in changes} == changes
        assert (changed["due_ms"], changed["headers"]) == (made["due_ms"], {"X-A": "1"})
        until = "2033-05-18T07:00:00.000Z"
        changed = await caller.ok("PATCH", "/v1/timers/a", {"until": until, "times": None})
        assert (changed["until"], changed.get("times")) == (until, None)
        changed = await caller.ok("PATCH", "/v1/timers/a", {"cron": "0 9 * * *", "zone": "UTC"})
        assert (changed["cron"], changed.get("every_ms")) == ("0 9 * * *", None)
        changed = await caller.ok("PATCH", "/v1/timers/a", {"delay_ms": 0, "body": {"n": 3}})
        assert changed["left_ms"] == 0
        [claim] = await caller.app.claim(WEBHOOKS, "w", lease_s=10, wait_s=60)
        assert (claim.body["call"]["body"], claim.body["number"]) == ({"n": 3}, 1)


@virtual
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"every_ms": 1}, "bad_timer"),
        ({"cron": "never"}, "bad_timer"),
        ({"at": 1, "delay_ms": 1}, "bad_timer"),
        ({"every_ms": None}, "bad_timer"),
        ({"times": 0}, "wrong_type"),
        ({"until": 1}, "bad_timer"),
        ({"overlap": "never"}, "wrong_type"),
        ({"method": "TRACE"}, "wrong_type"),
        ({"method": "GET", "body": 1}, "bad_timer"),
        ({"url": "file:///etc/passwd"}, "bad_url"),
        ({"url": "http://10.0.0.1/"}, "address_refused"),
        ({"on_failure": {"url": "http://10.0.0.1/"}}, "address_refused"),
        ({"on_failure": {"queue": "q", "url": URL}}, "bad_timer"),
        ({"on_failure": {"mail": "ann"}}, "unknown_member"),
        ({"headers": {"Host": "x"}}, "bad_timer"),
        ({"priority": 3}, "bad_timer"),
        ({"name": "b"}, "unknown_member"),
        ({"body": "x" * 400_000}, "value_too_large"),
    ],
)
async def test_a_change_that_cannot_be_is_refused_and_changes_nothing(
    changes: dict[str, Any], code: str
) -> None:
    apps = Apps(shared=False)
    async with serving(apps.make(outward=Outward())) as caller:
        await caller.ok("POST", "/v1/timers", {"id": "a", **EVERY})
        before = await caller.ok("GET", "/v1/timers/a")
        answer = await caller("PATCH", "/v1/timers/a", changes)
        assert answer.json["code"] == code
        assert await caller.ok("GET", "/v1/timers/a") == before


@virtual
async def test_a_change_to_an_endpoint_that_does_not_exist_is_refused() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/timers", {"id": "a", **EVERY})
        for changes in ({"endpoint": "lost"}, {"on_failure": {"endpoint": "lost"}}):
            answer = await caller("PATCH", "/v1/timers/a", changes)
            assert answer.verdict == (404, "no_such_endpoint")
        assert (await caller.ok("GET", "/v1/timers/a"))["url"] == URL


@virtual
async def test_a_timer_is_paused_and_resumed() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        await caller.ok("POST", "/v1/timers", {"id": "a", **EVERY})
        for _ in range(2):
            paused = await caller.ok("POST", "/v1/timers/a/pause")
            assert (paused["state"], paused["left_ms"]) == ("paused", 0)
        await apps.sleep(600)
        assert (await caller.ok("GET", "/v1/timers/a"))["fired"] == 0
        [listed] = (await caller.ok("GET", "/v1/timers?state=paused"))["timers"]
        assert listed["id"] == "a"
        resumed = await caller.ok("POST", "/v1/timers/a/resume")
        assert (resumed["state"], resumed["fired"]) == ("active", 0)
        assert resumed["left_ms"] <= 60_000
        await caller.ok("DELETE", "/v1/timers/a")
        for verb in ("pause", "resume"):
            answer = await caller("POST", f"/v1/timers/a/{verb}")
            assert answer.verdict == (409, "already_ended")
            assert (await caller("POST", f"/v1/timers/b/{verb}")).verdict == (404, "no_such_timer")


@virtual
async def test_others_cannot_change_or_pause_a_timer() -> None:
    async with serving_to(ann="timer:* send:own", ben="timer:*") as callers:
        ann, ben = callers["ann"], callers["ben"]
        await ann.ok("POST", "/v1/timers", {"id": "a", **EVERY})
        assert (await ben("PATCH", "/v1/timers/a", {"body": 1})).status == 404
        assert (await ben("POST", "/v1/timers/a/pause")).status == 404
        for changes in ({"queue": "other"}, {"on_failure": {"queue": "other"}}):
            answer = await ann("PATCH", "/v1/timers/a", changes)
            assert answer.verdict == (403, "not_allowed")
        assert (await ann.ok("PATCH", "/v1/timers/a", {"queue": "own"}))["queue"] == "own"


@virtual
async def test_timers_are_listed_by_endpoint_queue_and_due_time() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/endpoints", {"id": "e", "url": URL})
        now_ms = (await caller.ok("POST", "/v1/timers", {"id": "a", **EVERY}))["created_ms"]
        await caller.ok("POST", "/v1/timers", {"id": "b", "endpoint": "e", "delay_ms": 5_000})
        await caller.ok("POST", "/v1/timers", {"id": "c", "queue": "q", "delay_ms": 9_000})

        async def ids(query: str) -> list[str]:
            return [one["id"] for one in (await caller.ok("GET", f"/v1/timers?{query}"))["timers"]]

        assert await ids("endpoint=e") == ["b"]
        assert await ids("queue=q") == ["c"]
        assert await ids(f"due_until={now_ms + 9_001}") == ["b", "c"]
        assert await ids(f"due_from={now_ms + 9_000}") == ["a", "c"]
        assert await ids(f"due_from={now_ms + 6_000}&due_until={now_ms + 9_001}&queue=q") == ["c"]
        assert (await caller("GET", "/v1/timers?due_from=soon")).verdict == (422, "bad_parameter")
