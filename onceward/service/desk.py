"""A desk: where the workers of one queue stand in line for its ready jobs.

Who comes first is served first, several by one transaction, from several slots. The desk
knows which slots may have ready jobs; it is wrong only by a look too many.

The order of priorities is strict inside a slot. Of the slots, those come first where the desk
knows of the most urgent jobs, by what this node has sent and by what it saw of the slot the
last time; a slot it has not seen, or where another node has changed something, counts as
urgent.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from onceward import limits
from onceward.errors import PASSING, NoSuchJob, OncewardError, StaleToken
from onceward.keys import Key
from onceward.parts.schedule import (
    CLAIM_WRITES,
    CLAIM_WRITES_SHARED,
    Claim,
    Quota,
    Schedule,
    permit_partition,
    priority_of,
    quota,
    ready_partition,
    slot_of_ready,
    spend,
)
from onceward.service.book import Book
from onceward.service.placement import Placement
from onceward.service.shelf import Shelf
from onceward.store import Store
from onceward.transaction import Transaction

_ROOM = limits.COMMIT_WRITES_MAX - 1 - CLAIM_WRITES_SHARED
CLAIMS_AT_ONCE = _ROOM // CLAIM_WRITES
_LIMITED_AT_ONCE = _ROOM // (CLAIM_WRITES + 1)  # each takes a permit as well


@dataclass(eq=False, slots=True)
class Request:
    """A worker that asks for jobs."""

    worker: str
    lease_ms: int
    most: int
    patient: bool
    """Whether it waits for jobs to arrive, or wants to know what is there."""
    answer: "asyncio.Future[list[Claim]]"
    time_is_up: bool = False

    def dismiss(self) -> None:
        """Answer with nothing; one whose worker has just gone needs no answer."""
        if not self.answer.done():
            self.answer.set_result([])


class Desk:
    """Serves the requests for one queue."""

    def __init__(
        self, queue: str, store: Store, schedule: Schedule, placement: Placement, book: Book
    ) -> None:
        self.asked_ns = 0
        """When somebody asked last."""
        self._queue = queue
        self._store = store
        self._schedule = schedule
        self._placement = placement
        self._book = book
        self._line: deque[Request] = deque()
        self._hasty = False  # whether someone in line may not be patient
        # Slots that may have jobs, with the most urgent priority that may be there; those being
        # looked into; those of them where something arrived meanwhile; those of others, for
        # later.
        self._slots: dict[int, int] = {}
        self._busy: set[int] = set()
        self._again: dict[int, int] = {}
        self._elsewhere: dict[int, None] = {}
        self._elsewhere_ns = 0
        self._shelf = Shelf(queue)
        self._rounds = 0
        self._shut = False  # while the queue's settings allow no more jobs to be handed out
        self._opened = 0
        self._matching = False
        self._closed = False
        # Hooks and hints may call from anywhere, also from another node's commit.
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches = []
        if store.engine.shared:
            watch = store.engine.watch(permit_partition(queue))
            watch.others_only = True
            watch.on_hint = self.open
            self._watches.append(watch)
            for slot in range(placement.slots):
                watch = store.engine.watch(ready_partition(slot, queue))
                watch.others_only = True
                watch.on_hint = partial(self.hinted, slot)
                self._watches.append(watch)
        # All of them, its own first: who does not wait is told of what is there, wherever.
        owned = placement.owned
        self.look(sorted(range(placement.slots), key=lambda slot: slot not in owned))

    @property
    def idle(self) -> bool:
        return not self._line and not self._rounds

    def ask(self, request: Request) -> None:
        """Join the line. The answer comes in any case, if the request is patient in time."""
        self.asked_ns = self._store.clock.elapsed_ns()
        self._line.append(request)
        self._hasty = self._hasty or not request.patient
        self._match_soon()

    def give_up(self, request: Request) -> None:
        """A request has waited long enough: if it is just being served, it gets what it gets."""
        request.time_is_up = True
        if request in self._line:
            self._line.remove(request)
            request.dismiss()

    def cancelled(self, request: Request) -> None:
        """Nobody waits for the answer any more: give back what it holds."""
        answer = request.answer
        if request in self._line:
            self._line.remove(request)
        elif answer.done() and not answer.cancelled() and answer.exception() is None:
            self._give_back(answer.result())

    def arrived(self, slot: int, sort: str) -> None:
        """An own commit has made a job ready."""
        self._shelf.put(slot, sort)
        self._mark(slot, priority_of(sort))

    def taken(self, slot: int, sort: str) -> None:
        """An own commit has taken an entry away."""
        self._shelf.take(slot, sort)

    def hinted(self, slot: int) -> None:
        """Something may have become ready in a slot."""
        self._shelf.forget(slot)
        self._mark(slot, 0)

    def _mark(self, slot: int, priority: int) -> None:
        """There may be something in a slot; 0 is the most urgent."""
        if slot in self._placement.owned:
            marked = self._marked(slot)
            marked[slot] = min(priority, marked.get(slot, priority))
            if self._line:
                self._match_soon()
        else:
            # Those who own it come first: what they leave is looked for later.
            if not self._elsewhere:
                self._loop.call_later(
                    limits.POLL_HINTED_S, self._look_elsewhere, context=self._context
                )
            self._elsewhere[slot] = None

    def open(self) -> None:
        """The settings have changed, a permit was given back, or it is time for more."""
        self._opened += 1
        if self._shut and not self._closed:
            self._shut = False
            self._match_soon()

    def look(self, slots: Iterable[int]) -> None:
        """Look into these slots when somebody asks, or now if somebody waits."""
        for slot in slots:
            self._shelf.forget(slot)
            self._marked(slot).setdefault(slot, 0)
        if self._line:
            self._match_soon()

    def _marked(self, slot: int) -> dict[int, int]:
        return self._again if slot in self._busy else self._slots

    def poll(self, now_ns: int) -> int:
        """Look into this node's slots, and now and then into all; returns into how many.

        If nobody waits, that is none: into these it looks when somebody asks.
        """
        slots = sorted(self._placement.owned)
        if now_ns >= self._elsewhere_ns:
            self._elsewhere_ns = now_ns + int(limits.POLL_ELSEWHERE_S * 1e9)
            slots = list(range(self._placement.slots))
        self.look(slots)
        self.open()
        return len(slots) if self._line else 0

    def close(self) -> None:
        """Answer those who wait with nothing."""
        for watch in self._watches:
            watch.close()
        self._watches.clear()
        self._slots.clear()
        self._elsewhere.clear()
        self._closed = True
        self._answer_all()

    async def finish(self) -> None:
        """Wait for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _look_elsewhere(self) -> None:
        slots = list(self._elsewhere)
        self._elsewhere.clear()
        self.look(slots)

    def _match_soon(self) -> None:
        # Not at once: others may come in the same turn of the loop, and share a transaction.
        if not self._matching:
            self._matching = True
            self._loop.call_soon(self._match, context=self._context)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _match(self) -> None:
        """Bring requests and slots together."""
        self._matching = False
        while (
            self._line and self._slots and self._rounds < limits.CLAIM_ROUNDS_MAX and not self._shut
        ):
            requests: list[Request] = []
            wanted = 0
            while self._line and wanted < CLAIMS_AT_ONCE:
                requests.append(self._line.popleft())
                wanted += requests[-1].most
            # Of slots with equally urgent jobs, the one that was looked into longest ago.
            first = sorted(self._slots, key=self._slots.__getitem__)[: limits.CLAIM_SLOTS]
            slots = {slot: self._slots.pop(slot) for slot in first}
            self._busy.update(slots)
            self._rounds += 1
            self._spawn(self._round(slots, requests))
        if self._hasty and (not self._slots or self._shut) and not self._rounds:
            for request in [request for request in self._line if not request.patient]:
                self._line.remove(request)
                request.dismiss()
            self._hasty = False

    def _answer_all(self) -> None:
        for request in self._line:
            request.dismiss()
        self._line.clear()

    async def _round(self, slots: dict[int, int], requests: list[Request]) -> None:
        handed: list[list[Claim]] = [[] for _ in requests]
        left = slots
        error: Exception | None = None
        opened = self._opened
        try:
            handed, left, allowed = await self._store.run(partial(self._claim, slots, requests))
            # Unless more was allowed while it looked: then it looks again.
            if not allowed.jobs and opened == self._opened:
                self._close_until(allowed.again_ms)
        except Exception as raised:
            error = raised
        self._rounds -= 1
        self._busy.difference_update(slots)
        for slot in slots:
            if slot in self._again:
                again = self._again.pop(slot)
                left[slot] = min(again, left.get(slot, again))
        self._slots.update(left)
        unserved: list[Request] = []
        for request, claims in zip(requests, handed, strict=True):
            if request.answer.done():  # cancelled
                self._give_back(claims)
            elif error is not None:
                request.answer.set_exception(error)
            elif claims:
                self._store.meters.count("claimed", len(claims), queue=self._queue)
                request.answer.set_result(claims)
            elif request.time_is_up:
                request.dismiss()
            else:
                unserved.append(request)
        self._line.extendleft(reversed(unserved))
        if self._closed:
            self._answer_all()
        else:
            self._match()

    def _close_until(self, again_ms: int) -> None:
        self._shut = True
        if again_ms:
            pause_s = max(again_ms - self._store.clock.now_ms(), 1) / 1000
            self._loop.call_later(pause_s, self.open, context=self._context)

    async def _claim(
        self, slots: dict[int, int], requests: list[Request], tx: Transaction
    ) -> tuple[list[list[Claim]], dict[int, int], Quota]:
        """Claim jobs for these requests; returns them, the slots that may have more, and how
        many jobs the queue's settings allowed."""
        handed: list[list[Claim]] = [[] for _ in requests]
        wanting = [n for n, request in enumerate(requests) for _ in range(request.most)]
        del wanting[CLAIMS_AT_ONCE:]
        settings = self._book(self._queue)
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
                    tx, entry, request.worker, request.lease_ms, permit
                )
            except OncewardError as error:
                if error.code != "damaged":
                    raise
                self._shelf.set_aside(entry)
                left.setdefault(slot_of_ready(entry[0]), 0)
                continue
            if claim is None:
                self._shelf.take(slot_of_ready(entry[0]), entry[1])
            else:
                handed[wanting.pop(0)].append(claim)
                claimed += 1
                del permits[:1]
        await spend(tx, self._queue, settings, claimed)
        return handed, left, allowed

    async def _find(
        self, tx: Transaction, slots: dict[int, int], most: int
    ) -> tuple[dict[Key, Key], dict[int, int]]:
        """The most urgent ready entries with the keys of their jobs; and the slots that may have
        more, with the priority of the next one."""
        pages: dict[int, dict[Key, Key]] = {}
        cut: set[int] = set()
        # One slot may have enough. If not, most have little, and where a call is a journey
        # several are asked together.
        unseen, together, urgent = list(slots), 1, 0
        seen: list[Key] = []
        while unseen and urgent < most:
            asked, unseen = unseen[:together], unseen[together:]
            # One more than needed, to see what is next.
            looks = [self._shelf.first(tx, slot, most + 1) for slot in asked]
            found = [await looks[0]] if len(looks) == 1 else await asyncio.gather(*looks)
            for slot, (entries, more) in zip(asked, found, strict=True):
                pages[slot] = entries
                seen += entries
                if more:
                    cut.add(slot)
            # What is less urgent than what the next slot may have has to wait until that is known.
            urgent = len(seen)
            if unseen and urgent >= most:
                urgent = sum([priority_of(sort) <= slots[unseen[0]] for _, sort in seen])
            together = max(most - urgent, limits.READERS) if self._store.engine.shared else 1
        seen.sort(key=lambda entry: priority_of(entry[1]))
        chosen = {entry: pages[slot_of_ready(entry[0])][entry] for entry in seen[:most]}
        left = {slot: slots[slot] for slot in slots if slot not in pages}
        # Whoever has given something comes last, so that they take turns.
        gave = {slot_of_ready(partition) for partition, _ in chosen}
        for slot in sorted(pages, key=gave.__contains__):
            rest = [entry for entry in pages[slot] if entry not in chosen]
            if rest:
                left[slot] = priority_of(rest[0][1])
            elif slot in cut:
                left[slot] = slots[slot]
        await tx.fetch([*chosen, *chosen.values()])
        return chosen, left

    def _give_back(self, claims: list[Claim]) -> None:
        if claims:
            self._spawn(self._release(claims))

    async def _release(self, claims: list[Claim]) -> None:
        async def release(tx: Transaction) -> None:
            for claim in claims:
                try:
                    await self._schedule.release(tx, claim.id, claim.token)
                except (NoSuchJob, StaleToken):
                    pass  # the lease is over: that has given it back

        for tries in range(limits.GIVE_BACK_TRIES_MAX):
            try:
                await self._store.run(release)
                return
            except PASSING:
                if self._closed:
                    return
            except OncewardError:
                return
            await self._store.clock.sleep(limits.GIVE_BACK_PAUSE_S * 2**tries)
        # Out of reach: they are free again when their lease is over.
