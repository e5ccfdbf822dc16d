"""Children: jobs that another job creates and waits for.

A family is created in as many commits as it needs; its record counts the children that exist, so an
interrupted attempt continues where it was. See `onceward.schedule.children` for the records.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Generic, TypeVar, Unpack

import msgspec

from onceward import keys, limits
from onceward.api.arguments import unknown_name
from onceward.conversion import Converter
from onceward.errors import BadInput, ChildFailed, Fail, StaleToken
from onceward.job_options import OPTION_NAMES, JobKeywords, job_options
from onceward.json_values import encode
from onceward.keys import Key
from onceward.schedule import EXPIRE_WRITES, Schedule, admit_job, due_ms_of, job_key
from onceward.schedule.children import (
    ENDED,
    Child,
    Family,
    PastChild,
    child_key,
    family_key,
    family_partition,
    number_of,
    past_key,
    ring,
)
from onceward.schedule.records import Job, Parent
from onceward.schedule.settings import kept_until_ms
from onceward.store import Store
from onceward.store.transaction import Transaction

T_co = TypeVar("T_co", covariant=True)

_PAGE = 30
_ADVANCE = 400
# A job, its entry, its order key, its limit key and its entry as a child; usually three of them.
_CREATE_WRITES = 5
_CREATE_ROOM = limits.COMMIT_WRITES_MAX - 4
_CREATE_MAX = _CREATE_ROOM // 3
# After this many writes, a commit that cancels children has room for one more, and a few others.
_CLEAN_WRITES = limits.COMMIT_WRITES_MAX - EXPIRE_WRITES - 8
FOLD_WRITES = limits.COMMIT_WRITES_MAX


class ChildJob(Generic[T_co]):
    """A job for `job.gather` and `job.wait_any`. `handler.child(body)` makes a typed one."""

    def __init__(
        self,
        queue: str,
        body: Any,
        *,
        result: Converter | None = None,
        **options: Unpack[JobKeywords],
    ) -> None:
        """Options are those of `App.send` for a job. `result` is for internal use.

        Raises `BadInput`.
        """
        for name in options:
            if name not in OPTION_NAMES:
                raise unknown_name(name, sorted(OPTION_NAMES))
        self.queue = queue
        self.body = body
        self.options = job_options(options)
        self._result = result
        admit_job(queue, body, self.options)

    def __repr__(self) -> str:
        return f"<child in {self.queue!r}>"

    def outcome(self, child: Child, *, raises: bool) -> Any:
        """The result of this child, or its failure."""
        if child.state == "succeeded":
            if self._result is None:
                return child.result
            return self._result.read(msgspec.json.encode(child.result), "the result of a child")
        verb = "failed" if child.state == "failed" else "was cancelled"
        failed = ChildFailed(
            f"child {child.id or '(unknown)'} in queue {self.queue!r} {verb}: {child.reason}",
            id=child.id,
            queue=self.queue,
            state=child.state,
            reason=child.reason,
        )
        if raises:
            raise failed
        return failed


def admit_children(asked: Sequence[Any], parent: Any, number: int, *, any_: bool) -> None:
    """Raise `BadInput` for children that a job cannot wait for."""
    most = limits.FAMILY_ANY_MAX if any_ else limits.FAMILY_CHILDREN_MAX
    if len(asked) > most or (any_ and not asked):
        raise BadInput(
            f"a call must have {'1' if any_ else '0'} to {most} children, not {len(asked)}"
        )
    if number > limits.FAMILIES_MAX:
        raise BadInput(
            f"a job must wait for children at most {limits.FAMILIES_MAX} times, not "
            f"{number}; wait for more children at once"
        )
    for child in asked:
        if not isinstance(child, ChildJob):
            raise BadInput(
                "a child must be made by `handler.child(body)` or `ChildJob(queue, body)`, not "
                f"{type(child).__name__}"
            )
        _admit_order(child, parent, "parent")


def _admit_order(child: ChildJob[Any], above: Any, what: str) -> None:
    key = child.options.order_key
    if key is not None and (child.queue, key) == (above.queue, above.options.order_key):
        raise BadInput(
            f"a child in queue {child.queue!r} with the order key {key!r} of its {what} would "
            f"wait for its {what} indefinitely. Use another order key."
        )


class Children:
    """Functions of a transaction on families."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    async def begin(
        self,
        tx: Transaction,
        id_: str,
        token: str,
        number: int,
        asked: Sequence[ChildJob[Any]],
        *,
        any_: bool,
        keep: bool,
    ) -> Family:
        """The family of a call, as it is. A new one has no children yet. Raises `StaleToken`,
        `NoSuchJob`, and `Fail` if the call had other children in an earlier attempt."""
        job = await self._schedule.held(tx, id_, token)
        digest = _digest(asked)
        family = await tx.get(family_key(id_, number), Family)
        if family is None:
            await self._admit_orders(tx, job, [c for c in asked if c.options.order_key is not None])
            family = Family(len(asked), digest, any=any_, keep=keep)
            tx.put(family_key(id_, number), family)
            if not job.families:
                job.families = True
                tx.put(job_key(id_), job)
        elif family.digest != digest:
            raise Fail(
                f"call {number} of job.gather or job.wait_any asks for {len(asked)} children that "
                f"differ from the {family.total} of an earlier attempt. Make them from the body "
                "and from results of steps, so that each attempt asks for the same ones."
            )
        elif family.stopped:
            family = msgspec.structs.replace(family, created=0, ended=0, first=None, stopped=False)
            tx.put(family_key(id_, number), family)
        return family

    async def _admit_orders(
        self, tx: Transaction, job: Job, ordered: Sequence[ChildJob[Any]]
    ) -> None:
        """Raise `BadInput` for a child that would wait behind a job that waits for its parent."""
        while ordered and job.parent is not None:
            id_ = job.parent.id
            [above] = await tx.get_many([job_key(id_)], Job, skip_damaged=True)
            if above is None:
                return
            if above.stage not in (*ENDED, "in_doubt"):
                for child in ordered:
                    _admit_order(child, above, f"ancestor {id_}")
            job = above

    async def create(
        self,
        tx: Transaction,
        id_: str,
        token: str,
        number: int,
        asked: Sequence[ChildJob[Any]],
        created: int,
    ) -> Family:
        """Create the next children, as many as fit into a commit. `created` is the known number of
        them. Raises `StaleToken`, `NoSuchJob`, `BadInput`, `QueueFull`."""
        # On PostgreSQL, all that is read in one round trip.
        keys_ = [child_key(id_, number, at) for at in range(created, len(asked))[:_CREATE_MAX]]
        await tx.fetch([job_key(id_), family_key(id_, number), *keys_])
        job = await self._schedule.held(tx, id_, token)
        family = await tx.get(family_key(id_, number), Family)
        assert family is not None, "`begin` adds it"
        index = family.created
        taken_bytes = 0
        for key in keys_ if index == created else ():
            if tx.size + _CREATE_WRITES > _CREATE_ROOM:
                break
            child = asked[index]
            if not await self._keeps(tx, key):
                taken_bytes += len(encode(child.body, (child.queue, "body")))
                if taken_bytes > limits.CLAIM_BYTES and index > family.created:
                    break
                await self._add(tx, key, child, job, Parent(id_, number, index))
            index += 1
        family.created = index
        tx.put(family_key(id_, number), family)
        return family

    async def _keeps(self, tx: Transaction, key: Key) -> bool:
        """Whether a child exists from an earlier attempt, and was not cancelled with its parent."""
        [child] = await tx.get_many([key], Child, skip_damaged=True)
        return child is not None and child.state != "cancelled"

    async def _add(
        self, tx: Transaction, key: Key, child: ChildJob[Any], parent: Job, place: Parent
    ) -> None:
        self._schedule.admit(tx, child.queue)
        id_, _ = await self._schedule.add(
            tx,
            child.queue,
            child.body,
            child.options,
            caller=parent.caller,
            trace=parent.trace,
            parent=place,
        )
        tx.put(key, Child(id_))

    async def fold(self, tx: Transaction, entry: Key) -> None:
        """Act on a due entry: continue a parent whose children have ended, and clean up after a
        parent that has ended."""
        if not await tx.has(entry):
            return
        tx.delete(entry)
        id_ = entry[1].split("#")[1]
        job = await tx.get(job_key(id_), Job)
        number = number_of(job.waits) if job is not None and job.stage == "waiting" else None
        if job is None or job.stage in ("succeeded", "cancelled"):
            more = await self._clean(tx, id_, job)
        elif job.stage == "failed":
            more = await self._stop(tx, id_)
        elif number is not None:
            more = await self._advance(tx, id_, job, number)
        else:
            return  # it looks itself, or is released with another entry
        if more:
            ring(tx, id_, max(tx.now_ms, due_ms_of(entry[1]) + 1))

    def read_to_fold(self, entry: Key) -> list[Key]:
        return [entry, job_key(entry[1].split("#")[1])]

    async def _advance(self, tx: Transaction, id_: str, job: Job, number: int) -> bool:
        """Note how many children have ended, and continue the parent if it need not wait. Returns
        whether to look again."""
        family = await _readable(tx, family_key(id_, number))
        if family is None:
            await self._schedule.wake(tx, id_, job)  # its next attempt fails with the error
            return False
        before = family.ended
        start = 0 if family.any else before
        for index, child in enumerate(await _entries(tx, id_, number, family, start), start):
            if child.state in ENDED:
                if family.any:
                    family.first = index
                    break
                family.ended += 1
            elif not family.any:
                break
        if family.complete:
            await self._schedule.wake(tx, id_, job)
        if family.complete or family.ended > before:
            tx.put(family_key(id_, number), family)
        return not family.complete and family.ended >= before + _ADVANCE

    async def _stop(self, tx: Transaction, id_: str) -> bool:
        """Cancel children of a parent that has failed, up to the size of a commit. A retry of the
        parent creates them again. Returns whether there may be more."""
        number, most = 1, tx.size + _CLEAN_WRITES
        while (family := await _readable(tx, family_key(id_, number))) is not None:
            if not family.keep and family.ended < family.created:
                complete = family.complete
                for child in await _entries(tx, id_, number, family, family.ended, _PAGE):
                    if tx.size > most or family.ended == family.created:
                        break
                    family.ended += 1
                    if child.state not in ENDED:
                        # A complete call returns the same again: it needs no other children.
                        family.stopped = not complete
                        await self._cancel(tx, child.id)
                tx.put(family_key(id_, number), family)
                return True
            number += 1
        return False

    async def _clean(self, tx: Transaction, id_: str, job: Job | None) -> bool:
        """Cancel the children of a parent that has ended, and replace their entries by a record for
        its history, up to the size of a commit. Returns whether there may be more."""
        start, end = keys.below(id_)
        partition, most = family_partition(id_), tx.size + _CLEAN_WRITES
        found = [(partition, sort) for sort in await tx.sorts(partition, _PAGE, start)]
        mine = [key for key in found if key[1] < end]
        keys_ = [key for key in mine if not _is_family(key)]
        known = dict(zip(keys_, await tx.get_many(keys_, Child, skip_damaged=True), strict=True))
        past: defaultdict[int, list[PastChild]] = defaultdict(list)
        for at, key in enumerate(mine):
            if tx.size > most:
                break
            if _is_family(key):
                last = at + 1 == len(mine)
                if _is_family(mine[at + 1]) if not last else len(mine) < _PAGE:
                    tx.delete(key)  # nothing of it is left
                continue
            family = await _readable(tx, (partition, key[1].rpartition("#")[0]))
            child = known[key]
            state = child.state if child is not None else ""
            if child is not None and state not in ENDED and not (family and family.keep):
                state = await self._cancel(tx, child.id)
            if child is not None and state in ENDED:  # others return when they end
                number, index = map(int, key[1].split("#")[1:])
                past[number].append(PastChild(index, child.id, state))
            tx.delete(key)
        if job is not None:
            kept_ms = self._schedule.settings(job.queue).job_retention_ms
            for number, children in past.items():
                key = past_key(id_, number, children[0].index, tx.now_ms)
                tx.put(key, children, expires_at_ms=kept_until_ms(job.ended_ms, kept_ms))
        return bool(mine)

    async def _cancel(self, tx: Transaction, id_: str) -> str:
        """Cancel a child, unless it has ended or is in doubt: then an operator settles it. Returns
        its stage."""
        job = await tx.get(job_key(id_), Job)
        if job is None:
            return ""
        if job.stage not in (*ENDED, "in_doubt"):
            await self._schedule.cancel(tx, id_, "cancelled with its parent")
            return "cancelled"
        return job.stage


async def children_of(store: Store, id_: str, number: int, family: Family) -> list[Child]:
    """The children of a complete family, in order; or the first one that ended."""
    found: list[Child] = []
    while len(found) < family.total:
        found += await store.run(partial(_page, id_, number, family, len(found)))
    return [found[family.first or 0]] if family.any else found


async def _page(id_: str, number: int, family: Family, start: int, tx: Transaction) -> list[Child]:
    children = await _entries(tx, id_, number, family, start)
    if not all(child.id for child in children):
        job = await tx.get(job_key(id_), Job)
        if job is None or job.stage != "running":
            # Entries are kept until the parent ends.
            raise StaleToken(
                f"job {id_} has ended, and its children were removed; stop this attempt", id=id_
            )
    return children


async def _readable(tx: Transaction, key: Key) -> Family | None:
    [family] = await tx.get_many([key], Family, skip_damaged=True)
    return family


async def _entries(
    tx: Transaction, id_: str, number: int, family: Family, start: int, limit: int = _ADVANCE
) -> list[Child]:
    """The next children of a family, up to a few hundred. One whose entry cannot be read has
    failed."""
    rows = await tx.scan(
        family_partition(id_),
        Child,
        start=child_key(id_, number, start)[1],
        end=child_key(id_, number, family.total)[1],
        limit=limit,
        skip_damaged=True,
    )
    known = {int(row.key[1].rpartition("#")[2]): row.value for row in rows}
    end = family.total if len(rows) < limit else max(known) + 1
    damaged = Child("", "failed", reason="its entry cannot be read")
    return [known.get(index, damaged) for index in range(start, end)]


def _is_family(key: Key) -> bool:
    return key[1].count("#") == 1


def _digest(asked: Sequence[ChildJob[Any]]) -> str:
    digest = blake2b(digest_size=16)
    for child in asked:
        digest.update(encode([child.queue, child.body, child.options], ("job", "children")))
    return digest.hexdigest()
