"""`onceward server-key`, as it is typed."""

import asyncio
from pathlib import Path

import pytest

from onceward import cli
from onceward.app import App
from onceward.maintenance.key_source import RECORD, KeyRecord
from onceward.server_key import ServerKeys, parse_keys

ONE, TWO = "11" * 32, "22" * 32
Capture = pytest.CaptureFixture[str]


def test_a_new_key_is_printed_and_is_another_each_time(capsys: Capture) -> None:
    assert cli.main(["server-key", "new"]) == 0
    assert cli.main(["server-key", "new"]) == 0
    one, two = capsys.readouterr().out.splitlines()
    assert one != two
    assert len(parse_keys([one, two])) == 2


async def use(url: str, key: str) -> list[str]:
    """Start with a key; returns the ids of the keys that the database is used with."""
    async with App(url, server_key=key, slots=2) as app:
        await app.key_source.unlock()
        record = await app.store.run(lambda tx: tx.get(RECORD, KeyRecord))
        return [] if record is None else list(record.checks)


def test_a_lost_key_is_replaced(capsys: Capture, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    asyncio.run(use(url, ONE))
    file = tmp_path / "server.key"
    file.write_text(TWO)
    file.chmod(0o600)
    arguments = ["--database", url, "--server-key-file", str(file)]
    assert cli.main(["server-key", "replace", *arguments]) == 0
    [id_] = ServerKeys([bytes.fromhex(TWO)]).checks
    assert f"server key {id_}" in capsys.readouterr().out
    assert id_ in asyncio.run(use(url, TWO))


def test_memory_has_no_key_to_replace(capsys: Capture) -> None:
    assert cli.main(["server-key", "replace", "--database", "memory://"]) == 2
    assert "a database in memory has its own server key" in capsys.readouterr().err
