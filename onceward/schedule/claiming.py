"""Claim requests, and the transaction that leases ready jobs by priority.

One transaction serves several requests from several slots.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from onceward import limits
from onceward.errors import Damaged, OncewardError
from onceward.keys import Key
from onceward.schedule import (
    CLAIM_WRITES,
    CLAIM_WRITES_SHARED,
    Claim,
    Quota,
    Schedule,
    priority_of,
    quota,
    slot_of_ready,
    spend,
)
from onceward.schedule.ready_entries import ReadyEntries
from onceward.schedule.settings_cache import SettingsCache
from onceward.store import Store
from onceward.store.transaction import Transaction

_ROOM = limits.COMMIT_WRITES_MAX - CLAIM_WRITES_SHARED
CLAIMS_AT_ONCE = _ROOM // CLAIM_WRITES
_LIMITED_AT_ONCE = _ROOM // (CLAIM_WRITES + 1)  # each takes a permit as well


Started = Callable[[str, str], None]
"""Called with the queue and the ready position of each job that is handed out."""


def nothing_started(queue: str, place: str) -> None:
    pass


class ClaimRequest(Protocol):
    """A request of a worker for jobs. It gets one response, by `give` or `fail`."""

    @property
    def worker(self) -> str: ...
    @property
    def lease_ms(self) -> int: ...
    @property
    def most(self) -> int: ...

    @property
    def local(self) -> bool:
        """Whether the worker is a handler of this process."""

    @property
    def gone(self) -> bool:
        """Whether the requester has stopped waiting for the response."""

    def give(self, claims: list[Claim]) -> None: ...
    def fail(self, error: Exception) -> None: ...


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """A request in the claim queue whose caller waits for the response."""

    worker: str
    lease_ms: int
    most: int
    patient: bool
    """Whether it waits for jobs to arrive, or returns at once with the available ones."""
    answer: "asyncio.Future[list[Claim]]"
    time_is_up: bool = False

    @property
    def local(self) -> bool:
        return False

    @property
    def gone(self) -> bool:
        return self.answer.done()

    def give(self, claims: list[Claim]) -> None:
        self.answer.set_result(claims)

    def fail(self, error: Exception) -> None:
        self.answer.set_exception(error)

    def dismiss(self) -> None:
        """Answer with an empty list, unless the request already has a response."""
        if not self.answer.done():
            self.answer.set_result([])


class Claimer:
    """Finds ready jobs of a queue and leases them."""

    def __init__(
        self,
        queue: str,
        store: Store,
        schedule: Schedule,
        queue_settings: SettingsCache,
        ready_entries: ReadyEntries,
        started: Started = nothing_started,
    ) -> None:
        self._queue = queue
        self._shared = store.engine.shared
        self._schedule = schedule
        self._queue_settings = queue_settings
        self._ready_entries = ready_entries
        self._started = started

    async def claim(
        self, slots: dict[int, str], requests: Sequence[ClaimRequest], tx: Transaction
    ) -> tuple[list[list[Claim]], dict[int, str], Quota]:
        """Claim jobs for these requests.

        Returns the claims of each request, the slots that may have more jobs, and the quota that
        the queue's settings allowed.
        """
        handed: list[list[Claim]] = [[] for _ in requests]
        wanting = [n for n, request in enumerate(requests) for _ in range(request.most)]
        del wanting[CLAIMS_AT_ONCE:]
        settings = self._queue_settings(self._queue)
        if settings.limit:
            del wanting[_LIMITED_AT_ONCE:]
        allowed = await quota(tx, self._queue, settings, len(wanting))
        if not allowed.jobs:
            return handed, slots, allowed
        del wanting[allowed.jobs :]
        permits, claimed = list(allowed.permits), 0
        found, left = await self._find(tx, slots, len(wanting))
        jobs_bytes = 0
        for entry, key in found.items():
            record = tx.seen.get(key)
            jobs_bytes += len(record.value) if record is not None else 0
            if jobs_bytes > limits.CLAIM_BYTES and claimed:
                left = slots
                break
            request = requests[wanting[0]]
            permit = permits[0] if permits else None
            try:
                claim = await self._schedule.claim(
                    tx, entry, request.worker, request.lease_ms, permit, local=request.local
                )
            except OncewardError as error:
                if error.code != "damaged":
                    raise
                self._ready_entries.set_aside(entry, error)
                left.setdefault(slot_of_ready(entry[0]), "")
                continue
            if claim is None:
                self._ready_entries.take(slot_of_ready(entry[0]), entry[1])
            else:
                if settings.fair:
                    self._started(self._queue, entry[1])
                handed[wanting.pop(0)].append(claim)
                claimed += 1
                del permits[:1]
        await spend(tx, self._queue, settings, claimed)
        return handed, left, allowed

    async def _find(
        self, tx: Transaction, slots: dict[int, str], most: int
    ) -> tuple[dict[Key, Key], dict[int, str]]:
        """The most urgent ready entries with the keys of their jobs, and the slots that may have
        more with their next entry."""
        # In fair queues the turn decides, regardless of the slot.
        urgency = _turn if self._queue_settings(self._queue).fair else priority_of
        pages: dict[int, dict[Key, Key]] = {}
        cut: set[int] = set()
        # One slot may have enough. If it has not, most slots have few, and with a remote database
        # it is faster to read several at once.
        unseen, sharing, urgent = list(slots), 1, 0
        seen: list[Key] = []
        while unseen and urgent < most:
            asked, unseen = unseen[:sharing], unseen[sharing:]
            # One more than needed, to know the next entry.
            looks = [self._ready_entries.first(tx, slot, most + 1) for slot in asked]
            found = [await looks[0]] if len(looks) == 1 else await asyncio.gather(*looks)
            for slot, (entries, more) in zip(asked, found, strict=True):
                pages[slot] = entries
                seen += entries
                if more:
                    cut.add(slot)
            # An entry that is less urgent than those the next slot may have waits for that scan.
            urgent = len(seen)
            if unseen and urgent >= most:
                next_urgency = urgency(slots[unseen[0]])
                urgent = sum([urgency(sort) <= next_urgency for _, sort in seen])
            sharing = max(most - urgent, limits.READERS) if self._shared else 1
        seen.sort(key=lambda entry: urgency(entry[1]))
        chosen = {entry: pages[slot_of_ready(entry[0])][entry] for entry in seen[:most]}
        left = {slot: slots[slot] for slot in slots if slot not in pages}
        for slot in pages:
            rest = [entry for entry in pages[slot] if entry not in chosen]
            if rest:
                left[slot] = rest[0][1]
            elif slot in cut:
                left[slot] = slots[slot]
        try:
            await tx.fetch([*chosen, *chosen.values()])
        except Damaged:
            pass  # entries are read one by one below, and the readable ones are handed out
        return chosen, left


def _turn(sort: str) -> int:
    """Priority and turn of a ready entry, by its sort key; 0 (first) if it has no valid number."""
    try:
        return int(sort[:16] + sort[17:33])
    except ValueError:
        return 0
