"""The processes of a running application: opened at its start in order, and closed in reverse."""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from onceward import forks
from onceward.clock import is_virtual
from onceward.errors import BadInput, EngineStopped, Unavailable
from onceward.locks import LockTable
from onceward.locks.server import Locks
from onceward.maintenance.key_source import KeySource
from onceward.maintenance.reencryption import Reencryption
from onceward.node import Node
from onceward.observe.senders import Senders
from onceward.parts import attributes
from onceward.quantities import is_whole
from onceward.rooms.hub import Hub
from onceward.sql.server import Drainer, own_outbox
from onceward.tables.runtime import TableRuntime
from onceward.threads import Threads
from onceward.watchdog import Watchdog
from onceward.webhooks.delivery import Delivery
from onceward.webhooks.timers import WEBHOOKS, TimerTable
from onceward.webhooks.timers.server import Timers
from onceward.work.attempt import Handler
from onceward.work.declarations import Declarations
from onceward.work.failures import Failures
from onceward.work.inbox import Inbox
from onceward.work.intake import Intake
from onceward.work.quarantine import Quarantine
from onceward.work.queues import Queues
from onceward.work.results import Results
from onceward.work.worker import Worker

if TYPE_CHECKING:
    from onceward.app import App

logger = logging.getLogger("onceward")
# A stop that is shorter needs no message.
_SILENT_S = 0.5


class Workers:
    """The workers of a process, one for each handler."""

    def __init__(
        self, drain_s: float, threads: int, redact: Callable[[str], str] | None = None
    ) -> None:
        self.drain_s = drain_s
        self._threads_max = threads
        self._redact = redact
        self._threads: Threads | None = None
        self.all: list[Worker] = []
        self._queues: frozenset[str] = frozenset()
        """The queues whose handlers run; empty: all."""
        self._concurrency = 0
        """In place of the concurrency of the handlers; 0: theirs."""

    def limit(
        self,
        declared: Declarations,
        queues: Collection[str],
        concurrency: int,
        drain_ms: int | None,
    ) -> None:
        """Limit the handlers that run in this process. Raises `BadInput`."""
        unknown = [queue for queue in queues if queue not in declared.handlers]
        if unknown:
            known = ", ".join(sorted(declared.handlers)) or "it has no handlers"
            raise BadInput(
                f"the application has no handler for {unknown[0]!r}; use one of: {known}"
            )
        if not is_whole(concurrency) or concurrency < 0:
            raise BadInput(f"concurrency must be 0 or more, not {concurrency!r}")
        self._queues, self._concurrency = frozenset(queues), concurrency
        if drain_ms is not None:
            self.drain_s = drain_ms / 1000

    def chosen(self, declared: Declarations) -> list[Handler]:
        """The handlers that run in this process."""
        most = self._concurrency
        return [
            replace(one, concurrency=most, batch=min(one.batch, most)) if most else one
            for one in declared.handlers.values()
            if not self._queues or one.queue in self._queues
        ]

    def renewed(self) -> "Workers":
        """The same for a forked process."""
        return Workers(self.drain_s, self._threads_max, self._redact)

    def start(self, app: "App", handlers: list[Handler]) -> None:
        quarantine = Quarantine()
        failures = Failures(self._redact, app.store.clock.elapsed_ns)
        self._threads = threads = Threads(
            self._threads_max, "onceward-handler", app.store.clock.elapsed_ns
        )
        for handler in handlers:
            name = f"{app.name}/{handler.queue}"
            worker = Worker(app.node, app.intake, handler, name, quarantine, threads, failures)
            self.all.append(worker)
            worker.start()

    async def stop(self) -> None:
        """Let running handlers finish, within the time to drain."""
        waiting = asyncio.get_running_loop().call_later(_SILENT_S, self._report_wait)
        try:
            await asyncio.gather(*[worker.stop(self.drain_s) for worker in self.all])
        finally:
            waiting.cancel()
            self.all = []
            if self._threads is not None:
                self._threads.close()

    def _report_wait(self) -> None:
        running = [(len(one.running), one.handler.queue) for one in self.all if one.running]
        if running:
            logger.info(
                "waiting up to %g s for running jobs: %s; another Ctrl-C interrupts them",
                *(self.drain_s, ", ".join(f"{count} of {queue}" for count, queue in running)),
            )

    def name_of(self, task: "asyncio.Task[Any] | None") -> str:
        """The handler that runs in a task, or the task itself. Other threads may call it."""
        for worker in list(self.all):
            attempt = None if task is None else worker.running.get(task)
            if attempt is not None:
                return f"the handler {attempt.name}"
        return "a callback" if task is None else f"the task {task.get_name()}"

    def hurry(self) -> None:
        """Interrupt the running handlers. Idempotent."""
        for worker in self.all:
            worker.hurry()


class Lifetime:
    """Whether an application runs, and its end. While it runs, it belongs to one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.starting = False
        self.inherited = False
        """Whether the application ran in the parent when this process was forked."""
        self.stack: AsyncExitStack | None = None
        """Closes all that is open, while the application runs."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which it runs, from its start to its end."""
        self._ending: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Also during the start."""
        return self.stack is not None or self.starting

    def begin(self) -> None:
        """Start it in the current event loop."""
        self.starting = True
        self.loop = asyncio.get_running_loop()
        forks.watch(self)

    def must_run(self, alive: bool) -> None:
        """Raise an error unless it runs, its node is alive, and this is its event loop."""
        if self.stack is None or not alive:
            raise self.forked_error() if self.inherited else not_running()
        if asyncio.get_running_loop() is not self.loop:
            self._must_be_in_its_loop()

    def _must_be_in_its_loop(self) -> None:
        if asyncio.get_running_loop() is not self.loop:
            raise BadInput(
                "the application runs in another event loop: call it there, or from other threads "
                "with `asyncio.run_coroutine_threadsafe`. For synchronous code, use "
                "`onceward.sync`"
            )

    def forked(self) -> None:
        """Called in a forked process, in which the application does not run."""
        if self.running:
            self.inherited, self.starting = True, False
            forks.keep(self.stack, self._ending, self.loop)
            self.stack = self._ending = self.loop = None

    def forked_error(self) -> EngineStopped:
        return forks.forked_error(f"the application {self._name!r}")

    async def end(self, workers: Workers) -> None:
        """Close all that is open. See `App.stop`."""
        if self.stack is None:
            return
        self._must_be_in_its_loop()
        if self._ending is None:
            self._ending = asyncio.create_task(self._close(self.stack), name="onceward-stop")
        ending = self._ending
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            workers.hurry()
            await asyncio.wait([ending])
            if not ending.cancelled():
                ending.exception()  # the cancellation is raised instead
            raise

    async def _close(self, stack: AsyncExitStack) -> None:
        try:
            await stack.aclose()
        finally:
            self.stack, self._ending = None, None


def not_running() -> Unavailable:
    return Unavailable(
        "the application is not running: use it within `async with app`, or `with app` in "
        "synchronous code. In a web application, its lifespan starts it",
        code="node_stopped",
    )


async def start_processes(
    app: "App", node: Node, declared: Declarations, workers: Workers, stack: AsyncExitStack
) -> None:
    """Start the node, the processes of all capabilities and the workers, and set the attributes of
    the application. `stack` closes all of it."""
    app.node = await node.start()
    stack.push_async_callback(node.stop)
    stack.push_async_callback(node.sharing.finish)
    for attribute in attributes():
        setattr(app, attribute.name, node.parts.get(attribute.type))
    await _unlock(app)
    _start_work(app, stack)
    app.locks = Locks(app.store, node.parts.get(LockTable))
    stack.push_async_callback(app.locks.close)
    app.hub = Hub(app.store, app.rooms, node.placement)
    stack.push_async_callback(app.hub.close)
    tables = TableRuntime(node, app.hub, declared.referees, declared.games)
    stack.push_async_callback(tables.close)
    app.seats, app.tables, app.games = tables.seats, tables.tables, tables.games
    timers = _start_timers(app, stack)
    node.act_on_parts()
    reencryption = Reencryption(app.store, timers, node.schedule.slots)
    stack.push_async_callback(reencryption.stop)
    reencryption.start()
    node.on_end(app.results.close)
    for queue, settings in declared.settings.items():
        if settings:
            await app.queues.change(queue, settings)
    app.store.meters.prepare()
    for queue in (*node.queue_settings.names(), *declared.settings):
        app.store.meters.queue_label(queue)
    for id_, spec in declared.recurring.items():
        await app.store.run(partial(timers.keep, id_=id_, spec=spec))
    if not is_virtual():
        blocked = partial(app.store.meters.count, "loop_blocked")
        stack.callback(Watchdog(workers.name_of, blocked).stop)
    stack.push_async_callback(workers.stop)
    make = partial(Drainer, app.store, node.schedule, app.inbox, app.intake, app.name)
    drainers = [make(box) for box in declared.outboxes.values()]
    if app.engine.outbox_url:  # read by the owner of the first slot
        drainers.append(make(own_outbox(app.engine), lambda: 0 in node.placement.owned))
    for drainer in drainers:
        stack.push_async_callback(drainer.stop)
        drainer.start()


async def start_workers(app: "App", declared: Declarations, workers: Workers) -> None:
    """Run the handlers, and make webhook calls if the application does that."""
    handlers = workers.chosen(declared)
    if app.delivery is not None:
        await app.queues.change(WEBHOOKS, app.delivery.settings)
        handlers.append(app.delivery.handler)
    for handler in handlers:
        app.store.meters.prepare_queue(handler.queue)
    workers.start(app, handlers)


async def run_until_signal(
    app: "App", workers: Workers, announce: Callable[[], None], draining: Callable[[], None]
) -> None:
    """Run an application until SIGTERM or SIGINT, then drain. A second signal interrupts the
    handlers."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def signalled() -> None:
        if stopped.is_set():
            workers.hurry()
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    async with app:
        # These objects live until the end: the garbage collector need not scan them.
        gc.freeze()
        app.node.on_end(stopped.set)
        announce()
        await stopped.wait()
        draining()


async def _unlock(app: "App") -> None:
    path = str(getattr(app.engine, "path", ""))
    app.key_source = KeySource(app.store, app.server_key, path=path)
    if app.outward is None:
        await app.key_source.unlock_known()
    else:
        await app.key_source.unlock()


def _start_work(app: "App", stack: AsyncExitStack) -> None:
    node = app.node
    app.inbox = Inbox(node.schedule)
    app.queues = Queues(app.store, node.schedule, node.queue_settings, node.depths)
    app.senders = Senders(app.store)
    app.intake = Intake(app.store, app.inbox, app.senders)
    stack.push_async_callback(app.intake.finish)
    app.results = Results(app.store, node.schedule)
    stack.callback(app.results.close)


def _start_timers(app: "App", stack: AsyncExitStack) -> TimerTable:
    timers = app.node.parts.get(TimerTable)
    app.delivery = None
    if app.outward is not None:
        app.delivery = Delivery(app.store, timers, app.outward)
        stack.push_async_callback(app.delivery.close)
    guard = None if app.delivery is None else app.delivery.guard
    app.timers = Timers(app.store, timers, guard, app.key_source)
    return timers
