"""The SQL shop: its own tests, and its tables after processes were killed and paused."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from onceward.testing.postgres import PostgresServer
from tests.examples.shop_crew import ITEMS, Crew, Drainers
from tests.server_process import ROOT, environment

FOLDER = ROOT / "examples" / "sql_shop"

pytestmark = pytest.mark.sql


@pytest.fixture
def shop(server: PostgresServer, schema: str) -> str:
    """A database for the shop and for Onceward."""
    server.ask(f"CREATE DATABASE {schema}")
    return server.url.rpartition("/")[0] + f"/{schema}"


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


def test_its_own_tests_pass(tmp_path: Path) -> None:
    for name in FOLDER.glob("*.py"):
        shutil.copy(name, tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**environment(), "ONCEWARD_DATABASE": "memory://"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


async def prepared(url: str, folder: Path, random: Random, nodes: int, customers: int) -> Crew:
    """A crew, and its tables as `python shop.py` creates them: with an order of each item."""
    crew = Crew(url, folder, random, nodes, customers)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(FOLDER / "shop.py"), *ITEMS),
        env={**environment(), **crew.settings},
    )
    assert await process.wait() == 0
    return crew


@pytest.mark.timeout(2700)
@pytest.mark.parametrize(("place", "nodes"), [("file", 1), ("shop", 2)])
async def test_its_tables_are_correct_however_often_it_is_killed(
    place: str, nodes: int, tmp_path: Path, request: pytest.FixtureRequest, soak: bool
) -> None:
    random = Random()
    crew = await prepared(request.getfixturevalue(place), tmp_path, random, nodes, 1)
    async with crew.open():
        await crew.progress(1)
        for _ in range(100 if soak else 2):
            crew.kill()
            await crew.progress(random.randint(1, 20))
        await crew.finish()
    print(f"{place}: {await crew.judge()} orders, {crew.kills} kills")


@pytest.mark.timeout(2700)
async def test_nodes_that_are_killed_and_paused_do_everything_once_and_in_order(
    shop: str, tmp_path: Path, soak: bool
) -> None:
    """With keys that expire at once, only leases and fences prevent a second effect."""
    random, drainers = Random(), Drainers(shop)
    crew = await prepared(shop, tmp_path, random, 3, 2)
    async with crew.open(), drainers.watched():
        first = await drainers.next()
        await crew.progress(1)
        async with asyncio.TaskGroup() as troubles:
            troubles.create_task(crew.pause(crew.number_of(first.node)))
            second = await drainers.next(first)
            crew.kill(crew.number_of(second.node))
            await drainers.next(second)
            for number in range(100 if soak else 2):
                if number % 2:
                    crew.kill()
                else:
                    troubles.create_task(crew.pause())
                await crew.progress(random.randint(1, 20))
        await crew.finish()
    orders, count = await crew.judge(), drainers.judge()
    assert count > 2
    print(f"{orders} orders, {crew.kills} kills, {crew.pauses} pauses, {count} drainers")
