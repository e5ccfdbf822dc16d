"""The application: one object to accept messages, handle them and look after them.

import asyncio, onceward

app = onceward.App("sqlite:///app.db")

@app.handler("greetings")
async def greet(job):
    name = job.body["name"]
    count = (await job.tx.get(("greeted", name)) or 0) + 1
    job.tx.put(("greeted", name), count)
    return f"Hello {name}, number {count}"

async def main():
    async with app:
        receipt = await app.accept("greetings", {"name": "Ann"}, key="message-1")
        print((await app.wait(receipt.id)).result)

asyncio.run(main())
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from onceward import engine as engines
from onceward import limits
from onceward.engine.base import Engine
from onceward.errors import BadInput, OncewardError, Unavailable
from onceward.parts import recurring as recurring_part
from onceward.parts.inbox import ACCEPT_WRITES, Inbox, Receipt
from onceward.parts.schedule import Claim, admit_lease, admit_queue
from onceward.parts.schedule import Job as JobRecord
from onceward.service.locks import Locks
from onceward.service.node import Node
from onceward.service.queues import Queues
from onceward.service.results import Results
from onceward.service.worker import Handler, Worker
from onceward.store import Store
from onceward.transaction import Transaction

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])

_ACCEPTS_AT_ONCE = (limits.COMMIT_WRITES_MAX - 1) // ACCEPT_WRITES


class App:
    """A database, and what runs on it in this process. Use it with `async with`."""

    node: Node
    store: Store
    inbox: Inbox
    queues: Queues
    """For operators: settings, pause, dead letters, redrive, purge."""
    locks: Locks
    """Locks, semaphores, and who holds and waits for them."""

    def __init__(
        self,
        url: str | Engine,
        *,
        name: str = "app",
        slots: int = limits.SLOTS_DEFAULT,
        node_lease_s: float = limits.NODE_LEASE_MS / 1000,
        drain_s: float = limits.DRAIN_S,
        store: Callable[[Engine], Store] = Store,
    ) -> None:
        """`url` names the engine: `sqlite:///app.db`, `memory://`, `postgresql://…`.

        `slots` counts only for a new database. `drain_s` is how long handlers may take to
        finish when the application stops. `store` is for tests: what makes the store.
        """
        self._engine = engines.create(url) if isinstance(url, str) else url
        self._name = name
        self._slots = slots
        self._node_lease_ms = int(node_lease_s * 1000)
        self._drain_s = drain_s
        self._make_store = store
        self._handlers: dict[str, Handler] = {}
        self._settings: dict[str, dict[str, Any]] = {}
        self._recurring: dict[str, tuple[str, Any, int, str | None]] = {}
        self._workers: list[Worker] = []
        self._stack: AsyncExitStack | None = None

    # What is declared before the start.

    def queue(self, name: str, **settings: Any) -> None:
        """Declare settings of a queue (see `Settings`); they are written at the start. Those
        that are not named stay as they are."""
        admit_queue(name)
        self._must_be_stopped("declare queues")
        self._settings.setdefault(name, {}).update(settings)

    def handler(
        self,
        queue: str,
        *,
        lease_s: float = 30.0,
        concurrency: int = 16,
        batch: int = 0,
        attempts: int | None = None,
        **settings: Any,
    ) -> Callable[[Function], Function]:
        """Run a function on the jobs of a queue: `async def fn(job)`, or `async def fn(jobs)`
        with a list of up to `batch` of them, which succeed or fail each for itself.

        What it returns is the job's result. `concurrency` is how many jobs this process has
        at hand at once; further settings are those of the queue, as for `queue`.
        """
        lease_ms = int(lease_s * 1000)
        admit_lease(lease_ms)
        if concurrency < 1 or batch < 0 or batch > concurrency:
            raise BadInput("concurrency is 1 or more, and batch at most that")
        if attempts is not None:
            settings["attempts_max"] = attempts
        self.queue(queue, **settings)
        if queue in self._handlers:
            raise BadInput(f"the queue {queue!r} has a handler already")

        def declare(fn: Function) -> Function:
            self._handlers[queue] = Handler(queue, fn, lease_ms, concurrency, batch)
            return fn

        return declare

    def outbox(
        self,
        queue: str,
        *,
        policy: str = "repeat",
        ask: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> Callable[[Function], Function]:
        """Let a function make outward calls: `async def fn(job)` makes the one that the job's
        body describes, and returns what it was answered. `job.id` is the same for ever.

        With the policy `repeat` a call that was cut off is made again; the receiver tells
        repeats by the id. With `hold` it is not: `ask(job)`, if given, finds out what became
        of it (or raises `NotDone`), else the job is in doubt until someone settles it.
        """
        if policy not in ("repeat", "hold"):
            raise BadInput(f"the policy of an outbox is repeat or hold, not {policy!r}")

        def declare(fn: Function) -> Function:
            async def call(job: Any) -> Any:
                return await job.step(
                    "call",
                    fn,
                    job,
                    at_most_once=policy == "hold",
                    ask=None if ask is None else lambda: ask(job),
                )

            self.handler(queue, **options)(call)
            return fn

        return declare

    def every(
        self,
        seconds: float,
        queue: str,
        body: Any = None,
        *,
        name: str | None = None,
        order_key: str | None = None,
    ) -> None:
        """Send a job to a queue every so many seconds, once for all nodes together; what was
        missed while none ran is made up for by one job. `name` is that of the queue if not
        given."""
        admit_queue(queue)
        self._must_be_stopped("declare recurring jobs")
        self._recurring[name or queue] = (queue, body, int(seconds * 1000), order_key)

    # Start and stop.

    async def start(self, *, work: bool = True) -> Self:
        """Open the database and begin to work; without handlers if `work` is False."""
        self._must_be_stopped("start")
        stack = AsyncExitStack()
        try:
            await self._start(stack, work)
        except (Exception, asyncio.CancelledError):
            await stack.aclose()
            raise
        self._stack = stack
        return self

    async def _start(self, stack: AsyncExitStack, work: bool) -> None:
        await self._engine.open()
        stack.push_async_callback(self._engine.close)
        self.store = self._make_store(self._engine)
        node = Node(self.store, name=self._name, slots=self._slots, lease_ms=self._node_lease_ms)
        self.node = await node.start()
        stack.push_async_callback(node.stop)
        self.inbox = Inbox(node.schedule)
        self.queues = Queues(self.store, node.schedule)
        self._results = Results(self.store, node.schedule)
        stack.callback(self._results.close)
        self.locks = Locks(self.store, node.dispatcher)
        stack.push_async_callback(self.locks.close)
        await self._declare()
        self._workers = []
        stack.push_async_callback(self._stop_workers)
        for handler in self._handlers.values() if work else ():
            worker = Worker(node, self.inbox, handler, f"{self._name}/{handler.queue}")
            worker.start()
            self._workers.append(worker)

    async def stop(self) -> None:
        """Finish what is at hand, hand over to other nodes, close; twice is once."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()

    def work(self) -> None:
        """Run handlers until SIGTERM or SIGINT, then drain: a whole process."""
        import uvloop  # here, since there is none on Windows

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._work())

    async def _work(self) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        async with self:
            node = asyncio.ensure_future(self.node.wait())
            signalled = asyncio.ensure_future(stopped.wait())
            await asyncio.wait([node, signalled], return_when=asyncio.FIRST_COMPLETED)
            signalled.cancel()
            if node.done():
                node.result()

    async def _stop_workers(self) -> None:
        await asyncio.gather(*[worker.stop(self._drain_s) for worker in self._workers])

    async def _declare(self) -> None:
        for queue, settings in self._settings.items():
            if settings:
                await self.queues.configure(queue, **settings)
        for name, recurring in self._recurring.items():
            await self.store.run(partial(self._recur, name, *recurring))

    async def _recur(
        self, name: str, queue: str, body: Any, every_ms: int, key: str | None, tx: Transaction
    ) -> None:
        schedule = self.node.schedule
        await recurring_part.recur(tx, schedule, name, queue, body, every_ms, order_key=key)

    # Messages and jobs.

    async def run(self, fn: Callable[[Transaction], Awaitable[T]], *, line: str | None = None) -> T:
        """Run a transaction; see `Store.run`."""
        self._must_run()
        return await self.store.run(fn, line=line)

    async def accept(
        self,
        queue: str,
        body: Any,
        *,
        key: str | None = None,
        tx: Transaction | None = None,
        **options: Any,
    ) -> Receipt:
        """Take a message in, once for its key: durable when this returns. A duplicate gets the
        first one's receipt. Options: caller, delay_s or due_ms, order_key, limit_key, priority,
        attempts_max. With `tx`, it is part of that transaction.

        Raises `BadInput`, `KeyReused`.
        """
        self._must_run()
        options = self._options(options)

        async def accept(tx: Transaction) -> Receipt:
            return await self.inbox.accept(tx, queue, body, key=key, **options)

        return await (self.store.run(accept) if tx is None else accept(tx))

    async def accept_many(
        self, queue: str, messages: Sequence[Mapping[str, Any]]
    ) -> list[Receipt | OncewardError]:
        """Take many messages in, as few commits as hold them; each is a mapping with `body`,
        `key` and the options of `accept`. One verdict for each, in their order: a receipt, or
        the error that refused it."""
        self._must_run()
        wanted = [self._options(dict(message)) for message in messages]
        verdicts: list[Receipt | OncewardError] = []
        for start in range(0, len(wanted), _ACCEPTS_AT_ONCE):
            piece = wanted[start : start + _ACCEPTS_AT_ONCE]
            verdicts += await self.store.run(partial(self._each, queue, piece))
        return verdicts

    async def _each(
        self, queue: str, messages: list[dict[str, Any]], tx: Transaction
    ) -> list[Receipt | OncewardError]:
        verdicts: list[Receipt | OncewardError] = []
        for message in messages:
            try:
                verdicts.append(await self.inbox.accept(tx, queue, **message))
            except BadInput as refused:
                verdicts.append(refused)
        return verdicts

    async def send(
        self, queue: str, body: Any, *, tx: Transaction | None = None, **options: Any
    ) -> str:
        """Send a job that has no key: sent twice, it is two. Options as for `accept`. Returns
        its id. With `tx`, it is part of that transaction."""
        self._must_run()
        options = self._options(options)

        async def send(tx: Transaction) -> str:
            return await self.node.schedule.send(tx, queue, body, **options)

        return await (self.store.run(send) if tx is None else send(tx))

    async def job(self, id_: str) -> JobRecord:
        """A job as it is now: state, attempts, result. Raises `NoSuchJob`."""
        return await self.run(lambda tx: self.node.schedule.get(tx, id_))

    async def wait(self, id_: str, timeout_s: float | None = None) -> JobRecord:
        """A job once it has ended, or as it is when the time is over. Raises `NoSuchJob`."""
        self._must_run()
        return await self._results.wait(id_, timeout_s)

    async def cancel(self, id_: str, reason: str = "cancelled") -> None:
        """End a job that has not ended; whoever works on it can commit nothing any more.
        Raises `NoSuchJob`, `AlreadyEnded`."""
        await self.run(lambda tx: self.node.schedule.cancel(tx, id_, reason))

    async def move(self, id_: str, *, delay_s: float = 0.0) -> None:
        """Let a job that waits be due after a delay. Raises `NoSuchJob`, `AlreadyEnded`."""
        self._must_run()
        due_ms = self._due_ms(delay_s)
        await self.run(lambda tx: self.node.schedule.move(tx, id_, due_ms))

    # For workers that are not handlers.

    async def claim(
        self, queue: str, worker: str, *, lease_s: float, most: int = 1, wait_s: float = 0.0
    ) -> list[Claim]:
        """Lease ready jobs; see `Claims.claim`. Each is to be completed, failed or extended
        with its token."""
        self._must_run()
        lease_ms = int(lease_s * 1000)
        return await self.node.claims.claim(
            queue, worker, lease_ms=lease_ms, most=most, wait_s=wait_s
        )

    async def complete(self, id_: str, token: str, result: Any = None) -> None:
        """End a job well. Raises `StaleToken`, `NoSuchJob`."""
        await self.run(lambda tx: self.node.schedule.complete(tx, id_, token, result))

    async def fail(
        self,
        id_: str,
        token: str,
        reason: str,
        *,
        retry_after_s: float | None = None,
        final: bool = False,
    ) -> str:
        """End an attempt badly; returns the job's state. It is tried again after the time
        given, or the pause of its queue, or not at all if that is final. Raises `StaleToken`,
        `NoSuchJob`."""
        self._must_run()

        async def fail(tx: Transaction) -> str:
            if final or retry_after_s is not None:
                retry_ms = None if final else self._due_ms(retry_after_s or 0.0)
                return await self.node.schedule.fail(tx, id_, token, reason, retry_ms)
            return await self.node.schedule.fail(tx, id_, token, reason)

        return await self.store.run(fail)

    async def extend(self, id_: str, token: str, lease_s: float) -> int:
        """Renew a lease; returns until when, in ms. Raises `StaleToken`, `NoSuchJob`."""
        lease_ms = int(lease_s * 1000)
        return await self.run(lambda tx: self.node.schedule.extend(tx, id_, token, lease_ms))

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        if "delay_s" in options:
            options["due_ms"] = self._due_ms(options.pop("delay_s"))
        return options

    def _due_ms(self, delay_s: float) -> int:
        if not 0 <= delay_s <= limits.DELAY_S_MAX:
            raise BadInput(f"a delay is 0 to {limits.DELAY_S_MAX} seconds, not {delay_s}")
        return self.store.clock.now_ms() + int(delay_s * 1000) if delay_s else 0

    def _must_run(self) -> None:
        if self._stack is None:
            raise Unavailable(
                "the application is not running: use it within `async with app`",
                code="node_stopped",
            )

    def _must_be_stopped(self, what: str) -> None:
        if self._stack is not None:
            raise BadInput(f"the application is running: {what} before it starts")
