"""The example bureau counts its pulls, and knows requests again if it takes keys."""

import asyncio
from typing import Any

import msgspec

from apps.credit.bureau import Bureau
from onceward.testing.clock import VirtualClock
from onceward.web.site import Site
from tests.schedule.cluster import virtual
from tests.web.asgi import Answer, AsgiCaller, Caller


def bureau(*chances: float, **options: Any) -> tuple[Bureau, Caller]:
    """One whose chances are known: the last one stays."""
    left = list(chances or (0.5,))
    made = Bureau(
        lambda: left.pop(0) if len(left) > 1 else left[0], clock=VirtualClock(), **options
    )
    return made, AsgiCaller(web=Site(made.routes))


async def ask(caller: Caller, reference: str = "006", key: str | None = None) -> Answer:
    headers = [] if key is None else [("Idempotency-Key", key)]
    return await caller("POST", "/bureau/pulls", {"reference": reference}, headers=headers)


@virtual
async def test_without_keys_every_request_is_a_pull() -> None:
    made, caller = bureau()
    reports = [(await ask(caller, key="k")).json for _ in range(3)]
    assert [report["number"] for report in reports] == ["B000001", "B000002", "B000003"]
    assert len({report["score"] for report in reports}) == 1
    assert (made.stats.done, made.stats.most, made.stats.references) == (3, 3, 1)
    assert await caller.ok("GET", "/bureau/pulls/006") == reports
    assert await caller.ok("GET", "/bureau/pulls/007") == []
    assert await caller.ok("GET", "/bureau") == msgspec.to_builtins(made.stats)


@virtual
async def test_with_keys_a_request_is_known_again() -> None:
    made, caller = bureau(keys=True, pull_s=10)
    first = asyncio.create_task(ask(caller, key="k"))
    await VirtualClock().sleep(1)
    busy = await ask(caller, key="k")
    assert (busy.status, busy.headers["retry-after"]) == (409, "1")
    report = (await first).json
    assert (await ask(caller, key="k")).json == report
    assert (made.stats.done, made.stats.repeated) == (1, 2)
    assert (await ask(caller, key="other")).json != report


@virtual
async def test_it_fails_at_times_before_and_after() -> None:
    made, caller = bureau(0.05, 0.5, keys=True, failing=0.1)
    assert (await ask(caller, key="k")).status == 503
    assert made.stats.begun == 0
    made, caller = bureau(0.5, 0.5, 0.05, 0.5, keys=True, failing=0.1)
    assert (await ask(caller, key="k")).status == 500
    assert (await ask(caller, key="k")).status == 200
    assert (made.stats.lost, made.stats.done) == (1, 1)


@virtual
async def test_a_pull_counts_from_its_beginning() -> None:
    made, caller = bureau(pull_s=10)
    first = asyncio.create_task(ask(caller))
    await VirtualClock().sleep(1)
    assert (made.stats.begun, made.stats.under_way, made.stats.done) == (1, 1, 0)
    assert len(await caller.ok("GET", "/bureau/pulls/006")) == 1
    await first
    assert (made.stats.under_way, made.stats.done) == (0, 1)


@virtual
async def test_what_is_no_request_is_refused() -> None:
    made, caller = bureau()
    assert (await caller("POST", "/bureau/pulls", {})).status == 422
    assert (await caller("POST", "/bureau/pulls", raw=b"{")).status == 400
    assert (await caller("GET", "/elsewhere")).status == 404
    assert made.stats.begun == 0
