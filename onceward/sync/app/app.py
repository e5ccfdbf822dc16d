"""Synchronous classes. Written by `make generate` from `onceward.app`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

from onceward import engine as engines
from onceward import limits
from onceward.api.job_updates import JobUpdate
from onceward.api.queues import QueueKeywords
from onceward.app import App as AsyncApp
from onceward.app import T
from onceward.engine.base import Engine
from onceward.errors import OncewardError
from onceward.job_options import JobKeywords, SendKeywords
from onceward.schedule import Claim
from onceward.schedule import Job as JobRecord
from onceward.sql.sources import Source
from onceward.store import Store
from onceward.store.user_records import SyncTransaction
from onceward.sync.app.declare import Declare
from onceward.sync.app.games import Games
from onceward.sync.app.locks import Locks
from onceward.sync.app.queues import Queues
from onceward.sync.app.rate_limits import RateLimits
from onceward.sync.app.rooms import Rooms
from onceward.sync.app.seats import Seats
from onceward.sync.app.tables import Tables
from onceward.sync.app.timers import Timers
from onceward.sync.app.transaction import Transaction
from onceward.sync.bridge import Portal, Root, run_until_signal, target
from onceward.sync.handlers import declares
from onceward.tables import Referee
from onceward.tables.games import Rules
from onceward.tables.games.part import Late
from onceward.webhooks.delivery import Outward
from onceward.work.inbox import Receipt


class App(Root[AsyncApp]):
    """An application: its handlers, and access to all capabilities. Use it with `with`."""

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
        """Configure an application; nothing is opened yet. Raises `BadInput`."""
        super().__init__(
            Portal(),
            AsyncApp(
                url,
                name=name,
                slots=slots,
                node_lease_s=node_lease_s,
                drain_s=drain_s,
                threads=threads,
                redact=redact,
                outward=outward,
                server_key=server_key,
                store=store,
            ),
        )

    @property
    def name(self) -> str:
        return self._target.name

    @property
    def queues(self) -> Queues:
        """Queues: settings, pause, failed jobs, redrive, purge."""
        return Queues(self._portal, self._target.queues)

    @property
    def locks(self) -> Locks:
        """Locks and semaphores, their holders and waiters."""
        return Locks(self._portal, self._target.locks)

    @property
    def timers(self) -> Timers:
        """Timers: jobs and webhook calls at a time, once or recurring."""
        return Timers(self._portal, self._target.timers)

    @property
    def limits(self) -> RateLimits:
        """Rate limits, each call in a transaction."""
        return RateLimits(self._portal, self._target.limits)

    @property
    def rooms(self) -> Rooms:
        """Rooms, as functions of a transaction."""
        return Rooms(self._portal, self._target.rooms)

    @property
    def games(self) -> Games:
        """Matches of the declared games; each call is a transaction."""
        return Games(self._portal, self._target.games)

    @property
    def seats(self) -> Seats:
        """Tables, as functions of a transaction."""
        return Seats(self._portal, self._target.seats)

    @property
    def tables(self) -> Tables:
        """Tables; each call is a transaction."""
        return Tables(self._portal, self._target.tables)

    def queue(self, name: str, **settings: Unpack[QueueKeywords]) -> None:
        """Declare settings of a queue; others stay as they are. They are written at the start."""
        return self._target.queue(name, **settings)

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
        """Run a function on the jobs of a queue: `def fn(job: SyncJob)`. It returns the result of
        the job, or raises an error, which fails the attempt. Raises `BadInput`."""
        return declares(
            self,
            self._target.handler(
                queue,
                lease_s=lease_s,
                concurrency=concurrency,
                batch=batch,
                examples=examples,
                **settings,
            ),
        )

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
        """Run a function that makes one external call for each job: `def fn(job)`. It returns the
        response. `job.id` is a stable ID for the receiver. Raises `BadInput`."""
        return declares(
            self,
            self._target.outbox(
                queue, policy=policy, ask=ask, lease_s=lease_s, concurrency=concurrency, **settings
            ),
        )

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
        `onceward.sql.enqueue` or in SQL. Each committed row becomes one job. Raises `BadInput`."""
        return self._target.sql_outbox(
            url, name=name, poll_s=poll_s, idle_poll_s=idle_poll_s, lease_s=lease_s, notify=notify
        )

    def every(
        self,
        seconds: float,
        queue: str,
        body: Any = None,
        *,
        name: str | None = None,
        **options: Unpack[JobKeywords],
    ) -> None:
        """Send a job to a queue at an interval, once for all nodes. Raises `BadInput`."""
        return self._target.every(seconds, queue, body, name=name, **options)

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
        return self._target.cron(when, queue, body, zone=zone, name=name, **options)

    def referee(self, game: str, referee: Referee) -> None:
        """Declare the referee of a game, for tables with that game. Raises `BadInput`."""
        return self._target.referee(game, referee)

    def game(self, rules: Rules, *, late: Late | None = None) -> None:
        """Declare a game by its rules. `late(tx, match)` is called when the clock ends a match, in
        the same commit. Raises `BadInput`."""
        return self._target.game(rules, late=late)

    def mount(self, prefix: str, web: Callable[..., Awaitable[None]]) -> None:
        """Mount an ASGI application below a prefix such as `/shop`, for when this application is
        served. The prefix `/` is the front page only. The mounted application checks credentials
        itself. Raises `BadInput`."""
        return self._target.mount(prefix, web)

    def limit_work(
        self, queues: Sequence[str] = (), *, concurrency: int = 0, drain_s: float | None = None
    ) -> None:
        """Limit what this process runs: handlers of some queues (default: all), jobs of each queue
        at once (default: as declared). `drain_s` is the time for running handlers to finish. Call
        it before the start. Raises `BadInput`."""
        return self._target.limit_work(queues, concurrency=concurrency, drain_s=drain_s)

    def confirm_clock(self) -> int:
        """Accept a clock that is far ahead of the last commit (alarm `clock_ahead`): overdue timers
        fire, and expired records are removed. Returns the step in ms. Idempotent."""
        return self._portal.run(self._target.confirm_clock())

    def probe(self) -> None:
        """Check that this node works: that the largest message fits, and a small commit succeeds.
        Raises the error."""
        return self._portal.run(self._target.probe())

    def run(self, fn: Callable[[Transaction], T], *, line: str | None = None) -> T:
        """Run a transaction on the records of the application; see `Store.run`."""
        return self._portal.run_with(
            fn,
            lambda back: self._target.run(
                lambda tx: back(Transaction(self._portal, tx)), line=line
            ),
        )

    def send(
        self,
        queue: str,
        body: Any,
        *,
        key: str | None = None,
        tx: Transaction | SyncTransaction | None = None,
        **options: Unpack[SendKeywords],
    ) -> Receipt:
        """Send a message to a queue. It is durable when this returns; the queue has a job for
        it."""
        return self._portal.run(self._target.send(queue, body, key=key, tx=target(tx), **options))

    def send_many(
        self, queue: str, messages: Sequence[Mapping[str, Any]]
    ) -> list[Receipt | OncewardError]:
        """Send many messages in few commits. Each is a mapping with `body` and options of
        `send`."""
        return self._portal.run(self._target.send_many(queue, messages))

    def job(self, id_: str, *, tx: Transaction | SyncTransaction | None = None) -> JobRecord:
        """Read a job: state, attempts, result; with `tx`, as part of that transaction. Raises
        `NoSuchJob`."""
        return self._portal.run(self._target.job(id_, tx=target(tx)))

    def wait(self, id_: str, timeout_s: float | None = None) -> JobRecord:
        """Wait for the end of a job, up to `timeout_s`, and return the job in any state."""
        return self._portal.run(self._target.wait(id_, timeout_s))

    @overload
    def result(self, id_: str, *, timeout_s: float | None = None) -> Any: ...
    @overload
    def result(self, id_: str, type: type[T], *, timeout_s: float | None = None) -> T: ...
    def result(self, id_: str, type: Any = None, *, timeout_s: float | None = None) -> Any:
        """Wait for the end of a job, and return its result."""
        return self._portal.run(self._target.result(id_, type, timeout_s=timeout_s))

    def follow(self, id_: str, *, after: int = 0) -> Iterator[JobUpdate]:
        """Follow a job until it ends: its states, its progress, and the chunks of its stream."""
        return self._portal.iterate(self._target.follow(id_, after=after))

    def cancel(
        self,
        id_: str,
        reason: str = "cancelled",
        *,
        tx: Transaction | SyncTransaction | None = None,
    ) -> None:
        """Cancel a job that has not ended, or that has failed. A running attempt cannot commit.
        Idempotent. With `tx`, it is part of that transaction. Raises `NoSuchJob`, and
        `AlreadyEnded` if the job has succeeded."""
        return self._portal.run(self._target.cancel(id_, reason, tx=target(tx)))

    def emit(
        self,
        id_: str,
        event: str,
        value: Any = None,
        *,
        key: str = "",
        tx: Transaction | SyncTransaction | None = None,
    ) -> None:
        """Send an event to a job, whose handler gets the value from `job.wait_for(event)`. The job
        keeps it until then. Idempotent with a key. With `tx`, it is part of that transaction.
        Raises `NoSuchJob`, `AlreadyEnded` and `BadInput`."""
        return self._portal.run(self._target.emit(id_, event, value, key=key, tx=target(tx)))

    def event_link(
        self,
        id_: str,
        event: str,
        value: Any = None,
        *,
        choices: Mapping[str, Any] | None = None,
        text: str = "",
        expires_s: float = 7 * 86400,
        base_url: str = "",
    ) -> str:
        """A signed link with which a person sends an event to a job once, without credentials."""
        return self._portal.run(
            self._target.event_link(
                id_,
                event,
                value,
                choices=choices,
                text=text,
                expires_s=expires_s,
                base_url=base_url,
            )
        )

    def move(self, id_: str, *, delay_s: float = 0.0) -> None:
        """Make a waiting job due after a delay. Raises `NoSuchJob`, `AlreadyEnded`."""
        return self._portal.run(self._target.move(id_, delay_s=delay_s))

    def claim(
        self, queue: str, worker: str, *, lease_s: float, max: int = 1, wait_s: float = 0.0
    ) -> list[Claim]:
        """Lease up to `max` ready jobs to a worker, and wait up to `wait_s` for the first one."""
        return self._portal.run(
            self._target.claim(queue, worker, lease_s=lease_s, max=max, wait_s=wait_s)
        )

    def complete(self, id_: str, token: str, result: Any = None) -> None:
        """Complete a job with its result. Raises `StaleToken`, `NoSuchJob`."""
        return self._portal.run(self._target.complete(id_, token, result))

    def fail(
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
        return self._portal.run(
            self._target.fail(
                id_,
                token,
                reason,
                retry_after_s=retry_after_s,
                not_before_s=not_before_s,
                final=final,
            )
        )

    def extend(self, id_: str, token: str, lease_s: float) -> int:
        """Renew a lease; returns its end in ms since 1970. Raises `StaleToken`, `NoSuchJob`."""
        return self._portal.run(self._target.extend(id_, token, lease_s))

    def start(self, *, work: bool = True) -> Self:
        """Open the database and run the handlers; without handlers if `work` is False. Raises the
        errors of the engine. In a forked process, an application on PostgreSQL starts again on
        first use."""
        start = partial(self._target.start, work=work)
        self._open(start, self._target.stop, start)
        return self

    def stop(self) -> None:
        """Finish running jobs, hand over to other nodes, and close the database. Idempotent."""
        self._close(self._target.stop)

    def work(self, announce: Callable[[], object] = lambda: None) -> None:
        """Run handlers in this process until SIGTERM or SIGINT, then drain. A second signal ends
        the handlers at once. `announce` is called when they run. Raises the error that ended the
        node.

        Call it in the main thread.
        """

        def start(ended: Callable[[], None]) -> None:
            self.start()
            self._target.node.on_end(ended)

        run_until_signal(start, self.stop, announce)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()
