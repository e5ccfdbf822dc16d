"""The stage: starts all processes, keeps them running, lets the page break them, and tells how it
goes. It is the parent of the others; when it ends, they do."""

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
# The answer of the server that is to be killed has to get out.
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
        """`port` is that of the server, which nobody else has; everything is kept in `folder`.
        `server_key` is for a folder that is thrown away: without it one is kept elsewhere."""
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
        """Run until cancelled, and then end everything. `announce` hears the address and a link
        into the console, once the server answers and workers work; `announce_again` a new link
        whenever the server has been started again, since the one before is good no more. Raises
        `OncewardError` if a process cannot be started."""
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

    # What the page wants.

    async def do(self, order: Order) -> Any:
        """Do what the page says. Raises `BadInput` for what cannot be done now."""
        match order.what:
            case "worker":
                if not self._kill_worker():
                    raise BadInput("no worker is there just now: they are being started again")
            case "plug":
                if not self._server.up.is_set():
                    raise BadInput("the server is not there just now")
                self._group.create_task(self._pull_plug())
            case "tenfold":
                self._traffic.tenfold = order.on
                self._tell("Everything is sent ten times." if order.on else "Back to normal.")
            case "traffic":
                self._switch.turn(order.on)
                self._tell("The traffic is on." if order.on else "The traffic is off.")
            case "storm":
                if self._blowing is not None and not self._blowing.done():
                    raise BadInput("the storm is blowing already", code="already_ended")
                self._blowing = self._group.create_task(self._blow())
            case "timer":
                return await self._traffic.set_timer(order.delay_s, yours=True)
        return None

    async def _pull_plug(self) -> None:
        await self._clock.sleep(_FUSE_S)
        if self._server.kill():
            self._killed.append("server")
            self._tell("The server was killed.", "bad")

    def _kill_worker(self) -> bool:
        there = [worker for worker in self._workers if worker.up.is_set()]
        worker = min(there, key=lambda one: one.kills, default=None)
        if worker is None or not worker.kill():
            return False
        self._killed.append("worker")
        self._tell(f"{worker.name} was killed, and is replaced.", "bad")
        return True

    async def _blow(self) -> None:
        plan = self._storm.plan
        self._tell(f"A storm: {plan.applications} applications, {plan.times} times each.")
        view = await self._storm.run()
        if view.wrong:
            self._tell(f"The storm is over, and wrong: {'; '.join(view.wrong)}.", "bad")
        else:
            self._tell(f"The storm is over: {view.pulls} pulls, {view.stopped} repeats.", "good")

    # How it goes.

    def state(self) -> State:
        """How all of it goes, as the page is shown it."""
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
        """How it was, in a sentence."""
        counts = [self._traffic.orders.counts(), self._traffic.timers.counts()]
        acknowledged, in_effect, under_way, lost, doubled = (
            sum(getattr(one, name) for one in counts)
            for name in ("acknowledged", "in_effect", "under_way", "lost", "doubled")
        )
        return (
            f"{acknowledged:,} acknowledged, {in_effect:,} took effect, {under_way:,} under way, "
            f"{lost:,} lost, {doubled:,} doubled"
        )

    async def _beat(self) -> None:
        """Note for each second what was acknowledged and what took effect in it."""
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
            self._tell("The server is there.", "good")
            return
        waiting = self._traffic.waiting
        waited = f" {waiting} messages waited." if waiting else ""
        self._tell(f"The server is back after {server.away_ms / 1000:.2f} s.{waited}", "good")
        self._announce_again(server.said)

    def _tell(self, text: str, mood: Mood = "plain") -> None:
        self._told += 1
        self._events.append(Event(self._told, self._clock.now_ms(), text, mood))
