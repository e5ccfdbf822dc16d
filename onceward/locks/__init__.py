"""Locks: named leases with fencing tokens, fair queues, and several names in one commit.

A request asks for one or several names. If all of them are free and have no waiters, it holds them
immediately. Otherwise it joins the queues of all its names in one commit. The transaction that
frees a name grants the request when it is first in all its queues and all its names are free.
Queues are ordered by commit, in the same order for each name. The oldest waiter is therefore first
in all its queues: requests cannot deadlock, and none overtakes another.

Every grant has a token for each name, greater than all before it. The head of a name that was
unused for long is removed. The highest token of such names is kept in one record per slot, the
fence, from which new heads start. Tokens therefore always grow, storage is bounded by the locks in
use, and grants of different names do not contend for one record. After a failover that lost grants,
tokens continue from a number derived from the time at which the new incarnation of the database
started.

Time decides only when a lease ends. Ownership is a record: a `hold` exists while its token is
valid, and a guarded write checks it in its commit. A renewed lease is a separate record that only
its expiry reads, so renewals never conflict with commits of the holder or with other requests.
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
