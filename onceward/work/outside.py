"""Workers that are not handlers: they claim jobs, and end or extend each with its token."""

from typing import TYPE_CHECKING, Any

from onceward import limits
from onceward.quantities import milliseconds
from onceward.schedule import COMPLETE_WRITES, FAMILY_WRITES, Claim, admit_id, job_key
from onceward.work.job import later_ms

if TYPE_CHECKING:
    from onceward.node import Node


async def claim(
    node: "Node", queue: str, worker: str, lease_s: float, most: int, wait_s: float
) -> list[Claim]:
    """See `App.claim`."""
    lease_ms = milliseconds(lease_s, "a lease", limits.LEASE_MS_MAX / 1000)
    milliseconds(wait_s, "a wait")
    return await node.claims.claim(queue, worker, lease_ms=lease_ms, most=most, wait_s=wait_s)


async def complete(node: "Node", id_: str, token: str, result: Any) -> None:
    """See `App.complete`."""
    admit_id(id_)
    await node.sharing.run(
        lambda tx: node.schedule.complete(tx, id_, token, result),
        writes=COMPLETE_WRITES + FAMILY_WRITES,
        reads=[job_key(id_)],
    )


async def fail(
    node: "Node",
    id_: str,
    token: str,
    reason: str,
    retry_after_s: float | None,
    not_before_s: float | None,
    final: bool,
) -> str:
    """See `App.fail`."""
    when: dict[str, Any] = {"retry_ms": None} if final else {}
    if retry_after_s is not None and not final:
        when["retry_ms"] = later_ms(node.store, milliseconds(retry_after_s, "a delay"))
    elif not_before_s is not None:
        when["not_before_ms"] = later_ms(node.store, milliseconds(not_before_s, "a delay"))
    return await node.store.run(lambda tx: node.schedule.fail(tx, id_, token, reason, **when))


async def extend(node: "Node", id_: str, token: str, lease_s: float) -> int:
    """See `App.extend`."""
    lease_ms = milliseconds(lease_s, "a lease", limits.LEASE_MS_MAX / 1000)
    return await node.store.run(lambda tx: node.schedule.extend(tx, id_, token, lease_ms))
