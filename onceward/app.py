"""The application object: accepts messages, runs handlers, and gives access to all capabilities.

import asyncio

import onceward

app = onceward.App("sqlite:///app.db")


@app.handler("greetings")
async def greet(job):
    job.tx.put(("greeted", job.id), job.body)  # committed together with the end of the job
    return f"Hello {job.body['name']}"


async def main():
    async with app:
        receipt = await app.send("greetings", {"name": "Ann"}, key="message-1")
        print(await app.result(receipt.id))


asyncio.run(main())
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from onceward import engine as engines
from onceward import forks, limits
from onceward.alarms import Alarms
from onceward.api.job_updates import JobUpdate
from onceward.api.jobs import result_of
from onceward.api.queues import QueueKeywords
from onceward.conversion import converter
from onceward.engine.base import Engine
from onceward.errors import BadInput, OncewardError
from onceward.event_loop import loop_factory
from onceward.job_options import JobKeywords, SendKeywords, job_options
from onceward.locks.server import Locks
from onceward.maintenance.key_source import KeySource
from onceward.meters import Meters
from onceward.node import Node
from onceward.observe.senders import Senders
from onceward.parts import attributes
from onceward.rate_limits import RateLimits
from onceward.recurrence import Cron, Interval
from onceward.rooms.hub import Hub
from onceward.rooms.part import Rooms
from onceward.running import (
    Lifetime,
    Workers,
    not_running,
    run_until_signal,
    start_processes,
    start_workers,
)
from onceward.schedule import Claim, milliseconds
from onceward.schedule import Job as JobRecord
from onceward.server_key import parse_keys
from onceward.sql.server import sql_outbox_of
from onceward.sql.sources import Source
from onceward.store import Store
from onceward.store.user_records import AnyTransaction, UserTransaction, admit_tx, by_user
from onceward.tables import Referee, Seats
from onceward.tables.games import Rules
from onceward.tables.games.part import Late
from onceward.tables.games.server import Games
from onceward.tables.server import Tables
from onceward.webhooks.delivery import Delivery, Outward
from onceward.webhooks.timers import Send
from onceward.webhooks.timers.server import Timers
from onceward.work import events, outside
from onceward.work.annotations import declared_names
from onceward.work.declarations import (
    Declarations,
    admit_app,
    handler_of,
    node_lease_of,
    outbox_of,
    within_step,
)
from onceward.work.handlers import Declare
from onceward.work.inbox import Inbox, Receipt
from onceward.work.intake import Intake
from onceward.work.job import later_ms, send_arguments
from onceward.work.links import new_link
from onceward.work.queues import Queues
from onceward.work.results import Results

T = TypeVar("T")


class App:
    """An application: its handlers, and access to all capabilities. Use it with `async with`.

    Declare queues, handlers and recurring jobs before it starts.
    """

    node: Node
    store: Store
    inbox: Inbox
    intake: Intake
    results: Results
    queues: Queues
    """Queues: settings, pause, failed jobs, redrive, purge."""
    locks: Locks
    """Locks and semaphores, their holders and waiters."""
    timers: Timers
    """Timers: jobs and webhook calls at a time, once or recurring."""
    rooms: Rooms
    """Rooms, as functions of a transaction."""
    games: Games
    """Matches of the declared games; each call is a transaction."""
    hub: Hub
    """The loaded rooms of this process, and their connections."""
    seats: Seats
    """Tables, as functions of a transaction."""
    tables: Tables
    """Tables; each call is a transaction."""
    senders: Senders
    """Statistics of senders by queue."""
    key_source: KeySource
    """Loads the server keys."""
    delivery: Delivery | None
    """Makes the calls of timers; None if this process does not."""

    def __init__(
        self,
        url: str | Engine = engines.DEFAULT,
        *,
        name: str = "app",
        slots: int = limits.SLOTS_DEFAULT,
        node_lease_s: float = limits.NODE_LEASE_MS / 1000,
        drain_s: float = limits.DRAIN_S,
        threads: int = limits.THREADS_DEFAULT,
        redact: Callable[[str], str] | None = None,
        outward: Outward | None = None,
        server_key: str | Sequence[str] | None = None,
        store: Callable[[Engine], Store] = Store,
    ) -> None:
        """Configure an application; nothing is opened yet. Raises `BadInput`.

        Args:
            url: The database: `sqlite:///app.db`, `memory://`, `postgresql://…`, or an engine.
                Default: ONCEWARD_DATABASE, or `sqlite:///onceward.db`.
            slots: Number of slots of a new database.
            drain_s: How long running handlers may take when the application stops.
            threads: How many plain `def` handlers run at once, in threads of this process.
            redact: Removes secrets from messages and tracebacks of errors before jobs keep them.
            outward: How timers call URLs. Without it, calls wait for a process that has it.
            server_key: Encrypts secrets of endpoints and headers of timers, and signs sessions. Of
                several keys the first encrypts. Default: ONCEWARD_SERVER_KEY,
                ONCEWARD_SERVER_KEY_FILE, or a new key in `~/.local/state/onceward/keys`.
            store: For tests: creates the store.
        """
        url = engines.default_url() if url == engines.DEFAULT else url
        admit_app(url, name, slots, outward, store, threads, redact)
        self.url = url if isinstance(url, str) else ""
        """The URL as given; empty for an engine."""
        self.name = name
        self._slots = slots
        self._node_lease_ms = node_lease_of(node_lease_s)
        self.outward = outward
        """Can be set before the start."""
        given = [server_key] if isinstance(server_key, str) else server_key
        self.server_key: Sequence[str] = [] if given is None else list(given)
        """The keys as given; can be set before the start."""
        parse_keys(self.server_key)
        self._make_store = store
        self.redact = redact
        self.engine = engines.create(url) if isinstance(url, str) else url
        self._workers = Workers(milliseconds(drain_s, "the time to drain") / 1000, threads, redact)
        self._life = Lifetime(name)
        self._declared = Declarations(lambda: self._life.running)
        self.mounted = self._declared.mounted
        """ASGI applications by their prefixes."""

    # For type checkers. Below `__init__`, whose defaults use the module `limits`.
    limits: RateLimits
    """Rate limits, each call in a transaction."""

    if not TYPE_CHECKING:  # with it, type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            # Called for missing attributes only: `app.timers` and the like exist after the start.
            known = {attribute.name for attribute in attributes()}
            if name in known.union(*map(declared_names, type(self).__mro__)):
                raise not_running()
            raise AttributeError(f"an application has no attribute {name!r}")

    # Declarations. They are rejected while the application runs.

    def queue(self, name: str, **settings: Unpack[QueueKeywords]) -> None:
        """Declare settings of a queue; others stay as they are. They are written at the start.

        The names are those of `QueueSettings`, with durations in seconds: `retry_first_s=0.5` sets
        `retry_first_ms`. Raises `BadInput`.
        """
        self._declared.configure(name, settings)

    def handler(
        self,
        queue: str,
        *,
        lease_s: float = 30.0,
        concurrency: int = 16,
        batch: int = 0,
        examples: Sequence[Any] = (),
        **settings: Unpack[QueueKeywords],
    ) -> Declare:
        """Run a function on the jobs of a queue: `async def fn(job: Job)`. It returns the result of
        the job, or raises an error, which fails the attempt. Raises `BadInput`.

        A plain `def fn(job: SyncJob)` runs in a thread, and may block.

        With `async def fn(job: Job[Mail]) -> Sent`, bodies and results are validated and converted:
        dataclasses, TypedDict, msgspec structs, Pydantic models, and types that contain them. An
        invalid body fails its job permanently, an invalid result fails the attempt. The decorated
        function has `enqueue`, which sends a job of this type.

        Args:
            lease_s: The lease of a job, which is renewed while the function runs.
            concurrency: How many jobs this process runs at once.
            batch: Call `async def fn(jobs)` with up to this number of jobs. It returns a list of
                results, or None. An error fails all of them, an error in a step only its job.
            examples: Bodies for `onceward simulate`; a tuple is a sequence of one sender.
            settings: Settings of the queue, as for `queue`: `attempts_max=3`, `retry_first_s=0.5`.
        """
        make = handler_of(queue, lease_s, concurrency, batch)
        return self._declared.handle(self, queue, make, settings, examples)

    def outbox(
        self,
        queue: str,
        *,
        policy: Literal["repeat", "hold"] = "repeat",
        ask: Callable[[Any], Any] | None = None,
        lease_s: float = 30.0,
        concurrency: int = 16,
        **settings: Unpack[QueueKeywords],
    ) -> Declare:
        """Run a function that makes one external call for each job: `async def fn(job)`. It returns
        the response. `job.id` is a stable ID for the receiver. Raises `BadInput`.

        Args:
            policy: `repeat` retries an interrupted call; the receiver deduplicates by the ID.
                `hold` puts the job in doubt instead, until its step `call` is settled.
            ask: With `hold`: returns the outcome of an interrupted call, or raises `NotDone`.
            lease_s, concurrency, settings: As for `handler`.
        """
        make = outbox_of(policy, ask, settings)
        handler = self.handler(queue, lease_s=lease_s, concurrency=concurrency, **settings)
        return within_step(make, handler)

    def sql_outbox(
        self,
        url: str | Source,
        *,
        name: str | None = None,
        poll_s: float | None = None,
        idle_poll_s: float | None = None,
        lease_s: float | None = None,
        notify: bool = False,
    ) -> None:
        """Accept messages from an outbox: rows that your transactions add with
        `onceward.sql.enqueue` or in SQL. Each committed row becomes one job. Raises `BadInput`.

        Args:
            url: `postgresql://…` or `sqlite:///shop.db`. Tests can pass a source.
            name: One node at a time reads the outbox with this name. Default: host and path of the
                URL. Set it if nodes use different URLs of one database.
            poll_s: The polling interval for ten seconds after the last row. Default: 0.02.
            idle_poll_s: The polling interval after that. Default: 0.25.
            lease_s: When another node takes over after a crash. Default: 6.
            notify: Wake up on NOTIFY, which the migration with `--notify` sends (PostgreSQL).
        """
        box = sql_outbox_of(url, name, poll_s, idle_poll_s, lease_s, notify)
        self._declared.drain(box)

    def every(
        self,
        seconds: float,
        queue: str,
        body: Any = None,
        *,
        name: str | None = None,
        **options: Unpack[JobKeywords],
    ) -> None:
        """Send a job to a queue at an interval, once for all nodes. Raises `BadInput`.

        After downtime, one job replaces all missed ones. It is a timer with the id `every:NAME`
        (default: the name of the queue), and continues until that timer is cancelled.
        """
        interval = Interval(milliseconds(seconds, "the time between two jobs"), 0)
        self._declared.recur(interval, Send(queue, body, job_options(options)), name)

    def cron(
        self,
        when: str,
        queue: str,
        body: Any = None,
        *,
        zone: str = "UTC",
        name: str | None = None,
        **options: Unpack[JobKeywords],
    ) -> None:
        """Send a job to a queue at the times of a cron expression in a time zone; see `every`. An
        expression with six fields starts with seconds."""
        self._declared.recur(Cron(when, zone), Send(queue, body, job_options(options)), name)

    def referee(self, game: str, referee: Referee) -> None:
        """Declare the referee of a game, for tables with that game. Raises `BadInput`."""
        self._declared.referee(game, referee)

    def game(self, rules: Rules, *, late: Late | None = None) -> None:
        """Declare a game by its rules. `late(tx, match)` is called when the clock ends a match, in
        the same commit. Raises `BadInput`."""
        self._declared.game(rules, late)

    def mount(self, prefix: str, web: Callable[..., Awaitable[None]]) -> None:
        """Mount an ASGI application below a prefix such as `/shop`, for when this application is
        served. The prefix `/` is the front page only. The mounted application checks credentials
        itself. Raises `BadInput`."""
        self._declared.mount(prefix, web)

    # Start and stop. While it runs, the application belongs to one event loop.

    def _must_run(self) -> None:
        task = self.node.task
        alive = task is not None and not task.done()
        if not alive or asyncio.get_running_loop() is not self._life.loop:
            self._life.must_run(alive)

    async def start(self, *, work: bool = True) -> Self:
        """Open the database and run the handlers; without handlers if `work` is False. Raises the
        errors of the engine, and then leaves nothing open."""
        if self._life.running:
            raise BadInput(
                f"the application {self.name!r} is already running; start it once, or stop it first"
            )
        if self._life.inherited:
            self._renew()
        self._life.begin()
        stack = AsyncExitStack()
        try:
            await self.engine.open()
            stack.push_async_callback(self.engine.close)
            stack.callback(self.engine.alarms.reset)
            self.store = self._make_store(self.engine)
            stack.callback(self.store.close)
            node = Node(self.store, name=self.name, slots=self._slots, lease_ms=self._node_lease_ms)
            await start_processes(self, node, self._declared, self._workers, stack)
            if work:
                await start_workers(self, self._declared, self._workers)
        except (Exception, asyncio.CancelledError):
            await stack.aclose()
            raise
        finally:
            self._life.starting = False
        self._life.stack = stack
        return self

    def _renew(self) -> None:
        """Prepare the start in a forked process, for an application that ran in the parent."""
        if not self.url or not self.engine.shared:
            raise self._life.forked_error()
        forks.keep(self._workers)
        self.engine = engines.create(self.url)
        self._workers, self._life = self._workers.renewed(), Lifetime(self.name)

    async def stop(self) -> None:
        """Finish running jobs, hand over to other nodes, and close the database. Idempotent.

        If it is cancelled, it closes without waiting for handlers. Raises the error that ended the
        node before.
        """
        await self._life.end(self._workers)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()

    def limit_work(
        self, queues: Sequence[str] = (), *, concurrency: int = 0, drain_s: float | None = None
    ) -> None:
        """Limit what this process runs: handlers of some queues (default: all), jobs of each queue
        at once (default: as declared). `drain_s` is the time for running handlers to finish.
        Call it before the start. Raises `BadInput`."""
        self._declared.must_be_stopped("limit its work")
        drain_ms = None if drain_s is None else milliseconds(drain_s, "the time to drain")
        self._workers.limit(self._declared, queues, concurrency, drain_ms)

    def work(self, announce: Callable[[], None] = lambda: None) -> None:
        """Run handlers in this process until SIGTERM or SIGINT, then drain. A second signal ends
        the handlers at once. `announce` is called when they run. Raises the error that ended the
        node."""
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self.work_until_signal(announce))

    async def work_until_signal(
        self,
        announce: Callable[[], None] = lambda: None,
        draining: Callable[[], None] = lambda: None,
    ) -> None:
        """Like `work`, in the running event loop. `draining` is called at the signal, before
        running handlers finish."""
        await run_until_signal(self, self._workers, announce, draining)

    @property
    def meters(self) -> Meters:
        """Counters and histograms of `/metrics`. You can add your own."""
        return self.store.meters

    @property
    def alarms(self) -> Alarms:
        """Conditions of this node that need an operator's attention."""
        return self.store.alarms

    async def confirm_clock(self) -> int:
        """Accept a clock that is far ahead of the last commit (alarm `clock_ahead`): overdue timers
        fire, and expired records are removed. Returns the step in ms. Idempotent."""
        self._must_run()
        return await self.node.timekeeper.confirm()

    async def probe(self) -> None:
        """Check that this node works: that the largest message fits, and a small commit succeeds.
        Raises the error."""
        self._must_run()
        await self.node.probe()

    # Messages and jobs.

    async def run(
        self, fn: Callable[[UserTransaction], Awaitable[T]], *, line: str | None = None
    ) -> T:
        """Run a transaction on the records of the application; see `Store.run`."""
        self._must_run()
        if line is not None and not isinstance(line, str):
            raise BadInput(f"the name of a line must be text, not {type(line).__name__}")
        return await self.store.run(by_user(fn), line=line)

    async def send(
        self,
        queue: str,
        body: Any,
        *,
        key: str | None = None,
        tx: AnyTransaction | None = None,
        **options: Unpack[SendKeywords],
    ) -> Receipt:
        """Send a message to a queue. It is durable when this returns; the queue has a job for it.

        Args:
            key: Idempotency key. A message with a known key gets the receipt of the first one, and
                no second job. The setting `key_fields` of the queue derives keys from bodies.
                Without a key, two calls create two jobs.
            tx: The transaction that the message becomes part of. It is durable with the commit.
            caller: Name of the sender. Each sender has its own keys.
            delay_s, due_ms: When the job is due: after some seconds, or at a time. Default: now.
            order_key: Jobs of the queue with the same order key run one after the other, in order.
            limit_key: The queue's setting `limit_per_key` bounds running jobs with the same key.
            debounce_key, debounce_s, debounce_max_s: One job for messages with the same key, with
                the last body, `debounce_s` after it and `debounce_max_s` after the first one.
            batch_key, batch_s, batch_size: One job for messages with the same key, with a list of
                all bodies, `batch_s` after the first one, or when there are `batch_size`.
            priority: 0 (first) to 9 (last). Default: 5.
            attempts_max: Number of attempts; 0: no limit. Default: the setting of the queue.
            tags: Up to 10 texts by which operators find the job.

        Idempotent with a key. Raises `BadInput`, `QueueFull`, and `KeyReused` if the key is known
        with another body.
        """
        self._must_run()
        arguments = send_arguments(self.store, options)
        arguments["key"] = key
        if tx is not None:
            return await self.intake.accept_within(admit_tx(tx), queue, body, arguments)
        return await self.intake.accept(queue, body, arguments)

    async def send_many(
        self, queue: str, messages: Sequence[Mapping[str, Any]]
    ) -> list[Receipt | OncewardError]:
        """Send many messages in few commits. Each is a mapping with `body` and options of `send`.

        Returns one verdict for each, in their order: a receipt, or the error that rejected it.
        Messages with keys are safe to send again if this raises.
        """
        self._must_run()
        return await self.intake.accept_many(queue, messages)

    async def job(self, id_: str, *, tx: AnyTransaction | None = None) -> JobRecord:
        """Read a job: state, attempts, result; with `tx`, as part of that transaction. Raises
        `NoSuchJob`."""
        if tx is not None:
            return await self.node.schedule.get(admit_tx(tx), id_)
        self._must_run()
        return await self.store.run(lambda tx: self.node.schedule.get(tx, id_))

    async def wait(self, id_: str, timeout_s: float | None = None) -> JobRecord:
        """Wait for the end of a job, up to `timeout_s`, and return the job in any state.

        Check its `state`: `result` is None unless it is `succeeded`. A job that is not `succeeded`,
        `failed`, `in_doubt` or `cancelled` has not ended. `result` raises errors instead. Raises
        `NoSuchJob`, and `Unavailable` if the application stops.
        """
        self._must_run()
        if timeout_s is not None:
            milliseconds(timeout_s, "a time limit")
        return await self.results.wait(id_, timeout_s)

    @overload
    async def result(self, id_: str, *, timeout_s: float | None = None) -> Any: ...
    @overload
    async def result(self, id_: str, type: type[T], *, timeout_s: float | None = None) -> T: ...
    async def result(self, id_: str, type: Any = None, *, timeout_s: float | None = None) -> Any:
        """Wait for the end of a job, and return its result.

        Args:
            type: The type of the result. Default: that in the annotation of the queue's handler, if
                this application has it; otherwise plain JSON.

        Raises `JobFailed` if the job failed permanently, was cancelled or is in doubt; `NotEnded`,
        a `TimeoutError`, if it has not ended in time; `NoSuchJob`; `BadInput` if the result has
        another type; and `Unavailable` if the application stops.
        """
        wanted = None if type is None else converter(type)
        job = await self.wait(id_, timeout_s)
        if type is None and (handler := self._declared.handlers.get(job.queue)) is not None:
            wanted = handler.result
        return result_of(id_, job, wanted)

    def follow(self, id_: str, *, after: int = 0) -> AsyncIterator[JobUpdate]:
        """Follow a job until it ends: its states, its progress, and the chunks of its stream.

        Continue with the `seq` of an update as `after`: no chunk is missing, and none comes twice.
        Raises `NoSuchJob`, `BadInput`, and `Unavailable` if the application stops.
        """
        self._must_run()
        return self.results.follow(id_, after)

    async def cancel(
        self, id_: str, reason: str = "cancelled", *, tx: AnyTransaction | None = None
    ) -> None:
        """Cancel a job that has not ended, or that has failed. A running attempt cannot commit.
        Idempotent. With `tx`, it is part of that transaction. Raises `NoSuchJob`, and
        `AlreadyEnded` if the job has succeeded."""
        if tx is not None:
            return await self.node.schedule.cancel(admit_tx(tx), id_, reason)
        self._must_run()
        await self.store.run(lambda tx: self.node.schedule.cancel(tx, id_, reason))

    async def emit(
        self,
        id_: str,
        event: str,
        value: Any = None,
        *,
        key: str = "",
        tx: AnyTransaction | None = None,
    ) -> None:
        """Send an event to a job, whose handler gets the value from `job.wait_for(event)`. The job
        keeps it until then. Idempotent with a key. With `tx`, it is part of that transaction.
        Raises `NoSuchJob`, `AlreadyEnded` and `BadInput`."""
        if tx is not None:
            return await events.emit(admit_tx(tx), self.node.schedule, id_, event, value, key)
        self._must_run()
        await self.store.run(lambda tx: events.emit(tx, self.node.schedule, id_, event, value, key))

    async def event_link(
        self,
        id_: str,
        event: str,
        value: Any = None,
        *,
        choices: Mapping[str, Any] | None = None,
        text: str = "",
        expires_s: float = 7 * 86_400,
        base_url: str = "",
    ) -> str:
        """A signed link with which a person sends an event to a job once, without credentials.

        Opening it shows a page with a button; pressing the button sends the event. The server must
        run, with the same server key.

        Args:
            value: The value of the event, with one button.
            choices: In place of a value: several buttons, by their labels, such as
                `{"Approve": True, "Reject": False}`. People who have the link can read all values.
            text: What the page asks.
            base_url: The address of the server for browsers. Without it, the link is a path.

        Raises `NoSuchJob`, `AlreadyEnded`, `BadInput`.
        """
        self._must_run()
        link = await new_link(self, id_, event, value, choices, text, expires_s, base_url)
        return link.url

    async def move(self, id_: str, *, delay_s: float = 0.0) -> None:
        """Make a waiting job due after a delay. Raises `NoSuchJob`, `AlreadyEnded`."""
        self._must_run()
        delay_ms = milliseconds(delay_s, "a delay")
        due_ms = later_ms(self.store, delay_ms) if delay_ms else 0
        await self.store.run(lambda tx: self.node.schedule.move(tx, id_, due_ms))

    # For workers that are not handlers.

    async def claim(
        self, queue: str, worker: str, *, lease_s: float, max: int = 1, wait_s: float = 0.0
    ) -> list[Claim]:
        """Lease up to `max` ready jobs to a worker, and wait up to `wait_s` for the first one.

        Complete, fail or extend each with its token before its lease ends. Raises `BadInput`.
        """
        self._must_run()
        return await outside.claim(self.node, queue, worker, lease_s, max, wait_s)

    async def complete(self, id_: str, token: str, result: Any = None) -> None:
        """Complete a job with its result. Raises `StaleToken`, `NoSuchJob`."""
        self._must_run()
        await outside.complete(self.node, id_, token, result)

    async def fail(
        self,
        id_: str,
        token: str,
        reason: str,
        *,
        retry_after_s: float | None = None,
        not_before_s: float | None = None,
        final: bool = False,
    ) -> str:
        """Fail an attempt; returns the state of the job. It is retried after `retry_after_s`, or
        after the pause of its queue and at least `not_before_s`. With `final`, it fails
        permanently. Raises `StaleToken`, `NoSuchJob`."""
        self._must_run()
        times = retry_after_s, not_before_s, final
        return await outside.fail(self.node, id_, token, reason, *times)

    async def extend(self, id_: str, token: str, lease_s: float) -> int:
        """Renew a lease; returns its end in ms since 1970. Raises `StaleToken`, `NoSuchJob`."""
        self._must_run()
        return await outside.extend(self.node, id_, token, lease_s)
