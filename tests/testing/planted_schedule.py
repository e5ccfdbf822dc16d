"""The schedule's code with one mistake planted in each copy: what its scenario must find.

`PLANTED` is as in `tests.testing.planted`; to find new seeds, run
`python -m tests.testing.planted_schedule`.
"""

from typing import Any

from onceward.errors import OncewardError
from onceward.schedule import (
    JOB_DUE,
    PROMOTE_WRITES,
    Lease,
    Schedule,
    due_ms_of,
    job_key,
    lease_key,
    ready_partition,
    slot_of,
)
from onceward.schedule.claiming import Claimer
from onceward.schedule.claims import Claims
from onceward.schedule.dispatcher import Dispatcher
from onceward.schedule.due_entries import DueEntries
from onceward.schedule.placement import Placement, Watchlist
from onceward.schedule.waiting import next_head
from onceward.testing.simulation import Scenario
from onceward.testing.simulation.schedule.jobs import Jobs, send_one
from onceward.testing.simulation.schedule.workers import Worker
from tests.testing.planted import Bug, search


class CompleteUnchecked(Schedule):
    """Whoever knows the id can complete a job."""

    async def complete(self, tx, id_, token):
        job = await self.get(tx, id_)
        await self._unlease(tx, id_, job)
        await self._end(tx, id_, job, "succeeded")


class FailUnchecked(Schedule):
    """Whoever knows the id can fail a job."""

    async def fail(self, tx, id_, token, reason, retry_ms):
        job = await self.get(tx, id_)
        await self._unlease(tx, id_, job)
        self._note(tx, job, reason)
        await self._attempt_over(tx, id_, job, retry_ms)
        return job.stage


class ExtendUnchecked(Schedule):
    """A lease is renewed without a look whether it is still held."""

    async def extend(self, tx, id_, token, lease_ms):
        until_ms = tx.now_ms + lease_ms
        tx.put(lease_key(id_), Lease(token, until_ms), expires_at_ms=until_ms)
        return until_ms


class RenewalIgnored(Schedule):
    """A lease ends when it would have ended had it not been renewed."""

    async def _leased_until_ms(self, tx, id_, job):
        return due_ms_of(job.place)


class LastPromoted(Schedule):
    """The last one in line comes next."""

    async def _end(self, tx, *args, **options):
        scan = tx.scan
        tx.scan = lambda *where, **how: scan(*where, reverse=True, **how)
        try:
            await super()._end(tx, *args, **options)
        finally:
            del tx.scan


class NobodyPromoted(Schedule):
    """The end of a head is not noticed by those behind it."""

    async def _end(self, tx, id_, job, stage, *, promote=True):
        await super()._end(tx, id_, job, stage, promote=False)


class FailedHeadStays(Schedule):
    """A failed head keeps its place."""

    async def _end(self, tx, id_, job, stage, *, promote=True):
        await super()._end(tx, id_, job, stage, promote=promote and stage != "failed")


class HeadOvertaken(Schedule):
    """While a head waits for its next attempt, others go ahead."""

    async def _attempt_over(self, tx, id_, job, *args):
        await super()._attempt_over(tx, id_, job, *args)
        if job.stage != "failed" and job.options.order_key is not None:
            next_id = await next_head(tx, id_, job, job.options.order_key)
            if next_id is not None:
                next_job = await self.get(tx, next_id)
                await self._place(tx, next_id, next_job)
                tx.put(job_key(next_id), next_job)


class ClaimUncounted(Schedule):
    """A claim does not count as an attempt."""

    async def claim(self, tx, *args, **options):
        claim = await super().claim(tx, *args, **options)
        if claim is not None:
            job = await self.get(tx, claim.id)
            job.attempt -= 1
            tx.put(job_key(claim.id), job)
        return claim


class CrashUncounted(Schedule):
    """An attempt whose lease ran out does not count."""

    async def _attempt_over(self, tx, id_, job, *args):
        if job.cut_off:
            job.attempt -= 1
        await super()._attempt_over(tx, id_, job, *args)


class ReadyForgotten(Schedule):
    """A job that is sent to be ready at once has no entry."""

    async def _place(self, tx, id_, job, *args, **options):
        await super()._place(tx, id_, job, *args, **options)
        if job.stage == "ready" and not job.attempt:
            tx.delete((ready_partition(slot_of(id_), job.queue), job.place))


class SoonIsNow(Schedule):
    """What is due soon is ready at once."""

    async def _place(self, tx, id_, job, *args, **options):
        due_ms = job.due_ms
        if due_ms <= tx.now_ms + 2_000:
            job.due_ms = 0
        await super()._place(tx, id_, job, *args, **options)
        job.due_ms = due_ms


class _Ahead:
    def __init__(self, clock):
        self._clock = clock

    def now_ms(self):
        return self._clock.now_ms() + 2_000

    def now_ns(self):
        return self._clock.now_ns() + 2_000_000_000

    def __getattr__(self, name):
        return getattr(self._clock, name)


class FiresEarly(Dispatcher):
    """Due entries are acted on too early, and jobs made ready whatever the time."""

    def __init__(self, store, schedule, placement):
        super().__init__(store, schedule, placement)
        self._clock = _Ahead(self._clock)

        async def promote(tx, entry):
            now_ms, tx.now_ms = tx.now_ms, tx.now_ms + 2_000
            await schedule.promote(tx, entry)
            tx.now_ms = now_ms

        self.on_due(JOB_DUE, promote, writes=PROMOTE_WRITES)


class RemovesFirst(Dispatcher):
    """Due entries are removed, then acted on: in two commits."""

    async def _act(self, batch):
        async def remove(tx):
            for entry in batch:
                tx.delete(entry.key)

        await self.store.run(remove)
        await super()._act(batch)


class DropsFailed(Dispatcher):
    """What could not be acted on is taken for damaged, and removed."""

    async def _act(self, batch):
        async def remove(tx):
            for entry in batch:
                tx.delete(entry.key)

        try:
            await super()._act(batch)
        except OncewardError:
            await self.store.run(remove)


class TrustsCursor(Dispatcher):
    """A scan goes on where the last one stopped: what lands behind it is missed."""

    class agenda(DueEntries):  # noqa: N801
        cursor = ""

        def fill(self, sorts, *where, **how):
            super().fill([s for s in sorts if s > self.cursor], *where, **how)

        def add(self, sort):
            return sort > self.cursor and super().add(sort)

        def take(self):
            self.cursor = super().take()
            return self.cursor

    def _placed(self, gained, lost):
        super()._placed(gained, lost)
        for number in gained & self._slots.keys():
            self._slots[number].due_entries = self.agenda()


class DeadNotBuried(Placement):
    """Nodes that are gone keep their slots."""

    async def _bury(self, gone):
        return set()


class BuriedAlive(Placement):
    """Nodes are given up long before their lease is over."""

    class watchlist(Watchlist):  # noqa: N801
        @property
        def gone(self):
            silent = {n: (beat, 5 * unchanged_ns) for n, (beat, unchanged_ns) in self._seen.items()}
            return {n: b for n, (b, ns) in silent.items() if ns >= b.lease_ms * 1_000_000}

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._watchlist = self.watchlist()


class SurplusKept(Placement):
    """Who has too many slots keeps them, and looks after its share alone."""

    async def _give(self, slots):
        pass


class TakenFromTheLiving(Placement):
    """A slot is taken as soon as it should be one's own."""

    async def _read(self, partition, type):
        rows = await super()._read(partition, type)
        for _, row in rows if partition == "slot" else ():
            if row.owner != self.node:
                row.owner = ""
        return rows

    async def _take(self, slots):
        async def take(tx):
            for slot in slots:
                record = await tx.get(("slot", f"{slot:04d}"))
                epoch = record["epoch"] + 1 if record else 1
                tx.put(("slot", f"{slot:04d}"), {"owner": self.node, "epoch": epoch})
            return set(slots)

        return await self._store.run(take)


class HandedBeforeDurable(Claims):
    """Workers get their jobs before the claim is committed."""

    def _claim_queue(self, queue):
        desk = super()._claim_queue(queue)
        desk._claimer.__class__ = _TooSoon
        desk.give_back = lambda claims: None
        return desk


class _TooSoon(Claimer):
    async def claim(self, slots, requests, tx):
        handed, left, allowed = await super().claim(slots, requests, tx)
        for request, claims in zip(requests, handed, strict=True):
            if claims and not request.gone:
                request.give(claims)
        return handed, left, allowed


class EffectApart(Jobs):
    """A worker commits its effects, and then completes its job."""

    class worker(Worker):  # noqa: N801
        async def complete(self, tx, claim, follow_first):
            await self.node.run(lambda own: self.effect(own, claim, None))
            await self.running.schedule.complete(tx, claim.id, claim.token)

    def employ(self, worker):
        worker.__class__ = self.worker
        return worker


class DedupeApart(Jobs):
    """Whether a message was sent already is looked up in a transaction of its own."""

    async def handle(self, node, message):
        if message.request[0] == "send":
            known = await node.run(lambda tx: tx.get(("sent", message.id)))
            if known is not None:
                return [job["id"] for job in known]
        return await super().handle(node, message)

    async def send(self, tx, schedule, name, jobs):
        sent = [await send_one(tx, schedule, job) for job in jobs]
        tx.put(("sent", name), sent)
        return [job["id"] for job in sent]


def with_parts(servers: tuple[int, int] = Jobs.servers, **types: Any) -> type[Scenario]:
    """The scenario with other classes for the parts of its nodes."""
    # Apart from mistakes of placements, the broken one of the scenario stays.
    own = "placement_type" not in types

    class Planted(Jobs):
        def setup(self, random):
            super().setup(random)
            self.two_owners = self.two_owners and own

        def make_service(self, node):
            made = super().make_service(node)
            made.__class__ = type("Broken", (type(made),), types)
            return made

    Planted.servers = servers
    Planted.__name__ = Planted.__qualname__ = "_".join(broken.__name__ for broken in types.values())
    return Planted


def with_schedule(broken: type[Schedule], **options: Any) -> type[Scenario]:
    return with_parts(schedule_type=broken, **options)


def with_dispatcher(broken: type[Dispatcher], **options: Any) -> type[Scenario]:
    return with_parts(dispatcher_type=broken, **options)


def with_placement(broken: type[Placement]) -> type[Scenario]:
    return with_parts(placement_type=broken)


FEW = (1, 2)  # what gets stuck takes long to find out
PLANTED = {
    "complete does not check the token": Bug(with_schedule(CompleteUnchecked), ("stale",), 2),
    "fail does not check the token": Bug(with_schedule(FailUnchecked), ("stale",), 0),
    "extend does not check the token": Bug(with_schedule(ExtendUnchecked), ("stale", "early"), 2),
    "expire ignores a renewed lease": Bug(with_schedule(RenewalIgnored), ("early",), 1),
    "the last in line is promoted": Bug(with_schedule(LastPromoted), ("out of order",), 1),
    "the next is not promoted": Bug(with_schedule(NobodyPromoted, servers=FEW), ("stuck",), 1),
    "a failed head keeps its place": Bug(
        with_schedule(FailedHeadStays, servers=FEW), ("stuck",), 1
    ),
    "a retrying head is overtaken": Bug(with_schedule(HeadOvertaken), ("out of order",), 4),
    "a claim is not counted": Bug(with_schedule(ClaimUncounted), ("miscounted", "stuck"), 1),
    "a lease that ran out is not counted": Bug(
        with_schedule(CrashUncounted), ("taken away", "miscounted"), 2
    ),
    "send forgets the ready entry": Bug(with_schedule(ReadyForgotten, servers=FEW), ("stuck",), 1),
    "what is due soon is ready": Bug(with_schedule(SoonIsNow), ("early",), 2),
    "the dispatcher fires early": Bug(with_dispatcher(FiresEarly), ("early",), 1),
    "the dispatcher removes first": Bug(with_dispatcher(RemovesFirst, servers=FEW), ("stuck",), 1),
    "the dispatcher drops what failed": Bug(
        with_dispatcher(DropsFailed, servers=FEW), ("stuck",), 23
    ),
    "the dispatcher trusts its cursor": Bug(
        with_dispatcher(TrustsCursor, servers=FEW), ("stuck",), 6
    ),
    "the dead are not buried": Bug(with_placement(DeadNotBuried), ("slots", "stuck"), 3),
    "the living are buried": Bug(with_placement(BuriedAlive), ("slots",), 13),
    "surplus slots are kept": Bug(with_placement(SurplusKept), ("slots", "stuck"), 23),
    "slots are taken from the living": Bug(with_placement(TakenFromTheLiving), ("slots",), 14),
    "claims are handed out before they last": Bug(
        with_parts(claims_type=HandedBeforeDurable), ("told", "error"), 13
    ),
    "effects are committed apart": Bug(EffectApart, ("applied twice", "lost"), 1),
    "duplicates are looked up apart": Bug(DedupeApart, ("applied twice", "lost"), 2),
}


if __name__ == "__main__":
    search(PLANTED)
