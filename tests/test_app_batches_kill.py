"""Processes are killed while they send items with batch keys: each item is in exactly one batch.

The judge reads the database after all processes have ended.
"""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest

from onceward.keys import USER
from tests.batch_child import ITEMS, SIZE
from tests.test_app_children_kill import (
    Records,
    jobs_of,
    keep_running,
    on_postgres,
    on_sqlite,
    problems_of,
)

pytestmark = pytest.mark.kill


def judge(records: Records) -> None:
    """Check all records of a database that no process uses."""
    assert problems_of(records) == []
    assert [key for key in records if key[0].startswith("merge#")] == []
    jobs = jobs_of(records)
    assert {job["stage"] for job in jobs.values()} == {"succeeded"}
    assert max(len(job["body"]) for job in jobs.values()) <= SIZE
    items = range(ITEMS)
    assert Counter(item for job in jobs.values() for item in job["body"]) == Counter(items)
    accepted = [record.value for key, record in records.items() if key[0].startswith("inbox#")]
    assert {msgspec.json.decode(value)["id"] for value in accepted} == jobs.keys()
    assert len(accepted) == ITEMS
    effects = {key[1]: record.value for key, record in records.items() if key[0] == f"{USER}effect"}
    assert effects == {str(item): b"1" for item in items}


async def run_and_kill(url: str, processes: int, kills: int) -> None:
    random = Random()
    lives = await asyncio.gather(
        *[
            keep_running("tests.batch_child", (url, f"p{n}"), kills, ITEMS, random)
            for n in range(processes)
        ]
    )
    assert [killed for _, killed in lives] == [kills] * processes


async def test_each_item_is_in_one_batch_after_kills_on_sqlite(tmp_path: Path, soak: bool) -> None:
    path = str(tmp_path / "app.db")
    await run_and_kill(f"sqlite:///{path}", 1, 20 if soak else 3)
    judge(await on_sqlite(path))


async def test_each_item_is_in_one_batch_after_kills_on_postgres(url: str, soak: bool) -> None:
    await run_and_kill(url, 2, 20 if soak else 2)
    judge(await on_postgres(url))
