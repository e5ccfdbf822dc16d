"""Processes are killed while their jobs wait for children and events: nothing is lost or repeated.

The judge reads the database after all processes have ended.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest

from onceward.engine.base import Record
from onceward.keys import USER, Key
from onceward.parts import all_rules
from tests.family_child import CHILDREN, EVENTS, RIVALS

pytestmark = pytest.mark.kill

ROOT = Path(__file__).parent.parent
Records = dict[Key, Record]


async def keep_running(
    module: str, arguments: Sequence[str], kills: int, most: int, random: Random
) -> tuple[int, int]:
    """Run a process, and kill it so often after it has printed up to `most` lines; returns the
    number of lines and of kills."""
    ran = killed = 0
    while True:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            lives = random.randint(1, most)
            while await process.stdout.readline():
                ran += 1
                lives -= 1
                if not lives and killed < kills:
                    process.kill()
                    killed += 1
            if await process.wait() == 0:
                return ran, killed
            assert process.returncode == -9, "it has ended by itself"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def problems_of(records: Records) -> list[str]:
    """The invariants that all records of a database violate."""
    rules = all_rules()
    return [
        f"{key}: {problem}"
        for key, record in records.items()
        for rule in rules
        if rule.kind == key[0].partition("#")[0]
        for problem in rule.judge(record, records.get)
    ]


def jobs_of(records: Records) -> dict[str, Any]:
    """All jobs by id."""
    return {
        key[1].removesuffix("#job"): msgspec.json.decode(record.value)
        for key, record in records.items()
        if key[0].startswith("job#") and key[1].endswith("#job")
    }


def judge(records: Records, parents: int) -> int:
    """Check all records of a database that no process uses; returns the number of attempts that
    were interrupted."""
    assert problems_of(records) == []
    assert [key for key in records if key[0].startswith("family#")] == []
    jobs = jobs_of(records)
    # A lease that was renewed on a busy machine expires.
    kept = [key for key, record in records.items() if record.expires_at_ms is None]
    assert [key for key in kept if key[0].startswith("job#") and "#job" not in key[1]] == []
    effects = {
        key[1]: msgspec.json.decode(record.value)
        for key, record in records.items()
        if key[0] == f"{USER}effect"
    }
    by_parent: Counter[tuple[str, int, int]] = Counter()
    for id_, job in jobs.items():
        assert effects.get(id_, 0) == (job["stage"] == "succeeded"), f"{id_}: {job}"
        if job["queue"] == "task":
            by_parent[tuple(job["parent"])] += 1  # type: ignore[index]
            final = {"succeeded"} if job["body"]["name"] == "all" else {"succeeded", "cancelled"}
            assert job["stage"] in final, f"{id_}: {job}"
    made = {id_: job for id_, job in jobs.items() if job["queue"] == "parent"}
    assert sorted(job["body"] for job in made.values()) == list(range(parents))
    places = [(1, n) for n in range(CHILDREN)] + [(2, n) for n in range(RIVALS)]
    assert by_parent == Counter((id_, *place) for id_ in made for place in places)
    for id_, job in made.items():
        assert job["stage"] == "succeeded", f"{id_}: {job}"
        result = job["result"]
        assert result["squares"] == [n * n for n in range(CHILDREN)]
        assert result["events"] == list(range(EVENTS)), f"{id_} consumed {result['events']}"
        position, square = result["first"]
        assert square == position**2
    return sum(job.get("attempt", 0) > 1 for job in jobs.values())


async def on_sqlite(path: str) -> Records:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    rows = connection.execute("SELECT partition, sort, value, version, expires_at_ms FROM record")
    return as_records(rows)


async def on_postgres(url: str) -> Records:
    dsn, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(dsn)
    try:
        return as_records(
            await connection.fetch(
                f"SELECT partition, sort, value, version, expires_at_ms FROM {schema}.record"
            )
        )
    finally:
        await connection.close()


def as_records(rows: Any) -> Records:
    return {
        (partition, sort): Record((partition, sort), value.encode(), version, expires_at_ms)
        for partition, sort, value, version, expires_at_ms in rows
    }


async def run_and_judge(url: str, processes: int, soak: bool, read: Callable[[], Any]) -> None:
    random = Random()
    parents, kills = (400, 20) if soak else (8, 3 if processes == 1 else 1)
    most = parents * (CHILDREN + RIVALS) // (2 * kills + 2)
    lives = await asyncio.gather(
        *[
            keep_running("tests.family_child", (url, f"p{n}", str(parents)), kills, most, random)
            for n in range(processes)
        ]
    )
    interrupted = judge(await read(), parents)
    print(
        f"{parents} parents in {processes} processes, {sum(life[1] for life in lives)} kills: "
        f"{sum(life[0] for life in lives)} runs of {parents * (CHILDREN + RIVALS)} children, "
        f"{interrupted} jobs needed more than one attempt"
    )


@pytest.mark.timeout(2700)
async def test_children_and_events_survive_kills_on_sqlite(tmp_path: Path, soak: bool) -> None:
    path = str(tmp_path / "app.db")
    await run_and_judge(f"sqlite:///{path}", 1, soak, lambda: on_sqlite(path))
    check = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "onceward", "db", "check", path),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await check.communicate()
    assert check.returncode == 0, said.decode()


@pytest.mark.timeout(2700)
async def test_children_and_events_survive_kills_on_postgres(url: str, soak: bool) -> None:
    await run_and_judge(url, 2, soak, lambda: on_postgres(url))
