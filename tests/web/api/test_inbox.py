"""Messages over HTTP: once for each key."""

import asyncio
from typing import Any

import pytest

from onceward import limits
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, serving, serving_to
from tests.work.apps import Apps

SEND = ("POST", "/v1/inbox/q")


async def refused_keys(caller: Caller, *keys: str) -> list[str]:
    messages = [{"body": 1, "key": key} for key in keys]
    found = await caller.ok("POST", "/v1/inbox/q/batch", {"messages": messages})
    return [verdict.get("rejected", {}).get("code", "") for verdict in found["results"]]


@virtual
async def test_the_first_is_accepted_and_the_next_is_a_duplicate() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        first = await caller(*SEND, {"body": {"n": 1}, "key": "k"})
        again = await caller(*SEND, {"key": "k", "body": {"n": 1}})
        assert (first.status, again.status) == (202, 200)
        id_ = first.json["id"]
        assert first.json == {"id": id_, "key": "k", "state": "queued", "duplicate": False}
        assert again.json == {"id": id_, "key": "k", "state": "queued", "duplicate": True}
        # Durable: it is in the database when it is answered.
        assert len([key for key in apps.records if key[1].endswith("#job")]) == 1


@virtual
async def test_messages_with_a_batch_key_or_a_debounce_key_share_a_job() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        batch = {"batch_key": "ann", "batch_ms": 2_000, "batch_size": 4}
        debounce = {"debounce_key": "doc", "debounce_ms": 2_000, "debounce_max_ms": 3_000}
        for number in (1, 2, 2):
            key = f"k{number}"
            batched = await caller.ok(*SEND, {"body": number, "key": key, **batch})
            last = await caller.ok(*SEND, {"body": number, "key": f"d{number}", **debounce})
        assert batched["duplicate"]
        assert (batched["state"], last["state"]) == ("scheduled", "scheduled")
        many = [{"body": 3, "key": "k3", **batch}, {"body": 4, "key": "k4", "batch_key": "x"}]
        found = await caller.ok("POST", "/v1/inbox/q/batch", {"messages": many})
        accepted, rejected = found["results"]
        assert accepted["accepted"]["id"] == batched["id"]
        assert "batch_key needs batch_s" in rejected["rejected"]["detail"]
        job = await caller.ok("GET", f"/v1/jobs/{batched['id']}")
        assert (job["body"], job["due_ms"] - job["created_ms"] <= 2_001) == ([1, 2, 3], True)
        assert (await caller.ok("GET", f"/v1/jobs/{last['id']}"))["body"] == 2
        for wrong in (
            {"batch_key": ""},
            {"batch_key": "k", "batch_ms": -1},
            {"batch_key": "k", "batch_ms": 1, "batch_size": 1_001},
            {"debounce_key": "k"},
            {"debounce_key": "k", "debounce_ms": 1, "delay_ms": 1},
        ):
            refused = await caller(*SEND, {"body": 1, "key": "w", **wrong})
            assert refused.status in (400, 422), wrong


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("k", "k"),
        ('"k"', "k"),
        (r'"a\"b\\c\\"', r'a"b\c' + "\\"),
        ('"', '"'),
        ("grün", "grün"),
        ('"k', '"k'),
    ],
)
@virtual
async def test_the_key_may_come_as_a_header(header: str, key: str) -> None:
    async with serving() as caller:
        found = await caller.ok(*SEND, {"body": 1}, headers=[("Idempotency-Key", header)])
        assert (found["key"], found["duplicate"]) == (key, False)
        assert (await caller.ok(*SEND, {"body": 1, "key": key}))["duplicate"]
        both = {"body": 1, "key": key}
        assert (await caller.ok(*SEND, both, headers=[("Idempotency-Key", header)]))["duplicate"]


@pytest.mark.parametrize("header", ["", '""', "x" * 3_000])
@virtual
async def test_a_bad_key_in_the_header_is_refused(header: str) -> None:
    async with serving() as caller:
        answer = await caller(*SEND, {"body": 1}, headers=[("Idempotency-Key", header)])
        assert answer.verdict == (422, "bad_key")


@virtual
async def test_a_key_may_be_made_from_the_body_if_the_queue_says_so() -> None:
    async with serving() as caller:
        await caller.ok("PUT", "/v1/queues/q", {"key_fields": ["order.id"]})
        found = await caller.ok(*SEND, {"body": {"order": {"id": "7"}}})
        assert found["key"] == "7"
        assert (await caller(*SEND, {"body": {}})).verdict == (422, "missing_key")
        header = [("Idempotency-Key", "filled by a client")]
        again = await caller.ok(*SEND, {"body": {"order": {"id": "7"}}}, headers=header)
        assert (again["key"], again["duplicate"]) == ("7", True)


@virtual
async def test_the_header_of_a_batch_gives_keys_to_messages_without_one() -> None:
    async with serving() as caller:
        batch = {"messages": [{"body": 1}, {"body": 2, "key": "k"}, {"body": 3}]}
        for duplicate in (False, True):
            found = await caller.ok(
                "POST", "/v1/inbox/q/batch", batch, headers=[("Idempotency-Key", "b")]
            )
            receipts = [result["accepted"] for result in found["results"]]
            assert [one["key"] for one in receipts] == ["b-0", "k", "b-2"]
            assert {one["duplicate"] for one in receipts} == {duplicate}
        found = await caller.ok("POST", "/v1/inbox/q/batch", batch)
        assert "missing_key" in [one.get("rejected", {}).get("code") for one in found["results"]]


@virtual
async def test_who_waits_gets_the_result() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q")
    async def work(job: Job) -> Any:
        await apps.sleep(5)
        if job.body == "bad":
            raise ValueError("so bad")
        return {"did": job.body}

    async with serving(app) as caller:
        found = await caller.ok("POST", "/v1/inbox/q?wait_ms=60000", {"body": "it", "key": "a"})
        assert (found["state"], found["result"]) == ("succeeded", {"did": "it"})
        assert apps.loop.time() < 6
        again = await caller.ok(*SEND, {"body": "it", "key": "a"})
        assert (again["state"], again["result"]) == ("succeeded", {"did": "it"})
        # When the time is over it is told how far it is.
        short = await caller.ok("POST", "/v1/inbox/q?wait_ms=1000", {"body": "slow", "key": "b"})
        assert short["state"] == "running"
        assert "result" not in short
        message = {"body": "bad", "key": "c", "attempts_max": 1}
        failed = await caller.ok("POST", "/v1/inbox/q?wait_ms=60000", message)
        assert failed["state"] == "failed"
        assert "so bad" in failed["reason"]
        assert (await caller.ok(*SEND, message))["reason"] == failed["reason"]


@virtual
async def test_a_result_of_null_is_told_as_such() -> None:
    app = Apps(shared=False).make()

    @app.handler("q")
    async def work(job: Job) -> None:
        pass

    async with serving(app) as caller:
        found = await caller.ok("POST", "/v1/inbox/q?wait_ms=60000", {"body": 1, "key": "a"})
        assert found["state"] == "succeeded"
        assert found["result"] is None
        shown = await caller.ok("GET", f"/v1/jobs/{found['id']}")
        assert shown["result"] is None


@virtual
async def test_messages_have_their_options() -> None:
    async with serving() as caller:
        options = {"delay_ms": 5_000, "priority": 1, "order_key": "o", "attempts_max": 7}
        found = await caller.ok(*SEND, {"body": 1, "key": "a", **options})
        assert found["state"] == "scheduled"
        job = await caller.ok("GET", f"/v1/jobs/{found['id']}")
        assert job["due_ms"] - job["created_ms"] == 5_000
        assert (job["priority"], job["order_key"], job["attempts_max"]) == (1, "o", 7)
        later_ms = job["created_ms"] + 60_000
        other = await caller.ok(*SEND, {"body": 1, "key": "b", "due_ms": later_ms})
        assert (await caller.ok("GET", f"/v1/jobs/{other['id']}"))["due_ms"] == later_ms


@virtual
async def test_another_body_may_only_be_recorded() -> None:
    async with serving() as caller:
        await caller.ok("PUT", "/v1/queues/q", {"mismatch": "record"})
        first = await caller.ok(*SEND, {"body": 1, "key": "k"})
        second = await caller.ok(*SEND, {"body": 2, "key": "k"})
        assert (second["id"], second["same_body"]) == (first["id"], False)


@virtual
async def test_keys_of_callers_are_apart_and_their_jobs_hidden() -> None:
    async with serving_to(ann="send:*", bob="send:*") as callers:
        ids = {
            name: (await caller.ok(*SEND, {"body": name, "key": "k"}))["id"]
            for name, caller in callers.items()
        }
        assert ids["ann"] != ids["bob"]
        for name, other in (("ann", "bob"), ("bob", "ann")):
            own = await callers[name].ok("GET", f"/v1/jobs/{ids[name]}")
            assert own["body"] == name
            for method, path in (("GET", ids[other]), ("DELETE", ids[other])):
                answer = await callers[name](method, f"/v1/jobs/{path}")
                assert answer.verdict == (404, "no_such_job")
            again = await callers[name].ok(*SEND, {"body": name, "key": "k"})
            assert again["id"] == ids[name]


@virtual
async def test_whoever_may_not_send_is_refused() -> None:
    async with serving_to(ann="send:other work:q manage:q lock:*") as callers:
        for path in ("/v1/inbox/q", "/v1/inbox/q/batch"):
            answer = await callers["ann"]("POST", path, {"body": 1, "key": "k"})
            assert answer.verdict == (403, "not_allowed")


@virtual
async def test_a_batch_has_a_verdict_for_each_message() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        await caller.ok(*SEND, {"body": 0, "key": "known"})
        messages: list[dict[str, Any]] = [
            {"body": 0, "key": "known"},
            {"body": 1, "key": "a"},
            {"body": 2, "key": "known"},
            {"body": 3},
            {"body": 4, "key": "nul\0"},
            {"body": 1, "key": "a"},
            {"body": "x" * (limits.BODY_BYTES_MAX + 1), "key": "large"},
            {"body": 5, "key": "b", "order_key": ""},
        ]
        before = len(apps.commits)
        found = await caller.ok("POST", "/v1/inbox/q/batch", {"messages": messages})
        told = [
            verdict["accepted"]["duplicate"]
            if "accepted" in verdict
            else verdict["rejected"]["code"]
            for verdict in found["results"]
        ]
        assert told == [
            *(True, False, "key_reused", "missing_key"),
            *("bad_key", True, "value_too_large", "bad_key"),
        ]
        assert found["results"][2]["rejected"]["status"] == 422
        assert len(apps.commits) == before + 1


@virtual
async def test_a_batch_takes_few_commits() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        messages = [{"body": n, "key": str(n)} for n in range(100)]
        await apps.sleep(0.5)  # what the server writes when it starts
        before = len(apps.commits)
        found = await caller.ok("POST", "/v1/inbox/q/batch", {"messages": messages})
        assert len(found["results"]) == 100
        assert len(apps.commits) - before <= 6
        assert await caller.ok("POST", "/v1/inbox/q/batch", {"messages": []}) == {"results": []}


@virtual
async def test_a_batch_has_limits_of_its_own() -> None:
    async with serving() as caller:
        many = [{"body": 1, "key": str(n)} for n in range(limits.BATCH_MESSAGES_MAX + 1)]
        answer = await caller("POST", "/v1/inbox/q/batch", {"messages": many})
        assert answer.verdict == (422, "wrong_type")
        # More bytes than a single message may have.
        large = [{"body": "x" * 300_000, "key": str(n)} for n in range(5)]
        found = await caller.ok("POST", "/v1/inbox/q/batch", {"messages": large})
        assert all("accepted" in verdict for verdict in found["results"])
        too_large = b" " * (limits.MESSAGES_BYTES_MAX + 1)
        answer = await caller("POST", "/v1/inbox/q/batch", raw=too_large)
        assert answer.verdict == (413, "body_too_large")
        assert await refused_keys(caller, "0", "", "fine") == ["key_reused", "bad_key", ""]


@virtual
async def test_whoever_goes_away_while_waiting_has_sent_all_the_same() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        call = caller.call("POST", "/v1/inbox/q?wait_ms=60000", {"body": 1, "key": "k"})
        waiting = asyncio.create_task(call.run())
        await apps.sleep(1)
        call.gone.set()
        await waiting
        assert apps.loop.time() < 2
        assert (await caller.ok(*SEND, {"body": 1, "key": "k"}))["duplicate"]
