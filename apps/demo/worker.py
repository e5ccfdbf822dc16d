"""A worker over HTTP: delivers parcels to the carrier and pulls credit.

If it is killed, its jobs are claimed by others after their leases; external services deduplicate by
id.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from apps.credit import calls
from apps.demo.settings import PARCELS, PULLS, Settings
from onceward.client import ClaimedJob, Client

_LEASE_S = 1.0
_PACKING_S = 0.2
_PULL_S_MAX = 60.0
_AT_ONCE = 8


async def work(settings: Settings, name: str, announce: Callable[[], None]) -> None:
    """Work until cancelled. `announce` is called at the start."""

    async def bring(claim: ClaimedJob) -> str:
        await client.clock.sleep(_PACKING_S)
        return await calls.deliver(f"{settings.outside}/carrier", claim.id, claim.body)

    async def pull(claim: ClaimedJob) -> Any:
        return await calls.pull(
            f"{settings.outside}/bureau/pulls",
            claim.body["reference"],
            claim.body["fields"],
            key=claim.id,
            timeout_s=_PULL_S_MAX,
        )

    async with Client(settings.server) as client:
        crew = [
            client.worker(queue, handler, concurrency=_AT_ONCE, lease_s=_LEASE_S, name=name)
            for queue, handler in ((PARCELS, bring), (PULLS, pull))
        ]
        announce()
        await asyncio.gather(*[worker.run() for worker in crew])
