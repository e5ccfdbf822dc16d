"""Callers send each message many times to a server that is killed, and workers that are killed
claim them: each key is one job, completed once; with the Python client and with plain HTTP."""

import asyncio
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest

from onceward.app import App
from onceward.client import Client
from onceward.clock import Clock
from onceward.schedule import Job
from tests.server_process import ONCEWARD, ROOT, ServerProcess, environment
from tests.web.claimer_child import QUEUE
from tests.web.plain import Plain

pytestmark = pytest.mark.server

SENDS = 10
CALLERS = 50
WORKERS = 2


class Callers:
    """Send each key many times, in any order, until each time is answered."""

    def __init__(self, how: str, server: ServerProcess, keys: list[str], random: Random) -> None:
        self._plain = how == "plain"
        self._server = server
        self.to_send = [key for key in keys for _ in range(SENDS)]
        random.shuffle(self.to_send)
        self.ids: dict[str, str] = {}
        self.firsts = 0
        self.answers = 0
        self._answered = asyncio.Event()

    async def run(self) -> None:
        async with Client(self._server.url, connections=CALLERS, patience_s=120) as client:
            await asyncio.gather(*[self._call(client) for _ in range(CALLERS)])

    async def _call(self, client: Client) -> None:
        """One caller: a message after the other."""
        connection = Plain(self._server.port)
        while self.to_send:
            key = self.to_send.pop()
            if self._plain:
                message = {"body": {"key": key}, "key": key}
                status, receipt = await connection.post(f"/v1/inbox/{QUEUE}", message)
                assert status == (200 if receipt["duplicate"] else 202), receipt
                self._heard(key, receipt["id"], receipt["duplicate"])
            else:
                got = await client.send(QUEUE, {"key": key}, key=key)
                self._heard(key, got.id, got.duplicate)
        connection.close()

    def _heard(self, key: str, id_: str, duplicate: bool) -> None:
        assert self.ids.setdefault(key, id_) == id_, f"{key} has become two jobs"
        self.firsts += not duplicate
        self.answers += 1
        self._answered.set()

    async def until(self, answers: int) -> None:
        while self.answers < answers:
            self._answered.clear()
            await self._answered.wait()


class Crew:
    """Workers, each started again whenever it was killed."""

    def __init__(self, how: str, server: ServerProcess) -> None:
        self._command = (sys.executable, "-m", "tests.web.claimer_child", how, str(server.port))
        self.notes = server.folder / "completed"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.kills = 0

    def start(self) -> None:
        command = [*self._command, str(self.notes)]
        self._processes.append(subprocess.Popen(command, cwd=ROOT, env=environment()))

    def kill(self) -> None:
        process = self._processes.pop(0)
        assert process.poll() is None, "it has ended by itself"
        process.kill()
        process.wait()
        self.kills += 1

    def end(self) -> None:
        while self._processes:
            self.kill()

    def completed(self) -> dict[str, set[str]]:
        """The tokens with which each job was heard to be completed."""
        found: dict[str, set[str]] = defaultdict(set)
        for line in self.notes.read_text().splitlines():
            id_, token = line.split()
            found[id_].add(token)
        return found


async def kill(
    server: ServerProcess, crew: Crew, callers: Callers, kills: int, random: Random
) -> None:
    """Kill the server so often, and as often a worker, while callers send."""
    total = len(callers.to_send)
    for number in range(kills):
        # Anywhere in its share of the messages, and a moment later.
        await callers.until(int((number + random.random()) * total / kills))
        await Clock().sleep(random.uniform(0, 0.05))
        first, second = random.sample([server, crew], 2)
        for victim in (first, second):
            victim.kill()
            await Clock().sleep(random.uniform(0, 0.02))
            victim.start()


async def judge(server: ServerProcess, crew: Crew, callers: Callers, keys: list[str]) -> int:
    """See that each key has led to one job, completed once; returns how many jobs took more than
    one attempt."""
    completed = crew.completed()
    jobs: dict[str, list[tuple[str, Job]]] = {}
    async with App(f"sqlite:///{server.database}") as app:
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
        assert (job.state, job.queue) == ("succeeded", QUEUE), f"{key} is {job.state}: {job.reason}"
        # What a worker has heard is what is there; it may have been killed before it heard.
        assert completed[id_] <= {job.result}, f"{key} was completed more than once"
        assert job.ended_by == job.result
    assert sum(map(bool, completed.values())) >= len(keys) * 0.9, "hardly anything was noted"
    return sum(found[0][1].attempt > 1 for found in jobs.values())


@pytest.mark.timeout(2700)
@pytest.mark.parametrize("how", ["client", "plain"])
async def test_each_key_is_one_job_that_is_completed_once_however_often_all_are_killed(
    tmp_path: Path, soak: bool, how: str
) -> None:
    random, begun_ns = Random(), Clock().elapsed_ns()
    keys = [f"key {number}" for number in range(10_000 if soak else 300)]
    with ServerProcess(tmp_path) as server:
        callers, crew = Callers(how, server, keys, random), Crew(how, server)
        try:
            for _ in range(WORKERS):
                crew.start()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(callers.run())
                tasks.create_task(kill(server, crew, callers, 10 if soak else 3, random))
            async with Client(server.url, patience_s=120) as client:
                for id_ in callers.ids.values():
                    await client.jobs.wait(id_)
        finally:
            crew.end()
        assert callers.ids.keys() == set(keys)
        assert callers.answers == len(keys) * SENDS
        assert callers.firsts <= len(keys)
        assert server.stop() == 0, server.log.read_text()
    again = await judge(server, crew, callers, keys)
    check = await asyncio.create_subprocess_exec(
        *(*ONCEWARD, "db", "check", str(server.database)), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await check.communicate()
    assert check.returncode == 0, said.decode()
    took_s = (Clock().elapsed_ns() - begun_ns) / 1e9
    print(
        f"{how}: {len(keys)} keys, {callers.answers} answers to {CALLERS} callers, {server.kills} "
        f"kills of the server and {crew.kills} of workers: each key is one job, completed once; "
        f"{again} needed more than one attempt, {took_s:.0f} s"
    )
