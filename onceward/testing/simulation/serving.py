"""Shared code of scenarios: nodes, and requests that are retried until done."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from onceward.errors import PASSING
from onceward.node import Node as ServiceNode
from onceward.store.transaction import Transaction
from onceward.testing.simulation.history import History, violated
from onceward.testing.simulation.world import Node

DID: Final = "did"
"""The partition of the results of requests, by their ids."""
_LEASE_MS: Final = 8_000


async def start_service(node: Node, slots: int) -> ServiceNode:
    """Start the service of a node; retries while the storage is unavailable."""
    service = ServiceNode(node.store, name=node.name, slots=slots, lease_ms=_LEASE_MS)
    while True:
        try:
            return await service.start()
        except PASSING:
            await asyncio.sleep(0.1)


async def done_once(tx: Transaction, id_: str, do: Callable[[], Awaitable[Any]]) -> Any:
    """Execute a request once; repeated calls return the recorded result."""
    known = await tx.get((DID, id_))
    if known is None:
        known = await do()
        tx.put((DID, id_), known)
    return known


def judge_answers(history: History, did: Mapping[str, Any]) -> None:
    """Each response must be the recorded result of its request."""
    for call in history.calls:
        for answer in call.answers:
            if answer.body != did.get(call.id):
                violated("another answer", f"{call.id}: {answer.body}")
