"""Real processes use locks on one PostgreSQL, are killed and paused, and the history is judged."""

import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from onceward import engine
from onceward.clock import Clock
from onceward.locks import LockTable
from onceward.store import Store
from onceward.testing.locks import EFFECTS, LockEvent, collect_uses, judge_effects, judge_locks
from tests.locks.locks_child import CAPACITIES, LEASE_MS

pytestmark = pytest.mark.locks

ROOT = Path(__file__).parents[2]
# What the pipe and the scheduler may take between a step and its time.
SLACK_NS = 50_000_000
OPERATIONS = 100_000


class Child:
    """A process, and the steps that it has said."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: list[LockEvent] = []
        self.troubles: Counter[str] = Counter()
        self.over = False
        self.ready = asyncio.Event()
        self.asked = 0
        self.heard = asyncio.Event()

    async def start(self, url: str, users: int) -> "Child":
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.locks.locks_child", url, self.name, str(users)),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        self.listening = asyncio.create_task(self._listen())
        return self

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            if not line.endswith(b"\n"):
                return
            first, *words = json.loads(line)
            if isinstance(first, int):
                self.steps.append(LockEvent(first, *words))
                self.asked += words[0] == "asked"
                self.heard.set()
            elif first == "trouble":
                self.troubles[words[0]] += 1
            self.over = self.over or first == "over"
            self.ready.set()
        self.ready.set()

    def signal(self, number: signal.Signals) -> None:
        if self.process.returncode is None:
            self.process.send_signal(number)

    async def end(self) -> str:
        """Let it come to its end; returns what it complained about."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        await self.listening
        complaints = await self.process.stderr.read()
        await self.process.wait()
        return complaints.decode()


class Crowd:
    """Processes that come and go."""

    def __init__(self, url: str, users: int, random: Random) -> None:
        self.url = url
        self.users = users
        self.random = random
        self.children: list[Child] = []
        self.alive: list[Child] = []
        self.happened: Counter[str] = Counter()

    async def add(self) -> None:
        child = await Child(f"p{len(self.children)}").start(self.url, self.users)
        self.children.append(child)
        self.alive.append(child)
        await child.ready.wait()

    async def kill(self) -> None:
        victim = self.random.choice(self.alive)
        self.happened["killed"] += 1
        self.alive.remove(victim)
        victim.signal(signal.SIGKILL)
        assert await victim.end() == ""
        await self.add()

    async def pause(self, pause_s: float) -> None:
        victim = self.random.choice(self.alive)
        self.happened["paused"] += 1
        victim.signal(signal.SIGSTOP)
        await Clock().sleep(pause_s)
        victim.signal(signal.SIGCONT)

    async def progress(self, count: int) -> None:
        """Wait until so many more uses were asked for."""
        enough = self.asked + count
        while self.asked < enough:
            for child in self.alive:
                child.heard.clear()
            heard = [asyncio.create_task(child.heard.wait()) for child in self.alive]
            await asyncio.wait(heard, return_when=asyncio.FIRST_COMPLETED)
            for task in heard:
                task.cancel()

    async def end(self) -> None:
        for child in self.alive:
            assert await child.end() == ""
            assert child.over

    @property
    def asked(self) -> int:
        return sum(child.asked for child in self.children)


async def judge(url: str, steps: list[LockEvent]) -> Counter[str]:
    uses = collect_uses(steps, slack_ns=SLACK_NS)
    judge_locks(uses, slack_ns=SLACK_NS)
    async with await engine.open(url) as database:
        store = Store(database)
        effects = {row.key[1]: row.value for row in await store.run(lambda tx: tx.scan(EFFECTS))}
        judge_effects(uses, effects)
        # All who are left end by their leases, and nobody waits in vain.
        table = LockTable(store.ids, 8)
        for name in CAPACITIES:
            status = await store.run(lambda tx, name=name: table.status(tx, name))
            if status is None:
                continue  # nobody has used it
            assert (len(status.holders), len(status.waiters)) == (status.held, status.waiting)
    return Counter(step.what for step in steps)


@pytest.mark.timeout(2700)
async def test_histories_of_processes_that_are_killed_and_paused_are_right(
    url: str, soak: bool
) -> None:
    random, clock = Random(), Clock()
    crowd = Crowd(url, users=16 if soak else 6, random=random)
    start_ns = clock.elapsed_ns()
    try:
        for _ in range(3 if soak else 2):
            await crowd.add()
        while crowd.asked < (OPERATIONS if soak else 300) or crowd.happened.total() < 3:
            await crowd.progress(random.randrange(1, 1_000) if soak else 100)
            if not crowd.happened["killed"] or (soak and random.random() < 0.4):
                await crowd.kill()
            else:
                await crowd.pause(random.choice((0.05, 0.5, 2 * LEASE_MS / 1000)))
        await crowd.end()
    finally:
        for child in crowd.alive:
            child.signal(signal.SIGKILL)
    took_s = (clock.elapsed_ns() - start_ns) / 1e9
    steps = [step for child in crowd.children for step in child.steps]
    counts = await judge(url, steps)
    troubles = sum((child.troubles for child in crowd.children), Counter())
    print(f"\n{dict(counts)} in {took_s:.0f} s, {dict(crowd.happened)}, troubles {dict(troubles)}")
    assert counts["granted"] > counts["asked"] / 4
