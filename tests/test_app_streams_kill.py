"""Processes are killed while jobs stream: each stream is whole in the end, without repeats."""

import asyncio
import sys
from pathlib import Path
from random import Random

import pytest

from onceward.app import App
from tests.stream_child import CHUNKS, LEASE_S

pytestmark = pytest.mark.kill

ROOT = Path(__file__).parent.parent


async def keep_running(url: str, name: str, jobs: int, kills: int, random: Random) -> int:
    """Run a process, and kill it so often while it streams; returns how often it was killed."""
    killed = 0
    while True:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.stream_child", url, name, str(jobs)),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            lives = random.randint(1, jobs * CHUNKS * 2 - 1)
            while await process.stdout.readline():
                lives -= 1
                if not lives and killed < kills:
                    process.kill()
                    killed += 1
            if await process.wait() == 0:
                return killed
            assert process.returncode == -9, "it has ended by itself"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def run_and_judge(url: str, processes: int, kills: int) -> None:
    jobs, random = 4, Random()
    lives = [keep_running(url, f"p{n}", jobs, kills, random) for n in range(processes)]
    killed = sum(await asyncio.gather(*lives))
    parts = {part: [[part, n] for n in range(CHUNKS)] for part in ("first", "second")}
    attempts = 0
    async with App(url, slots=4, node_lease_s=LEASE_S) as app:
        found = (await app.queues.jobs(queue="story")).jobs
        assert len(found) == jobs
        for job in found:
            assert (job.state, job.progress) == ("succeeded", 1.0)
            chunks = [one.value async for one in app.follow(job.id) if one.kind == "chunk"]
            assert chunks == parts["first"] + parts["second"]
            attempts += job.attempt
    print(f"{killed} kills of {processes} processes, {attempts} attempts of {jobs} jobs")


@pytest.mark.timeout(2700)
async def test_streams_survive_kills_on_sqlite(tmp_path: Path, soak: bool) -> None:
    path = tmp_path / "app.db"
    await run_and_judge(f"sqlite:///{path}", 1, 200 if soak else 3)
    check = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "onceward", "db", "check", str(path)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await check.communicate()
    assert check.returncode == 0, said.decode()


@pytest.mark.timeout(2700)
async def test_streams_survive_kills_on_postgres(url: str, soak: bool) -> None:
    await run_and_judge(url, 2, 50 if soak else 1)
