"""Records of child jobs: the jobs that a job has created and waits for.

A *family* is the children of one call of `job.gather` or `job.wait_any`. It has a record, and each
child has an entry beside it, which the commit that ends the child fills in. So children that end at
once write no shared record. The same commit adds a due entry for the parent; children that end
within `REPORT_MS` share it. `onceward.work.children` acts on it. When the parent has ended, it
replaces the entries by records of many children, which are kept as long as the parent.
"""

from typing import Any

import msgspec

from onceward import keys
from onceward.keys import Key
from onceward.limits import FAMILY_REPORT_MS
from onceward.schedule.records import Job, Parent, due_partition, slot_of
from onceward.store.transaction import Transaction

CHILDREN_DUE = "children"
ENDED = ("succeeded", "failed", "cancelled")
"""The states in which a child has ended for its parent. A child in doubt is still to be settled."""


class Family(msgspec.Struct, omit_defaults=True):
    """The children of one call."""

    total: int
    digest: str
    """A digest of the children, to detect a handler that asks for others in a later attempt."""
    created: int = 0
    ended: int = 0
    """The first child that may not have ended yet."""
    first: int | None = None
    """The first child that ended, if its parent waits for any of them."""
    any: bool = False
    """Whether the parent waits for the first child only."""
    keep: bool = False
    """Whether children continue when their parent has ended."""
    stopped: bool = False
    """Whether children were cancelled because their parent failed; a retry creates them again."""

    @property
    def complete(self) -> bool:
        if self.created < self.total:
            return False
        return self.first is not None if self.any else self.ended == self.total


class Child(msgspec.Struct, omit_defaults=True):
    """A child as its parent sees it."""

    id: str
    state: str = ""
    """The state in which it ended; empty until then."""
    result: Any = None
    reason: str = ""


class PastChild(msgspec.Struct, array_like=True, frozen=True):
    """A child of a job that has ended."""

    index: int
    id: str
    state: str


def family_partition(parent: str) -> str:
    return family_partition_of(slot_of(parent))


def family_partition_of(slot: int) -> str:
    return f"family#{slot:04d}"


def family_key(parent: str, number: int) -> Key:
    return family_partition(parent), f"{parent}#{number:04d}"


def child_key(parent: str, number: int, index: int) -> Key:
    return family_partition(parent), f"{parent}#{number:04d}#{index:06d}"


def past_key(parent: str, number: int, index: int, now_ms: int) -> Key:
    """The record of some children of a job that has ended; `index` is the first one's. A child that
    ends again, because it was retried, is in a later record."""
    return past_partition(parent), keys.join(parent, f"{number:04d}", f"{index:06d}", now_ms)


def past_partition(parent: str) -> str:
    return f"children#{slot_of(parent):04d}"


def number_of(waits: str) -> int | None:
    """The number of the family that a job waits for; None if it waits for something else."""
    kind, _, number = waits.partition(" ")
    return int(number) if kind == CHILDREN_DUE else None


def report(tx: Transaction, id_: str, job: Job, parent: Parent) -> None:
    """Report the end of a job to its parent."""
    if job.stage in ENDED:
        child = Child(id_, job.stage, job.result, job.reason if job.stage != "succeeded" else "")
        tx.put(child_key(parent.id, parent.family, parent.index), child)
        ring(tx, parent.id)


def ring(tx: Transaction, parent: str, due_ms: int | None = None) -> None:
    """Add a due entry for the parent: at a time, or at the end of the current interval."""
    if due_ms is None:
        due_ms = (tx.now_ms // FAMILY_REPORT_MS + 1) * FAMILY_REPORT_MS
    sort = keys.join(due_ms, parent, CHILDREN_DUE)
    tx.put((due_partition(slot_of(parent)), sort), CHILDREN_DUE)
