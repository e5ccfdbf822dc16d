"""Output of jobs over HTTP: workers report it, and readers wait for it."""

import asyncio
import re
from typing import Any

import pytest

from tests.schedule.cluster import virtual
from tests.web.api.test_jobs import claim, send
from tests.web.asgi import serving
from tests.work.apps import Apps


@virtual
async def test_a_worker_reports_and_a_reader_waits() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        [id_] = await send(caller)
        path = f"/v1/jobs/{id_}/output"
        empty = await caller.ok("GET", path)
        assert empty == {
            "state": "queued",
            "seq": 0,
            "more": False,
            "restarted": 0,
            "attempt": 0,
            "chunks": [],
            "progress": None,
            "progress_text": "",
            "progress_seq": 0,
            "result": None,
            "reason": "",
        }
        waiting = asyncio.create_task(caller.ok("GET", f"{path}?state=queued&wait_ms=60000"))
        await apps.sleep(5)
        [job] = await claim(caller)
        assert (await waiting)["state"] == "running"
        assert round(apps.loop.time()) == 5

        waiting = asyncio.create_task(caller.ok("GET", f"{path}?state=running&wait_ms=60000"))
        await apps.sleep(5)
        report = {"token": job["token"], "progress": 0.4, "text": "page 4", "chunks": ["a", None]}
        for _ in range(2):  # as a client would after a timeout
            assert await caller.ok("POST", path, report) == {"bytes": 39}
        found = await waiting
        assert found["chunks"] == [{"seq": 2, "value": "a"}, {"seq": 3, "value": None}]
        assert (found["progress"], found["progress_text"], found["attempt"]) == (0.4, "page 4", 1)
        again = await caller.ok("GET", path)
        assert again["chunks"] == found["chunks"]
        for shown in (
            await caller.ok("GET", f"/v1/jobs/{id_}"),
            (await caller.ok("GET", f"/v1/jobs/{id_}/history"))["job"],
            (await caller.ok("GET", "/v1/jobs"))["jobs"][0],
            (await caller.ok("GET", "/v1/jobs?key=0"))["jobs"][0],
        ):
            assert (shown["progress"], shown["progress_text"]) == (0.4, "page 4")

        begun = apps.loop.time()
        known = f"{path}?state=running&after={again['seq']}"
        assert (await caller.ok("GET", f"{known}&wait_ms=7000"))["chunks"] == []
        assert round(apps.loop.time() - begun) == 7
        done = {"token": job["token"], "result": 5}
        await caller.ok("POST", f"/v1/jobs/{id_}/complete", done)
        found = await caller.ok("GET", f"{known}&wait_ms=7000")
        assert (found["state"], found["result"]) == ("succeeded", 5)
        assert (await caller("POST", path, report)).code == "stale_token"
    assert apps.problems == []


@virtual
@pytest.mark.parametrize(
    ("body", "code", "detail"),
    [
        ({"progress": 1.5}, "wrong_type", "progress"),
        ({"progress": "half"}, "wrong_type", "progress"),
        ({"progress": 0.5, "text": "x" * 201}, "wrong_type", "text"),
        ({"chunks": "abc"}, "wrong_type", "chunks"),
        ({"chunks": ["x" * 65_536]}, "value_too_large", "at most 65536 bytes as JSON, not 65538"),
        ({"chunks": ["x"], "first": 3}, "bad_request", "chunk 3 .* after 0 stored ones"),
        ({"chunks": ["x"], "first": -1}, "wrong_type", "first"),
        ({"chunks": ["x" * 60_000] * 17}, "stream_full", "16 more for each chunk, not 102"),
        ({"chunks": [1] * 300_000}, "stream_full", "at most 1000000 bytes .* in larger chunks"),
        ({"text": "page 4"}, "bad_request", "text 'page 4' .* send `progress`"),
        ({"token": "another"}, "stale_token", "no longer owns"),
    ],
)
async def test_invalid_output_is_rejected(body: dict[str, Any], code: str, detail: str) -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        [id_] = await send(caller)
        [job] = await claim(caller)
        path = f"/v1/jobs/{id_}/output"
        answer = await caller("POST", path, {"token": job["token"], **body})
        assert answer.code == code
        assert re.search(detail, answer.json["detail"]), answer.json
        assert (await caller.ok("GET", path))["seq"] == 0


@virtual
async def test_invalid_positions_are_rejected() -> None:
    apps = Apps(shared=False)
    async with serving(apps.make()) as caller:
        [id_] = await send(caller)
        for query, code in (("after=9", "bad_request"), ("after=x", "bad_parameter")):
            assert (await caller("GET", f"/v1/jobs/{id_}/output?{query}")).code == code
