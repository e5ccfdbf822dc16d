"""Databases in every state, for tests that look at them from outside."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw

from onceward.engine.base import Delete, Put, Record, Write
from onceward.engine.sqlite import SQLiteEngine
from onceward.engine.sqlite.checksum import checksum, meta_checksum
from onceward.engine.sqlite.reader import Snapshot
from onceward.keys import Key

Contents = dict[Key, bytes | None]
"""What to put under each key; None deletes."""


async def commit(engine: SQLiteEngine, contents: Contents, expires_at_ms: int | None = None) -> int:
    writes: list[Write] = [
        Delete(key) if value is None else Put(key, value, expires_at_ms)
        for key, value in contents.items()
    ]
    return int(await engine.commit(writes, 0))


async def closed(path: Path, *commits: Contents) -> Path:
    """A database that its owner closed: all is in the table, nothing in the journal."""
    async with SQLiteEngine(str(path)) as engine:
        for contents in commits:
            await commit(engine, contents)
    return path


@asynccontextmanager
async def running(
    path: Path, folded: Sequence[Contents], unfolded: Sequence[Contents]
) -> AsyncIterator[SQLiteEngine]:
    """A database with an owner, this process; the last commits are in the journal alone."""
    await closed(path, *folded)
    async with SQLiteEngine(str(path)) as engine:
        for contents in unfolded:
            await commit(engine, contents)
        yield engine


async def crashed(path: Path, folded: Sequence[Contents], unfolded: Sequence[Contents]) -> Path:
    """A database whose owner was killed before it had folded the last commits."""
    folder = path.parent / "running"
    folder.mkdir()
    async with running(folder / path.name, folded, unfolded):
        # By another process: closing the file here would give up the engine's locks on it.
        names = [str(file) for file in folder.iterdir() if not file.name.endswith("draft")]
        copying = await asyncio.create_subprocess_exec("cp", "--", *names, str(path.parent))
        assert await copying.wait() == 0
    return path


def alter(path: Path, statement: str, *bindings: object, sign: bool = True) -> None:
    """Change a closed database behind everyone's back; with `sign`, so that checksums fit."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA writable_schema = 1")
    connection.execute(statement, bindings)
    if sign:
        _sign(connection)
    connection.close()


def _sign(connection: apsw.Connection) -> None:
    if not connection.table_exists("main", "record"):
        return
    rows: list[Any] = connection.execute(
        "SELECT partition, sort, value, version, expires_at_ms FROM record"
    ).fetchall()
    for partition, sort, value, version, expires_at_ms in rows:
        made = checksum(partition, sort, value.encode(), version, expires_at_ms)
        connection.execute(
            "UPDATE record SET checksum = ? WHERE partition = ? AND sort = ?",
            (made, partition, sort),
        )
    if connection.table_exists("main", "meta"):
        meta: list[Any] = connection.execute("SELECT name, value FROM meta").fetchall()
        connection.execute(
            "UPDATE meta SET value = ? WHERE name = 'checksum'", (meta_checksum(dict(meta)),)
        )


def corrupt(path: Path, find: bytes, replace: bytes) -> None:
    """Change bytes of a file in place, at the first place where they are found."""
    content = path.read_bytes()
    assert find in content
    assert len(find) == len(replace)
    path.write_bytes(content.replace(find, replace, 1))


def segments(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}-log.*"))


def everything(snapshot: Snapshot) -> list[Record]:
    """All records of a snapshot, in order."""
    found = snapshot.connection.execute("SELECT DISTINCT partition FROM record")
    partitions = {str(partition) for (partition,) in found} | set(snapshot.changed)
    return [record for partition in sorted(partitions) for record in snapshot.scan(partition)]


def values(records: Iterable[Record]) -> dict[Key, bytes]:
    return {record.key: record.value for record in records}


def once(first: Callable[[], None], then: Callable[..., object]) -> Callable[..., object]:
    """A function that does something more when it is called for the first time."""
    waiting = [first]

    def call(*args: object) -> object:
        if waiting:
            waiting.pop()()
        return then(*args)

    return call
