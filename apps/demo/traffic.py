"""A little traffic: orders of an impatient sender, and timers that call the desk.

Senders note in a book what the server has acknowledged. What comes of it arrives at the desk, and
is noted in the same book. What was acknowledged long ago and has not arrived is asked for.
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
# Senders who wait for an answer. When so many do, no others begin.
_SENDERS_MAX = 20
# After so long it is asked what has become of something; and so often.
_OVERDUE_MS = 10_000
_ASK_S = 3.0
_LATE_KEPT = 200
_YOURS_KEPT = 4


class Yours(msgspec.Struct):
    """A timer that was set on the page."""

    id: str
    due_ms: int
    late_ms: float | None = None
    """Once it has arrived."""


class Traffic:
    """Sends, and keeps the books."""

    def __init__(self, client: Client, outside: str, switch: Switch) -> None:
        """`outside` is where timers call."""
        self.orders, self.timers = Book(), Book()
        self.tenfold = False
        """Whether everything is sent ten times."""
        self.waiting = 0
        """Sends that have no answer yet."""
        self.late_ms: deque[float] = deque(maxlen=_LATE_KEPT)
        """How late timers came, the last ones."""
        self.yours: deque[Yours] = deque(maxlen=_YOURS_KEPT)
        self._client = client
        self._clock = client.clock
        self._chance = client.ids.fraction
        self._outside = outside
        self._switch = switch
        self._sending: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        # So that keys are new in a database that was used before.
        self._run = client.ids.new()[-4:].lower()

    async def run(self) -> None:
        """Send while the switch is on, and look after what was sent, until cancelled."""
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
        """Order something, as often as an impatient sender does: at once, and under one key."""
        key = f"order-{self._run}-{next(self._numbers)}"
        times = _TENFOLD if self.tenfold else 1 + int(_TIMES_MAX * self._chance())
        await self._often(times, lambda: self._order(key))

    async def _order(self, key: str) -> None:
        receipt = await self._client.send(ORDERS, {"order": key}, key=key)
        now_ms = self._clock.now_ms()
        self.orders.acknowledge(key, receipt.id, now_ms, duplicate=receipt.duplicate)

    async def set_timer(self, delay_s: float, *, yours: bool = False) -> Yours:
        """Set a timer that calls the desk; with `yours`, for somebody who watches it."""
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

    # What comes of it.

    def arrive(self, timer: str, id_: str, due_ms: int) -> None:
        """The call of a timer has come to the desk."""
        late_ms = self._clock.now_ns() / 1e6 - due_ms
        before = self.timers.counts().repeated
        self.timers.effect(timer, id_)
        if self.timers.counts().repeated == before:
            self.late_ms.append(late_ms)
            for mine in self.yours:
                if mine.id == timer and mine.late_ms is None:
                    mine.late_ms = late_ms

    async def _follow(self) -> None:
        """Ask for what is overdue, again and again: it is under way, or it is lost."""
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
            # Had it come to the carrier, it would be in the book.
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
    """Do something; what the server refuses, or does not answer for long, is left alone: nothing
    was acknowledged."""
    try:
        await work
    except OncewardError:
        pass
