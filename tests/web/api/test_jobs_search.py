"""Operators find jobs, and read the story of one."""

from typing import Any, get_args

import pytest

import onceward
from onceward import limits
from onceward.api.jobs import State
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, keyed, serving
from tests.work.apps import Apps


def names(page: Any) -> list[str]:
    return [job["key"] for job in page["jobs"]]


@virtual
async def test_jobs_are_found_by_queue_state_and_text_the_newest_first() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        for number in range(30):
            queue = "a" if number % 2 else "b"
            message = {"body": "x" * 1_000, "key": f"order-{number:02d}", "order_key": f"o{number}"}
            await caller.ok("POST", f"/v1/inbox/{queue}", message)
        page = await caller.ok("GET", "/v1/jobs?limit=5")
        assert names(page) == [f"order-{number}" for number in range(29, 24, -1)]
        assert "body" not in page["jobs"][0]
        page = await caller.ok("GET", f"/v1/jobs?limit=5&after={page['next']}")
        assert names(page)[0] == "order-24"
        assert len(names(await caller.ok("GET", "/v1/jobs?queue=a"))) == 15
        found = await caller.ok("GET", "/v1/jobs?queue=a&text=order-0")
        assert names(found) == [f"order-0{number}" for number in (9, 7, 5, 3, 1)]
        assert names(await caller.ok("GET", "/v1/jobs?text=o17")) == ["order-17"]
        id_ = found["jobs"][0]["id"]
        assert names(await caller.ok("GET", f"/v1/jobs?text={id_[4:]}")) == ["order-09"]
        await caller.ok("DELETE", f"/v1/jobs/{id_}")
        assert names(await caller.ok("GET", "/v1/jobs?state=cancelled")) == ["order-09"]


@virtual
async def test_a_filter_takes_the_states_that_jobs_are_shown_with() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("sleepy", attempts_max=2)
    async def sleepy(job: onceward.Job) -> None:
        await job.sleep(600)

    async with serving(app) as caller:
        message = {"body": 1, "key": "later", "delay_ms": 60_000}
        await caller.ok("POST", "/v1/inbox/a", message)
        for key in ("failing", "running", "blocked"):
            message = {"body": 1, "key": key, "order_key": key.replace("blocked", "running")}
            await caller.ok("POST", "/v1/inbox/a", message)
        jobs = (await caller.ok("POST", "/v1/queues/a/claim", {"max": 2}))["jobs"]
        [failing] = [job for job in jobs if job["key"] == "failing"]
        said = {"token": failing["token"], "reason": ""}
        told = await caller.ok("POST", f"/v1/jobs/{failing['id']}/fail", said)
        assert told["state"] == "retrying", "whatever the reason"
        await caller.ok("POST", "/v1/inbox/sleepy", {"body": 1, "key": "asleep"})
        await apps.sleep(0.1)
        found = {
            state: sorted(names(await caller.ok("GET", f"/v1/jobs?state={state}")))
            for state in get_args(State)
        }
        assert {state: keys for state, keys in found.items() if keys} == {
            "scheduled": ["asleep", "later"],
            "queued": ["blocked"],
            "running": ["running"],
            "retrying": ["failing"],
        }
        for name in found:
            for job in (await caller.ok("GET", f"/v1/jobs?state={name}"))["jobs"]:
                assert job["state"] == name
                assert (await caller.ok("GET", f"/v1/jobs/{job['id']}"))["state"] == name


@virtual
async def test_jobs_are_found_by_tag_across_pages() -> None:
    async with serving() as caller:
        for number in range(60):
            tags = ["even", "even/é"] if number % 2 == 0 else ["odd"] if number % 3 else []
            message = {"body": 1, "key": f"{number:02d}", "tags": tags}
            await caller.ok("POST", "/v1/inbox/a", message)
        found, after, pages = [], "", 0
        while after is not None:
            page = await caller.ok("GET", f"/v1/jobs?tag=even&limit=7&after={after}")
            found, after, pages = found + names(page), page["next"], pages + 1
            assert all(job["tags"] == ["even", "even/é"] for job in page["jobs"])
        assert found == [f"{number:02d}" for number in range(58, -1, -2)]
        assert pages >= 5
        assert len(names(await caller.ok("GET", "/v1/jobs?tag=even%2F%C3%A9"))) == 30
        assert names(await caller.ok("GET", "/v1/jobs?tag=eve")) == []
        assert names(await caller.ok("GET", "/v1/jobs?tag=odd&key=01")) == ["01"]
        assert names(await caller.ok("GET", "/v1/jobs?tag=even&key=01")) == []
        assert (await caller.ok("GET", "/v1/jobs/count?tag=odd"))["jobs"] == 20
        assert (await caller.ok("GET", "/v1/jobs/count?tag=odd&state=failed"))["jobs"] == 0
        [plain] = (await caller.ok("GET", "/v1/jobs?key=03"))["jobs"]
        assert "tags" not in plain


@virtual
async def test_a_job_shows_its_tags_wherever_it_is_shown() -> None:
    async with serving() as caller:
        batch = {"messages": [{"body": 1, "key": "k", "tags": ["b", "a"]}]}
        sent = await caller.ok("POST", "/v1/inbox/q/batch", batch)
        id_ = sent["results"][0]["accepted"]["id"]
        [claimed] = (await caller.ok("POST", "/v1/queues/q/claim", {}))["jobs"]
        said = {"token": claimed["token"], "reason": "broken", "final": True}
        await caller.ok("POST", f"/v1/jobs/{id_}/fail", said)
        for job in (
            claimed,
            await caller.ok("GET", f"/v1/jobs/{id_}"),
            (await caller.ok("GET", f"/v1/jobs/{id_}/history"))["job"],
            (await caller.ok("GET", "/v1/jobs"))["jobs"][0],
            (await caller.ok("GET", "/v1/queues/q/failed"))["jobs"][0],
        ):
            assert job["tags"] == ["b", "a"]


@virtual
async def test_jobs_are_counted_by_queue_and_state() -> None:
    auth, keys = keyed(op="send:* manage:a", ann="send:*")
    async with serving(auth=auth) as caller:
        op, ann = (Caller(caller.server, keys[name]) for name in ("op", "ann"))
        for number in range(30):
            queue = "b" if number % 3 else "a"
            message = {"body": 1, "key": str(number), "delay_ms": 9_000 * (number % 2)}
            await op.ok("POST", f"/v1/inbox/{queue}", message)
        for query, jobs in (("", 10), ("?queue=a&state=queued", 5), ("?state=failed", 0)):
            found = await op.ok("GET", f"/v1/jobs/count{query}")
            assert found == {"jobs": jobs, "complete": True, "next": None}, query
        for one, query in ((op, "?queue=b"), (ann, "")):
            found = await one.ok("GET", f"/v1/jobs/count{query}")
            assert found["jobs"] == 0, "of queues that the caller may not manage"
        for query in ("?state=alive", "?after=a/b", "?limit=5"):
            assert (await op("GET", f"/v1/jobs/count{query}")).verdict == (422, "bad_parameter")


@virtual
async def test_a_count_that_runs_out_of_time_continues_at_its_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PAGE_MS", 0)
    async with serving() as caller:
        for number in range(700):
            await caller.app.send("a" if number % 2 else "b", number)
        total, after, parts = 0, "", 0
        while True:
            found = await caller.ok("GET", f"/v1/jobs/count?queue=a&after={after}")
            assert found["complete"] is (found["next"] is None)
            total, parts = total + found["jobs"], parts + 1
            if found["complete"]:
                break
            after = found["next"]
        assert total == 350
        assert parts > 1


@virtual
async def test_a_key_is_found_only_if_the_other_parameters_fit() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/inbox/a", {"body": 1, "key": "k"})
        assert names(await caller.ok("GET", "/v1/jobs?key=k&state=queued")) == ["k"]
        assert names(await caller.ok("GET", "/v1/jobs?key=k&state=failed")) == []


@virtual
async def test_a_key_is_found_of_whoever_has_sent_it() -> None:
    auth, keys = keyed(ann="send:*", bob="send:*", op="manage:a")
    async with serving(auth=auth) as caller:
        ann, bob, op = (Caller(caller.server, keys[name]) for name in ("ann", "bob", "op"))
        for sender, queue in ((ann, "a"), (bob, "a"), (ann, "b")):
            await sender.ok("POST", f"/v1/inbox/{queue}", {"body": 1, "key": "k"})
        found = await op.ok("GET", "/v1/jobs?key=k")
        assert sorted(job["caller"] for job in found["jobs"]) == ["key:ann", "key:bob"]
        assert {job["queue"] for job in found["jobs"]} == {"a"}
        assert (await op.ok("GET", "/v1/jobs?key=other"))["jobs"] == []
        assert (await op.ok("GET", "/v1/jobs?key=k&queue=b"))["jobs"] == []
        assert (await ann.ok("GET", "/v1/jobs"))["jobs"] == []
        assert {job["queue"] for job in (await op.ok("GET", "/v1/jobs"))["jobs"]} == {"a"}


@virtual
async def test_what_cannot_be_asked_for_is_refused() -> None:
    async with serving() as caller:
        for query, code in (
            ("state=alive", "bad_parameter"),
            ("state=ready", "bad_parameter"),
            ("limit=0", "bad_parameter"),
            (f"limit={limits.LIST_MAX + 1}", "bad_parameter"),
            ("after=a/b", "bad_parameter"),
            ("other=1", "bad_parameter"),
            ("key=", "bad_key"),
            ("key=a%00", "bad_key"),
            (f"key={'x' * 5_000}", "bad_key"),
        ):
            assert (await caller("GET", f"/v1/jobs?{query}")).verdict == (422, code), query


@virtual
async def test_a_story_tells_what_was_tried_and_caused() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("orders", attempts_max=3, retry_first_s=0.001, retry_max_s=0.001)
    async def order(job: onceward.Job) -> str:
        await job.step("pay", lambda: {"paid": 7})
        if job.attempt == 1:
            raise RuntimeError("the warehouse is asleep")
        await job.send("mail", "hello")
        await app.timers.set("ask", queue="mail", delay_s=60, tx=job.tx)
        return "sent"

    async with serving(app) as caller:
        sent = await caller.ok("POST", "/v1/inbox/orders?wait_ms=60000", {"body": 1, "key": "k"})
        story = await caller.ok("GET", f"/v1/jobs/{sent['id']}/history")
        assert story["caller"] == "user:developer"
        assert story["job"]["result"] == "sent"
        [failed] = story["job"]["history"]
        assert "asleep" in failed["reason"]
        assert [(one["kind"], one["name"]) for one in story["effects"] if one["kind"] != "job"] == [
            ("step", "pay"),
            ("timer", "ask"),
        ]
        [mail] = [one for one in story["effects"] if one["kind"] == "job"]
        assert (mail["queue"], mail["state"]) == ("mail", "queued")
        told = await caller.ok("GET", f"/v1/jobs/{mail['name']}/history")
        assert (told["cause"]["kind"], told["cause"]["name"]) == ("job", sent["id"])
        assert told["cause"]["queue"] == "orders"


@virtual
async def test_a_story_tells_of_a_lease_and_of_steps_in_doubt() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("pay", attempts_max=1)
    async def pay(job: onceward.Job) -> None:
        await job.step("look", lambda: 5)
        await job.step("charge", _lost, at_most_once=True)

    async with serving(app) as caller:
        sent = await caller.ok("POST", "/v1/inbox/pay?wait_ms=60000", {"body": 1, "key": "k"})
        assert sent["state"] == "in_doubt"
        story = await caller.ok("GET", f"/v1/jobs/{sent['id']}/history")
        assert [(one["name"], one["state"]) for one in story["steps"]] == [
            ("look", "done"),
            ("charge", "intended"),
        ]
        other = await caller.ok("POST", "/v1/inbox/q", {"body": 1, "key": "k"})
        [claim] = (await caller.ok("POST", "/v1/queues/q/claim", {"lease_ms": 5_000}))["jobs"]
        story = await caller.ok("GET", f"/v1/jobs/{other['id']}/history")
        assert story["lease_until_ms"] == claim["lease_until_ms"]
        longer = {"token": claim["token"], "lease_ms": 60_000}
        until = await caller.ok("POST", f"/v1/jobs/{other['id']}/extend", longer)
        story = await caller.ok("GET", f"/v1/jobs/{other['id']}/history")
        assert story["lease_until_ms"] == until["lease_until_ms"]


def _lost() -> None:
    raise TimeoutError("the bank has not answered")


@virtual
async def test_stories_are_for_those_who_may_see_the_job_and_tell_senders_less() -> None:
    app = Apps(shared=False).make()

    @app.handler("q")
    async def handle(job: onceward.Job) -> None:
        job.tx.put(("secret", "record"), 1)

    auth, keys = keyed(ann="send:q", bob="send:q", op="manage:q")
    async with serving(app, auth) as caller:
        ann, bob, op = (Caller(caller.server, keys[name]) for name in ("ann", "bob", "op"))
        sent = await ann.ok("POST", "/v1/inbox/q?wait_ms=60000", {"body": 1, "key": "k"})
        path = f"/v1/jobs/{sent['id']}/history"
        assert (await bob("GET", path)).verdict == (404, "no_such_job")
        assert (await ann.ok("GET", path))["effects"] == []
        [effect] = (await op.ok("GET", path))["effects"]
        assert (effect["kind"], effect["name"]) == ("record", "secret record")
        assert (await op("GET", "/v1/jobs/nothing/history")).verdict == (404, "no_such_job")
