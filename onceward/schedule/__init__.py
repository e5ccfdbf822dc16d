"""The schedule: jobs and other records that wait for a time or for a worker.

A job waits in one of four places, and its record says in which. `due` holds what waits
for time; `ready` what waits for a worker; a `line` what waits behind another job of the
same order key; `parked` what waits until fewer jobs of its limit key are at work. Only the
head of an order key is ever due, ready or running: its end promotes the next in the same
commit. What is running stands in `due` too, at the time its lease runs out.

Every transition is a versioned write on the job's own record: claim, complete, fail and
expire of one job exclude each other, whoever attempts them. A lease that was renewed is a
record of its own, so renewing it never conflicts with the worker's own commit.

Stages: blocked (in line) -> due -> parked -> ready -> running -> succeeded, failed, in_doubt
(nobody knows what an attempt has done) or cancelled; a failed or lost attempt goes back to due.
Callers see states instead: `state_of` makes them from stages.
"""

from onceward.api.queues import QueueSettings
from onceward.quantities import is_whole, milliseconds
from onceward.schedule.quota import Quota, quota, spend
from onceward.schedule.records import (
    JOB_DUE,
    LEASE_DUE,
    WAITING,
    Accepted,
    Attempt,
    Claim,
    Dedupe,
    Effect,
    Job,
    Lease,
    Order,
    admit_id,
    admit_job,
    admit_lease,
    admit_queue,
    admit_worker,
    due_ms_of,
    due_partition,
    failed_partition,
    job_key,
    job_partition,
    lease_key,
    line_partition,
    order_head_key,
    permit_partition,
    priority_of,
    ready_partition,
    slot_of,
    slot_of_ready,
    state_of,
    steps_key,
)
from onceward.schedule.settings import DEFAULT, SETTINGS, admit_settings, is_internal, settings_key
from onceward.schedule.transitions import (
    CLAIM_WRITES,
    CLAIM_WRITES_SHARED,
    COMPLETE_ORDERED_WRITES,
    COMPLETE_WRITES,
    EXPIRE_WRITES,
    PROMOTE_WRITES,
    Schedule,
)

__all__ = [
    "CLAIM_WRITES",
    "CLAIM_WRITES_SHARED",
    "COMPLETE_ORDERED_WRITES",
    "COMPLETE_WRITES",
    "DEFAULT",
    "EXPIRE_WRITES",
    "JOB_DUE",
    "LEASE_DUE",
    "PROMOTE_WRITES",
    "SETTINGS",
    "WAITING",
    "Accepted",
    "Attempt",
    "Claim",
    "Dedupe",
    "Effect",
    "Job",
    "Lease",
    "Order",
    "QueueSettings",
    "Quota",
    "Schedule",
    "admit_id",
    "admit_job",
    "admit_lease",
    "admit_queue",
    "admit_settings",
    "admit_worker",
    "due_ms_of",
    "due_partition",
    "failed_partition",
    "is_internal",
    "is_whole",
    "job_key",
    "job_partition",
    "lease_key",
    "line_partition",
    "milliseconds",
    "order_head_key",
    "permit_partition",
    "priority_of",
    "quota",
    "ready_partition",
    "settings_key",
    "slot_of",
    "slot_of_ready",
    "spend",
    "state_of",
    "steps_key",
]
