"""Timers over HTTP: set once, seen by their callers, moved, cancelled and sent again."""

from typing import Any

import pytest

from onceward import limits
from onceward.webhooks.delivery import Outward
from onceward.webhooks.timers import WEBHOOKS
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, keyed, serving, serving_to
from tests.work.apps import Apps

URL = "https://example.com/hook"
LATER = {"url": URL, "delay_ms": 60_000}


async def fail(caller: Caller, reason: str, *, final: bool = False) -> str:
    """Fail the outward call that waits."""
    [claim] = await caller.app.claim(WEBHOOKS, "w", lease_s=10, wait_s=60)
    return await caller.app.fail(claim.id, claim.token, reason, final=final)


@virtual
async def test_a_timer_is_set_seen_and_fires() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        now_ms = apps.clock.now_ms()
        answer = await caller("POST", "/v1/timers", {"id": "a", **LATER, "body": {"n": 1}})
        assert answer.status == 202
        found = answer.json
        assert found.pop("duplicate") is False
        assert found == await caller.ok("GET", "/v1/timers/a")
        assert (found["id"], found["state"], found["fired"]) == ("a", "active", 0)
        assert (found["url"], found["body"]) == (URL, {"n": 1})
        assert (found["due_ms"], found["left_ms"]) == (now_ms + 60_000, 60_000)
        assert found["due"].endswith("Z")
        [claim] = await caller.app.claim(WEBHOOKS, "w", lease_s=10, wait_s=100)
        assert apps.clock.now_ms() == now_ms + 60_000
        firing = await caller.ok("GET", "/v1/timers/a")
        assert (firing["state"], firing["left_ms"], firing["fired"]) == ("firing", 0, 1)
        assert firing["last"]["id"] == claim.id
        await caller.app.complete(claim.id, claim.token, {"said": "204 No Content in 3 ms"})
        done = await caller.ok("GET", "/v1/timers/a")
        assert (done["state"], done["last"]["state"]) == ("success", "succeeded")
        [attempt] = done["last"]["attempts"]
        assert (attempt["attempt"], attempt["outcome"]) == (1, "succeeded")
        assert attempt["said"] == "204 No Content in 3 ms"


@virtual
async def test_the_same_again_is_the_same_timer_by_its_id_or_key() -> None:
    async with serving() as caller:
        header = [("Idempotency-Key", '"k 1"')]
        first = await caller("POST", "/v1/timers", LATER, headers=header)
        again = await caller("POST", "/v1/timers", {**LATER, "key": "k 1"})
        assert (first.status, again.status) == (202, 200)
        assert again.json == {**first.json, "duplicate": True}
        named = await caller.ok("POST", "/v1/timers", {"id": "a", **LATER})
        assert await caller.ok("POST", "/v1/timers", {"id": "a", **LATER}) == {
            **named,
            "duplicate": True,
        }
        for name in ({"id": "a"}, {"key": "k 1"}):
            other = await caller("POST", "/v1/timers", {**name, **LATER, "body": 2})
            assert other.verdict == (422, "key_reused")
        made_up = [await caller.ok("POST", "/v1/timers", LATER) for _ in range(2)]
        assert made_up[0]["id"] != made_up[1]["id"]
        both = await caller("POST", "/v1/timers", {"id": "a", "key": "k", **LATER})
        assert both.verdict == (422, "bad_timer")
        differ = await caller("POST", "/v1/timers", {"key": "j", **LATER}, headers=header)
        assert differ.verdict == (422, "bad_key")


@virtual
async def test_a_timer_has_a_time_in_either_form() -> None:
    async with serving() as caller:
        for at, due_ms in (
            (2_000_000_000_123, 2_000_000_000_123),
            ("2033-05-18T03:33:20.123Z", 2_000_000_000_123),
            ("2033-05-18T05:33:20.1221+02:00", 2_000_000_000_123),  # never early
            ("1999-12-31T00:00:00Z", 946_598_400_000),
            (0, 0),
        ):
            found = await caller.ok("POST", "/v1/timers", {"url": URL, "at": at})
            assert found["due_ms"] == due_ms, at


@virtual
async def test_a_timer_that_repeats_tells_its_next_times() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    seen: list[Any] = []

    @app.handler("q")
    async def note(job: Job) -> None:
        seen.append(job.body)

    async with serving(app) as caller:
        every = {"id": "every", "queue": "q", "body": 7, "every_ms": 10_000}
        found = await caller.ok("POST", "/v1/timers", every)
        assert len(found["next"]) == 5
        assert found["next"][0] == found["due"]
        cron = {"url": URL, "cron": "30 0 9 * * MON", "zone": "Europe/Berlin", "catch_up": "last"}
        weekly = await caller.ok("POST", "/v1/timers", cron)
        assert (weekly["zone"], weekly["catch_up"]) == ("Europe/Berlin", "last")
        assert all(time[11:] in ("07:00:30.000Z", "08:00:30.000Z") for time in weekly["next"])
        await apps.sleep(35)
        assert seen == [7, 7, 7]
        after = await caller.ok("GET", "/v1/timers/every")
        assert (after["state"], after["fired"]) == ("active", 3)
        assert (after["last"]["number"], after["last"]["state"]) == (3, "succeeded")
        assert after["last"]["attempts"][0]["said"] == ""


@virtual
async def test_a_timer_that_sends_shows_how_the_job_is_sent() -> None:
    async with serving() as caller:
        sent = {"queue": "q", "order_key": "o", "limit_key": "l", "priority": 1, "attempts_max": 3}
        sent["tags"] = ["b", "a"]
        found = await caller.ok("POST", "/v1/timers", {**sent, "delay_ms": 0})
        assert {name: found[name] for name in sent} == sent
        [claim] = await caller.app.claim("q", "w", lease_s=10, wait_s=60)
        assert (claim.options.order_key, claim.options.priority) == ("o", 1)
        assert claim.tags == ("b", "a")
        await caller.ok("POST", "/v1/endpoints", {"id": "e", "url": URL})
        called = {"headers": {"X-A": "1"}, "append_id": True, "endpoint": "e"}
        called["retry"] = {"pauses_ms": [1_000], "attempts_max": 2, "timeout_ms": 500}
        found = await caller.ok("POST", "/v1/timers", {**called, "delay_ms": 0})
        assert {name: found[name] for name in called} == called


@virtual
async def test_a_timer_is_moved_and_cancelled_until_it_fires() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        now_ms = apps.clock.now_ms()
        await caller.ok("POST", "/v1/timers", {"id": "a", **LATER})
        moved = await caller.ok("POST", "/v1/timers/a/move", {"delay_ms": 5_000})
        assert moved["due_ms"] == now_ms + 5_000
        moved = await caller.ok("PATCH", "/v1/timers/a", {"at": now_ms + 9_000})
        assert moved["left_ms"] == 9_000
        await caller.ok("POST", "/v1/timers", {"id": "b", **LATER})
        for _ in range(2):
            assert (await caller.ok("DELETE", "/v1/timers/b"))["state"] == "cancelled"
        late = await caller("PATCH", "/v1/timers/b", {"delay_ms": 0})
        assert late.verdict == (409, "already_ended")
        assert late.json["state"] == "cancelled"
        await apps.sleep(100)
        for method, body in (("PATCH", {"delay_ms": 0}), ("DELETE", None)):
            late = await caller(method, "/v1/timers/a", body)
            assert late.verdict == (409, "already_ended")
        assert len(await caller.app.claim(WEBHOOKS, "w", lease_s=10, max=10)) == 1


@virtual
async def test_what_failed_is_told_of_attempt_by_attempt_and_sent_again_with_its_id() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/timers", {"id": "a", "url": URL, "delay_ms": 0})
        assert await fail(caller, "no answer within 15 s") == "retrying"
        waiting = await caller.ok("GET", "/v1/timers/a")
        assert waiting["state"] == "firing"
        assert waiting["last"]["next_attempt_ms"] > waiting["last"]["fired_ms"]
        early = await caller("POST", "/v1/timers/a/resend")
        assert early.verdict == (409, "not_failed")
        assert await fail(caller, "500 Internal Server Error", final=True) == "failed"
        failed = await caller.ok("GET", "/v1/timers/a")
        assert failed["state"] == "failed"
        log = [(a["attempt"], a["outcome"], a["said"]) for a in failed["last"]["attempts"]]
        assert log == [
            (1, "failed", "no answer within 15 s"),
            (2, "failed", "500 Internal Server Error"),
        ]
        assert all(a["at"].endswith("Z") for a in failed["last"]["attempts"])
        again = await caller.ok("POST", "/v1/timers/a/resend")
        assert again["state"] == "firing"
        [claim] = await caller.app.claim(WEBHOOKS, "w", lease_s=10, wait_s=60)
        assert claim.id == failed["last"]["id"]
        await caller.app.complete(claim.id, claim.token, {"said": "200 OK"})
        done = await caller.ok("GET", "/v1/timers/a")
        assert [a["outcome"] for a in done["last"]["attempts"]] == ["failed", "failed", "succeeded"]


@virtual
async def test_a_timer_that_has_not_fired_cannot_be_sent_again() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/timers", {"id": "a", **LATER})
        assert (await caller("POST", "/v1/timers/a/resend")).verdict == (409, "not_failed")


@virtual
async def test_timers_are_listed_in_pages_by_prefix_and_state() -> None:
    async with serving() as caller:
        for number in range(7):
            await caller.ok("POST", "/v1/timers", {"id": f"a/{number}", **LATER})
        for id_ in ("b", "A", "a0"):
            await caller.ok("POST", "/v1/timers", {"id": id_, **LATER})
        await caller.ok("DELETE", "/v1/timers/a%2F3")
        ids: list[str] = []
        after = ""
        while True:
            page = await caller.ok("GET", f"/v1/timers?prefix=a%2F&limit=3&after={after}")
            ids += [timer["id"] for timer in page["timers"]]
            if page["next"] is None:
                break
            after = page["next"]
        assert ids == [f"a/{number}" for number in range(7)]
        every = await caller.ok("GET", "/v1/timers")
        assert [t["id"] for t in every["timers"]] == ["A", *ids, "a0", "b"]
        cancelled = await caller.ok("GET", "/v1/timers?state=cancelled&limit=1")
        assert [t["id"] for t in cancelled["timers"]] == ["a/3"]
        assert (await caller.ok("GET", "/v1/timers?state=failed"))["timers"] == []


@virtual
async def test_a_long_list_comes_whole_and_large_timers_make_short_pages() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        for number in range(120):
            await caller.ok("POST", "/v1/timers", {"id": f"s{number:03}", "url": URL, "at": 0})
        await apps.sleep(1)
        page = await caller.ok("GET", "/v1/timers?limit=1000")
        assert [t["id"] for t in page["timers"]] == [f"s{number:03}" for number in range(120)]
        assert page["next"] is None
        assert all("last" in timer for timer in page["timers"])
        for number in range(20):
            large = {"id": f"x{number:02}", **LATER, "body": "x" * 320_000}
            await caller.ok("POST", "/v1/timers", large)
        page = await caller.ok("GET", "/v1/timers?prefix=x&limit=1000")
        assert 1 < len(page["timers"]) < 20
        rest = await caller.ok("GET", f"/v1/timers?prefix=x&after={page['next']}")
        assert len(page["timers"]) + len(rest["timers"]) == 20


@virtual
async def test_a_timer_is_its_callers_alone() -> None:
    async with serving_to(ann="timer:*", ben="timer:*") as callers:
        ann, ben = callers["ann"], callers["ben"]
        await ann.ok("POST", "/v1/timers", {"id": "a", **LATER})
        for method, path, body in (
            ("GET", "/v1/timers/a", None),
            ("GET", "/timers/a", None),
            ("PATCH", "/v1/timers/a", {"delay_ms": 0}),
            ("DELETE", "/v1/timers/a", None),
            ("POST", "/v1/timers/a/resend", None),
        ):
            assert (await ben(method, path, body)).verdict == (404, "no_such_timer")
        assert (await ben.ok("GET", "/v1/timers"))["timers"] == []
        assert (await ben("POST", "/v1/timers", {"id": "a", **LATER, "body": 2})).status == 202
        assert "body" not in await ann.ok("GET", "/v1/timers/a")


@virtual
async def test_timers_of_the_application_are_looked_after_by_who_manages_their_queue() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    app.every(60, "clean-up")
    auth, keys = keyed(ann="manage:clean-up", ben="timer:* send:* manage:other", root="all")
    async with serving(app, auth=auth) as caller:
        await app.timers.set("hook", url=URL, delay_s=3_600)
        ann, ben, root = (Caller(caller.server, keys[name]) for name in ("ann", "ben", "root"))
        for who, ids in ((ann, ["every:clean-up"]), (root, ["every:clean-up", "hook"]), (ben, [])):
            assert (await who.ok("GET", "/v1/timers"))["timers"] == [], "they are nobody's own"
            found = await who.ok("GET", "/v1/timers?app=true")
            assert [timer["id"] for timer in found["timers"]] == ids
        one = "/v1/timers/every:clean-up"
        for method, path, body in (
            ("GET", one, None),
            ("PATCH", one, {"delay_ms": 0}),
            ("DELETE", one, None),
            ("POST", f"{one}/resend", None),
        ):
            for who in (ben, root if method == "GET" else ben):
                asked = path if who is root else f"{path}?app=true"
                assert (await who(method, asked, body)).verdict == (404, "no_such_timer")
        shown = await ann.ok("GET", f"{one}?app=true")
        assert (shown["queue"], shown["every_ms"], shown["fired"]) == ("clean-up", 60_000, 0)
        moved = await ann.ok("PATCH", f"{one}?app=true", {"delay_ms": 1_000})
        assert moved["left_ms"] == 1_000
        [claim] = await app.claim("clean-up", "w", lease_s=10, wait_s=60)
        assert await app.fail(claim.id, claim.token, "no", final=True) == "failed"
        again = await ann.ok("POST", f"{one}/resend?app=true")
        assert again["last"]["id"] == claim.id
        assert (await ann.ok("DELETE", f"{one}?app=true"))["state"] == "cancelled"
        for wrong in ("app=yes", "app=true&app=true", "whose=app"):
            assert (await ann("GET", f"{one}?{wrong}")).verdict == (422, "bad_parameter")


@virtual
async def test_a_caller_needs_a_scope_for_the_id_and_for_the_queue() -> None:
    async with serving_to(ann="timer:a.* send:q", ben="send:*") as callers:
        ann, ben = callers["ann"], callers["ben"]
        await ann.ok("POST", "/v1/timers", {"id": "a.1", "queue": "q", "delay_ms": 60_000})
        for body in (
            {"id": "b", **LATER},
            LATER,  # whose id is made up
            {"key": "k", **LATER},
            {"id": "a.2", "queue": "other", "delay_ms": 0},
        ):
            assert (await ann("POST", "/v1/timers", body)).verdict == (403, "not_allowed")
        assert [t["id"] for t in (await ann.ok("GET", "/v1/timers"))["timers"]] == ["a.1"]
        assert (await ann("GET", "/v1/timers/b")).verdict == (403, "not_allowed")
        refused = await ben("POST", "/v1/timers", {"queue": "q", "delay_ms": 0})
        assert refused.verdict == (403, "not_allowed")
        plain = {"hours": 0, "minutes": 0, "seconds": 0, "url": URL}
        assert (await ben("POST", "/timers", plain)).verdict == (403, "not_allowed")
        nobody = Caller(ann.server)
        assert (await nobody("GET", "/v1/timers")).verdict == (401, "no_credentials")


@virtual
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"url": None}, "bad_timer"),
        ({"queue": "q"}, "bad_timer"),
        ({"endpoint": "e"}, "bad_timer"),
        ({"delay_ms": None}, "bad_timer"),
        ({"at": 1}, "bad_timer"),
        ({"delay_ms": -1}, "wrong_type"),
        ({"delay_ms": 1.5}, "wrong_type"),
        ({"delay_ms": (limits.DELAY_S_MAX + 1) * 1_000}, "bad_timer"),
        ({"delay_ms": None, "at": "tomorrow"}, "wrong_type"),
        ({"delay_ms": None, "at": "2033-05-18T03:33:20"}, "wrong_type"),  # where?
        ({"delay_ms": None, "at": "0001-01-01T00:00:00Z"}, "bad_timer"),
        ({"delay_ms": None, "at": "9999-01-01T00:00:00Z"}, "bad_timer"),
        ({"every_ms": 1}, "bad_timer"),
        ({"every_ms": 1_000, "cron": "* * * * *"}, "bad_timer"),
        ({"cron": "* * *"}, "bad_timer"),
        ({"cron": "0 0 30 2 *"}, "bad_timer"),
        ({"cron": "* * * * *", "zone": "Mars/Olympus"}, "bad_timer"),
        ({"zone": "UTC"}, "bad_timer"),
        ({"catch_up": "some"}, "wrong_type"),
        ({"headers": {"Host": "a"}}, "bad_timer"),
        ({"headers": {"a": 1}}, "wrong_type"),
        ({"order_key": "o"}, "bad_timer"),
        ({"priority": 5}, "bad_timer"),  # the default
        ({"tags": ["a"]}, "bad_timer"),
        ({"url": None, "queue": "q", "tags": ["a", "a"]}, "bad_timer"),
        ({"url": None, "queue": "q", "tags": "a"}, "wrong_type"),
        ({"url": None, "queue": "q", "tags": [""]}, "bad_name"),
        ({"url": None, "queue": "q", "headers": {"a": "b"}}, "bad_timer"),
        ({"url": None, "queue": "q", "append_id": True}, "bad_timer"),
        ({"url": None, "queue": "no queue"}, "bad_name"),
        ({"url": "ftp://example.com"}, "bad_url"),
        ({"url": "example.com"}, "bad_url"),
        ({"url": "https://a:b@example.com/"}, "bad_url"),
        ({"id": ""}, "bad_name"),
        ({"id": "x" * 257}, "bad_name"),
        ({"key": ""}, "bad_key"),
        ({"key": "\x00"}, "bad_key"),
        ({"priority": 10}, "wrong_type"),
        ({"attempts_max": -1}, "wrong_type"),
        ({"url": URL, "retry": {"pauses_ms": [1]}}, "bad_timer"),
        ({"url": URL, "retry": {"pauses_s": [5]}}, "unknown_member"),
        ({"color": "red"}, "unknown_member"),
    ],
)
async def test_what_can_be_no_timer_is_refused(changes: dict[str, Any], code: str) -> None:
    async with serving() as caller:
        asked = {name: v for name, v in {**LATER, **changes}.items() if v is not None}
        assert (await caller("POST", "/v1/timers", asked)).verdict == (422, code)
        assert (await caller.ok("GET", "/v1/timers"))["timers"] == []


@virtual
async def test_an_endpoint_that_is_not_there_is_refused() -> None:
    async with serving() as caller:
        await caller.ok("GET", "/v1/endpoints/default")  # which has no url
        for id_, verdict in (
            ("nowhere", (404, "no_such_endpoint")),
            ("default", (422, "bad_timer")),
            ("x" * 200, (422, "bad_name")),
        ):
            answer = await caller("POST", "/v1/timers", {"endpoint": id_, "delay_ms": 1})
            assert answer.verdict == verdict


@virtual
async def test_a_body_that_is_too_large_is_refused() -> None:
    async with serving() as caller:
        large = await caller("POST", "/v1/timers", {**LATER, "body": "x" * 400_000})
        assert large.verdict == (413, "value_too_large")


@virtual
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "bad_timer"),
        ({"at": 1, "delay_ms": 1}, "bad_timer"),
        ({"delay_ms": (limits.DELAY_S_MAX + 1) * 1_000}, "bad_timer"),
        ({"at": "soon"}, "wrong_type"),
        ({"url": URL}, "unknown_member"),
    ],
)
async def test_a_move_to_no_time_is_refused(body: Any, code: str) -> None:
    async with serving() as caller:
        set_ = await caller.ok("POST", "/v1/timers", {"id": "a", **LATER})
        assert (await caller("POST", "/v1/timers/a/move", body)).verdict == (422, code)
        assert (await caller.ok("GET", "/v1/timers/a"))["due_ms"] == set_["due_ms"]


@virtual
@pytest.mark.parametrize(
    "query",
    ["state=lost", "limit=0", "limit=1001", f"prefix={'x' * 257}", f"after={'x' * 257}", "sort=id"],
)
async def test_a_list_of_what_there_is_not_is_refused(query: str) -> None:
    async with serving() as caller:
        assert (await caller("GET", f"/v1/timers?{query}")).verdict == (422, "bad_parameter")


@virtual
async def test_an_id_that_nobody_has_is_not_found() -> None:
    async with serving() as caller:
        for id_ in ("nobody", "x" * 300, "%F0%9F%98%80"):
            for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"delay_ms": 1})):
                answer = await caller(method, f"/v1/timers/{id_}", body)
                assert answer.verdict == (404, "no_such_timer")


@virtual
async def test_an_address_that_this_server_may_not_call_is_refused_at_once() -> None:
    inside = {"url": "http://10.0.0.1/", "delay_ms": 60_000}
    async with serving() as caller:
        await caller.ok("POST", "/v1/timers", inside)  # another process may make the calls
    async with serving(Apps(shared=False).make(outward=Outward())) as caller:
        refused = await caller("POST", "/v1/timers", inside)
        assert refused.verdict == (422, "address_refused")
        port = {"url": "https://example.com:22/", "delay_ms": 1}
        assert (await caller("POST", "/v1/timers", port)).verdict == (422, "address_refused")
    app = Apps(shared=False).make(outward=Outward(allow=["10.0.0.0/8"]))
    async with serving(app) as caller:
        await caller.ok("POST", "/v1/timers", inside)


@virtual
async def test_metrics_tell_how_many_were_set_and_how_late_they_were() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        for _ in range(2):
            await caller.ok("POST", "/v1/timers", {"id": "a", "url": URL, "delay_ms": 0})
        await apps.sleep(1)
        text = (await caller("GET", "/metrics")).body.decode()
        assert 'onceward_timers_set_total{duplicate="no"} 1' in text
        assert 'onceward_timers_set_total{duplicate="yes"} 1' in text
        assert "onceward_lateness_seconds_count 1" in text


@virtual
async def test_timers_can_be_posted_as_they_are_listed() -> None:
    made = [
        {"id": "a", "url": URL, "delay_ms": 90_000, "body": {"n": 1}, "headers": {"X-A": "1"}},
        {"id": "b", "queue": "q", "at": 2_000_000_000_000, "order_key": "o", "priority": 1},
        {"id": "c", "url": URL, "cron": "30 2 * * *", "zone": "Europe/Berlin", "catch_up": "last"},
        {"id": "d", "url": URL, "every_ms": 60_000, "append_id": True, "attempts_max": 2},
        {"id": "e", "url": URL, "delay_ms": 1, "retry": {"pauses_ms": [500], "timeout_ms": 9}},
        {"id": "f", "url": URL, "every_ms": 60_000, "until": 2_000_000_000_000, "times": 9},
        {"id": "g", "url": URL, "every_ms": 60_000, "overlap": "skip", "method": "PUT"},
        {"id": "h", "url": URL, "delay_ms": 60_000, "on_failure": {"queue": "alerts"}},
    ]
    async with serving() as caller:
        for one in made:
            await caller.ok("POST", "/v1/timers", one)
        listed = (await caller.ok("GET", "/v1/timers"))["timers"]
        shown = await caller.ok("GET", "/v1/timers/c")
    async with serving() as caller:
        for one in [*listed, shown]:
            assert (await caller("POST", "/v1/timers", one)).status in (200, 202)
        assert (await caller.ok("GET", "/v1/timers"))["timers"] == listed
