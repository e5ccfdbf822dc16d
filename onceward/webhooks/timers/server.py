"""Timers of an application: set, read, move and cancel, each in a transaction."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar, Unpack, overload

from onceward import limits, tracing
from onceward.api.retries import RetryPolicy
from onceward.api.timers import CatchUp
from onceward.callers import Caller, caller_id
from onceward.errors import AddressRefused, AlreadyEnded, BadInput, NoSuchTimer
from onceward.job_options import OPTION_NAMES, JobKeywords, job_options
from onceward.maintenance.key_source import KeySource
from onceward.recurrence import Cron, Interval, Repeat
from onceward.schedule import is_whole, milliseconds
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.store.user_records import AnyTransaction, admit_tx
from onceward.webhooks.http.addresses import Guard
from onceward.webhooks.http.headers import admit_headers
from onceward.webhooks.retries import read_policy
from onceward.webhooks.timers import Call, Send, Spec, Target, TimerTable, View, id_for

T = TypeVar("T")

_ANY = Guard()


class Timers:
    """The timers of one application. With `tx`, each call is part of that transaction."""

    def __init__(
        self,
        store: Store,
        part: TimerTable,
        guard: Guard | None,
        key_source: KeySource | None = None,
    ) -> None:
        self.part = part
        self._store = store
        self._guard = guard
        self._key_source = key_source or KeySource(store)

    async def set(
        self,
        id_: str | None = None,
        *,
        queue: str | None = None,
        url: str | None = None,
        endpoint: str | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        append_id: bool = False,
        at_ms: int | None = None,
        delay_s: float | None = None,
        every_s: float | None = None,
        cron: str | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "all",
        retry: Mapping[str, Any] | RetryPolicy | None = None,
        key: str | None = None,
        caller: Caller | str = "",
        replace: bool = True,
        tx: AnyTransaction | None = None,
        **options: Unpack[JobKeywords],
    ) -> View:
        """Create or replace a timer: a job in a queue, or a POST to a URL or endpoint.

        Args:
            at_ms, delay_s: When the timer fires, or starts to repeat. Past times are due now.
            every_s, cron: The repetition: an interval, or a cron expression in the zone `zone`.
                An interval starts at the given time, cron at its first match after it.
            catch_up: Which times count that passed during an outage: `all`, `last` or `none`.
            retry: For calls: `pauses_s`, `attempts_max` and `timeout_s`. Default: the policy of the
                endpoint, then of `Outward`.
            replace: Whether a timer with the same id is replaced. If not, it must be equal.
            key: Idempotency key: repeated calls create the timer once.

        Raises `BadInput`, `KeyReused`.
        """
        if headers is not None and not isinstance(headers, Mapping):
            raise BadInput(
                f"headers must be a mapping of names to values, not {type(headers).__name__}"
            )
        target = target_of(
            queue,
            url,
            endpoint,
            body=body,
            headers=dict(headers or {}),
            append_id=append_id,
            retry=read_policy(retry),
            options=options,
        )
        delay_ms = None if delay_s is None else milliseconds(delay_s, "a delay")
        repeat = _repeat(every_s, cron, zone)
        return await self.put(
            Spec(target, at_ms, delay_ms, repeat, catch_up),
            id_,
            key=key,
            caller=caller,
            replace=replace,
            tx=tx,
        )

    async def put(
        self,
        spec: Spec,
        id_: str | None = None,
        *,
        key: str | None = None,
        caller: Caller | str = "",
        replace: bool = True,
        tx: AnyTransaction | None = None,
    ) -> View:
        """Like `set`, with a `Spec`."""
        view, _ = await self.add(spec, id_, key=key, caller=caller, replace=replace, tx=tx)
        return view

    async def add(
        self,
        spec: Spec,
        id_: str | None = None,
        *,
        key: str | None = None,
        caller: Caller | str = "",
        replace: bool = False,
        tx: AnyTransaction | None = None,
    ) -> tuple[View, bool]:
        """Like `put`; also returns whether the timer already existed."""
        if key is not None and id_ is not None:
            raise BadInput("give a timer either an id or an idempotency key, not both")
        if key is not None:
            id_, replace = self.id_for(key, caller=caller), False
        owner = caller_id(caller)
        if not isinstance(spec, Spec):
            raise BadInput(f"a timer needs a `Spec`, not {type(spec).__name__}")
        known_id = self._store.ids.new() if id_ is None else id_
        if isinstance(spec.target, Call):  # check now rather than when the timer fires
            admit_headers(spec.target.headers)
            if spec.target.url:
                self.admit_url(spec.target.url)
            if spec.target.headers:
                await self._key_source.unlock()

        trace = tracing.current()

        async def fn(tx: Transaction) -> tuple[View, bool]:
            if replace:
                view = await self.part.set(tx, known_id, spec, caller=owner, trace=trace)
                return view, False
            return await self.part.add(tx, known_id, spec, caller=owner, trace=trace)

        return await self._run(fn, tx)

    def admit_url(self, url: str) -> None:
        """Raise `BadInput` for an invalid URL or, if this process makes the calls, one that is not
        allowed.

        The addresses of its name are checked with each call.
        """
        try:
            (self._guard or _ANY).parse(url)
        except AddressRefused:
            if self._guard is not None:
                raise

    def id_for(self, key: str, *, caller: Caller | str = "") -> str:
        """Return the id of a timer with an idempotency key. Raises `BadInput`."""
        if type(key) is not str:
            raise BadInput(
                f"an idempotency key must be text, not {type(key).__name__}", code="bad_key"
            )
        if not 0 < len(key) <= limits.DEDUPE_KEY_BYTES_MAX:
            raise BadInput(
                f"an idempotency key must have 1 to {limits.DEDUPE_KEY_BYTES_MAX} characters, "
                f"not {len(key)}",
                code="bad_key",
            )
        return id_for(caller_id(caller), key)

    async def get(
        self, id_: str, *, caller: Caller | str = "", tx: AnyTransaction | None = None
    ) -> View:
        """Return a timer with the result of its last firing. Raises `NoSuchTimer`."""
        owner = caller_id(caller)
        return await self._run(lambda tx: self.part.get(tx, id_, caller=owner), tx)

    async def find(
        self, *, prefix: str = "", after: str = "", limit: int = 100, caller: Caller | str = ""
    ) -> list[View]:
        """Return up to `limit` timers whose ids begin with `prefix`, ordered by id, starting after
        `after`."""
        if not is_whole(limit) or not 0 < limit <= limits.LIST_MAX:
            raise BadInput(f"limit must be 1 to {limits.LIST_MAX}, not {limit!r}")
        owner = caller_id(caller)
        found: list[View] = []
        while len(found) < limit:
            page = min(limit - len(found), limits.PAGE_JOBS)  # the maximum that a commit can check
            views = await self._store.run(
                partial(self.part.find, caller=owner, prefix=prefix, after=after, most=page)
            )
            found += views
            if len(views) < page:
                break
            after = views[-1].id
        return found

    async def move(
        self,
        id_: str,
        *,
        at_ms: int | None = None,
        delay_s: float | None = None,
        caller: Caller | str = "",
        tx: AnyTransaction | None = None,
    ) -> View:
        """Change the due time of a timer. Raises `NoSuchTimer`, `AlreadyEnded`."""
        if (at_ms is None) == (delay_s is None):
            raise BadInput("give either at_ms or delay_s to move a timer")
        delay_ms = 0 if delay_s is None else milliseconds(delay_s, "a delay")
        owner = caller_id(caller)

        async def fn(tx: Transaction) -> View:
            due_ms = tx.ends_ms + delay_ms if at_ms is None else at_ms
            return await self.part.move(tx, id_, due_ms, caller=owner)

        return await self._run(fn, tx)

    @overload
    async def cancel(
        self,
        id_: str,
        *,
        missing_ok: Literal[False] = False,
        caller: Caller | str = "",
        tx: AnyTransaction | None = None,
    ) -> View: ...
    @overload
    async def cancel(
        self,
        id_: str,
        *,
        missing_ok: bool,
        caller: Caller | str = "",
        tx: AnyTransaction | None = None,
    ) -> View | None: ...
    async def cancel(
        self,
        id_: str,
        *,
        missing_ok: bool = False,
        caller: Caller | str = "",
        tx: AnyTransaction | None = None,
    ) -> View | None:
        """Cancel a timer. Idempotent.

        With `missing_ok`, a timer that has already fired is returned unchanged, and an unknown one
        is None, so that a transaction does not fail because a reminder was faster. Otherwise raises
        `NoSuchTimer`, `AlreadyEnded`.
        """
        owner = caller_id(caller)

        async def fn(tx: Transaction) -> View | None:
            try:
                return await self.part.cancel(tx, id_, caller=owner)
            except NoSuchTimer:
                if not missing_ok:
                    raise
                return None
            except AlreadyEnded:
                if not missing_ok:
                    raise
                return await self.part.get(tx, id_, caller=owner)

        return await self._run(fn, tx)

    async def resume(self, caller: str) -> int:
        """Resume the suspended timers of a caller, given by its id. Returns their number."""
        resume = partial(self.part.resume, caller=caller)
        return sum(
            [await self._store.run(partial(resume, id_=id_)) for id_ in await self._ids(caller)]
        )

    async def transfer(self, caller: str, to: str) -> tuple[int, list[str]]:
        """Transfer the timers of a caller to another one, both given by their ids.

        Returns the number of transferred timers, and the ids of those that stay because the other
        caller has timers with these ids.
        """
        transfer, kept, moved = partial(self.part.transfer, caller=caller, to=to), [], 0
        for id_ in await self._ids(caller):
            if await self._store.run(partial(transfer, id_=id_)):
                moved += 1
            else:
                kept.append(id_)
        return moved, kept

    async def _ids(self, caller: str) -> list[str]:
        """The ids of a caller's active timers."""
        ids: list[str] = []
        after = ""
        while True:
            find = partial(self.part.find, caller=caller, after=after, most=limits.PAGE_JOBS)
            views = await self._store.run(find)
            ids += [v.id for v in views if v.timer.state in ("active", "suspended")]
            if len(views) < limits.PAGE_JOBS:
                return ids
            after = views[-1].id

    async def _run(self, fn: Callable[[Transaction], Awaitable[T]], tx: AnyTransaction | None) -> T:
        return await (self._store.run(fn) if tx is None else fn(admit_tx(tx)))


def target_of(
    queue: str | None,
    url: str | None,
    endpoint: str | None,
    *,
    body: Any,
    headers: dict[str, str],
    append_id: bool,
    retry: RetryPolicy | None,
    options: Mapping[str, Any],
) -> Target:
    """Build the target of a timer. `options` are those of its job by name; None means "not
    specified".

    Raises `BadInput` for conflicting arguments.
    """
    if queue is None:
        # Checks the given arguments, because the resulting options do not show a given default.
        for name in sorted(OPTION_NAMES - {"attempts_max"}):
            if options.get(name) is not None:
                raise BadInput(
                    f"{name} is only for timers with a queue; this one calls a url or endpoint"
                )
        attempts_max = options.get("attempts_max")
        return Call(url or "", endpoint or "", headers, body, append_id, attempts_max, retry)
    if url is not None or endpoint is not None:
        raise BadInput("a timer needs exactly one of queue, url and endpoint")
    if headers or append_id or retry is not None:
        raise BadInput(
            "headers, append_id and retry are only for timers that call a url or endpoint"
        )
    return Send(queue, body, job_options(options))


def _repeat(every_s: float | None, cron: str | None, zone: str) -> Repeat | None:
    if every_s is not None and cron is not None:
        raise BadInput("a timer repeats either by every_s or by cron, not both")
    if cron is not None:
        return Cron(cron, zone)
    return None if every_s is None else Interval(milliseconds(every_s, "an interval"), 0)
