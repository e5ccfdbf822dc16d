"""The scenario of an application: its senders, its nodes, and an operator."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ClassVar, Final
from zlib import crc32

import msgspec

from onceward import limits
from onceward.api.jobs import ENDED
from onceward.app import App
from onceward.errors import OncewardError, Unavailable
from onceward.running import Lifetime, Workers
from onceward.schedule.records import job_partition
from onceward.store.transaction import Transaction
from onceward.store.user_records import by_user
from onceward.testing.proof.messages import Sender
from onceward.testing.proof.services import JOB, Services
from onceward.testing.simulation.handlers import Handlers
from onceward.testing.simulation.history import History, Violation
from onceward.testing.simulation.network import Client
from onceward.testing.simulation.network import Message as Request
from onceward.testing.simulation.world import Node
from onceward.webhooks.timers.records import timer_partition
from onceward.work import steps
from onceward.work.attempt import Handler
from onceward.work.declarations import Declarations
from onceward.work.events import emit

_RETRY_S: Final = 0.5
_LEASE_MS: Final = 3_000
_WAIT_S_MAX: Final = 3_600.0
# Later timers are active at the end.
_TIMER_MS_MAX: Final = 2 * 86_400_000
# How long a job may wait before it gets an event.
_POLL_S_MAX: Final = 5.0
# Pauses before retries are shortened, so that runs are short.
_SETTINGS: Final = {"retry_first_ms": 200, "retry_max_ms": 2_000}
_REDRIVES_MAX: Final = 5
_APP: ContextVar[App | None] = ContextVar("app", default=None)


@contextmanager
def shared(app: App) -> Iterator[Callable[[], App]]:
    """While it is entered, the application is the one of the node whose code uses it. Yields a
    function that makes an application for a node."""
    kind = type(app)
    original = vars(app)

    class Routed(kind):  # type: ignore[misc, valid-type]
        def __getattribute__(self, name: str) -> Any:
            here = _APP.get()
            return super().__getattribute__(name) if here is None else getattr(here, name)

    def make() -> App:
        made = object.__new__(kind)
        vars(made).update(original)
        for name in ("send", "send_many", "run"):
            vars(made).pop(name, None)  # those of a test
        return made

    app.__class__ = Routed
    try:
        yield make
    finally:
        app.__class__ = kind


@dataclass(frozen=True, slots=True)
class Order:
    """How the messages of a run are sent: the indexes of senders, one for each message."""

    turns: tuple[int, ...]
    settled: bool
    """Whether all timers have fired before the next message."""
    events: bool = True
    """Whether jobs get the events that they wait for. If not, their time limits pass."""


class Program(Handlers):
    """Nodes that run an application, and senders with fixed messages.

    With an `order`, the messages are sent one after the other. Otherwise all senders send at once.
    At the end, an operator settles jobs in doubt as the services know them, and redrives jobs whose
    attempts are exhausted.
    """

    patience_s: ClassVar[float] = 40 * 86_400.0
    lasts_s: ClassVar[tuple[float, ...]] = (3.0, 8.0, 20.0)

    def __init__(
        self,
        make: Callable[[], App],
        senders: Sequence[Sender],
        services: Services,
        note: Callable[[str], None],
        order: Order | None = None,
        setup: Callable[[Any], Any] | None = None,
        events: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        super().__init__()
        self.clients = (1, 1) if order else (len(senders), len(senders))  # type: ignore[misc]
        self.services = services
        self.attempts = 0
        """The number of attempts that have begun."""
        self.outcome: dict[str, Any] = {}
        """The state at the end that records do not show."""
        self.sent: dict[int, str] = {}
        """The ids of jobs by the number of their message."""
        self._make = make
        self._senders = senders
        self._order = order
        self._note = note
        self._setup = setup
        self._events = events if events and (order is None or order.events) else {}
        self.entered: list[Any] = []
        """The results with which the operator has settled steps as done."""
        self._redrives: dict[str, int] = {}
        numbers = iter(range(10_000))
        self._numbers = [[next(numbers) for _ in sender] for sender in senders]
        self._calm = False

    async def start(self, node: Node) -> None:
        app = self._make()
        declared = app._declared
        app.engine, app._make_store = node.engine, lambda engine: node.store
        app.name, app._slots, app._node_lease_ms = node.name, self.slots, _LEASE_MS
        app._workers, app._life = Workers(1.0, 16), Lifetime(node.name)
        app.outward = None
        app._declared = Declarations(
            settings={
                queue: {**declared.settings.get(queue, {}), **_SETTINGS}
                for queue in {*declared.settings, *declared.handlers}
            },
            handlers={
                queue: self._watched(handler, node.name)
                for queue, handler in declared.handlers.items()
            },
            referees=declared.referees,
            games=declared.games,
        )
        node.process.context.run(_APP.set, app)
        node.spawn(self._open(node, app))

    async def _open(self, node: Node, app: App) -> None:
        while node.name not in self._apps:
            try:
                self._apps[node.name] = await app.start()
                if self._setup is not None:
                    await app.store.run(by_user(self._setup))
            except OncewardError as error:
                if not error.kind.retry:
                    raise
                await asyncio.sleep(_RETRY_S)
                await node.engine.open()

    def _watched(self, handler: Handler, node: str) -> Handler:
        """A handler that notes its attempts."""

        def begin(given: Any) -> None:
            jobs = given if isinstance(given, list) else [given]
            self.attempts += 1
            JOB.set(jobs[0].id)
            for job in jobs:
                what = f"{handler.fn.__name__} runs {job.queue} {job.id}"
                self._note(f"{node}: {what}, attempt {job.attempt}")

        @wraps(handler.fn)
        async def run(job: Any) -> Any:
            begin(job)
            return await handler.fn(job)

        @wraps(handler.fn)
        def run_plain(job: Any) -> Any:
            begin(job)
            return handler.fn(job)

        fn = run_plain if handler.plain else run
        return replace(handler, fn=fn, lease_ms=min(handler.lease_ms, _LEASE_MS))

    async def client(self, client: Client) -> None:
        if self._order is not None:
            left = [list(numbers) for numbers in self._numbers]
            for turn in self._order.turns:
                await self._send(client, turn, left[turn].pop(0))
                await self._finish(client, timers=self._order.settled)
        else:
            sender = int(client.name[1:])
            for number in self._numbers[sender]:
                await self._send(client, sender, number)
                await client.think()
        # Twice: a job that ends may send another one into a slot that was already looked at.
        for _ in range(2):
            while True:
                await self._finish(client, timers=True)
                if not await client.call(["operate"]):
                    break
        if not self.outcome:
            self.outcome = await client.call(["outcome"])

    async def _send(self, client: Client, sender: int, number: int) -> None:
        index = self._numbers[sender].index(number)
        self.sent[number] = await client.call(["send", sender, index, number])

    async def _finish(self, client: Client, *, timers: bool) -> None:
        pause_s = _RETRY_S
        while (due_s := await client.call(["left", timers])) is not None:
            if isinstance(due_s, str):
                raise Violation("waits indefinitely", due_s)
            pause_s = min(pause_s * 1.5, _POLL_S_MAX) if due_s >= 0 else _RETRY_S
            await asyncio.sleep(min(max(pause_s, due_s), _WAIT_S_MAX))

    async def handle(self, node: Node, message: Request) -> Any:
        app = self._apps.get(node.name)
        if app is None:
            raise Unavailable("the application has not started yet", code="node_stopped")
        what, *rest = message.request
        if what == "send":
            sender, index, number = rest
            sent = self._senders[sender][index]
            receipt = await app.send(sent.queue, sent.body, key=f"message-{number}", **sent.options)
            return receipt.id
        if what == "left":
            return await app.store.run(lambda tx: self._left(app, tx, timers=rest[0]))
        if what == "operate":
            return await app.store.run(lambda tx: self._operate(app, tx))
        return await app.store.run(lambda tx: self._outcome(app, tx))

    async def _rows(self, tx: Transaction, partition: Callable[[int], str]) -> list[Any]:
        return [row for slot in range(self.slots) for row in await tx.scan(partition(slot))]

    async def _left(self, app: App, tx: Transaction, *, timers: bool) -> float | str | None:
        """How long until something happens that the run has to wait for. Below 0: soon, since a job
        was sent the event that it waits for; None: nothing will; a text: a job waits for an event
        that nobody will send."""
        due: list[int] = []
        stuck = ""
        for row in await self._rows(tx, job_partition):
            open_ = row.key[1].endswith("#job") and row.value["stage"] not in ENDED
            if not open_ or row.value["queue"] not in app._declared.handlers:
                continue
            kind, _, name = row.value.get("waits", "").partition(" ")
            if kind == "event" and name in self._events:
                await self._emit(app, tx, row.key[1].removesuffix("#job"), row.value, name)
                return -1.0
            due.append(row.value.get("due_ms", 0))
            if kind == "event" and due[-1] == limits.KEY_NUMBER_MAX:
                stuck = (
                    f"a job of queue {row.value['queue']!r} waits for the event {name!r}, which "
                    f"nobody sends. Name a value, as in `--event {name}=true`"
                )
        timer_due = [row.value["due_ms"] for row in await self._timers(tx)]
        if stuck and not timer_due and min(due) == limits.KEY_NUMBER_MAX:
            return stuck
        if timers:
            due += timer_due
        if not due:
            return None
        # A parent without a time limit may continue at any time.
        due_ms = min(due)
        return 0.0 if due_ms == limits.KEY_NUMBER_MAX else max(due_ms - tx.now_ms, 0) / 1000

    async def _emit(self, app: App, tx: Transaction, id_: str, job: Any, name: str) -> None:
        """Send an event to a job. The value depends on its body: it is the same in all runs."""
        values = self._events[name]
        body = msgspec.json.encode([name, job["body"]], order="sorted")
        value = values[crc32(body) % len(values)]
        self._note(f"somebody sends the event {name!r} to {id_}: {value!r}")
        await emit(tx, app.node.schedule, id_, name, value)

    async def _timers(self, tx: Transaction) -> list[Any]:
        """Active timers that fire once, and soon enough for a simulation."""
        rows = await self._rows(tx, timer_partition)
        return [
            row
            for row in rows
            if row.value.get("state", "active") == "active"
            and not row.value["spec"].get("repeat")
            and 0 < row.value["due_ms"] <= row.value["created_ms"] + _TIMER_MS_MAX
        ]

    async def _operate(self, app: App, tx: Transaction) -> int:
        """Settle jobs in doubt, and redrive those whose attempts are exhausted."""
        schedule, changed = app.node.schedule, 0
        for row in await self._rows(tx, job_partition):
            if not row.key[1].endswith("#job"):
                continue
            id_, stage = row.key[1].removesuffix("#job"), row.value["stage"]
            if stage == "in_doubt":
                done = self.services.by_job[id_] > 0
                for name in await steps.in_doubt(tx, id_):
                    result = self.services.last.get(id_) if done else None
                    self._note(f"the operator settles {id_}: {'done' if done else 'not done'}")
                    await steps.settle(tx, schedule, id_, name, result=result, done=done)
                    self.entered += [result] * done
                    changed += 1
            elif stage == "failed" and self._exhausted(id_, row.value):
                self._redrives[id_] = self._redrives.get(id_, 0) + 1
                self._note(f"the operator redrives {id_}")
                await schedule.retry(tx, id_)
                changed += 1
        return changed

    def _exhausted(self, id_: str, job: dict[str, Any]) -> bool:
        often = self._redrives.get(id_, 0) >= _REDRIVES_MAX
        return not often and 0 < job.get("attempts_max", 0) <= job.get("attempt", 0)

    async def _outcome(self, app: App, tx: Transaction) -> dict[str, Any]:
        rooms = {}
        for row in await tx.scan("rooms"):
            id_ = row.key[1]
            rooms[id_] = await app.rooms.peek(tx, id_, lambda state: state.plain())
        return {"rooms": rooms}

    def judge(self, history: History) -> None:
        """`search` compares the outcome."""
