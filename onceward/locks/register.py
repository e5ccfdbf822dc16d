"""Declaration of locks: kinds of records and due entries of leases."""

from onceward import limits
from onceward.locks import (
    GRANT_DUE,
    LOCK_DUE,
    UNUSED_DUE,
    UNUSED_WRITES,
    Head,
    LockTable,
    Request,
    Stand,
)
from onceward.locks.invariants import RULES
from onceward.locks.records import Renewed
from onceward.parts import Due, Kind, Part

_ALL_WRITES = limits.COMMIT_WRITES_MAX

PART = Part(
    kinds=(
        Kind("lock#{slot}", "{name}#head", Head, "a lock: its capacity, newest token, and counts"),
        Kind("lock#{slot}", "{name}#hold#{token}", Stand, "a holder of a lock"),
        Kind("lock#{slot}", "{name}#wait#{number}", Stand, "a waiter for a lock"),
        Kind("ask#{slot}#{id}", "request", Request, "a request for locks; its id ends with a slot"),
        Kind("ask#{slot}", "{id}", Renewed, "the end of a request's lease, if it was renewed"),
        Kind("fence", "{slot}", int, "the highest token of locks that were removed"),
        Kind("gate#{xx}", "{resource}", int, "the highest token that a resource outside has seen"),
    ),
    rules=RULES,
    due=(
        Due(LOCK_DUE, LockTable.expire, _ALL_WRITES, LockTable.read_to_expire),
        Due(GRANT_DUE, LockTable.grant_rest, _ALL_WRITES, LockTable.read_to_grant),
        Due(UNUSED_DUE, LockTable.forget, UNUSED_WRITES, LockTable.read_to_forget),
    ),
    make=lambda made: LockTable(made.ids, made.slots),
)
