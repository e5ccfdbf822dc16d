"""Timers in the plain form."""

from typing import Any

import pytest

from onceward.webhooks.timers import WEBHOOKS
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, serving
from tests.work.apps import Apps

URL = "https://example.com/hook"


def timer(hours: Any = 0, minutes: Any = 0, seconds: Any = 0, url: Any = URL) -> dict[str, Any]:
    return {"hours": hours, "minutes": minutes, "seconds": seconds, "url": url}


async def end(caller: Caller, **how: Any) -> None:
    [claim] = await caller.app.claim(WEBHOOKS, "w", lease_s=10, wait_s=20)
    if how:
        await caller.app.fail(claim.id, claim.token, "no", **how)
    else:
        await caller.app.complete(claim.id, claim.token, {"said": "200 OK"})


@virtual
async def test_a_timer_counts_down_and_ends_with_success() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        answer = await caller("POST", "/timers", timer(0, 2, 3))
        assert answer.status == 200
        assert list(answer.json) == ["id"]
        id_ = answer.json["id"]
        path = f"/timers/{id_}"
        left_s = 120 + 3
        assert await caller.ok("GET", path) == {"id": id_, "time_left": left_s, "status": "ACTIVE"}
        await apps.sleep(left_s - 0.5)
        assert (await caller.ok("GET", path))["time_left"] == 1
        await apps.sleep(10)
        firing = await caller.ok("GET", path)
        assert (firing["time_left"], firing["status"]) == (0, "ACTIVE")
        await end(caller)
        assert await caller.ok("GET", path) == {"id": id_, "time_left": 0, "status": "SUCCESS"}


@virtual
async def test_a_timer_of_no_time_fires_at_once() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        start_ms = apps.clock.now_ms()
        for seconds in (0, 1):
            await caller.ok("POST", "/timers", timer(seconds=seconds))
            await end(caller)
            assert apps.clock.now_ms() == start_ms + seconds * 1_000


@virtual
async def test_a_timer_that_failed_or_was_cancelled_says_so() -> None:
    async with serving() as caller:
        failed = (await caller.ok("POST", "/timers", timer()))["id"]
        await end(caller, final=True)
        assert (await caller.ok("GET", f"/timers/{failed}"))["status"] == "FAILED"
        cancelled = (await caller.ok("POST", "/timers", timer(minutes=1)))["id"]
        await caller.ok("DELETE", f"/v1/timers/{cancelled}")
        assert await caller.ok("GET", f"/timers/{cancelled}") == {
            "id": cancelled,
            "time_left": 0,
            "status": "CANCELLED",
        }


@virtual
async def test_the_id_is_appended_to_the_url_if_the_server_says_so() -> None:
    for append_id in (False, True):
        async with serving(append_id=append_id) as caller:
            id_ = (await caller.ok("POST", "/timers", timer()))["id"]
            assert (await caller.ok("GET", f"/v1/timers/{id_}")).get(
                "append_id", False
            ) is append_id


@virtual
async def test_a_timer_with_an_idempotency_key_is_set_once() -> None:
    async with serving() as caller:
        header = [("Idempotency-Key", "k")]
        ids = [await caller.ok("POST", "/timers", timer(1), headers=header) for _ in range(2)]
        assert ids[0] == ids[1]


@virtual
async def test_a_hundred_years_are_taken_and_more_is_not() -> None:
    async with serving() as caller:
        hours = 100 * 366 * 24
        id_ = (await caller.ok("POST", "/timers", timer(hours)))["id"]
        assert (await caller.ok("GET", f"/timers/{id_}"))["time_left"] == hours * 3_600
        assert (await caller("POST", "/timers", timer(hours, 0, 1))).verdict == (422, "bad_timer")


@virtual
@pytest.mark.parametrize(
    "body",
    [
        timer(-1),
        timer(minutes=-1),
        timer(seconds=-1),
        timer(0.5),
        timer("1"),
        timer(None),
        timer(seconds=True),
        timer(10**15),
        timer(10**30),
        timer(seconds=10**18),
        timer(url=""),
        timer(url=None),
        timer(url=5),
        timer(url="example.com"),
        timer(url="file:///etc/passwd"),
        timer(url="http://exa mple.com"),
        {"hours": 0, "minutes": 0, "seconds": 0},
        {"url": URL},
        {},
        [],
        {**timer(), "color": "red"},
    ],
)
async def test_bad_values_are_refused(body: Any) -> None:
    async with serving() as caller:
        answer = await caller("POST", "/timers", body)
        assert answer.status == 422, answer.body
        assert answer.code


@virtual
async def test_what_is_not_json_is_refused() -> None:
    async with serving() as caller:
        assert (await caller("POST", "/timers", raw=b"{")).verdict == (400, "not_json")


@virtual
async def test_an_id_that_nobody_has_is_not_found() -> None:
    async with serving() as caller:
        assert (await caller("GET", "/timers/nobody")).verdict == (404, "no_such_timer")


@virtual
async def test_a_timer_of_a_suspended_caller_is_active() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        made = await caller.ok("POST", "/timers", timer(seconds=1))
        await caller.ok("POST", "/v1/callers/user:developer/suspend")
        await apps.sleep(2)
        found = await caller.ok("GET", f"/timers/{made['id']}")
        assert found == {"id": made["id"], "time_left": 0, "status": "ACTIVE"}


FORM = [("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")]


@virtual
async def test_a_timer_is_set_by_a_form() -> None:
    async with serving() as caller:
        form = b"hours=0&minutes=1&seconds=5&url=https%3A%2F%2Fexample.com%2Fhook%3Fa%3D1"
        id_ = (await caller.ok("POST", "/timers", raw=form, headers=FORM))["id"]
        found = await caller.ok("GET", f"/v1/timers/{id_}")
        assert (found["url"], found["left_ms"]) == ("https://example.com/hook?a=1", 65_000)


@virtual
@pytest.mark.parametrize(
    ("form", "code"),
    [
        (b"hours=0&minutes=0&url=https://example.com", "missing_member"),
        (b"hours=0&minutes=-1&seconds=0&url=https://example.com", "wrong_type"),
        (b"hours=0&minutes=1.5&seconds=0&url=https://example.com", "wrong_type"),
        (b"hours=0&minutes=01&seconds=0&url=https://example.com", "wrong_type"),
        (b"hours=0&minutes=0&seconds=0&url=7", "wrong_type"),
        (b"hours=0&minutes=0&seconds=0&seconds=1&url=https://example.com", "duplicate_member"),
        (b"hours=0&minutes=0&seconds=0&url=https://example.com&color=red", "unknown_member"),
        (b"hours=0&minutes=0&seconds=0&url=%ff", "not_text"),
        (b"\xff", "not_text"),
    ],
)
async def test_a_form_that_can_be_no_timer_is_refused(form: bytes, code: str) -> None:
    async with serving() as caller:
        answer = await caller("POST", "/timers", raw=form, headers=FORM)
        assert answer.verdict == (400 if code in ("duplicate_member", "not_text") else 422, code)


@virtual
async def test_a_timer_is_cancelled_in_the_plain_form() -> None:
    async with serving() as caller:
        id_ = (await caller.ok("POST", "/timers", timer(minutes=1)))["id"]
        gone = {"id": id_, "time_left": 0, "status": "CANCELLED"}
        assert await caller.ok("DELETE", f"/timers/{id_}") == gone
        assert await caller.ok("DELETE", f"/timers/{id_}") == gone
        assert (await caller("DELETE", "/timers/nothing")).verdict == (404, "no_such_timer")
        fired = (await caller.ok("POST", "/timers", timer()))["id"]
        await end(caller)
        assert (await caller("DELETE", f"/timers/{fired}")).verdict == (409, "already_ended")
