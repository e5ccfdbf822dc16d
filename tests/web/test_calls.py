"""Calls: how queries and bodies of operations are read."""

import pytest

from tests.schedule.cluster import virtual
from tests.web.asgi import serving


@virtual
async def test_parameters_are_read_in_one_spelling() -> None:
    async with serving() as caller:
        for query in ("limit=1.0", "limit=1e2", "limit=+1", "limit=%201", "limit=-0", "limit=null"):
            found = await caller("GET", f"/v1/jobs?{query}")
            assert found.verdict == (422, "bad_parameter"), query
        for query in ("everyone=1", "everyone=TRUE", "everyone=on", "everyone="):
            found = await caller("GET", f"/v1/endpoints?{query}")
            assert found.verdict == (422, "bad_parameter"), query
        for query in ("state=", "state=null", "state=unknown"):
            assert (await caller("GET", f"/v1/jobs?{query}")).verdict == (422, "bad_parameter")
        for path in ("/v1/queues", "/v1/overview", "/v1/tables/t"):
            found = await caller("GET", f"{path}?other=1")
            assert found.verdict == (422, "bad_parameter"), path


@virtual
async def test_an_empty_name_of_a_queue_is_not_all_queues() -> None:
    async with serving() as caller:
        await caller.ok("POST", "/v1/inbox/q", {"body": 1, "key": "a"})
        assert len((await caller.ok("GET", "/v1/jobs"))["jobs"]) == 1
        assert (await caller.ok("GET", "/v1/jobs?queue="))["jobs"] == []


@virtual
@pytest.mark.parametrize("member", ["priority", "order_key", "limit_key", "attempts_max", "key"])
async def test_null_in_a_message_means_not_specified(member: str) -> None:
    async with serving() as caller:
        message = {"body": 1, "key": "a", member: None}
        headers = [("idempotency-key", "a")]
        assert (await caller("POST", "/v1/inbox/q", message, headers=headers)).status == 202
