"""Declaration of the schedule: kinds of records and due entries of jobs."""

from typing import Any

from onceward.api.queues import QueueSettings
from onceward.parts import Due, Kind, Part
from onceward.schedule import (
    EXPIRE_WRITES,
    JOB_DUE,
    LEASE_DUE,
    PROMOTE_WRITES,
    Job,
    Lease,
    Order,
    Schedule,
)
from onceward.schedule.invariants import RULES
from onceward.schedule.placement import Heartbeat, SlotOwner
from onceward.schedule.records import Gate

PART = Part(
    kinds=(
        Kind("node", "{name}", Heartbeat, "the heartbeat of a node"),
        Kind("slot", "{slot}", SlotOwner, "the owner of a slot"),
        Kind(
            "due#{slot}", "{due_ms}#{id}#{…}#{kind}", Any, "a due entry; the kind names its owner"
        ),
        Kind(
            "ready#{slot}#{queue}",
            "{rank}#{ready_ms}#{id}",
            str,
            "a job that waits for a worker; the rank is its priority and whether it has failed",
        ),
        Kind("line#{slot}#{queue}#{key}", "{number}", str, "a job that waits behind its order key"),
        Kind("order#{slot}", "{queue}#{key}", Order, "the head of an order key"),
        Kind("job#{slot}", "{id}#job", Job, "a job; its id ends with the slot"),
        Kind("job#{slot}", "{id}#lease", Lease, "the end of a job's lease, if it was renewed"),
        Kind("limit#{xx}", "{queue}#{key}", Gate, "the number of running jobs of a limit key"),
        Kind(
            "parked#{queue}#{key}", "{priority}#{number}", str, "a job that waits for its limit key"
        ),
        Kind("permit#{queue}", "{number}", str, "a running job of a limited queue"),
        Kind("rate", "{queue}", float, "the time of the next job of a queue"),
        Kind("failed#{queue}", "{ended_ms}#{id}", str, "a job that has failed or is in doubt"),
        Kind(
            "merge#{xx}#{queue}",
            "{caller}#{kind}#{key}",
            str,
            "the job that takes the messages of a debounce key or batch key",
        ),
        Kind("queue", "{queue}", QueueSettings, "the settings of a queue"),
    ),
    rules=RULES,
    due=(
        Due(JOB_DUE, Schedule.promote, PROMOTE_WRITES, Schedule.read_to_promote),
        Due(LEASE_DUE, Schedule.expire, EXPIRE_WRITES, Schedule.read_to_expire),
    ),
)
