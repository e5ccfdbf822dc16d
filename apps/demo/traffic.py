"""Generated traffic: orders with duplicates, and timers that call the desk.

Senders record acknowledged messages in a book, and the desk records their effects in the same book.
Acknowledged messages without an effect are looked up after a while.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any

import msgspec

from apps.demo.book import Book
from apps.demo.settings import ORDERS
from apps.demo.switch import Switch
from onceward import NoSuchJob, NoSuchTimer, OncewardError
from onceward.client import Client

_ORDER_S, _TIMER_S = 0.6, 2.5
_TIMES_MAX, _TENFOLD = 4, 10
_DELAY_S_MIN, _DELAY_S_MAX = 1.0, 4.0
# The maximum number of concurrent sends.
_SENDERS_MAX = 20
# The age at which a missing effect is looked up, and the interval.
_OVERDUE_MS = 10_000
_ASK_S = 3.0
_LATE_KEPT = 200
_YOURS_KEPT = 4


class Yours(msgspec.Struct):
    """A timer that was created on the page."""

    id: str
    due_ms: int
    late_ms: float | None = None
    """Set on arrival."""


class Traffic:
    """Sends messages and records results."""

    def __init__(self, client: Client, outside: str, switch: Switch) -> None:
        """`outside` is the URL that timers call."""
        self.orders, self.timers = Book(), Book()
        self.tenfold = False
        """Whether everything is sent ten times."""
        self.waiting = 0
        """Sends without a response yet."""
        self.late_ms: deque[float] = deque(maxlen=_LATE_KEPT)
        """The lateness of the last timers."""
        self.yours: deque[Yours] = deque(maxlen=_YOURS_KEPT)
        self._client = client
        self._clock = client.clock
        self._chance = client.ids.fraction
        self._outside = outside
        self._switch = switch
        self._sending: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        # Makes keys unique in a database of an earlier run.
        self._run = client.ids.new()[-4:].lower()

    async def run(self) -> None:
        """Send while the switch is on, and look up missing effects, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._switch.while_on(self._order_again, self._clock))
                group.create_task(self._switch.while_on(self._set_again, self._clock))
                group.create_task(self._follow())
        finally:
            for task in self._sending:
                task.cancel()

    # Sending.

    async def _order_again(self) -> None:
        while True:
            await self._clock.sleep(_ORDER_S * (0.5 + self._chance()))
            self._begin(self.order)

    async def _set_again(self) -> None:
        while True:
            await self._clock.sleep(_TIMER_S * (0.5 + self._chance()))
            delay_s = _DELAY_S_MIN + (_DELAY_S_MAX - _DELAY_S_MIN) * self._chance()
            self._begin(partial(self.set_timer, delay_s))

    def _begin(self, send: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        if len(self._sending) < _SENDERS_MAX:
            task = asyncio.create_task(_unless_refused(send()))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def order(self) -> None:
        """Send an order, with duplicates at the same time and with the same key."""
        key = f"order-{self._run}-{next(self._numbers)}"
        times = _TENFOLD if self.tenfold else 1 + int(_TIMES_MAX * self._chance())
        await self._often(times, lambda: self._order(key))

    async def _order(self, key: str) -> None:
        receipt = await self._client.send(ORDERS, {"order": key}, key=key)
        now_ms = self._clock.now_ms()
        self.orders.acknowledge(key, receipt.id, now_ms, duplicate=receipt.duplicate)

    async def set_timer(self, delay_s: float, *, yours: bool = False) -> Yours:
        """Create a timer that calls the desk; with `yours`, for display on the page."""
        id_ = f"timer-{self._run}-{next(self._numbers)}"
        due: list[int] = []

        async def send() -> None:
            timer = await self._client.timers.create(
                id=id_, url=f"{self._outside}/hook/{id_}", delay_s=delay_s
            )
            due.append(timer.due_ms)
            self.timers.acknowledge(id_, id_, self._clock.now_ms(), duplicate=timer.duplicate)

        times = _TENFOLD if self.tenfold else 1
        await self._often(times, send)
        set_ = Yours(id_, due[0])
        if yours:
            self.yours.append(set_)
        return set_

    async def _often(self, times: int, send: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.waiting += times
        sending = [asyncio.ensure_future(send()) for _ in range(times)]
        for one in sending:
            one.add_done_callback(self._answered)
        await asyncio.gather(*sending)

    def _answered(self, sending: "asyncio.Future[None]") -> None:
        self.waiting -= 1

    # Effects.

    def arrive(self, timer: str, id_: str, due_ms: int) -> None:
        """Record the call of a timer."""
        late_ms = self._clock.now_ns() / 1e6 - due_ms
        before = self.timers.counts().repeated
        self.timers.effect(timer, id_)
        if self.timers.counts().repeated == before:
            self.late_ms.append(late_ms)
            for mine in self.yours:
                if mine.id == timer and mine.late_ms is None:
                    mine.late_ms = late_ms

    async def _follow(self) -> None:
        """Look up overdue messages at intervals: they are in progress or lost."""
        while True:
            await self._clock.sleep(_ASK_S)
            before_ms = self._clock.now_ms() - _OVERDUE_MS
            for key, id_ in self.orders.overdue(before_ms):
                await _unless_refused(self._find_order(key, id_))
            for key, id_ in self.timers.overdue(before_ms):
                await _unless_refused(self._find_timer(key, id_))

    async def _find_order(self, key: str, id_: str) -> None:
        try:
            job = await self._client.jobs.get(id_)
            if job.state == "succeeded":
                job = await self._client.jobs.get(job.result["parcel"])
        except NoSuchJob:
            self.orders.lose(key)
            return
        if job.ended or job.state == "failed":
            # If it had reached the carrier, it would be in the book.
            self.orders.lose(key)

    async def _find_timer(self, key: str, id_: str) -> None:
        try:
            timer = await self._client.timers.get(id_)
        except NoSuchTimer:
            self.timers.lose(key)
            return
        if timer.state not in ("active", "firing"):
            self.timers.lose(key)


async def _unless_refused(work: Coroutine[Any, Any, Any]) -> None:
    """Run a task and ignore errors of the server: nothing was acknowledged."""
    try:
        await work
    except OncewardError:
        pass
