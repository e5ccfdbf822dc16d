"""State transitions of timers, as functions of a transaction."""

from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

import msgspec
from msgspec.structs import replace

from onceward import keys, limits, recurrence
from onceward.errors import AlreadyEnded, BadInput, KeyReused, NoSuchTimer, SecretUnreadable
from onceward.job_options import JobOptions
from onceward.keys import Key
from onceward.recurrence import Interval, Repeat
from onceward.schedule import ENDED, Effect, Job, Schedule, due_partition
from onceward.schedule import job_key as key_of_job
from onceward.store.transaction import Transaction
from onceward.tracing import Trace
from onceward.webhooks import suspensions
from onceward.webhooks.suspensions import suspension_key
from onceward.webhooks.timers import firings
from onceward.webhooks.timers.firings import Fired, Firing
from onceward.webhooks.timers.records import (
    TIMER_DUE,
    WEBHOOKS,
    Call,
    Send,
    Spec,
    Status,
    Timer,
    View,
    Webhook,
    admit,
    admit_due,
    decrypted,
    encrypted,
    first_ms,
    mark_of,
    open_headers,
    timer_entry,
    timer_key,
    timer_partition,
)

# The suffix of due entries of timers, the end of their range, and the minimum number to read.
_TIMER = f"#{TIMER_DUE}"
_END = "\U0010ffff"
_SHARE = 8


class TimerTable:
    """The timers of one database. Names are scoped to callers."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        schedule.on_failed[WEBHOOKS] = self._report_failure

    async def add(
        self,
        tx: Transaction,
        id_: str,
        spec: Spec,
        *,
        caller: str = "",
        trace: Trace | None = None,
    ) -> tuple[View, bool]:
        """Create a timer. Idempotent for the same id and spec. Returns whether it already existed.

        Raises `BadInput`; `KeyReused` if the id belongs to a different timer.
        """
        key = timer_key(caller, id_, self._schedule.slots)
        stored = _stored(tx, caller, id_, spec)
        known = await tx.get(key, Timer)
        if known is not None:
            if not _is_same(tx, caller, id_, known, spec):
                raise KeyReused(
                    f"the id {id_[:200]!r} belongs to a different timer; choose another id", id=id_
                )
            return await self._view(tx, caller, id_, known), True
        return self._put(tx, caller, id_, _new(stored, mark_of(spec), tx, trace)), False

    async def set(
        self,
        tx: Transaction,
        id_: str,
        spec: Spec,
        *,
        caller: str = "",
        trace: Trace | None = None,
    ) -> View:
        """Create or replace a timer. Raises `BadInput`."""
        key = timer_key(caller, id_, self._schedule.slots)
        timer = _new(_stored(tx, caller, id_, spec), mark_of(spec), tx, trace)
        known = await tx.get(key, Timer)
        if known is not None:
            self._leave(tx, caller, id_, known)
            firings.record_last(tx, caller, id_, known)
            timer.generation, timer.fired = known.generation + 1, known.fired
            timer.fired_before = known.fired
        return self._put(tx, caller, id_, timer)

    async def keep(self, tx: Transaction, id_: str, spec: Spec, *, caller: str = "") -> View:
        """Create or replace a timer, unless the same one is already active. A paused timer stays
        paused. Raises `BadInput`."""
        known = await tx.get(timer_key(caller, id_, self._schedule.slots), Timer)
        with suppress(SecretUnreadable):  # an unreadable timer counts as different
            same = known is not None and _is_same(tx, caller, id_, known, spec)
            if known is not None and same and (known.state == "active" or known.paused):
                return await self._view(tx, caller, id_, known)
        view = await self.set(tx, id_, spec, caller=caller)
        if known is not None and known.paused:
            return await self.pause(tx, id_, caller=caller)
        return view

    async def get(self, tx: Transaction, id_: str, *, caller: str = "") -> View:
        """Return a timer with the result of its last firing. Raises `NoSuchTimer`."""
        return await self._view(tx, caller, id_, await self._known(tx, caller, id_))

    async def move(self, tx: Transaction, id_: str, due_ms: int, *, caller: str = "") -> View:
        """Change the due time; a recurring timer continues from there.

        Raises `NoSuchTimer`, `AlreadyEnded` (it has fired, or was cancelled), `BadInput`.
        """
        timer = await self._active(tx, caller, id_)
        admit_due(due_ms, tx.now_ms)
        self._leave(tx, caller, id_, timer)
        timer.due_ms = _begins_ms(timer.spec.repeat, due_ms, tx.now_ms)
        return self._changed(tx, caller, id_, timer)

    async def update(
        self,
        tx: Transaction,
        id_: str,
        change: Callable[[Spec], Spec],
        *,
        due_ms: int | None = None,
        caller: str = "",
    ) -> View:
        """Change the spec of a timer, which keeps its number of firings and its last firing.

        It is due at `due_ms`. Without one, its due time changes only with its repetition. Raises
        `NoSuchTimer`, `AlreadyEnded` (it has fired, or was cancelled), `BadInput`,
        `SecretUnreadable`.
        """
        timer = await self._active(tx, caller, id_)
        known = decrypted(timer.spec, tx.server_keys, caller, id_)
        spec = change(known)
        if spec == known and due_ms is None:
            return await self._view(tx, caller, id_, timer)
        stored = _stored(tx, caller, id_, spec)
        self._leave(tx, caller, id_, timer)
        timer.spec, timer.mark = stored, mark_of(spec)
        if due_ms is None and spec.repeat != known.repeat:
            due_ms = first_ms(spec, tx.now_ms, tx.ends_ms)
        if due_ms is not None:
            admit_due(due_ms, tx.now_ms)
            timer.due_ms = _begins_ms(spec.repeat, due_ms, tx.now_ms)
        self._changed(tx, caller, id_, timer)
        return await self._view(tx, caller, id_, timer)

    async def pause(self, tx: Transaction, id_: str, *, caller: str = "") -> View:
        """Pause a timer: it does not fire until it is resumed. Idempotent. Raises `NoSuchTimer`,
        `AlreadyEnded`."""
        timer = await self._active(tx, caller, id_)
        if not timer.paused:
            self._leave(tx, caller, id_, timer)
            timer.state, timer.paused = "suspended", True
            self._changed(tx, caller, id_, timer)
        return await self._view(tx, caller, id_, timer)

    async def resume(self, tx: Transaction, id_: str, *, caller: str = "") -> View:
        """Resume a paused timer. Idempotent. Raises `NoSuchTimer`, `AlreadyEnded`.

        A recurring timer continues with its first time from now on; a one-time timer that was due
        during the pause is due now.
        """
        timer = await self._active(tx, caller, id_)
        if timer.paused:
            timer.paused = False
            repeat = timer.spec.repeat and _anchored(timer.spec.repeat, timer.due_ms)
            if repeat is not None and timer.due_ms < tx.now_ms:
                next_ms = _next_ms(timer, repeat, tx.now_ms - 1)
                if next_ms is None:
                    timer.state = "ended"
                    self._keep(tx, caller, id_, timer)
                    return await self._view(tx, caller, id_, timer)
                timer.due_ms = next_ms
            self._changed(tx, caller, id_, timer)
        return await self._view(tx, caller, id_, timer)

    async def cancel(self, tx: Transaction, id_: str, *, caller: str = "") -> View:
        """Cancel a timer. Idempotent. Raises `NoSuchTimer`, `AlreadyEnded` (it has fired)."""
        timer = await self._known(tx, caller, id_)
        if timer.state != "cancelled":
            timer = await self._active(tx, caller, id_)
            self._leave(tx, caller, id_, timer)
            timer.state, timer.paused = "cancelled", False
            timer.generation += 1
            self._keep(tx, caller, id_, timer)
        return await self._view(tx, caller, id_, timer)

    async def find(
        self, tx: Transaction, *, caller: str = "", prefix: str = "", after: str = "", most: int
    ) -> list[View]:
        """Return the timers of a caller whose ids begin with `prefix`, ordered by id, starting
        after `after`."""
        start, end = _range(caller, prefix)
        if after:
            start = max(start, keys.after(keys.join(caller, after)))
        found = await self._first(tx, start, end, most)
        ids = [(keys.split(sort)[1], timer) for sort, timer in found]
        await tx.fetch([key_of_job(timer.job) for _, timer in ids if timer.job])
        return [await self._view(tx, caller, id_, timer) for id_, timer in ids]

    async def everyones(
        self, tx: Transaction, *, after: str = "", most: int
    ) -> list[tuple[str, View]]:
        """Return the timers of all callers with their sort keys, starting after one. The reads are
        not checked at commit."""
        found = await self._first(tx, keys.after(after) if after else "", None, most)
        views = await self._look(tx, [(*_names(sort), timer) for sort, timer in found])
        return [(sort, view) for (sort, _), view in zip(found, views, strict=True)]

    async def agenda(self, tx: Transaction, *, most: int) -> list[View]:
        """Return the next due timers of all callers, the earliest first. The reads are not checked
        at commit."""
        share = most // self._schedule.slots * 2 + _SHARE
        while True:
            entries, horizon = [], _END
            for slot in range(self._schedule.slots):
                rows = await tx.scan(due_partition(slot), limit=share)
                if len(rows) == share:  # more entries may follow
                    horizon = min(horizon, rows[-1].key[1])
                entries += [row.key[1] for row in rows if row.key[1].endswith(_TIMER)]
            found = sorted(entry for entry in entries if entry <= horizon)[:most]
            if len(found) == most or horizon == _END or share >= limits.SCAN_RECORDS_MAX:
                break
            share = min(share * 8, limits.SCAN_RECORDS_MAX)
        names = [_names(entry.partition("#")[2]) for entry in found]
        places = [timer_key(caller, id_, self._schedule.slots) for caller, id_ in names]
        await tx.fetch(places)
        timers = [tx.peek(place, Timer) for place in places]
        pairs = zip(names, timers, strict=True)
        return await self._look(tx, [(*name, timer) for name, timer in pairs if timer is not None])

    async def _look(self, tx: Transaction, timers: list[tuple[str, str, Timer]]) -> list[View]:
        await tx.fetch([key_of_job(timer.job) for _, _, timer in timers if timer.job])
        views = []
        for caller, id_, timer in timers:
            job = tx.peek(key_of_job(timer.job), Job) if timer.job else None
            shown = _shown(tx, caller, id_, timer)
            views.append(View(id_, caller, shown, _status(timer, job), job))
        return views

    async def fire(self, tx: Transaction, entry: Key) -> None:
        """Fire a timer for its due entry."""
        _, caller, id_, _, _ = keys.split(entry[1])
        tx.delete(entry)
        timer = await tx.get(timer_key(caller, id_, self._schedule.slots), Timer)
        if timer is None or timer.state != "active" or self._entry(caller, id_, timer) != entry:
            return  # it was changed or cancelled since
        now_ms = tx.now_ms
        if timer.due_ms > now_ms:
            tx.put(entry, TIMER_DUE)  # not due yet
            return
        if await suspensions.get(tx, caller) is not None:
            timer.state = "suspended"
            tx.put(timer_key(caller, id_, self._schedule.slots), timer)
            return
        repeat = timer.spec.repeat and _anchored(timer.spec.repeat, timer.due_ms)
        due_ms = _counts(timer, repeat, now_ms)
        if due_ms is not None:
            if await self._overlaps(tx, timer):
                timer.skipped += 1
            else:
                timer.fired += 1
                timer.fired_ms = now_ms
                timer.job = await self._send(tx, caller, id_, timer, due_ms)
        if repeat is None:
            timer.state = "skipped" if due_ms is None else "fired"
            self._keep(tx, caller, id_, timer)
            return
        next_ms = _next_ms(timer, repeat, now_ms if due_ms is None else due_ms)
        if next_ms is None:
            timer.state = "ended"
            self._keep(tx, caller, id_, timer)
            return
        timer.due_ms = next_ms
        self._put(tx, caller, id_, timer)

    async def reencrypt(self, tx: Transaction, id_: str, *, caller: str = "") -> bool:
        """Encrypt the headers of a timer with the first server key. Returns False if they are
        unreadable. Idempotent."""
        key = timer_key(caller, id_, self._schedule.slots)
        timer = await tx.get(key, Timer)
        if timer is None or not isinstance(timer.spec.target, Call):
            return True
        if all(map(tx.server_keys.is_current, timer.spec.target.headers.values())):
            return True
        try:
            spec = decrypted(timer.spec, tx.server_keys, caller, id_)
        except SecretUnreadable:
            return False
        timer.spec = encrypted(spec, tx.server_keys, caller, id_)
        tx.put(key, timer, expires_at_ms=tx.expiry(key))
        return True

    def read_to_fire(self, entry: Key) -> list[Key]:
        _, caller, id_, _, _ = keys.split(entry[1])
        place = timer_key(caller, id_, self._schedule.slots)
        return [place, suspension_key(caller)] if caller else [place]

    async def unsuspend(self, tx: Transaction, id_: str, *, caller: str) -> bool:
        """Resume a timer that was suspended with its caller. Returns whether it was suspended.
        Idempotent."""
        timer = await tx.get(timer_key(caller, id_, self._schedule.slots), Timer)
        if timer is None or timer.state != "suspended" or timer.paused:
            return False
        self._changed(tx, caller, id_, timer)
        return True

    async def transfer(self, tx: Transaction, id_: str, *, caller: str, to: str) -> bool:
        """Transfer a timer to another caller, and resume it if it was suspended with its caller.

        Returns False if the other caller has a timer with this id, or its headers are unreadable.
        """
        timer = await tx.get(timer_key(caller, id_, self._schedule.slots), Timer)
        place = timer_key(to, id_, self._schedule.slots)
        if timer is None or timer.state not in ("active", "suspended"):
            return True  # it has ended
        if await tx.get(place, Timer) is not None:
            return False
        try:
            spec = decrypted(timer.spec, tx.server_keys, caller, id_)
        except SecretUnreadable:
            return False
        self._leave(tx, caller, id_, timer)
        tx.delete(timer_key(caller, id_, self._schedule.slots))
        timer.spec = encrypted(spec, tx.server_keys, to, id_)
        self._changed(tx, to, id_, timer)
        return True

    async def _first(
        self, tx: Transaction, start: str, end: str | None, most: int
    ) -> list[tuple[str, Timer]]:
        """Return the first timers of all slots, ordered by key. Reads a little more than the share
        of each slot, and more when that is used up."""
        share = most // self._schedule.slots + 2
        heap: list[tuple[str, int, Timer, bool]] = []

        async def ask(slot: int, start: str) -> None:
            rows = await tx.scan(
                timer_partition(slot), Timer, start=start, end=end, limit=share, skip_damaged=True
            )
            for number, row in enumerate(rows, 1):
                heappush(heap, (row.key[1], slot, row.value, number == share))

        for slot in range(self._schedule.slots):
            await ask(slot, start)
        found: list[tuple[str, Timer]] = []
        while heap and len(found) < most:
            sort, slot, timer, last = heappop(heap)
            found.append((sort, timer))
            if last:
                await ask(slot, keys.after(sort))
        return found

    async def _send(self, tx: Transaction, caller: str, id_: str, timer: Timer, due_ms: int) -> str:
        target, cause = timer.spec.target, Effect("timer", id_, caller)
        order_key = _order_key(caller, id_) if timer.spec.overlap == "queue" else None
        if isinstance(target, Send):
            options = target.options
            if order_key is not None:
                options = replace(options, order_key=order_key)
            job_id, _ = await self._schedule.add(
                tx,
                target.queue,
                target.body,
                options,
                ready_ms=due_ms,
                caller=caller,
                cause=cause,
                trace=timer.trace,
            )
        else:
            webhook = Webhook(id_, due_ms, timer.fired, target, caller)
            job_id, _ = await self._schedule.add(
                tx,
                WEBHOOKS,
                webhook,
                JobOptions(attempts_max=target.policy.attempts, order_key=order_key),
                ready_ms=due_ms,
                caller=caller,
                cause=cause,
                trace=timer.trace,
            )
        call = target if isinstance(target, Call) else None
        fired = Fired(id_, timer.fired, due_ms, tx.now_ms)
        recurring = timer.spec.repeat is not None
        firings.record(tx, caller, call, job_id, fired, recurring=recurring)
        return job_id

    async def resend(
        self, tx: Transaction, caller: str, firing: Firing, *, by: str, key: str = ""
    ) -> str:
        """Repeat a firing, once for each key; returns the id of its job. Raises `NotFailed`."""
        return await firings.resend(self._schedule, tx, caller, firing, by=by, key=key)

    async def _report_failure(self, tx: Transaction, id_: str, job: Job) -> None:
        """Send the message about a call that has failed permanently, in the same commit."""
        try:
            webhook = msgspec.convert(job.body, Webhook)
        except msgspec.ValidationError:
            return  # the job was unreadable
        target = webhook.call.on_failure
        if target is None:
            return
        message = {
            "type": "call.failed",
            "id": id_,
            "timer": webhook.timer,
            "number": webhook.number,
            "due_ms": webhook.due_ms,
            "endpoint": webhook.call.endpoint or None,
            "url": webhook.call.url or None,
            "reason": job.reason,
            "attempts": job.attempt,
        }
        body: Any = message
        if target.queue is None:
            call = Call(target.url or "", target.endpoint or "", body=message)
            body = Webhook(webhook.timer, tx.now_ms, webhook.number, call, webhook.caller)
        await self._schedule.add(
            tx,
            target.queue or WEBHOOKS,
            body,
            caller=webhook.caller,
            cause=Effect("timer", webhook.timer, webhook.caller),
        )

    async def _known(self, tx: Transaction, caller: str, id_: str) -> Timer:
        timer = None
        if type(id_) is str and 0 < len(id_) <= limits.TIMER_ID_BYTES_MAX:
            timer = await tx.get(timer_key(caller, id_, self._schedule.slots), Timer)
        if timer is None:
            shown = str(id_)[:200]
            raise NoSuchTimer(f"timer {shown!r} not found; check its id", id=shown)
        return timer

    async def _active(self, tx: Transaction, caller: str, id_: str) -> Timer:
        timer = await self._known(tx, caller, id_)
        if timer.state not in ("active", "suspended"):
            raise AlreadyEnded(
                f"timer {id_[:200]!r} cannot be changed: it is {timer.state}. Create another timer",
                id=id_,
                state=timer.state,
            )
        return timer

    async def _view(self, tx: Transaction, caller: str, id_: str, timer: Timer) -> View:
        job = await tx.get(key_of_job(timer.job), Job) if timer.job else None
        return View(id_, caller, _shown(tx, caller, id_, timer), _status(timer, job), job)

    def _put(self, tx: Transaction, caller: str, id_: str, timer: Timer) -> View:
        tx.put(timer_key(caller, id_, self._schedule.slots), timer)
        tx.put(self._entry(caller, id_, timer), TIMER_DUE)
        return View(id_, caller, _shown(tx, caller, id_, timer), "active")

    def _changed(self, tx: Transaction, caller: str, id_: str, timer: Timer) -> View:
        """Write a changed timer: active, unless it is paused. Raises `BadInput`."""
        _admit_next(timer)
        timer.generation += 1
        if timer.paused:
            tx.put(timer_key(caller, id_, self._schedule.slots), timer)
            return View(id_, caller, _shown(tx, caller, id_, timer), "paused")
        timer.state = "active"
        return self._put(tx, caller, id_, timer)

    async def _overlaps(self, tx: Transaction, timer: Timer) -> bool:
        """Whether a time is skipped because the previous firing is unfinished."""
        if timer.spec.overlap != "skip" or not timer.job:
            return False
        job = await tx.get(key_of_job(timer.job), Job)
        return job is not None and job.stage not in ENDED

    def _keep(self, tx: Transaction, caller: str, id_: str, timer: Timer) -> None:
        """Write an ended timer, which is kept for its retention."""
        key = timer_key(caller, id_, self._schedule.slots)
        tx.put(key, timer, expires_at_ms=tx.now_ms + limits.TIMER_RETENTION_MS)

    def _leave(self, tx: Transaction, caller: str, id_: str, timer: Timer) -> None:
        if timer.state == "active":
            tx.delete(self._entry(caller, id_, timer))

    def _entry(self, caller: str, id_: str, timer: Timer) -> Key:
        return timer_entry(caller, id_, timer, self._schedule.slots)


def _stored(tx: Transaction, caller: str, id_: str, spec: Spec) -> Spec:
    """A spec in its stored form. Raises `BadInput` for an invalid timer."""
    admit(caller, id_, spec, tx.now_ms)
    stored = encrypted(spec, tx.server_keys, caller, id_)
    if stored is not spec:  # encryption has made it larger
        admit(caller, id_, stored, tx.now_ms)
    return stored


def _is_same(tx: Transaction, caller: str, id_: str, known: Timer, spec: Spec) -> bool:
    """Whether a timer was created from a spec. Raises `SecretUnreadable`."""
    if known.mark != mark_of(spec):
        return False
    if not isinstance(known.spec.target, Call) or not isinstance(spec.target, Call):
        return True
    headers = open_headers(known.spec.target, tx.server_keys, caller, id_)
    return headers == spec.target.headers


def _shown(tx: Transaction, caller: str, id_: str, timer: Timer) -> Timer:
    """A timer with decrypted headers, or with a placeholder for unreadable ones."""
    target = timer.spec.target
    if not isinstance(target, Call) or not target.headers:
        return timer
    try:
        return replace(timer, spec=decrypted(timer.spec, tx.server_keys, caller, id_))
    except SecretUnreadable as error:
        headers = dict.fromkeys(target.headers, f"unreadable: {error}")
        return replace(timer, spec=replace(timer.spec, target=replace(target, headers=headers)))


def _names(sort: str) -> tuple[str, str]:
    """The caller and the id at the start of a sort key."""
    caller, id_ = keys.split(sort)[:2]
    return caller, id_


def _new(spec: Spec, mark: str, tx: Transaction, trace: Trace | None) -> Timer:
    due_ms = first_ms(spec, tx.now_ms, tx.ends_ms)
    timer = Timer(spec, _begins_ms(spec.repeat, due_ms, tx.now_ms), tx.now_ms, mark)
    _admit_next(timer)
    if spec.repeat is None:
        timer.trace = trace
    return timer


def _begins_ms(repeat: Repeat | None, due_ms: int, now_ms: int) -> int:
    """The first due time of a timer that starts at a time.

    If that has passed, the latest of its times counts: the earlier ones were not missed, and there
    may be millions of them.
    """
    if repeat is None or due_ms >= now_ms:
        return due_ms
    [last_ms] = recurrence.missed(_anchored(repeat, due_ms), due_ms, now_ms, "last", 1)
    return last_ms


def _anchored(repeat: Repeat, due_ms: int) -> Repeat:
    """The repetition with an interval anchored at one of its times."""
    return Interval(repeat.every_ms, due_ms) if isinstance(repeat, Interval) else repeat


def _counts(timer: Timer, repeat: Repeat | None, now_ms: int) -> int | None:
    """Which of the due times counts now; the first of them if there are several."""
    policy, until_ms = timer.spec.catch_up, timer.spec.until_ms
    if repeat is not None:
        if policy == "last" and until_ms is not None:
            now_ms = min(now_ms, until_ms)
        times = recurrence.missed(repeat, timer.due_ms, now_ms, policy, 1)
        if not times or (until_ms is not None and times[0] > until_ms):
            return None
        return times[0]
    late = timer.due_ms < now_ms - limits.RECUR_GRACE_MS
    # A timer that was created with a past time has not missed it.
    if policy == "none" and late and timer.due_ms >= timer.created_ms:
        return None
    return timer.due_ms


def _next_ms(timer: Timer, repeat: Repeat, after_ms: int) -> int | None:
    """The next due time after a time; None if the timer has ended."""
    next_ms = None if timer.is_spent else recurrence.next_ms(repeat, after_ms)
    until_ms = timer.spec.until_ms
    return None if next_ms is None or (until_ms is not None and next_ms > until_ms) else next_ms


def _admit_next(timer: Timer) -> None:
    """Raise `BadInput` for a timer whose next time is after its end."""
    until_ms = timer.spec.until_ms
    if until_ms is not None and timer.due_ms > until_ms:
        raise BadInput(
            f"the timer would be due at {timer.due_ms} ms, after its end (until: {until_ms}); "
            "choose a later end, or cancel it"
        )
    if timer.is_spent:
        fired = timer.fired - timer.fired_before
        raise BadInput(
            f"the timer has already fired {fired} times, so it cannot end after "
            f"{timer.spec.times}; choose a larger number, or cancel it"
        )


def _order_key(caller: str, id_: str) -> str:
    """The order key of the firings of a timer that start one after the other."""
    return "timer " + blake2b(keys.join(caller, id_).encode(), digest_size=16).hexdigest()


def _status(timer: Timer, job: Job | None) -> Status:
    if timer.paused:
        return "paused"
    if timer.state != "fired":
        return timer.state
    if isinstance(timer.spec.target, Send) or job is None or job.stage == "succeeded":
        return "success"  # a job that is not kept any longer has succeeded
    if job.stage in ("failed", "in_doubt"):
        return "failed"
    return "cancelled" if job.stage == "cancelled" else "firing"


def _range(caller: str, prefix: str) -> tuple[str, str]:
    """The range of sort keys of a caller's timers whose ids begin with `prefix`."""
    if not prefix:
        return keys.below(caller)
    start = keys.join(caller, prefix)
    return start, start + "\U0010ffff"
