"""Locks: named leases with fencing tokens, fair queues, and several names in one commit.

A request asks for one or several names. If all have room and nobody waits for any of them,
it holds them at once; otherwise it stands in the lines of all its names, from one commit on,
and is granted by whoever makes room: when it is first in all of its lines and all have room.
Lines are ordered by commit, the same order in each, so the oldest request that waits is
first in all of its own: there is never a deadlock among requests, and nobody overtakes.

Every grant has a token for each name, larger than all before it. The head of a name that
nobody has used for long is removed, and the highest token among such names of a slot is kept
in one record, the slot's fence: where a new head begins. So tokens grow for ever, what is
stored is bounded by what is in use, and grants of different names do not meet in one record.
After a failover that lost grants, tokens go on from a number made of the time when the new
incarnation of the database began.

Time decides nothing but when a lease is over. Who holds what is said by records: a `hold`
exists while its token is good, and a write guarded by it checks that in its own commit. A
lease that was renewed is a record of its own that nobody else reads but its expiry, so
renewing never conflicts with the holder's commits, nor with those who come and go.
"""

from onceward.locks.part import (
    GRANT_ROOM,
    UNUSED_WRITES,
    LockTable,
    release_writes,
)
from onceward.locks.records import (
    GRANT_DUE,
    HELD,
    LOCK_DUE,
    UNUSED_DUE,
    WAITING,
    Head,
    Request,
    Stand,
    Status,
    admit_names,
    admit_owner,
    admit_token,
    head_key,
    hold_key,
    request_key,
)
from onceward.locks.waiters import Waiters, grant_writes

__all__ = [
    "GRANT_DUE",
    "GRANT_ROOM",
    "HELD",
    "LOCK_DUE",
    "UNUSED_DUE",
    "UNUSED_WRITES",
    "WAITING",
    "Head",
    "LockTable",
    "Request",
    "Stand",
    "Status",
    "Waiters",
    "admit_names",
    "admit_owner",
    "admit_token",
    "grant_writes",
    "head_key",
    "hold_key",
    "release_writes",
    "request_key",
]
