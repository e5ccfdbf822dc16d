"""The guide for plain SQL does what it shows: with psql, and in SQLite."""

import asyncio
import shlex
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

import onceward
from onceward.cli import main
from onceward.testing.postgres import PostgresServer, programs
from tests.docs.book import ROOT, Block, blocks
from tests.sql.shops import make_sqlite, run

PAGE = "guides/plain-sql.md"
SHOWN = "postgresql://shop@db/shop"
TEXT = (ROOT / "docs" / PAGE).read_text()
BLOCKS = blocks(PAGE, TEXT)
PROGRAM = next(block for block in BLOCKS if block.language == "python")
IN_SQLITE = TEXT[: TEXT.index("## SQLite")].count("\n")
"""The line of the heading."""
WAIT_S = 60.0


def statements() -> tuple[list[Block], Block]:
    """The blocks for PostgreSQL, and the one for SQLite."""
    found = [block for block in BLOCKS if block.language == "sql"]
    [lite] = [block for block in found if IN_SQLITE < block.line < PROGRAM.line]
    return [block for block in found if block is not lite], lite


async def ended(url: str, count: int) -> list[Any]:
    """Run the program of the page; returns the results of its jobs."""
    names: dict[str, Any] = {}
    text = PROGRAM.text.replace("sqlite:///jobs.db", "memory://").replace(SHOWN, url)
    exec(compile(text, PAGE, "exec"), names)
    app: onceward.App = names["app"]
    async with app, asyncio.timeout(WAIT_S):
        while len(page := (await app.queues.jobs()).jobs) < count:  # noqa: ASYNC110
            await asyncio.sleep(0)
        jobs = [await app.wait(job.id) for job in page]
        while run(url, "SELECT count(*) FROM onceward_outbox") != [(0,)]:  # noqa: ASYNC110
            await asyncio.sleep(0)  # failed rows move later
    return sorted(job.result for job in jobs)


def test_the_statements_for_postgresql_enqueue_jobs(
    server: PostgresServer, schema: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.ask(f"CREATE DATABASE {schema}")
    url = server.url.rpartition("/")[0] + f"/{schema}"
    [console] = [block for block in BLOCKS if block.language == "console"]
    command, said = console.text.splitlines()
    words = shlex.split(command.removeprefix("$ onceward ").replace(SHOWN, url))
    assert main(words) == 0
    assert capsys.readouterr().out.endswith(said.removeprefix("db").replace("shop", schema) + "\n")
    for block in statements()[0]:
        _psql(url, block.text)
    assert asyncio.run(ended(url, 5)) == [
        "mail to ann for order 7",
        "mail to ann for order 7",
        "mail to bob for order 8",
        "mail to eve for order 9",
        "refund to eve",
    ]
    shown = _psql(url, statements()[0][-1].text.splitlines()[-1])
    assert "no such queue name|a queue name must have" in shown
    for statement, error in (
        ("SELECT onceward_enqueue('mail', 'no JSON')", "invalid input syntax for type json"),
        ("CALL cancel_order(9)", "order 9 does not exist"),
    ):
        with psycopg.connect(url) as connection, pytest.raises(psycopg.Error, match=error):
            connection.execute(statement)


def _psql(url: str, text: str) -> str:
    command = [str(programs() / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", url]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_statements_for_sqlite_enqueue_jobs(tmp_path: Path) -> None:
    url = make_sqlite(tmp_path)
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.executescript(statements()[1].text)
    connection.close()
    assert asyncio.run(ended(url, 1)) == ["mail to ann for order 7"]


def test_the_options_of_the_page_are_those_of_the_function() -> None:
    from onceward.sql.messages import _NAMES

    row = next(line for line in TEXT.splitlines() if line.startswith("| `options`"))
    for name in row.split("`")[3::2]:
        assert name in _NAMES
