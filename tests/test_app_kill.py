"""Callers send each message many times to a process that is killed: each takes effect once."""

import asyncio
import sys
from pathlib import Path
from random import Random

import pytest

from onceward.app import App
from onceward.clock import Clock
from onceward.schedule import Job
from onceward.store.transaction import Transaction
from tests.inbox_child import QUEUE, effect_key

pytestmark = pytest.mark.inbox

ROOT = Path(__file__).parent.parent
SENDS = 10
CALLERS = 50


class Victim:
    """The process, started again whenever it was killed."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "app.db")
        self.socket = str(folder / "socket")
        self.process: asyncio.subprocess.Process | None = None
        self.kills = 0

    async def start(self) -> None:
        Path(self.socket).unlink(missing_ok=True)
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.inbox_child", self.path, self.socket), cwd=ROOT
        )

    async def kill(self) -> None:
        assert self.process is not None
        assert self.process.returncode is None, "it has ended by itself"
        self.process.kill()
        await self.process.wait()
        self.kills += 1

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection, as soon as someone listens."""
        clock = Clock()
        while True:
            try:
                return await asyncio.open_unix_connection(self.socket)
            except (FileNotFoundError, ConnectionRefusedError):
                await clock.sleep(0.02)


class Callers:
    """Send each key many times, in any order, and again until there is an answer."""

    def __init__(self, victim: Victim, keys: list[str], random: Random) -> None:
        self.victim = victim
        self.to_send = [key for key in keys for _ in range(SENDS)]
        random.shuffle(self.to_send)
        self.ids: dict[str, str] = {}
        self.answers = 0
        self.sent = 0
        self.answered = asyncio.Event()

    async def call(self) -> None:
        """One caller: a message after the other."""
        while self.to_send:
            reader, writer = await self.victim.connect()
            try:
                while self.to_send:
                    key = self.to_send.pop()
                    if not await self._send(key, reader, writer):
                        self.to_send.append(key)  # whoever comes next sends it again
                        break
            finally:
                writer.close()

    async def _send(
        self, key: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        self.sent += 1
        try:
            writer.write(f"{key}\n".encode())
            line = (await reader.readline()).decode()
        except ConnectionError:
            return False
        if not line.endswith("\n"):
            return False
        id_ = line.strip()
        assert self.ids.setdefault(key, id_) == id_, f"{key} has become two jobs"
        self.answers += 1
        self.answered.set()
        return True

    async def until(self, answers: int) -> None:
        while self.answers < answers:
            self.answered.clear()
            await self.answered.wait()


async def send_and_kill(victim: Victim, callers: Callers, kills: int, random: Random) -> None:
    """Let all callers send, and kill the process so often meanwhile."""
    total = len(callers.to_send)
    await victim.start()
    calling = [asyncio.create_task(callers.call()) for _ in range(CALLERS)]
    for number in range(kills):
        # Anywhere in its share of the messages, and a moment later.
        await callers.until(int((number + random.random()) * total / kills))
        await Clock().sleep(random.uniform(0, 0.05))
        await victim.kill()
        await victim.start()
    await asyncio.gather(*calling)


async def finish(victim: Victim, callers: Callers) -> None:
    """Wait for all jobs, and end the process in good order."""
    reader, writer = await victim.connect()
    for id_ in callers.ids.values():
        writer.write(f"wait {id_}\n".encode())
        assert await reader.readline() == b"succeeded\n"
    writer.write(b"finish\n")
    assert victim.process is not None
    assert await victim.process.wait() == 0
    writer.close()


async def judge(path: str, callers: Callers, keys: list[str]) -> int:
    """See that each key has led to one job, and its effects to one commit; returns how many
    jobs took more than one attempt."""
    async with App(f"sqlite:///{path}") as app:
        jobs: dict[str, list[tuple[str, Job]]] = {}
        for slot in range(app.node.schedule.slots):
            for record in await app.store.engine.scan(f"job#{slot:04d}", 0, limit=10_000):
                id_, _, kind = record.key[1].partition("#")
                if kind == "job":
                    job = await app.job(id_)
                    jobs.setdefault(job.body["key"], []).append((id_, job))
        assert jobs.keys() == set(keys), "a message was lost"
        for key, found in jobs.items():
            assert len(found) == 1, f"{key} has become {len(found)} jobs"
            [(id_, job)] = found
            assert callers.ids[key] == id_, f"the callers of {key} were told of another job"
            assert (job.state, job.queue) == ("succeeded", QUEUE), (
                f"{key} is {job.state}: {job.reason}"
            )

            async def count(tx: Transaction, key: str = key) -> int:
                return await tx.get(effect_key(key), int) or 0

            assert await app.run(count) == 1, f"{key} took effect another number of times"
        return sum(found[0][1].attempt > 1 for found in jobs.values())


@pytest.mark.timeout(2700)
async def test_each_key_takes_effect_once_however_often_the_process_is_killed(
    tmp_path: Path, soak: bool
) -> None:
    random = Random()
    keys = [f"key {number}" for number in range(10_000 if soak else 400)]
    kills = 10 if soak else 4
    victim = Victim(tmp_path)
    callers = Callers(victim, keys, random)
    begun_ns = Clock().elapsed_ns()
    try:
        await send_and_kill(victim, callers, kills, random)
        await finish(victim, callers)
    finally:
        if victim.process is not None and victim.process.returncode is None:
            victim.process.kill()
            await victim.process.wait()
    assert callers.ids.keys() == set(keys)
    again = await judge(victim.path, callers, keys)
    check = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "onceward", "db", "check", victim.path),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await check.communicate()
    assert check.returncode == 0, said.decode()
    took_s = (Clock().elapsed_ns() - begun_ns) / 1e9
    print(
        f"{len(keys)} keys, {callers.sent} sent by {CALLERS} callers, {callers.answers} answered, "
        f"{victim.kills} kills: each took effect once; {again} needed more than one attempt, "
        f"{took_s:.0f} s"
    )
