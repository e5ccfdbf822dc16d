"""Jobs over HTTP: claimed, ended and looked at."""

import asyncio
from typing import Any

import pytest

from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, serving, serving_to
from tests.work.apps import Apps

CLAIM = ("POST", "/v1/queues/q/claim")


async def send(caller: Caller, count: int = 1, **options: Any) -> list[str]:
    return [
        (await caller.ok("POST", "/v1/inbox/q", {"body": n, "key": str(n), **options}))["id"]
        for n in range(count)
    ]


async def claim(caller: Caller, **ask: Any) -> list[dict[str, Any]]:
    found = await caller.ok(*CLAIM, ask)
    jobs: list[dict[str, Any]] = found["jobs"]
    return jobs


@virtual
async def test_jobs_are_claimed_with_all_that_a_worker_needs() -> None:
    async with serving() as caller:
        now_ms = caller.app.store.clock.now_ms()
        [id_] = await send(caller, order_key="o")
        [job] = await claim(caller, lease_ms=5_000)
        assert len(job.pop("token")) >= 16
        assert job == {
            "id": id_,
            "key": "0",
            "body": 0,
            "attempt": 1,
            "lease_until_ms": now_ms + 5_000,
            "created_ms": now_ms,
            "reason": "",
            "caller": "user:developer",
            "order_key": "o",
            "priority": 5,
            "attempts_max": 5,
        }
        assert await claim(caller) == []
        assert (await caller.ok("GET", f"/v1/jobs/{id_}"))["worker"] == "developer"


@virtual
async def test_a_claim_takes_as_many_as_it_asks_for_and_waits_for_the_first() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        waiting = asyncio.create_task(claim(caller, wait_ms=60_000, worker="w1"))
        await apps.sleep(10)
        [id_] = await send(caller)
        [job] = await waiting
        assert (job["id"], round(apps.loop.time())) == (id_, 10)
        await caller.ok("POST", f"/v1/jobs/{id_}/complete", {"token": job["token"]})
        assert (await caller.ok("GET", f"/v1/jobs/{id_}"))["worker"] == "w1"
        for n in range(1, 6):
            await caller.ok("POST", "/v1/inbox/q", {"body": n, "key": str(n)})
        assert len(await claim(caller, max=3, wait_ms=1_000)) == 3
        assert len(await claim(caller, max=3, wait_ms=1_000)) == 2
        assert await claim(caller, max=3, wait_ms=1_000) == []


@virtual
async def test_a_job_is_completed_once_and_whoever_asks_again_hears_the_same() -> None:
    async with serving() as caller:
        [id_] = await send(caller)
        [job] = await claim(caller)
        said = {"token": job["token"], "result": {"a": [1]}}
        for _ in range(2):
            found = await caller.ok("POST", f"/v1/jobs/{id_}/complete", said)
            assert found == {"id": id_, "state": "succeeded"}
        view = await caller.ok("GET", f"/v1/jobs/{id_}")
        assert (view["state"], view["result"]) == ("succeeded", {"a": [1]})
        counters = dict(caller.app.store.meters.counters())
        ended = {
            dict(labels)["state"]: count for labels, count in counters["ended"].items() if count
        }
        assert ended == {"succeeded": 1}
        answer = await caller("POST", f"/v1/jobs/{id_}/fail", {**said, "result": 1})
        assert answer.verdict == (422, "unknown_member")
        answer = await caller(
            "POST", f"/v1/jobs/{id_}/fail", {"token": job["token"], "reason": "after all"}
        )
        assert answer.verdict == (409, "stale_token")


@pytest.mark.parametrize(
    ("more", "state", "pause_s"),
    [
        ({}, "retrying", 1),
        ({"retry_after_ms": 30_000}, "retrying", 30),
        ({"not_before_ms": 20_000}, "retrying", 20),
        ({"final": True}, "failed", None),
    ],
)
@virtual
async def test_a_failure_is_tried_again_as_the_worker_says(
    more: dict[str, Any], state: str, pause_s: int | None
) -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        [id_] = await send(caller)
        [job] = await claim(caller)
        said = {"token": job["token"], "reason": "no luck", **more}
        for _ in range(2):
            found = await caller.ok("POST", f"/v1/jobs/{id_}/fail", said)
            assert found == {"id": id_, "state": state}
        view = await caller.ok("GET", f"/v1/jobs/{id_}")
        assert view["reason"] == "no luck"
        [past] = view["history"]
        assert (past["attempt"], past["reason"], past["worker"]) == (1, "no luck", "developer")
        if pause_s is None:
            assert await claim(caller, wait_ms=60_000) == []
        else:
            [again] = await claim(caller, wait_ms=60_000)
            assert (again["attempt"], again["reason"]) == (2, "no luck")
            assert pause_s / 2 <= apps.loop.time() <= pause_s + 0.1
            late = await caller("POST", f"/v1/jobs/{id_}/fail", said)
            assert late.verdict == (409, "stale_token")


@virtual
async def test_a_job_that_was_never_claimed_cannot_be_ended() -> None:
    async with serving() as caller:
        [id_] = await send(caller)
        for verb, more in (
            ("complete", {}),
            ("fail", {"reason": "x"}),
            ("extend", {"lease_ms": 10}),
        ):
            answer = await caller("POST", f"/v1/jobs/{id_}/{verb}", {"token": "made up", **more})
            assert answer.verdict == (409, "stale_token")
        assert (await caller.ok("GET", f"/v1/jobs/{id_}"))["state"] == "queued"


@virtual
async def test_a_lease_is_extended() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        [id_] = await send(caller)
        [job] = await claim(caller, lease_ms=10_000)
        await apps.sleep(8)
        said = {"token": job["token"], "lease_ms": 10_000}
        found = await caller.ok("POST", f"/v1/jobs/{id_}/extend", said)
        assert found == {"lease_until_ms": job["lease_until_ms"] + 8_000}
        await apps.sleep(8)
        await caller.ok("POST", f"/v1/jobs/{id_}/complete", {"token": job["token"]})


@virtual
async def test_who_looks_at_a_job_can_wait_for_its_end() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        [id_] = await send(caller)
        early = await caller.ok("GET", f"/v1/jobs/{id_}?wait_ms=1000")
        assert (early["state"], "result" in early) == ("queued", False)
        waiting = asyncio.create_task(caller.ok("GET", f"/v1/jobs/{id_}?wait_ms=60000"))
        [job] = await claim(caller)
        await caller.ok("POST", f"/v1/jobs/{id_}/complete", {"token": job["token"], "result": 7})
        view = await waiting
        assert (view["state"], view["result"], view["key"]) == ("succeeded", 7, "0")
        assert (await caller.ok("GET", f"/v1/jobs/{id_}?wait_ms=60000"))["result"] == 7
        assert apps.loop.time() < 2


@virtual
async def test_a_job_is_cancelled_by_its_sender() -> None:
    async with serving() as caller:
        [id_] = await send(caller)
        assert await caller.ok("DELETE", f"/v1/jobs/{id_}") == {"id": id_, "state": "cancelled"}
        view = await caller.ok("GET", f"/v1/jobs/{id_}")
        assert (view["state"], view["reason"]) == ("cancelled", "cancelled by developer")
        assert await claim(caller) == []


@virtual
async def test_to_cancel_a_cancelled_job_succeeds() -> None:
    async with serving_to(ann="send:q", op="manage:q") as callers:
        [id_] = await send(callers["ann"])
        for name in ("ann", "op", "ann"):
            told = await callers[name].ok("DELETE", f"/v1/jobs/{id_}")
            assert told == {"id": id_, "state": "cancelled"}
        view = await callers["ann"].ok("GET", f"/v1/jobs/{id_}")
        assert view["reason"] == "cancelled by key:ann"


@virtual
async def test_a_step_in_doubt_is_settled() -> None:
    app = Apps(shared=False).make()
    done: list[int] = []

    def pay() -> None:
        done.append(1)
        raise ValueError("the line is dead")

    @app.handler("q", attempts_max=0)
    async def work(job: Any) -> Any:
        return await job.step("pay", pay, at_most_once=True)

    async with serving(app) as caller:
        id_ = (await caller.ok("POST", "/v1/inbox/q", {"key": "k", "body": 1}))["id"]
        path = f"/v1/jobs/{id_}"
        assert (await caller.ok("GET", f"{path}?wait_ms=60000"))["state"] == "in_doubt"
        for said, code in (
            ({"step": "pay"}, (422, "missing_member")),
            ({"step": "", "done": True}, (422, "wrong_type")),
            ({"step": "x", "done": True}, (400, "bad_request")),
            ({"step": "pay", "done": 1}, (422, "wrong_type")),
        ):
            assert (await caller("POST", f"{path}/settle", said)).verdict == code
        await caller.ok("POST", f"{path}/settle", {"step": "pay", "done": False})
        assert (await caller.ok("GET", f"{path}?wait_ms=60000"))["state"] == "in_doubt"
        assert len(done) == 2
        said = {"step": "pay", "done": True, "result": {"paid": 7}}
        await caller.ok("POST", f"{path}/settle", said)
        job = await caller.ok("GET", f"{path}?wait_ms=60000")
        assert (job["state"], job["result"], len(done)) == ("succeeded", {"paid": 7}, 2)
        assert (await caller("POST", f"{path}/settle", said)).verdict == (409, "not_failed")
        assert (await caller("POST", "/v1/jobs/x/settle", said)).verdict == (404, "no_such_job")


@virtual
async def test_a_failed_job_is_redriven() -> None:
    async with serving() as caller:
        [id_] = await send(caller)
        path = f"/v1/jobs/{id_}/retry"
        assert (await caller("POST", path)).verdict == (409, "not_failed")
        [job] = await claim(caller)
        said = {"token": job["token"], "reason": "x", "final": True}
        await caller.ok("POST", f"/v1/jobs/{id_}/fail", said)
        assert await caller.ok("POST", path) == {"id": id_, "state": "queued"}
        [again] = await claim(caller)
        assert again["id"] == id_


SCOPES = {
    "sender": "send:q",
    "worker": "work:q",
    "manager": "manage:q",
    "other": "send:other work:other manage:other lock:*",
    "nobody": "lock:q",
}
# action: those who may, and what the others are told. Where a request has a body, those without the
# action for any queue get 403 before it is read, whatever the job.
MAY: dict[str, tuple[set[str], dict[str, int]]] = {
    "claim": ({"worker"}, dict.fromkeys(SCOPES, 403)),
    "get": ({"sender", "worker", "manager"}, dict.fromkeys(SCOPES, 404)),
    "complete": ({"worker"}, {**dict.fromkeys(SCOPES, 403), "other": 404}),
    "fail": ({"worker"}, {**dict.fromkeys(SCOPES, 403), "other": 404}),
    "extend": ({"worker"}, {**dict.fromkeys(SCOPES, 403), "other": 404}),
    "cancel": ({"sender", "manager"}, {**dict.fromkeys(SCOPES, 404), "worker": 403}),
    "settle": ({"manager"}, {**dict.fromkeys(SCOPES, 403), "other": 404}),
    "retry": ({"manager"}, {**dict.fromkeys(SCOPES, 403), "other": 404}),
}


@pytest.mark.parametrize("name", SCOPES)
@pytest.mark.parametrize("action", MAY)
@virtual
async def test_everyone_may_do_what_their_scopes_say(action: str, name: str) -> None:
    async with serving_to(**SCOPES) as callers:
        [id_] = await send(callers["sender"])
        held: dict[str, Any] = {"token": "none"}
        if action not in ("claim", "cancel"):
            [held] = await claim(callers["worker"])
        token = {"token": held["token"]}
        if action == "retry":
            said = {**token, "reason": "x", "final": True}
            await callers["worker"].ok("POST", f"/v1/jobs/{id_}/fail", said)
        request: tuple[Any, ...] = {
            "claim": (*CLAIM, {}),
            "get": ("GET", f"/v1/jobs/{id_}"),
            "complete": ("POST", f"/v1/jobs/{id_}/complete", token),
            "fail": ("POST", f"/v1/jobs/{id_}/fail", {**token, "reason": "x"}),
            "extend": ("POST", f"/v1/jobs/{id_}/extend", {**token, "lease_ms": 10}),
            "cancel": ("DELETE", f"/v1/jobs/{id_}"),
            "settle": ("POST", f"/v1/jobs/{id_}/settle", {"step": "s", "done": False}),
            "retry": ("POST", f"/v1/jobs/{id_}/retry"),
        }[action]
        answer = await callers[name](*request)
        allowed, told = MAY[action]
        may = 409 if action == "settle" else 200  # this one is not in doubt
        assert answer.status == (may if name in allowed else told[name])
        if answer.status == 404:
            # The same as for a job that is not there at all.
            unknown = await callers[name](
                request[0], request[1].replace(id_, "0" * 29), *request[2:]
            )
            assert answer.body.replace(id_.encode(), b"0" * 29) == unknown.body


@virtual
async def test_failures_of_workers_have_a_type_and_a_traceback() -> None:
    apps = Apps(shared=False)
    app = apps.make(redact=lambda text: text.replace("4111", "…"))
    async with serving(app) as caller:
        [id_] = await send(caller)
        [job] = await claim(caller)
        path = f"/v1/jobs/{id_}"
        said = {"token": job["token"], "reason": "card 4111", "final": True}
        for wrong in ({"type": 1}, {"type": "x" * 101}, {"traceback": ["a"]}):
            verdict = (await caller("POST", f"{path}/fail", {**said, **wrong})).verdict
            assert verdict == (422, "wrong_type")
        said |= {"type": "ValueError", "traceback": "x" * 10_000 + " card 4111"}
        await caller.ok("POST", f"{path}/fail", said)
        [attempt] = (await caller.ok("GET", path))["history"]
        assert (attempt["type"], attempt["reason"]) == ("ValueError", "card …")
        assert attempt["traceback"].startswith("…x")
        assert attempt["traceback"].endswith(" card …")


@virtual
async def test_changes_have_their_caller_and_time() -> None:
    async with serving_to(ann="all", bob="manage:q work:q") as callers:
        ann, bob = callers["ann"], callers["bob"]
        [id_, other, third] = await send(ann, 3)
        path = f"/v1/jobs/{id_}"

        async def fail() -> None:
            for job in await claim(bob, max=3):
                said = {"token": job["token"], "reason": "broken", "final": True}
                await bob.ok("POST", f"/v1/jobs/{job['id']}/fail", said)

        await fail()
        await bob.ok("POST", f"{path}/retry")
        await fail()
        await ann.ok("POST", "/v1/queues/q/redrive", {})
        await bob.ok("POST", "/v1/queues/q/purge", {})
        events = (await ann.ok("GET", path))["changes"]
        assert [(one["kind"], one["by"], one["reason"]) for one in events] == [
            ("retried", "key:bob", "broken"),
            ("retried", "key:ann", "broken"),
            ("cancelled", "key:bob", "purged"),
        ]
        now_ms = ann.app.store.clock.now_ms()
        assert all(now_ms - 60_000 < one["at_ms"] <= now_ms for one in events)
        history = await ann.ok("GET", f"/v1/jobs/{other}/history")
        assert [one["by"] for one in history["job"]["changes"]] == ["key:ann", "key:bob"]
        [last] = await send(ann, 1, key="last")
        await ann.ok("DELETE", f"/v1/jobs/{last}")
        [event] = (await ann.ok("GET", f"/v1/jobs/{last}"))["changes"]
        assert (event["kind"], event["by"]) == ("cancelled", "key:ann")
        assert third != other


@virtual
async def test_settlements_are_changes() -> None:
    app = Apps(shared=False).make()

    def pay() -> None:
        raise ValueError("the line is dead")

    @app.handler("q")
    async def work(job: Any) -> Any:
        return await job.step("pay", pay, at_most_once=True)

    async with serving(app) as caller:
        id_ = (await caller.ok("POST", "/v1/inbox/q", {"key": "k", "body": 1}))["id"]
        path = f"/v1/jobs/{id_}"
        await caller.ok("GET", f"{path}?wait_ms=60000")
        said = {"step": "pay", "done": True, "result": 7, "reason": "asked the bank"}
        await caller.ok("POST", f"{path}/settle", said)
        job = await caller.ok("GET", f"{path}?wait_ms=60000")
        [event] = job["changes"]
        assert (event["kind"], event["step"], event["outcome"], event["reason"]) == (
            "settled",
            "pay",
            "done",
            "asked the bank",
        )
        assert event["by"] == "user:developer"
