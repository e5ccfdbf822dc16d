"""Workers on PostgreSQL are killed and stopped in the middle of steps, and by poison."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from onceward.app import App
from onceward.clock import Clock, boot_ns
from onceward.schedule import Job
from onceward.store.transaction import Transaction
from tests.worker_child import POISON_ATTEMPTS, STEPS, Line, effect_key, paid, read

pytestmark = pytest.mark.workers

ROOT = Path(__file__).parent.parent
WORKERS = 3
LEASE_S = 1.0


class Still(NamedTuple):
    """A process stood still, from when to when."""

    process: int
    from_ns: int
    to_ns: int


class Crew:
    """Worker processes: whoever ends is started again."""

    def __init__(self, url: str, folder: Path, random: Random) -> None:
        self.url = url
        self.folder = folder
        self.random = random
        self.kills = self.stops = self.deaths = 0
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self.still: list[Still] = []
        self._stopped: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._clock = Clock()

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        for number in range(WORKERS):
            self._tasks.append(asyncio.create_task(self._keep(f"worker{number}")))
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        for task in self._tasks:
            if not task.cancelled():
                task.result()

    async def _keep(self, name: str) -> None:
        while True:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.worker_child"),
                *(self.url, name, str(self.folder), str(LEASE_S)),
                cwd=ROOT,
            )
            self._processes[name] = process
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            assert process.returncode == -signal.SIGKILL, "it has ended by itself"
            self.deaths += 1

    async def trouble(self) -> None:
        """Kill a worker, or stop one for twice its lease; now and then two."""
        names = [name for name in self._processes if name not in self._stopped]
        name = self.random.choice(names)
        process = self._processes[name]
        if process.returncode is not None:
            return
        if self.random.random() < 0.5:
            send(process, signal.SIGKILL)
            self.kills += 1
            return
        self.stops += 1
        self._stopped.add(name)
        began_ns = boot_ns()
        send(process, signal.SIGSTOP)
        try:
            await self._clock.sleep(2 * LEASE_S)
        finally:
            self.still.append(Still(process.pid, began_ns, boot_ns()))
            if process.returncode is None:
                send(process, signal.SIGCONT)
            self._stopped.discard(name)


def send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal. `Process.send_signal` would look first whether it has just died by itself,
    and take its exit status away from who waits for it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


async def make_trouble(crew: Crew, every_s: float) -> None:
    clock = Clock()
    async with asyncio.TaskGroup() as group:
        while True:
            await clock.sleep(crew.random.uniform(0.5, 1.5) * every_s)
            if len(crew._stopped) < WORKERS - 1:
                group.create_task(crew.trouble())


def woke(line: Line, recorded_ns: int, lines: list[Line], still: list[Still]) -> bool:
    """Whether a step had begun before it was recorded elsewhere, and its process stood still
    between the last look at its lease and the step's first line: which comes first afterwards,
    and is the last of that attempt. No program can keep that from happening; a step that must
    not run again says so (`at_most_once`)."""
    mine = [other.at_ns for other in lines if other.token == line.token]
    return line.at_ns == max(mine) and any(
        stop.process == line.process
        and stop.from_ns < recorded_ns < stop.to_ns <= line.at_ns
        and not any(stop.to_ns <= at_ns < line.at_ns for at_ns in mine)
        for stop in still
    )


def judge_steps(folder: Path, id_: str, job: Job, still: list[Still]) -> int:
    """See that no step ran once it was recorded; returns how many ran more than once."""
    lines = read(folder, id_)
    repeated = 0
    for name in (*STEPS, "pay"):
        ran = paid(lines) if name == "pay" else [line for line in lines if line.what == name]
        recorded = [line.at_ns for line in lines if line.what == f"recorded {name}"]
        assert ran, f"{id_}: {name} never ran"
        # Who runs the next step has found this one recorded.
        if name in STEPS:
            after = "pay" if name == STEPS[-1] else STEPS[STEPS.index(name) + 1]
            recorded += [line.at_ns for line in lines if line.what == after]
        late = [line for line in ran if line.at_ns > min(recorded)]
        if name in STEPS:
            late = [line for line in late if not woke(line, min(recorded), lines, still)]
        assert not late, f"{id_}: {name} ran again once it was recorded: {lines}"
        assert job.result[name] in {line.token for line in ran}
        repeated += len(ran) > 1
    assert len(paid(lines)) == 1, f"{id_} was paid twice: {lines}"
    return repeated


async def effect_of(app: App, id_: str) -> int:
    async def count(tx: Transaction) -> int:
        return await tx.get(effect_key(id_), int) or 0

    return await app.run(count)


async def judge_poison(app: App, folder: Path, ids: list[str], *, exactly: bool) -> None:
    """See that poison is failed after as many attempts as it may have: each has been made or,
    while others kill and stop workers too, was cut off before it began."""
    wanted = list(range(1, POISON_ATTEMPTS + 1))
    for id_ in ids:
        job = await app.wait(id_)
        assert (job.state, job.attempt) == ("failed", POISON_ATTEMPTS), f"{id_}: {job}"
        assert [attempt.attempt for attempt in job.history] == wanted
        made = [line.attempt for line in read(folder, id_)]
        assert made == [n for n in wanted if n in made], f"{id_}: {made}"
        assert made == wanted or not exactly, f"{id_}: {made}"


async def send_poison(app: App, queue: str) -> str:
    return (await app.send(queue, None, attempts_max=POISON_ATTEMPTS)).id


@pytest.mark.timeout(2700)
async def test_no_recorded_step_runs_again_however_workers_are_killed_and_stopped(
    url: str, tmp_path: Path, soak: bool
) -> None:
    random, clock = Random(), Clock()
    count, work_s, poison = (15_000, 600.0, 30) if soak else (160, 4.0, 1)
    crew = Crew(url, tmp_path, random)
    async with App(url, name="sender", slots=16, node_lease_s=LEASE_S) as app, crew.at_work():
        working: list[str] = []
        poisoned: dict[str, list[str]] = {"raising": [], "killing": []}
        await app.wait((await app.send("work", None)).id)  # somebody works
        troubling = asyncio.create_task(make_trouble(crew, 1.0))
        for number in range(count):
            working.append((await app.send("work", number)).id)
            if number % (count // poison) == 0:
                for queue, ids in poisoned.items():
                    ids.append(await send_poison(app, queue))
            await clock.sleep(work_s / count)
        troubling.cancel()
        await asyncio.wait([troubling])
        jobs = {id_: await app.wait(id_) for id_ in working}
        for ids in poisoned.values():
            await judge_poison(app, tmp_path, ids, exactly=False)
        for queue in poisoned:  # and once more, each by itself
            id_ = await send_poison(app, queue)
            await judge_poison(app, tmp_path, [id_], exactly=True)
            poisoned[queue].append(id_)
            failed = await app.queues.failed(queue, limit=1_000)
            assert sorted(letter.id for letter in failed) == sorted(poisoned[queue])
        repeated = 0
        for id_, job in jobs.items():
            assert job.state == "succeeded", f"{id_}: {job}"
            repeated += judge_steps(tmp_path, id_, job, crew.still)
            assert await effect_of(app, id_) == 1
        assert await app.queues.failed("work") == []
    again = sum(job.attempt > 1 for job in jobs.values())
    logs = "".join(file.read_text() for file in tmp_path.glob("*.log"))
    print(
        f"{count} jobs of {len(STEPS) + 1} steps on {WORKERS} workers, {crew.kills} killed, "
        f"{crew.stops} stopped for twice their lease, {sum(map(len, poisoned.values()))} poison "
        f"jobs: each took effect and was paid once, no recorded step ran again; {again} jobs took "
        f"more than one attempt, {repeated} steps were cut off and ran again, "
        f"{logs.count('lease was lost')} leases were lost, {logs.count('stale_token')} ends refused"
    )
