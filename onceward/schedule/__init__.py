"""The schedule: jobs and other records that wait for a time or for a worker.

A job waits in one of four places, and its record names the place:

- `due`: it waits for its time;
- `ready`: it waits for a worker;
- `line`: it waits behind another job with the same order key;
- `parked`: it waits until fewer jobs with its limit key are running.

Only the head of an order key can be due, ready or running. When it ends, the same commit
promotes the next job. A running job also has an entry in `due`, at the end of its lease.

Every transition is a versioned write to the job's record. Claim, complete, fail and expire
of one job are mutually exclusive, on all nodes. A renewed lease is a separate record, so
renewals do not conflict with the worker's commit.

Stages: blocked (behind its order key) -> due -> parked -> ready -> running -> succeeded,
failed, in_doubt (an external call has an unknown outcome) or cancelled. A job returns to due
after a failed or lost attempt. It is `waiting` for children or an event at the same place, with
the end of its patience as the time. Callers see states, which `state_of` derives from stages.
"""

from onceward.api.jobs import ENDED
from onceward.api.queues import QueueSettings
from onceward.quantities import is_whole, milliseconds
from onceward.schedule.commit_sizes import (
    CLAIM_WRITES,
    CLAIM_WRITES_SHARED,
    COMPLETE_ORDERED_WRITES,
    COMPLETE_WRITES,
    EXPIRE_WRITES,
    FAMILY_WRITES,
    PROMOTE_WRITES,
)
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
    events_key,
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
from onceward.schedule.transitions import Schedule

__all__ = [
    "CLAIM_WRITES",
    "CLAIM_WRITES_SHARED",
    "COMPLETE_ORDERED_WRITES",
    "COMPLETE_WRITES",
    "DEFAULT",
    "ENDED",
    "EXPIRE_WRITES",
    "FAMILY_WRITES",
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
    "events_key",
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
