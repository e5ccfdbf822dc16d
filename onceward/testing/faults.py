"""An engine with fault injection, within the limits of the contract.

`FaultEngine(inner, plan)` is placed between a store and an engine, like a network to a database:
calls take time, responses get lost, commits arrive later. Like other engines, it determines the
outcome of a commit whose response was lost; if its caller has died, the commit arrives. The faults
come from a plan: `Script` for one fault at one call, `Chance` for random faults from a seeded
`random.Random`. `LocalFaultEngine` does the same for an engine inside the process: nothing is lost
on the way, but the process may crash.

    engine = FaultEngine(MemoryEngine(), {2: Fault.LOST_ANSWER})   # the second commit
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from typing import Any, ClassVar, Final, NoReturn, Self, TypeVar

from onceward import limits
from onceward.engine.base import (
    Engine,
    Put,
    Record,
    Session,
    Version,
    Watch,
    Watchers,
    Write,
    admit,
    key_bytes,
)
from onceward.errors import BadInput, Conflict, TooLarge, Unavailable
from onceward.keys import Key
from onceward.testing.plan import CRASHES, LOSSES, CallKind, Fault, Plan, Script, Step

T = TypeVar("T")

ITEM_BYTES_MAX: Final = 400 * 1024
"""DynamoDB's limit for an item: key, value, and the names and numbers around them."""
ITEM_OVERHEAD_BYTES: Final = 100


class FaultEngine(Engine):
    """Calls an engine as over a network that fails according to a plan.

    A mapping as plan is a `Script` for commits. A commit in flight continues when its caller is
    cancelled, paused or killed, in the context in which this engine was created. `counts` has the
    number of faults that occurred, and the outcomes of late commits. A crash calls `crash`, which
    kills the process or raises; if it returns, the call never does. Keys and items are limited as
    in DynamoDB, including reads.
    """

    _remote: ClassVar[bool] = True

    def __init__(
        self,
        inner: Engine,
        plan: Plan | Mapping[int, Fault | Step] | None = None,
        *,
        crash: Callable[[], None] | None = None,
        observe: Callable[[str], None] | None = None,
    ) -> None:
        self.inner = inner
        self.shared = inner.shared
        self.shares_reads = inner.shares_reads
        self.plan = plan if isinstance(plan, Plan) else Script(plan or {})
        self.make_session: Callable[[], Session] | None = None
        """Begins a transaction for statements of the application; None: there is no SQL."""
        self.counts: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._crash = crash
        self._observe = observe
        self._context = copy_context()
        self._deaf = Watchers()
        # Ordered by their start; a set of tasks would be ordered by address.
        self._on_their_way: dict[asyncio.Task[None], None] = {}

    @property
    def on_their_way(self) -> int:
        """The number of commits in flight."""
        return len(self._on_their_way)

    def own_key(self) -> bytes | None:
        return self.inner.own_key()

    async def open(self) -> Self:
        await self.inner.open()
        return self

    async def close(self) -> None:
        """Close the inner engine after all commits in flight have arrived."""
        if self._on_their_way:
            await asyncio.wait(list(self._on_their_way))
        await self.inner.close()

    async def session(self) -> Session:
        return await super().session() if self.make_session is None else self.make_session()

    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        for key in keys:
            key_bytes(key)
        return await self._read("get", lambda: self.inner.get(keys, now_ms))

    async def scan(
        self,
        partition: str,
        now_ms: int,
        *,
        start: str = "",
        end: str | None = None,
        limit: int = limits.SCAN_RECORDS_DEFAULT,
        reverse: bool = False,
        skip_damaged: bool = False,
    ) -> list[Record]:
        def call() -> Awaitable[list[Record]]:
            return self.inner.scan(
                partition,
                now_ms,
                start=start,
                end=end,
                limit=limit,
                reverse=reverse,
                skip_damaged=skip_damaged,
            )

        return await self._read("scan", call)

    async def sweep(self, now_ms: int, limit: int = limits.SWEEP_RECORDS_MAX) -> int:
        return await self._read("sweep", lambda: self.inner.sweep(now_ms, limit))

    async def now_ms(self) -> int | None:
        return await self.inner.now_ms()

    def watch(self, partition: str) -> Watch:
        self.calls["watch"] += 1
        if self.plan.step("watch").fault is Fault.DEAF:
            self._happened(Fault.DEAF)
            return self._deaf.add(partition)
        return self.inner.watch(partition)

    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        admit(writes)
        _admit_items(writes)
        step = await self._begin("commit")
        fault = step.fault
        if fault is Fault.CONFLICT:
            self._happened(fault)
            await _travel(step.request_s + step.answer_s)
            raise Conflict("a conflict by plan", keys=[])
        if not self._remote:
            if fault in LOSSES:
                raise BadInput(f"{type(self).__name__} cannot have the fault {fault!r}")
            return await self._commit_here(step, writes, now_ms, visible)
        sent = _Sent(writes, now_ms)
        if fault in LOSSES:
            self._happened(fault)
            if fault is not Fault.LOST_REQUEST:
                self._send(self._arrive(sent, step))
            if fault is Fault.LOST_ANSWER:
                await sent.outcome
            await _travel(step.answer_s)
            await _travel(step.request_s)  # the query for the outcome
            result = await self.settle(sent)
        else:
            self._send(self._arrive(sent, step))
            result = await sent.outcome
        if fault in CRASHES:
            await self._die(fault)
        if isinstance(result, Exception):
            raise result
        if visible is not None:
            visible(result)
        return result

    async def _commit_here(
        self,
        step: Step,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None,
    ) -> Version:
        await _travel(step.request_s)
        killed = False

        def applied(version: Version) -> None:
            nonlocal killed
            if step.fault is Fault.CRASH_AFTER:
                killed = True
                self._kill(step.fault)
            elif visible is not None:
                visible(version)

        version = await self._judged(self.inner.commit(writes, now_ms, applied))
        if step.fault in CRASHES:
            if killed:
                await _for_ever()
            await self._die(step.fault)
        return version

    async def settle(self, sent: "_Sent") -> Version | Exception:
        """The outcome of a commit whose response was lost. A commit that has not arrived is fenced,
        as by an engine that asks its server: it is rejected when it arrives."""
        if not sent.arrived:
            sent.fenced = True
            return Conflict("a commit that was lost by plan was not applied, and never will be")
        return await sent.outcome

    async def _arrive(self, sent: "_Sent", step: Step) -> None:
        late = step.fault is Fault.LATE
        await _travel(step.late_s if late else step.request_s)
        if sent.fenced:
            self._happened("late commit refused")
            return
        sent.arrived = True
        result: Version | Exception
        try:
            result = await self._judged(self.inner.commit(sent.writes, sent.now_ms))
            if late:
                self._happened("late commit applied")
        except Exception as error:
            result = error
            if late:
                refused = isinstance(error, Conflict)
                self._happened(f"late commit {'refused' if refused else 'failed'}")
        if step.fault is not Fault.CRASH_AFTER:
            await _travel(step.answer_s)
        if not sent.outcome.done():
            sent.outcome.set_result(result)

    def _send(self, arrival: Coroutine[Any, Any, None]) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            arrival.close()  # from a `finally` block of a dead process after the run
            raise
        task = loop.create_task(arrival, context=self._context.copy())
        self._on_their_way[task] = None
        # In the same context: a dead caller's callback would never run.
        task.add_done_callback(self._on_their_way.pop, context=self._context.copy())

    async def _judged(self, commit: Awaitable[T]) -> T:
        try:
            return await commit
        except Conflict:
            self._happened("conflict")
            raise

    async def _read(self, kind: CallKind, call: Callable[[], Awaitable[T]]) -> T:
        step = await self._begin(kind)
        await _travel(step.request_s)
        result = await call()
        await _travel(step.answer_s)
        if step.fault in CRASHES:
            await self._die(step.fault)
        return result

    async def _begin(self, kind: CallKind) -> Step:
        self.calls[kind] += 1
        step = self.plan.step(kind)
        if step.fault is Fault.CRASH_BEFORE:
            await self._die(step.fault)
        if step.fault is Fault.UNAVAILABLE:
            self._happened(step.fault)
            await _travel(step.request_s)
            raise Unavailable("unavailable by plan")
        return step

    async def _die(self, fault: Fault) -> NoReturn:
        self._kill(fault)
        await _for_ever()

    def _kill(self, fault: Fault) -> None:
        self._happened(fault)
        if self._crash is None:
            raise BadInput(f"{fault!r} needs a function to crash with: FaultEngine(crash=...)")
        self._crash()

    def _happened(self, what: str) -> None:
        self.counts[str(what)] += 1
        if self._observe is not None:
            self._observe(str(what))


class _Sent:
    """A commit in flight to the inner engine."""

    def __init__(self, writes: Sequence[Write], now_ms: int) -> None:
        self.writes = writes
        self.now_ms = now_ms
        self.arrived = False
        self.fenced = False
        self.outcome: asyncio.Future[Version | Exception]
        self.outcome = asyncio.get_running_loop().create_future()


class LocalFaultEngine(FaultEngine):
    """Faults of an engine inside the process: responses are never lost, a crash ends it as well."""

    _remote: ClassVar[bool] = False


def _admit_items(writes: Sequence[Write]) -> None:
    for write in writes:
        if type(write) is Put:
            size_bytes = key_bytes(write.key) + len(write.value) + ITEM_OVERHEAD_BYTES
            if size_bytes > ITEM_BYTES_MAX:
                raise TooLarge(
                    f"{write.key} with its value has {size_bytes} bytes as an item; "
                    f"DynamoDB allows at most {ITEM_BYTES_MAX}",
                    code="value_too_large",
                )


async def _travel(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)


async def _for_ever() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("unreachable")
