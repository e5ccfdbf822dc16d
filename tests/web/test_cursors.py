"""Lists name nothing of other callers, not even by where their next page begins."""

from typing import Any

import pytest

from onceward import limits
from tests.schedule.cluster import virtual
from tests.web.asgi import Caller, keyed, serving, serving_to
from tests.work.apps import Apps

SECRET = "Bearer planted-credential"


async def send(caller: Caller, queue: str, *keys: str) -> list[str]:
    sent = [await caller.ok("POST", f"/v1/inbox/{queue}", {"body": 1, "key": k}) for k in keys]
    return [one["id"] for one in sent]


@virtual
async def test_a_key_that_may_see_no_job_is_answered_at_once() -> None:
    async with serving_to(ann="send:*", eve="send:* work:*") as callers:
        await send(callers["ann"], "a", *map(str, range(20)))
        engine = callers["ann"].app.store.engine
        asked: list[Any] = []
        scan = engine.scan

        async def noted(partition: str, *args: Any, **options: Any) -> Any:
            asked.append(partition)
            return await scan(partition, *args, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "scan", noted)
            for query in ("", "?limit=1", "?queue=a", "?key=1", "?text=1"):
                page = await callers["eve"].ok("GET", f"/v1/jobs{query}")
                assert page == {"jobs": [], "scanned": 0, "next": None}
        assert not [partition for partition in asked if partition.startswith("job#")]


@virtual
async def test_a_page_of_jobs_counts_and_names_only_those_one_may_manage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PAGE_MS", 0)
    auth, keys = keyed(ann="send:*", op="manage:b")
    async with serving(Apps(shared=False).make(), auth) as anyone:
        ann, op = (Caller(anyone.server, keys[name]) for name in ("ann", "op"))
        own = await send(ann, "b", "first")
        others = await send(ann, "a", *map(str, range(40)))
        found, scanned, cursor = [], 0, ""
        while True:
            answer = await op("GET", f"/v1/jobs?limit=1{cursor}")
            assert not [id_ for id_ in others if id_ in answer.body.decode()]
            found += [job["id"] for job in answer.json["jobs"]]
            scanned += answer.json["scanned"]
            if answer.json["next"] is None:
                break
            cursor = f"&after={answer.json['next']}"
        assert (found, scanned) == (own, 1)


@virtual
async def test_a_cursor_is_for_its_list_and_its_caller_alone() -> None:
    async with serving_to(ann="all", bob="all") as callers:
        for number in range(3):
            await callers["ann"].ok("POST", "/v1/rooms", {"id": f"r{number}"})
        cursor = (await callers["ann"].ok("GET", "/v1/rooms?limit=1"))["next"]
        assert "r0" not in cursor
        page = await callers["ann"].ok("GET", f"/v1/rooms?after={cursor}")
        assert [room["id"] for room in page["rooms"]] == ["r1", "r2"]
        for who, path in (
            ("bob", f"/v1/rooms?after={cursor}"),
            ("ann", f"/v1/locks?after={cursor}"),
            ("ann", f"/v1/rooms?after={cursor[:-4]}"),
            ("ann", "/v1/rooms?after=r0"),
            ("ann", "/v1/timers?after=t"),
            ("ann", f"/v1/jobs?after={'x' * 5_000}"),
        ):
            assert (await callers[who]("GET", path)).verdict == (422, "bad_parameter")


@virtual
async def test_operators_see_names_of_headers_and_never_their_values() -> None:
    auth, keys = keyed(ann="timer:* endpoint:*", op="operate:* manage:*")
    async with serving(auth=auth) as anyone:
        ann, op = (Caller(anyone.server, keys[name]) for name in ("ann", "op"))
        headers = {"Authorization": SECRET}
        call = {"url": "https://a.example/", "headers": headers}
        await ann.ok("POST", "/v1/timers", {"id": "t", "delay_ms": 60_000, **call})
        await ann.ok("POST", "/v1/endpoints", {"id": "e", **call})
        await anyone.app.timers.set("own", url=call["url"], headers=headers, delay_s=60)
        assert (await ann.ok("GET", "/v1/timers/t"))["headers"] == headers
        assert (await ann.ok("GET", "/v1/endpoints/e"))["headers"] == headers
        for method, path in (
            ("GET", "/v1/timers/t?caller=key:ann"),
            ("GET", "/v1/agenda"),
            ("GET", "/v1/agenda/timers"),
            ("GET", "/v1/endpoints?everyone=true"),
            ("GET", "/v1/timers?app=true"),
            ("GET", "/v1/timers/own?app=true"),
            ("PATCH", "/v1/timers/t?caller=key:ann"),
            ("DELETE", "/v1/timers/t?caller=key:ann"),
        ):
            answer = await op(method, path, {"delay_ms": 5} if method == "PATCH" else None)
            assert answer.status == 200
            assert b'"Authorization":"***"' in answer.body, path
            assert SECRET.encode() not in answer.body, path
