"""Applications that share one memory in virtual time, each in a process of its own."""

import asyncio
import random
from typing import Any

from onceward.app import App
from onceward.engine.base import Engine, Put, Write
from onceward.engine.memory import Memory, MemoryEngine
from onceward.ids import Ids
from onceward.json_values import decode
from onceward.keys import USER, Key, shown_key, user_key
from onceward.store import Store
from onceward.testing.clock import Process, VirtualClock, VirtualLoop
from tests.schedule.cluster import TestEngine
from tests.schedule.jobs import all_records, problems


class Apps:
    """A database, and the applications on it."""

    def __init__(self, *, shared: bool = True, deaf: bool = False) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.memory = Memory()
        self.shared = shared
        self.deaf = deaf
        self.clock = VirtualClock()
        self.engines: list[TestEngine] = []
        self.processes: dict[App, Process] = {}

    def make(self, **options: Any) -> App:
        """An application to be declared and started; small and without much patience."""
        engine = TestEngine(self.memory, deaf=self.deaf)
        engine.shared = self.shared
        self.engines.append(engine)
        name = f"app{len(self.engines)}"

        def store(engine: Engine) -> Store:
            clock = VirtualClock()
            return Store(engine, clock, Ids(clock.now_ms, random.Random(name).randbytes))

        return App(engine, **{"name": name, "slots": 4, "store": store, **options})

    async def start(self, app: App) -> Process:
        """Start an application in a process that can be paused and killed."""
        process = self.processes[app] = self.loop.process(f"process{len(self.processes)}")
        await process.spawn(app.start())
        return process

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    @property
    def commits(self) -> list[list[Write]]:
        """All commits of all applications that wrote something."""
        return [list(writes) for engine in self.engines for writes in engine.commits]

    def commits_of(self, key: Key, *, internal: bool = False) -> list[list[Write]]:
        """Those that have put something under a key of the application, or an internal one."""
        key = key if internal else user_key(key)
        return [c for c in self.commits if any(w.key == key and type(w) is Put for w in c)]

    def value(self, key: Key, *, internal: bool = False) -> Any:
        """What the application has under a key, or an internal record; None if nothing."""
        key = key if internal else user_key(key)
        record = self.records.get(key)
        return None if record is None else decode(record.value, Any, key)

    @property
    def own(self) -> dict[Key, Any]:
        """The records of the application, by its own keys."""
        return {shown_key(key): r for key, r in self.records.items() if key[0].startswith(USER)}

    @property
    def records(self) -> dict[Key, Any]:
        return all_records(MemoryEngine(self.memory))

    @property
    def problems(self) -> list[str]:
        return problems(MemoryEngine(self.memory))


def no_tasks_left(before: set["asyncio.Task[Any]"]) -> list[str]:
    """The names of tasks that were not there before."""
    return [task.get_name() for task in asyncio.all_tasks() - before if not task.done()]
