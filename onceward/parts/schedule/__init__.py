"""The schedule: everything that waits, for time or for a worker.

A job waits in one of three places, and its record says in which. `due` holds what waits
for time; `ready` what waits for a worker; a `line` what waits behind another job of the
same order key. Only the head of an order key is ever due, ready or leased: its end
promotes the next in the same commit. What is leased stands in `due` too, at the time its
lease runs out.

Every transition is a versioned write on the job's own record: claim, complete, fail and
expire of one job exclude each other, whoever attempts them. A lease that was renewed is a
record of its own, so renewing it never conflicts with the worker's own commit.

States: waiting (in line) -> due -> ready -> leased -> done or dead; a failed or lost
attempt goes back to due or ready.
"""

from onceward.parts.schedule.records import (
    JOB_DUE,
    LEASE_DUE,
    PRIORITY_DEFAULT,
    Claim,
    Job,
    Lease,
    Order,
    admit_lease,
    admit_queue,
    admit_worker,
    due_ms_of,
    due_partition,
    job_key,
    lease_key,
    line_partition,
    order_head_key,
    ready_partition,
    slot_of,
)
from onceward.parts.schedule.transitions import (
    CLAIM_WRITES,
    EXPIRE_WRITES,
    PROMOTE_WRITES,
    Schedule,
)

__all__ = [
    "CLAIM_WRITES",
    "EXPIRE_WRITES",
    "JOB_DUE",
    "LEASE_DUE",
    "PRIORITY_DEFAULT",
    "PROMOTE_WRITES",
    "Claim",
    "Job",
    "Lease",
    "Order",
    "Schedule",
    "admit_lease",
    "admit_queue",
    "admit_worker",
    "due_ms_of",
    "due_partition",
    "job_key",
    "lease_key",
    "line_partition",
    "order_head_key",
    "ready_partition",
    "slot_of",
]
