"""An application in tests: in memory, on a virtual clock, with control of its jobs.

The fixtures `onceward_app` and `onceward_sync_app` of the pytest plugin return these objects.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NamedTuple, Self, TypeVar

from onceward.api.jobs import ENDED
from onceward.app import App
from onceward.conversion import plain_body
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput, Unavailable
from onceward.job_options import OPTION_NAMES
from onceward.json_values import decode
from onceward.schedule import LEASE_DUE, due_ms_of, milliseconds
from onceward.schedule import Job as JobRecord
from onceward.schedule.due_entries import kind_of
from onceward.testing.clock import VirtualLoop
from onceward.testing.waiting import describe

T = TypeVar("T")

DRAIN_S: Final = 3_600.0
"""The virtual time after which `drain` gives up."""


class Enqueued(NamedTuple):
    """A message that the application has accepted, and its job."""

    queue: str
    body: Any
    key: str | None
    """The idempotency key."""
    id: str
    state: str
    """The state of the job now, such as `ready`, `scheduled` or `succeeded`."""
    delay_s: float
    """The time from the message until the job was or is due."""
    job: JobRecord
    """The whole record, with options, attempts and result."""


def load(target: Any, *, plain: bool = False) -> Any:
    """The application that `module:name` names, or that a function returns: an `App`, or with
    `plain` also an `onceward.sync.App`. Raises `BadInput`."""
    found: Any = target
    if isinstance(target, str):
        module, _, name = target.partition(":")
        try:
            found = getattr(import_module(module), name or "app")
        except (ImportError, AttributeError, ValueError) as error:
            raise BadInput(
                f"cannot load the application {target!r} ({error}): use module:name, as in shop:app"
            ) from error
    if callable(found) and not isinstance(found, App) and not hasattr(found, "enqueue"):
        found = found()
    if plain and isinstance(getattr(found, "_target", None), App):
        return found
    found = getattr(found, "_target", found)
    if not isinstance(found, App):
        raise BadInput(f"{target!r} is not an `onceward.App`, but {type(found).__name__}")
    return found


class DrainTimeout(AssertionError):
    """Jobs did not end within the time limit of `drain`; the message names them."""


class TestApp:
    """An application that runs in memory and on the virtual time of the running event loop.

    Attributes that this class lacks are those of the application: `send`, `run`, `locks`.
    """

    __test__ = False  # not a class of tests

    def __init__(self, app: App) -> None:
        self.app = app
        """The application under test."""
        self._own = app.engine, app.outward
        self.sent: list[tuple[str, Any, dict[str, Any]]] = []
        """Queue, body and options of each message that the test itself has sent."""
        self._draining = 0
        self._returned: set[str] = set()
        self._changed = asyncio.Event()

    async def start(self) -> Self:
        """Start the application with an empty database in memory. Idempotent.

        Timers do not call URLs. Raises `BadInput` if the event loop has no virtual time.
        """
        if self.running:
            return self
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            raise BadInput(
                "the event loop of this test has no virtual time: give the test a separate event "
                "loop (`loop_scope` must be `function`), and use asyncio"
            )
        self.app.engine, self.app.outward = MemoryEngine(shared=False), None
        self._returned.clear()
        self._changed = asyncio.Event()
        try:
            await self.app.start()
        except BaseException:
            self.app.engine, self.app.outward = self._own
            raise
        self.app.store.on_durable(lambda commit: self._changed.set())
        self._shadow(False)
        return self

    async def stop(self) -> None:
        """Stop it. Running handlers have the time to drain of the application. Idempotent."""
        if self.running:
            self._unshadow()
            try:
                await self.app.stop()
            finally:
                self.app.engine, self.app.outward = self._own

    @property
    def running(self) -> bool:
        return self.app.engine is not self._own[0]

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.app, name)

    @property
    def now_ms(self) -> int:
        """The time of the application."""
        return self.app.store.clock.now_ms()

    async def drain(self, timeout_s: float = DRAIN_S) -> list[Enqueued]:
        """Run all jobs that are due, and those that they send, until none is left.

        Returns the jobs that have ended since the last call of `drain` or `advance`, in order of
        their ends. Jobs that are scheduled
        for later stay, such as delayed jobs and retries after a pause: see `advance`. Queues
        without a handler are not touched. Raises `DrainTimeout` if handlers need more than
        `timeout_s` of virtual time.
        """
        milliseconds(timeout_s, "a time limit")
        self._draining += 1
        try:
            async with asyncio.timeout(timeout_s):
                while self._busy():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            left = [f"{one.id} of queue {one.queue!r}" for one in self._jobs() if _works(one)]
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            raise DrainTimeout(
                f"after {timeout_s:g} s of virtual time these jobs have not ended: "
                f"{', '.join(left[:10])}{describe(tasks)}"
            ) from None
        finally:
            self._draining -= 1
        jobs = [one for one in self._jobs() if one.job.stage in ENDED]
        ended = [one for one in jobs if one.id not in self._returned]
        self._returned.update(one.id for one in ended)
        return sorted(ended, key=lambda one: one.job.ended_ms)

    async def advance(self, seconds: float) -> list[Enqueued]:
        """Let virtual time pass, then `drain`; returns what `drain` does. Timers, delays, leases
        and `job.sleep` take part."""
        await self.app.store.clock.sleep(milliseconds(seconds, "a time") / 1000)
        return await self.drain()

    def enqueued(
        self,
        queue: str | None = None,
        *,
        body: Any = None,
        key: str | None = None,
        state: str | None = None,
    ) -> list[Enqueued]:
        """The messages that were accepted during the test, oldest first, with their jobs.

        Args:
            queue: Only messages of this queue.
            body: Only messages with this body. A mapping selects bodies that have its members, and
                so does a dataclass, a struct or a Pydantic model.
            key: Only messages with this idempotency key.
            state: Only messages whose job is in this state, such as `scheduled`.
        """
        body = plain_body(body)
        return [
            one
            for one in self._jobs()
            if queue in (None, one.queue)
            and (body is None or _fits(one.body, body))
            and key in (None, one.key)
            and state in (None, one.state)
        ]

    @contextmanager
    def inline(self) -> Iterator[None]:
        """Run jobs at once: `send`, `send_many` and `run` return when all jobs that are due have
        ended. Calls of handlers do not wait."""
        self._shadow(True)
        try:
            yield
        finally:
            self._shadow(False)

    def _shadow(self, inline: bool) -> None:
        """Record what the test sends, and drain after its calls if they are `inline`."""
        self._unshadow()
        for name in ("send", "send_many", "run"):
            setattr(self.app, name, self._watched(name, getattr(self.app, name), inline))

    def _unshadow(self) -> None:
        for name in ("send", "send_many", "run"):
            vars(self.app).pop(name, None)

    def _watched(
        self, name: str, fn: Callable[..., Awaitable[T]], inline: bool
    ) -> Callable[..., Awaitable[T]]:
        async def call(*args: Any, **options: Any) -> T:
            result = await fn(*args, **options)
            task = asyncio.current_task()
            if task is not None and task.get_name().startswith("onceward-job"):
                return result
            if name == "send" and len(args) == 2:
                given = {key: value for key, value in options.items() if key in OPTION_NAMES}
                self.sent.append((args[0], args[1], given))
            if inline and not self._draining and options.get("tx") is None:
                await self.drain()
            return result

        return call

    def _busy(self) -> bool:
        """Whether a job is ready or running, or an entry is due."""
        if self.app.node.task is None or self.app.node.task.done():
            raise Unavailable("the application has stopped", code="node_stopped")
        handled = {worker.handler.queue for worker in self.app._workers.all}
        settings = self.app.node.queue_settings
        for name, partition in self._engine.memory.table.partitions.items():
            kind = name.partition("#")[0]
            if kind == "ready" and partition.rows:
                queue = name.split("#", 2)[2]
                if queue in handled and not settings(queue).paused:
                    return True
            elif kind == "due":
                for sort in partition.rows:
                    if kind_of(sort) == LEASE_DUE or due_ms_of(sort) <= self.now_ms:
                        return True
        return False

    @property
    def _engine(self) -> MemoryEngine:
        if not isinstance(self.app.engine, MemoryEngine) or not self.running:
            raise Unavailable(
                "the application has not started yet: await `onceward_app.start()` first",
                code="node_stopped",
            )
        return self.app.engine

    def _jobs(self) -> list[Enqueued]:
        found = []
        for name, partition in self._engine.memory.table.partitions.items():
            if name.startswith("job#"):
                for sort, record in partition.rows.items():
                    if sort.endswith("#job"):
                        job: JobRecord = decode(record.value, JobRecord, record.key)
                        found.append(_enqueued(sort.removesuffix("#job"), job))
        return sorted(found, key=lambda one: (one.job.created_ms, one.id))


def _enqueued(id_: str, job: JobRecord) -> Enqueued:
    key = job.dedupe.key if job.dedupe else None
    delay_s = max(job.due_ms - job.created_ms, 0) / 1000
    return Enqueued(job.queue, job.body, key, id_, job.state, delay_s, job)


def _works(one: Enqueued) -> bool:
    return one.job.stage in ("ready", "running")


def _fits(body: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping) and isinstance(body, Mapping):
        return all(name in body and _fits(body[name], value) for name, value in wanted.items())
    return bool(body == wanted)


class SyncTestApp:
    """A `TestApp` for plain functions: each call runs the event loop until it has its result.

    Attributes that this class lacks are those of the application, with plain functions in place of
    asynchronous ones.
    """

    __test__ = False

    def __init__(self, app: Any) -> None:
        """`app` is an `App`, or an `onceward.sync.App`, whose calls then use this event loop."""
        self._loop = VirtualLoop()
        self._facade, self._portal = None, None
        if not isinstance(app, App):
            from onceward.testing.portal import VirtualPortal

            self._facade, self._portal, app = app, app._bridge, app._target
            self._facade._bridge = VirtualPortal(self._loop)
        self._inner = TestApp(app)
        self.app = app
        """The application under test."""

    @property
    def sent(self) -> list[tuple[str, Any, dict[str, Any]]]:
        """See `TestApp.sent`."""
        return self._inner.sent

    def start(self) -> Self:
        """Start the application with an empty database in memory. Idempotent."""
        self.call(self._inner.start())
        return self

    def stop(self) -> None:
        """Stop it, and close its event loop. Idempotent."""
        if not self._loop.is_closed():
            try:
                self.call(self._inner.stop())
                self.call(self._loop.shutdown_default_executor())
            finally:
                self._loop.close()
                if self._facade is not None:
                    self._facade._bridge = self._portal

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop of the application."""
        return self._loop.run_until_complete(work)

    def drain(self, timeout_s: float = DRAIN_S) -> list[Enqueued]:
        """See `TestApp.drain`."""
        return self.call(self._inner.drain(timeout_s))

    def advance(self, seconds: float) -> list[Enqueued]:
        """See `TestApp.advance`."""
        return self.call(self._inner.advance(seconds))

    def enqueued(
        self,
        queue: str | None = None,
        *,
        body: Any = None,
        key: str | None = None,
        state: str | None = None,
    ) -> list[Enqueued]:
        """See `TestApp.enqueued`."""
        return self._inner.enqueued(queue, body=body, key=key, state=state)

    @contextmanager
    def inline(self) -> Iterator[None]:
        """See `TestApp.inline`."""
        with self._inner.inline():
            yield

    @property
    def now_ms(self) -> int:
        """The time of the application."""
        return self._inner.now_ms

    def __getattr__(self, name: str) -> Any:
        return _Plain(self, getattr(self.app, name)) if not name.startswith("_") else None


class _Plain:
    """A value of the application for plain functions."""

    def __init__(self, test: SyncTestApp, value: Any) -> None:
        self._test = test
        self._value = value

    def __call__(self, *args: Any, **options: Any) -> Any:
        async def call() -> Any:
            result = self._value(*args, **options)
            return await result if isinstance(result, Awaitable) else result

        return self._test.call(call())

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._value, name)
        return _Plain(self._test, value) if callable(value) else value
