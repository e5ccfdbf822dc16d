"""Timers of an application: set, read, change, pause and cancel, each in a transaction."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar, Unpack, overload

from onceward import limits, tracing
from onceward.api.arguments import unknown_name
from onceward.api.retries import RetryPolicy
from onceward.api.timers import CatchUp, FailureTarget, Method, Overlap
from onceward.callers import Caller, caller_id
from onceward.errors import AddressRefused, AlreadyEnded, BadInput, NoSuchTimer
from onceward.job_options import JobKeywords
from onceward.maintenance.key_source import KeySource
from onceward.schedule import is_whole, milliseconds
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.store.user_records import AnyTransaction, admit_tx
from onceward.webhooks.http.addresses import Guard
from onceward.webhooks.http.headers import admit_headers
from onceward.webhooks.retries import read_policy
from onceward.webhooks.timers import Call, Spec, TimerTable, View, id_for
from onceward.webhooks.timers.members import MEMBERS, edited, repeat_of, target_of

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
        zone: str | None = None,
        catch_up: CatchUp = "all",
        until_ms: int | None = None,
        times: int | None = None,
        overlap: Overlap = "allow",
        retry: Mapping[str, Any] | RetryPolicy | None = None,
        method: Method = "POST",
        on_failure: Mapping[str, str] | FailureTarget | None = None,
        key: str | None = None,
        caller: Caller | str = "",
        replace: bool = True,
        tx: AnyTransaction | None = None,
        **options: Unpack[JobKeywords],
    ) -> View:
        """Create or replace a timer: a job in a queue, or a call of a URL or endpoint.

        Args:
            at_ms, delay_s: When the timer fires, or starts to repeat. Past times are due now.
            every_s, cron: The repetition: an interval, or a cron expression in the zone `zone`
                (default: UTC). An interval starts at the given time, cron at its first match after
                it.
            catch_up: Which times count that passed during an outage: `all`, `last` or `none`.
            until_ms, times: When a recurring timer ends: after a time, or after a number of
                firings.
            overlap: What happens at a time when the previous firing is unfinished: `allow` fires,
                `skip` does not, and `queue` fires after it.
            retry: For calls: `pauses_s`, `attempts_max` and `timeout_s`. Default: the policy of the
                endpoint, then of `Outward`.
            method: For calls: the HTTP method. A GET request has no body.
            on_failure: For calls: what receives a message when a call has failed permanently:
                `{"queue": …}`, `{"url": …}` or `{"endpoint": …}`.
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
            method=method,
            on_failure=_read_failure_target(on_failure),
        )
        delay_ms = None if delay_s is None else milliseconds(delay_s, "a delay")
        every_ms = None if every_s is None else milliseconds(every_s, "an interval")
        repeat = repeat_of(every_ms, cron, zone)
        return await self.put(
            Spec(target, at_ms, delay_ms, repeat, catch_up, until_ms, times, overlap),
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
            raise BadInput(
                f"a timer has either an id or an idempotency key, not both {str(id_)[:100]!r} "
                f"and {str(key)[:100]!r}; omit one"
            )
        if key is not None:
            id_, replace = self.id_for(key, caller=caller), False
        owner = caller_id(caller)
        if not isinstance(spec, Spec):
            raise BadInput(f"a timer needs a `Spec`, not {type(spec).__name__}")
        known_id = self._store.ids.new() if id_ is None else id_
        self._admit(spec)
        if isinstance(spec.target, Call) and spec.target.headers:
            await self._key_source.unlock()

        trace = tracing.current()

        async def fn(tx: Transaction) -> tuple[View, bool]:
            if replace:
                view = await self.part.set(tx, known_id, spec, caller=owner, trace=trace)
                return view, False
            return await self.part.add(tx, known_id, spec, caller=owner, trace=trace)

        return await self._run(fn, tx)

    def _admit(self, spec: Spec) -> None:
        """Check a call now rather than when the timer fires. Raises `BadInput`."""
        call = spec.target
        if isinstance(call, Call):
            admit_headers(call.headers)
            if call.url:
                self.admit_url(call.url)
            if isinstance(call.on_failure, FailureTarget) and call.on_failure.url:
                self.admit_url(call.on_failure.url)

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
            raise BadInput(
                "give the new time of the timer as `at_ms`, or as `delay_s` from now"
                if at_ms is None
                else f"a timer is moved either to a time or by a delay, not both {at_ms!r:.50} "
                f"and {delay_s!r:.50}; omit one"
            )
        delay_ms = 0 if delay_s is None else milliseconds(delay_s, "a delay")
        owner = caller_id(caller)

        async def fn(tx: Transaction) -> View:
            due_ms = tx.ends_ms + delay_ms if at_ms is None else at_ms
            return await self.part.move(tx, id_, due_ms, caller=owner)

        return await self._run(fn, tx)

    async def update(
        self,
        id_: str,
        changes: Mapping[str, Any],
        *,
        caller: Caller | str = "",
        tx: AnyTransaction | None = None,
    ) -> View:
        """Change members of a timer, which keeps its id, its number of firings and its history.

        Args:
            changes: The arguments of `set` to change, by name: `{"cron": "0 9 * * *"}`. Others
                stay. None means the default. A change of the target or of the schedule replaces
                the other ways to give it: `every_s` replaces `cron`.

        Raises `NoSuchTimer`, `AlreadyEnded`, `BadInput`.
        """
        given = _read_changes(changes)
        if given.get("headers"):
            await self.unlock()
        return await self.update_members(id_, given, caller=caller, tx=tx)

    async def unlock(self) -> None:
        """Load the server keys, to store headers."""
        await self._key_source.unlock()

    async def update_members(
        self,
        id_: str,
        changes: Mapping[str, Any],
        *,
        caller: Caller | str = "",
        tx: AnyTransaction | None = None,
    ) -> View:
        """Like `update`, with the names of `onceward.webhooks.timers.members` and `delay_ms`."""
        owner, given = caller_id(caller), dict(changes)
        delay_ms = given.pop("delay_ms", None)
        if delay_ms is not None and given.get("due_ms") is not None:
            raise BadInput(
                f"a timer has either a time or a delay, not both {given['due_ms']!r:.50} and "
                f"{delay_ms!r:.50} ms; omit one"
            )

        async def fn(tx: Transaction) -> View:
            if delay_ms is not None:
                given["due_ms"] = tx.ends_ms + delay_ms

            def changed(known: Spec) -> Spec:
                spec = edited(known, given)
                self._admit(spec)
                return spec

            due_ms = given.get("due_ms")
            return await self.part.update(tx, id_, changed, due_ms=due_ms, caller=owner)

        return await self._run(fn, tx)

    async def pause(
        self, id_: str, *, caller: Caller | str = "", tx: AnyTransaction | None = None
    ) -> View:
        """Pause a timer until it is resumed. A running firing continues. Idempotent. Raises
        `NoSuchTimer`, `AlreadyEnded`."""
        owner = caller_id(caller)
        return await self._run(lambda tx: self.part.pause(tx, id_, caller=owner), tx)

    async def resume(
        self, id_: str, *, caller: Caller | str = "", tx: AnyTransaction | None = None
    ) -> View:
        """Resume a paused timer. Idempotent. Raises `NoSuchTimer`, `AlreadyEnded`.

        A recurring timer skips the times of the pause. A one-time timer that was due during the
        pause fires now.
        """
        owner = caller_id(caller)
        return await self._run(lambda tx: self.part.resume(tx, id_, caller=owner), tx)

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

    async def resume_caller(self, caller: str) -> int:
        """Resume the suspended timers of a caller, given by its id. Returns their number."""
        resume = partial(self.part.unsuspend, caller=caller)
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


def _read_failure_target(given: Mapping[str, str] | FailureTarget | None) -> FailureTarget | None:
    if given is None or isinstance(given, FailureTarget):
        return given
    try:
        return FailureTarget(**given)
    except TypeError:
        raise BadInput(
            f"on_failure must have a queue, a url or an endpoint, not {given!r}"
        ) from None


def _read_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes with the arguments of `set` as changes of members. Raises `BadInput`."""
    if not isinstance(changes, Mapping):
        raise BadInput(
            f"changes must be a mapping of names to values, not {type(changes).__name__}"
        )
    given = dict(changes)
    for name, member in (("at_ms", "due_ms"), ("delay_s", "delay_ms"), ("every_s", "every_ms")):
        if name in given:
            value = given.pop(name)
            in_ms = value is not None and name != "at_ms"
            given[member] = milliseconds(value, name) if in_ms else value
    if "retry" in given:
        given["retry"] = read_policy(given["retry"])
    if "on_failure" in given:
        given["on_failure"] = _read_failure_target(given["on_failure"])
    for name in given:
        if name not in MEMBERS | {"delay_ms"}:
            raise unknown_name(name, sorted(MEMBERS - {"due_ms", "every_ms"}))
    return given
