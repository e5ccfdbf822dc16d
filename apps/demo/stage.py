"""The stage: starts and restarts all processes, runs the page's commands, and reports the state.

It is the parent of the other processes, which end with it.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

from apps.credit.bureau import Bureau
from apps.credit.salesforce import Salesforce
from apps.demo.crew import Kept
from apps.demo.crowd import Bots, People
from apps.demo.desk import Desk, Order
from apps.demo.settings import Settings
from apps.demo.storm import Plan, Storm
from apps.demo.switch import Switch
from apps.demo.traffic import Traffic
from apps.demo.views import Beat, Event, Killed, Machines, Mood, State
from onceward import BadInput, Clock, Ids, OncewardError
from onceward.client import Client

WORKERS = 2
_BEATS_KEPT = 60
_EVENTS_KEPT = 6
_PULL_S = 3.0
_FAILING = 0.05
# Time for the response before the server is killed.
_FUSE_S = 0.1


class Stage:
    """One demonstration."""

    def __init__(
        self,
        port: int,
        folder: Path,
        *,
        traffic: bool = True,
        plan: Plan | None = None,
        pull_s: float = _PULL_S,
        server_key: str = "",
    ) -> None:
        """`port` is a free port for the server; all data is in `folder`. `server_key` is for a
        temporary folder."""
        self._clock = Clock()
        self._ids = Ids(self._clock.now_ms)
        self._desk = Desk(self._ids)
        self._switch = Switch(traffic)
        self._settings = Settings(
            parent=os.getpid(),
            port=port,
            database=f"sqlite:///{(folder / 'demo.db').resolve()}",
            outside=self._desk.outside,
            control=self._desk.control,
            secret=self._ids.token(16),
            server_key=server_key,
        )
        self._client = Client(self._settings.server, clock=self._clock, ids=self._ids)
        self._traffic = Traffic(self._client, self._desk.outside, self._switch)
        chance = self._ids.fraction
        self._bureau = Bureau(chance, clock=self._clock, pull_s=pull_s, keys=True, failing=_FAILING)
        self._salesforce = Salesforce(chance, failing=_FAILING)
        self._server = self._kept("server", folder, ("server",), self._server_came)
        self._workers = [
            self._kept(name, folder, ("worker", name))
            for name in (f"worker-{number + 1}" for number in range(WORKERS))
        ]
        self._storm = Storm(
            plan or Plan(),
            f"{self._settings.server}/credit/soap/{self._settings.secret}",
            self._bureau,
            self._salesforce,
            self._kill_worker,
            self._clock,
            chance,
        )
        self._blowing: asyncio.Task[None] | None = None
        self._beats: deque[Beat] = deque(maxlen=_BEATS_KEPT)
        self._killed: list[str] = []
        self._events: deque[Event] = deque(maxlen=_EVENTS_KEPT)
        self._told = 0
        self._announce_again: Callable[[str], None] = lambda link: None

    async def run(
        self,
        announce: Callable[[str, str], None],
        announce_again: Callable[[str], None] = lambda link: None,
    ) -> None:
        """Run until cancelled, then stop everything.

        `announce` is called with the URL and a console link once the server and workers are ready.
        `announce_again` gets a new link after each restart of the server, which invalidates the old
        one. Raises `OncewardError` if a process cannot be started.
        """
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(
                    self._desk.open(
                        self._traffic, self._bureau, self._salesforce, self.state, self.do
                    )
                )
                await stack.enter_async_context(self._client)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._server.run())
                    await self._server.up.wait()
                    for worker in self._workers:
                        group.create_task(worker.run())
                    group.create_task(self._traffic.run())
                    for crowd in (Bots(self._client), People(self._client)):
                        leave = getattr(crowd, "leave", None)
                        group.create_task(self._switch.while_on(crowd.run, self._clock, leave))
                    group.create_task(self._beat())
                    self._group = group
                    for worker in self._workers:
                        await worker.up.wait()
                    announce(self._settings.server, self._server.said)
                    self._announce_again = announce_again
        except ExceptionGroup as failed:
            for error in failed.exceptions:
                if isinstance(error, OncewardError):
                    raise error from failed
            raise
        finally:
            self._desk.close()

    # Commands of the page.

    async def do(self, order: Order) -> Any:
        """Run a command of the page. Raises `BadInput` if it is not possible now."""
        match order.what:
            case "worker":
                if not self._kill_worker():
                    raise BadInput("no worker is running; they are being restarted")
            case "plug":
                if not self._server.up.is_set():
                    raise BadInput("the server is not running")
                self._group.create_task(self._pull_plug())
            case "tenfold":
                self._traffic.tenfold = order.on
                self._tell("Every message is sent ten times." if order.on else "Back to normal.")
            case "traffic":
                self._switch.turn(order.on)
                self._tell("Traffic is on." if order.on else "Traffic is off.")
            case "storm":
                if self._blowing is not None and not self._blowing.done():
                    raise BadInput("the storm is already running", code="already_ended")
                self._blowing = self._group.create_task(self._blow())
            case "timer":
                return await self._traffic.set_timer(order.delay_s, yours=True)
        return None

    async def _pull_plug(self) -> None:
        await self._clock.sleep(_FUSE_S)
        if self._server.kill():
            self._killed.append("server")
            self._tell("Killed the server.", "bad")

    def _kill_worker(self) -> bool:
        there = [worker for worker in self._workers if worker.up.is_set()]
        worker = min(there, key=lambda one: one.kills, default=None)
        if worker is None or not worker.kill():
            return False
        self._killed.append("worker")
        self._tell(f"Killed {worker.name}; it is being replaced.", "bad")
        return True

    async def _blow(self) -> None:
        plan = self._storm.plan
        self._tell(f"Storm started: {plan.applications} applications, {plan.times} times each.")
        view = await self._storm.run()
        if view.wrong:
            self._tell(f"Storm ended with errors: {'; '.join(view.wrong)}.", "bad")
        else:
            self._tell(f"Storm ended: {view.pulls} pulls, {view.stopped} duplicates.", "good")

    # State.

    def state(self) -> State:
        """The state for the page."""
        late = sorted(self._traffic.late_ms)
        return State(
            token=self._desk.token,
            now_ms=self._clock.now_ms(),
            traffic=self._switch.is_on,
            tenfold=self._traffic.tenfold,
            waiting=self._traffic.waiting,
            machines=Machines(
                self._server.starts,
                self._server.kills,
                self._server.away_ms,
                len(self._workers),
                sum(worker.up.is_set() for worker in self._workers),
                sum(worker.kills for worker in self._workers),
            ),
            orders=self._traffic.orders.counts(),
            timers=self._traffic.timers.counts(),
            late_ms=median(late) if late else None,
            late_ms_max=late[-1] if late else None,
            yours=list(self._traffic.yours),
            storm=self._storm.view,
            beats=list(self._beats),
            events=list(self._events),
        )

    def summary(self) -> str:
        """A summary in one sentence."""
        counts = [self._traffic.orders.counts(), self._traffic.timers.counts()]
        acknowledged, in_effect, under_way, lost, doubled = (
            sum(getattr(one, name) for one in counts)
            for name in ("acknowledged", "in_effect", "under_way", "lost", "doubled")
        )
        return (
            f"{acknowledged:,} acknowledged, {in_effect:,} took effect, {under_way:,} in progress, "
            f"{lost:,} lost, {doubled:,} doubled"
        )

    async def _beat(self) -> None:
        """Record the acknowledged messages and effects of each second."""
        books = (self._traffic.orders, self._traffic.timers)
        acknowledged = in_effect = 0
        while True:
            await self._clock.sleep(1.0)
            counts = [book.counts() for book in books]
            now = sum(one.acknowledged for one in counts), sum(one.in_effect for one in counts)
            killed, self._killed = self._killed, []
            what: Killed = "server" if "server" in killed else "worker" if killed else ""
            self._beats.append(Beat(now[0] - acknowledged, now[1] - in_effect, what))
            acknowledged, in_effect = now

    def _kept(
        self,
        name: str,
        folder: Path,
        arguments: tuple[str, ...],
        came: Callable[[Kept], None] = lambda kept: None,
    ) -> Kept:
        told = self._settings.environment()
        return Kept(name, folder, ("-m", "apps.demo.process", *arguments), told, self._clock, came)

    def _server_came(self, server: Kept) -> None:
        if server.starts == 1:
            self._tell("The server is running.", "good")
            return
        waiting = self._traffic.waiting
        waited = f" {waiting} messages waited." if waiting else ""
        self._tell(f"The server is back after {server.away_ms / 1000:.2f} s.{waited}", "good")
        self._announce_again(server.said)

    def _tell(self, text: str, mood: Mood = "plain") -> None:
        self._told += 1
        self._events.append(Event(self._told, self._clock.now_ms(), text, mood))
