"""A node: the store, the slots it owns, and the tasks that run on them."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Self

from onceward import limits
from onceward.errors import BadInput, Unavailable
from onceward.maintenance.clock_guard import Timekeeper, note_time
from onceward.maintenance.sweeper import Sweeper
from onceward.maintenance.verifier import Verifier
from onceward.parts import Due, Made, load
from onceward.schedule import Schedule
from onceward.schedule.claims import Claims
from onceward.schedule.dispatcher import Dispatcher
from onceward.schedule.placement import Placement
from onceward.schedule.settings_cache import SettingsCache
from onceward.schedule.takeover import Takeover
from onceward.store import Store
from onceward.store.format import SCHEDULE_KEY, Config, admit_format
from onceward.store.sharing import SharedCommits
from onceward.store.transaction import Transaction
from onceward.work.depths import Depths
from onceward.work.fairness import Fairness


class Node:
    """Runs the schedule of a database on a store, alone or with other nodes."""

    # The classes of its parts; tests may replace them.
    schedule_type: ClassVar[type[Schedule]] = Schedule
    placement_type: ClassVar[type[Placement]] = Placement
    dispatcher_type: ClassVar[type[Dispatcher]] = Dispatcher
    claims_type: ClassVar[type[Claims]] = Claims

    queue_settings: SettingsCache
    schedule: Schedule
    placement: Placement
    dispatcher: Dispatcher
    claims: Claims
    depths: Depths
    parts: Made
    """The objects of all parts, by class: `node.parts.get(LockTable)`."""
    sweeper: Sweeper
    takeover: Takeover
    verifier: Verifier
    timekeeper: Timekeeper

    def __init__(
        self,
        store: Store,
        *,
        name: str = "node",
        slots: int = limits.SLOTS_DEFAULT,
        lease_ms: int = limits.NODE_LEASE_MS,
    ) -> None:
        """The engine must be open. `slots` applies to a new database only, and never changes."""
        if not 0 < slots <= limits.SLOTS_MAX:
            raise BadInput(f"a database must have 1 to {limits.SLOTS_MAX} slots, not {slots}")
        self.store = store
        self.sharing = SharedCommits(
            store, Transaction.fetch_unknown if store.engine.shares_reads else Transaction.fetch
        )
        self._name = name
        self._slots = slots
        self._lease_ms = lease_ms
        self._shares_time = False
        self._acting: list[tuple[tuple[Due, ...], Any]] = []
        self.task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> Self:
        """Join the other nodes, take a share of the slots and start to process them. Raises
        `CannotOpen` for a database of another format."""
        self._shares_time = await self.store.read_time()
        await self.store.judge_time()
        config = await self.store.run(self._configure)
        store = self.store
        self.queue_settings = SettingsCache(store)
        try:
            await self.queue_settings.load()
        except BaseException:
            self.queue_settings.close()
            raise
        schedule = self.schedule_type(store.ids, config.slots, self.queue_settings)
        placement = self.placement_type(
            store, config.slots, name=self._name, lease_ms=self._lease_ms
        )
        self.schedule, self.placement = schedule, placement
        self.dispatcher = self.dispatcher_type(store, schedule, placement)
        self.depths = Depths(store, config.slots, self.queue_settings)
        schedule.admit = self.depths.admit
        fairness = Fairness(store, config.slots)
        schedule.turn_ms = fairness.turn_ms
        self.parts = Made(store.ids, config.slots, schedule)
        for part in load().values():
            if part.make is not None:
                made = part.make(self.parts)
                self.parts.add(made)
                self._acting.append((part.due, made))
        self.claims = self.claims_type(
            store, schedule, placement, self.queue_settings, fairness.started
        )
        self.sweeper = Sweeper(store, placement)
        self.takeover = Takeover(store, schedule)
        self.verifier = Verifier(store)
        self.timekeeper = Timekeeper(store, self.dispatcher.time_moved)
        try:
            await self.depths.follow()
            await placement.step()
        except BaseException:
            self.depths.close()
            self.queue_settings.close()
            self.dispatcher.stop()
            await self.claims.close()
            raise
        self.task = asyncio.create_task(self._run(), name="onceward-node")
        return self

    async def probe(self) -> None:
        """Check that the storage has space for the largest message and that a small commit
        succeeds. Raises `Unavailable` and errors of the storage."""

        async def fn(tx: Transaction) -> None:
            tx.put(("probe", self._name), tx.now_ms)

        try:
            async with asyncio.timeout(limits.PROBE_S):
                await self.store.engine.make_room(limits.VALUE_BYTES_MAX)
                await self.store.run(fn)
        except TimeoutError as error:
            raise Unavailable(
                f"the storage of the node {self._name!r} did not respond within "
                f"{limits.PROBE_S:g} s; check the database"
            ) from error

    def act_on_parts(self) -> None:
        """Process due entries of all parts. Call it after their declarations are complete."""
        for due, made in self._acting:
            self.dispatcher.act_on(due, made)

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()

    def on_end(self, hook: Callable[[], None]) -> None:
        """Call `hook` when the node has stopped for any reason. The node must be running."""
        assert self.task is not None
        self.task.add_done_callback(lambda _: hook())

    async def stop(self) -> None:
        """Finish running work and hand the slots over. Idempotent.

        Raises the error that ended the node earlier, if any.
        """
        self._stopping.set()
        await self.wait()

    async def wait(self) -> None:
        """Wait until the node has stopped. Raises the error that ended it, unless `stop` did."""
        if self.task is not None:
            await asyncio.shield(self.task)

    async def _configure(self, tx: Transaction) -> Config:
        await admit_format(tx)
        config = await tx.get(SCHEDULE_KEY, Config)
        if config is None:
            config = Config(self._slots)
            tx.put(SCHEDULE_KEY, config)
        if not self.store.clock_held:
            await note_time(tx, held=False)
        return config

    async def _run(self) -> None:
        """Run until `stop` or until a part fails. Then all parts end, and other nodes take over."""
        placement = asyncio.create_task(self.placement.run(), name="onceward-placement")
        dispatcher = asyncio.create_task(self.dispatcher.run(), name="onceward-dispatcher")
        endless = [
            asyncio.create_task(self.claims.run(), name="onceward-claims"),
            asyncio.create_task(self.sweeper.run(), name="onceward-sweeper"),
            asyncio.create_task(self.queue_settings.run(), name="onceward-settings"),
        ]
        endless.append(asyncio.create_task(self.timekeeper.run(), name="onceward-timekeeper"))
        if self.verifier.needed:
            endless.append(asyncio.create_task(self.verifier.run(), name="onceward-verifier"))
        if self._shares_time:
            endless.append(asyncio.create_task(self.store.keep_time(), name="onceward-clock"))
        takeover = asyncio.create_task(self.takeover.run(), name="onceward-takeover")
        stopping = asyncio.create_task(self._stopping.wait(), name="onceward-stopping")
        tasks = [placement, dispatcher, *endless, stopping]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in (*endless, takeover, stopping):
                task.cancel()
            self.dispatcher.stop()
            await self.claims.close()
            await asyncio.wait([dispatcher, takeover, *endless])
            self.placement.stop()
            await asyncio.wait([placement])
        finally:
            self.queue_settings.close()
            self.depths.close()
            for task in (*tasks, takeover):
                task.cancel()
        for task in (*tasks, takeover):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()
