"""A simulated world from one seed: servers, clients, network and database."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Final, TypeVar

from onceward.errors import OncewardError
from onceward.ids import Ids
from onceward.limits import CLOCK_SLEW_PPM
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.testing.clock import Stuck, VirtualClock, VirtualLoop
from onceward.testing.faults import FaultEngine
from onceward.testing.plan import Chance
from onceward.testing.simulation.database import Database, LocalDatabase, SharedDatabase
from onceward.testing.simulation.history import (
    NEVER_NS,
    Call,
    History,
    Mode,
    Note,
    Trace,
    Violation,
)
from onceward.testing.simulation.network import Client, Message, Network
from onceward.testing.simulation.scenario import Scenario
from onceward.testing.simulation.weather import CLOCK_OFFSET_MS_MAX, Chaos, Weather
from onceward.testing.waiting import describe

T = TypeVar("T")

RESTART_S: Final = (0.01, 2.01)
"""The range of times that a crashed server needs to restart."""


class Node:
    """One life of a server, from its start to its crash. A scenario's code runs on it."""

    def __init__(self, world: "World", server: "Server", number: int) -> None:
        self.name = f"{server.name}.{number}"
        self.random = world.stream(self.name)
        self.process = world.loop.process(self.name)
        # NTP has set the wall clock when a machine starts; later it may be wrong.
        offset_ms = self.random.randint(-CLOCK_OFFSET_MS_MAX, CLOCK_OFFSET_MS_MAX)
        self.clock = VirtualClock(world.loop, wall_offset_ms=offset_ms)
        self.ids = Ids(self.clock.now_ms, self.random.randbytes)
        self.plan = world.weather.plan(self.random)
        self.plan.allow = lambda fault: world.allows(f"{self.name} {fault}")
        self.faults = world.database.faults(
            world.database.connect(),
            self.plan,
            crash=lambda: self.crash(),
            observe=lambda what: world.trace.note(f"{self.name} {what}"),
        )
        self.engine = world.scenario.make_engine(self.faults)
        self.store = world.scenario.make_store(self.engine, self.clock, self.ids)
        self.serving: dict[str, asyncio.Task[None]] = {}
        self.ready = False
        self._world = world
        self._server = server
        self._serial = 0

    async def run(
        self, fn: Callable[[Transaction], Coroutine[Any, Any, T]], line: str | None = None
    ) -> T:
        """Like `store.run`, and counts repeated runs of `fn`."""
        runs = 0

        async def counted(tx: Transaction) -> T:
            nonlocal runs
            runs += 1
            if runs > 1:
                self._world.happened("function run again")
            return await fn(tx)

        return await self.store.run(counted, line=line)

    def token(self, message: Message) -> str:
        """A unique name for this execution of a message."""
        self._serial += 1
        return f"{message.id}@{self.name}:{self._serial}"

    def tell(self, topic: str, body: Any) -> None:
        """Send a note to the checks."""
        self._world.trace.note(f"{self.name} tells {topic}: {body}")
        self._world.notes.append(Note(self._world.loop.time_ns(), self.name, topic, body))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start background work, which ends with the node. If it fails, the simulation fails."""
        self._watch(self.process.spawn(work))

    @property
    def calm(self) -> bool:
        """Whether all faults have ended; then scenarios should not end nodes on purpose."""
        return self._world.calm_ns != NEVER_NS

    def crash(self, how: str = "") -> None:
        """End this life immediately; the server restarts after a while."""
        if self.process.dead:
            return
        self.process.kill()
        world = self._world
        if how:
            world.happened(how, self.name)
        if lost := world.database.crash():
            world.happened("unsynced commit gone in a crash", f"{lost} of {self.name}")
        self._server.node = None
        world.later(self._server.random.uniform(*RESTART_S), self._server.start)

    def resume(self) -> None:
        if not self.process.dead and not self.process.running:
            self._world.trace.note(f"{self.name} resumes")
            self.process.resume()

    async def boot(self) -> None:
        await self.engine.open()
        await self._world.scenario.start(self)
        self.ready = True

    def serve(self, message: Message, reply: Callable[[str, Any], None]) -> None:
        """Accept a message, within the process."""
        if self.ready:
            self._serial += 1
            key = f"{message.id}/{self._serial}"
            self.serving[key] = self._watch(self.process.spawn(self._serve(key, message, reply)))

    async def _serve(self, key: str, message: Message, reply: Callable[[str, Any], None]) -> None:
        try:
            body = await self._world.scenario.handle(self, message)
            reply(self.name, body)
            # More likely while commits on which the response depends might be lost.
            weight = 0.5 if self._world.database.settled() else 4
            drawn = self.random.random() < self._world.weather.last_answer * weight
            if drawn and self._world.allows(f"{self.name} crash after an answer"):
                self.crash("crash after an answer")
        except OncewardError as error:
            if not error.kind.retry:
                raise
            self._world.trace.note(f"{self.name} fails {message.id}: {error.code}")
        finally:
            del self.serving[key]

    def _watch(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._world.fail(error)

        task.add_done_callback(ended)
        return task


class Server:
    """A sequence of nodes, one life after the other."""

    def __init__(self, world: "World", name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.lives: list[Node] = []
        self.random = world.stream(name)
        self._world = world

    def start(self) -> None:
        if self.node is not None or self._world.ended:
            return
        node = self.node = Node(self._world, self, len(self.lives) + 1)
        self._world.trace.note(f"{node.name} starts, wall clock {node.clock.wall_offset_ms} ms off")
        if self.lives:
            self._world.happened("restart", node.name)
        self.lives.append(node)
        node.spawn(node.boot())

    def receive(self, message: Message, reply: Callable[[str, Any], None]) -> None:
        if self.node is not None:
            # Through its process: a paused process gets the message when it resumes.
            self.node.process.call_soon(self.node.serve, message, reply)


class World:
    """One run of a scenario. `run` returns the history, checked."""

    def __init__(
        self, scenario: Scenario, seed: int, mode: Mode, servers: int, weather: Weather | None
    ) -> None:
        self.seed = seed
        self.mode: Mode = mode
        self.scenario = scenario
        self.loop = VirtualLoop(stuck_after_s=0.0, waits_for_threads=True)
        self.trace = Trace(self.loop.time_ns)
        self.counts: Counter[str] = Counter()
        self.calls: list[Call] = []
        self.notes: list[Note] = []
        self.ended = False
        self.keep: frozenset[str] | None = None
        """The names of the faults that may happen; None: all that are drawn."""
        self.fired: list[tuple[int, str]] = []
        """The times and names of the faults that were drawn and allowed."""
        self._drawn: Counter[str] = Counter()
        self.calm_ns = NEVER_NS
        self._context = copy_context()
        self._over: asyncio.Future[None] = self.loop.create_future()
        self.weather = weather or Weather.draw(self.stream("weather"), mode, scenario.lasts_s)
        scenario.setup(self.stream("setup"))
        self.database: Database = SharedDatabase()
        if mode == "local":
            stream = self.stream("disk")
            self.database = LocalDatabase(stream, self.weather.sync_s, self.weather.slow_s)
        self.network = Network(self, self.stream("network"))
        self.servers = [Server(self, "abcdefgh"[number]) for number in range(servers)]
        self._chaos = Chaos(self, self.stream("chaos"))

    def stream(self, name: str) -> random.Random:
        """A separate random source, so that consumers do not affect each other."""
        return random.Random(f"{self.seed}/{name}")

    def later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Call a function later, in the world's context instead of a node's."""
        self.loop.call_later(delay_s, callback, *args, context=self._context)

    def happened(self, what: str, where: str = "") -> None:
        """Count a fault that occurred."""
        self.counts[what] += 1
        self.trace.note(f"{what} {where}")

    def allows(self, fault: str) -> bool:
        """Whether a fault that was drawn happens. Equal faults are numbered, so that a run can be
        repeated with some of its faults."""
        self._drawn[fault] += 1
        name = f"{fault} #{self._drawn[fault]}"
        if self.keep is not None and name not in self.keep:
            return False
        self.fired.append((self.loop.time_ns(), name))
        return True

    def fail(self, error: BaseException) -> None:
        """End the run with an error."""
        if not self._over.done():
            self._over.set_exception(error)

    def run(self) -> History:
        """Run to the end and check the history; raises violations."""
        self.loop.set_exception_handler(self._unhandled)
        try:
            self.loop.run_until_complete(self._main())
            for server in self.servers:
                for error in server.node.process.unnoticed() if server.node else ():
                    raise error
            history = self._history()
            self.scenario.judge(history)
            self.counts.update(history.seen)
            return history
        except Stuck as error:
            raise Violation("stuck", str(error)) from error
        finally:
            self.ended = True
            for server in self.servers:
                for node in server.lives:
                    self.counts.update(node.faults.counts)
            self.loop.close()

    async def _main(self) -> None:
        store = self._quiet_store()
        await store.engine.open()
        await self.scenario.prepare(store)
        await store.engine.close()
        for server in self.servers:
            server.start()
        self._chaos.begin()
        self.later(self.weather.lasts_s, self._calm)
        self.later(self.weather.lasts_s + self.scenario.patience_s, self._give_up)
        clients = [self.loop.create_task(self._live(client)) for client in self._clients()]
        for client in clients:
            # A failed client has ended the run already, and the others may wait forever.
            done, _ = await asyncio.wait([client, self._over], return_when=asyncio.FIRST_COMPLETED)
            if self._over in done:
                self._over.result()
        self._calm()
        until_ns = self.calm_ns + round(self.scenario.calm_s * 1e9) if self.scenario.calm_s else 0
        look = self.stream("end")
        while not self._settled() or self.loop.time_ns() < until_ns:
            # Random intervals, so as not to run in step with periodic work of nodes.
            await asyncio.wait([self._over], timeout=look.random())
            if self._over.done():
                self._over.result()
        self.ended = True

    def _quiet_store(self) -> Store:
        clock = VirtualClock(self.loop)
        engine: FaultEngine = self.database.faults(self.database.connect())
        return Store(engine, clock, Ids(clock.now_ms, self.stream("prepare").randbytes))

    def _clients(self) -> list[Client]:
        random = self.stream("clients")
        count = random.randint(*self.scenario.clients)
        each = max(1, random.randint(*self.scenario.operations) // count)
        think_s = random.choice((0.01, 0.1, 0.5))
        return [
            Client(self, f"c{number}", self.stream(f"client {number}"), each, think_s)
            for number in range(count)
        ]

    async def _live(self, client: Client) -> None:
        try:
            await self.scenario.client(client)
        except Exception as error:
            self.fail(error)

    def _calm(self) -> None:
        """End all faults, and resume paused nodes."""
        self._chaos.end()
        self.database.calm()
        if self.calm_ns == NEVER_NS:
            under_way_s = 2 * self.weather.slow_s + RESTART_S[1]
            self.calm_ns = self.loop.time_ns() + round(under_way_s * 1e9)
            self.trace.note("all is calm")
        self.weather = Weather(latency_s=self.weather.latency_s)
        for server in self.servers:
            if server.node is not None:
                server.node.resume()
                assert isinstance(server.node.plan, Chance)
                server.node.plan.calm()

    def _settled(self) -> bool:
        return (
            self.network.on_their_way == 0
            and self.database.settled()
            and all(server.node is not None and not server.node.serving for server in self.servers)
            and all(n.faults.on_their_way == 0 for s in self.servers for n in s.lives)
        )

    def _give_up(self) -> None:
        calls = [f"\n  {call.id} has no answer" for call in self.calls if not call.answers][:5]
        jobs = [f"\n  {line}" for line in self.scenario.unfinished(self.database.final())][:5]
        nodes = [server.node for server in self.servers if server.node is not None]
        tasks = describe(task for node in nodes for task in node.process.tasks)
        self.fail(
            Violation(
                "stuck",
                f"{self.scenario.patience_s:g} s after the last fault, the clients still wait:"
                f"{''.join(calls)}{''.join(jobs)}{tasks}",
            )
        )

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.fail(error if isinstance(error, BaseException) else Violation("error", str(context)))

    def _history(self) -> History:
        # A clock that follows a small step of its wall clock does so by half a ms per second.
        slewed_ms = int(self.loop.time() * CLOCK_SLEW_PPM / 1000) + 1
        error_ms = CLOCK_OFFSET_MS_MAX + slewed_ms
        return History(
            self.mode,
            self.calls,
            self.notes,
            self.database.final(),
            error_ms,
            self.database.commits(),
            self.calm_ns,
        )
