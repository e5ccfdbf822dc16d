"""Operators see and look after the timers and endpoints of all callers."""

from typing import Any

from onceward import limits
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, keyed, serving
from tests.work.apps import Apps


def names(page: Any) -> list[tuple[str, str]]:
    return [(timer["caller"], timer["id"]) for timer in page["timers"]]


@virtual
async def test_what_is_due_next_comes_first_whoever_has_set_it() -> None:
    auth, keys = keyed(ann="timer:* send:*", bob="timer:* send:*", op="operate:*")
    async with serving(auth=auth) as caller:
        ann, bob, op = (Caller(caller.server, keys[name]) for name in ("ann", "bob", "op"))
        for number in range(40):
            who = ann if number % 2 else bob
            timer = {"id": f"t{number:02d}", "queue": "q", "delay_ms": 60_000 + number * 1_000}
            await who.ok("POST", "/v1/timers", timer)
        # What else waits for time is no timer.
        for number in range(50):
            message = {"body": 1, "key": str(number), "delay_ms": 1_000}
            await ann.ok("POST", "/v1/inbox/q", message)
        await caller.app.timers.set("own", queue="q", delay_s=1)
        found = await op.ok("GET", "/v1/agenda?limit=10")
        whose = [("key:bob", "key:ann")[number % 2] for number in range(9)]
        assert names(found) == [("", "own"), *((who, f"t0{n}") for n, who in enumerate(whose))]
        assert found["timers"][0]["left_ms"] <= 1_000
        assert len(names(await op.ok("GET", "/v1/agenda?limit=200"))) == 41
        mine = names(await ann.ok("GET", "/v1/agenda?limit=200"))
        assert {who for who, _ in mine} == {"key:ann"}
        assert len(mine) == 20
        for query in ("limit=0", "limit=201", "x=1"):
            assert (await op("GET", f"/v1/agenda?{query}")).verdict == (422, "bad_parameter")


@virtual
async def test_all_timers_are_listed_page_by_page_and_by_state() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        for number in range(23):
            await caller.app.timers.set(f"t{number:02d}", queue="q", delay_s=600, caller="ann")
        await caller.app.timers.cancel("t07", caller="ann")
        found, after = [], ""
        while True:
            page = await caller.ok("GET", f"/v1/agenda/timers?limit=10{after}")
            found += names(page)
            if page["next"] is None:
                break
            after = f"&after={page['next'].replace('#', '%23')}"
        assert found == [("app:ann", f"t{number:02d}") for number in range(23)]
        page = await caller.ok("GET", "/v1/agenda/timers?state=cancelled")
        assert names(page) == [("app:ann", "t07")]
        assert names(await caller.ok("GET", "/v1/agenda/timers?text=t1&limit=3")) == [
            ("app:ann", f"t1{number}") for number in range(3)
        ]
        long = "x" * (limits.SORT_BYTES_MAX + 1)
        answer = await caller("GET", "/v1/agenda/timers?state=fired")
        assert answer.status == 422
        assert b"state is not valid: use one of active, paused, suspended, firing, " in answer.body
        answer = await caller("GET", f"/v1/agenda/timers?after={long}")
        assert answer.verdict == (422, "bad_parameter")


@virtual
async def test_operators_look_after_timers_of_others_and_nobody_else_does() -> None:
    auth, keys = keyed(ann="timer:* send:*", bob="timer:*", op="operate:* send:*")
    async with serving(auth=auth) as caller:
        ann, bob, op = (Caller(caller.server, keys[name]) for name in ("ann", "bob", "op"))
        await ann.ok("POST", "/v1/timers", {"id": "t", "queue": "q", "delay_ms": 60_000})
        path = "/v1/timers/t?caller=key:ann"
        assert (await ann.ok("GET", path))["state"] == "active"
        assert (await op.ok("GET", path))["state"] == "active"
        for method in ("GET", "DELETE", "PATCH"):
            body = {"delay_ms": 1} if method == "PATCH" else None
            assert (await bob(method, path, body)).verdict == (403, "not_allowed")
        assert (await op.ok("PATCH", path, {"delay_ms": 5_000}))["left_ms"] <= 5_000
        assert (await op.ok("DELETE", path))["state"] == "cancelled"
        missing = await op("POST", "/v1/timers/t/resend?caller=key:ann")
        assert missing.verdict == (409, "not_failed")
        assert (await op("GET", "/v1/timers/t")).verdict == (403, "not_allowed")


@virtual
async def test_operators_see_the_endpoints_of_all_but_not_their_secrets() -> None:
    auth, keys = keyed(ann="endpoint:*", bob="endpoint:*", op="operate:*")
    async with serving(auth=auth) as caller:
        ann, bob, op = (Caller(caller.server, keys[name]) for name in ("ann", "bob", "op"))
        for who, id_ in ((ann, "a1"), (ann, "a2"), (bob, "b1")):
            await who.ok("POST", "/v1/endpoints", {"id": id_, "url": "https://x.example/"})
        page = await op.ok("GET", "/v1/endpoints?everyone=true&limit=2")
        assert [(one["caller"], one["id"]) for one in page["endpoints"]] == [
            ("key:ann", "a1"),
            ("key:ann", "a2"),
        ]
        assert "secrets" not in page["endpoints"][0]
        after = page["next"].replace("#", "%23")
        page = await op.ok("GET", f"/v1/endpoints?everyone=true&after={after}")
        assert [(one["caller"], one["id"]) for one in page["endpoints"]] == [("key:bob", "b1")]
        assert (await ann.ok("GET", "/v1/endpoints?everyone=true"))["endpoints"] == []
        assert "caller" not in (await ann.ok("GET", "/v1/endpoints"))["endpoints"][0]
        answer = await op("GET", "/v1/endpoints?everyone=maybe")
        assert answer.verdict == (422, "bad_parameter")
