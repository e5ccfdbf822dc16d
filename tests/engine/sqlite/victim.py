"""Runs `child.py`, hears what it was told, kills it, and judges what it left behind."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from onceward.engine.base import Engine, Record
from onceward.engine.sqlite import SQLiteEngine
from onceward.json_values import decode
from tests.engine.sqlite.child import CALLERS, KEPT, counter, kept

ROOT = Path(__file__).parents[3]


class Acknowledged:
    """What callers were told, over all processes on one database."""

    def __init__(self) -> None:
        self.callers: dict[int, tuple[int, int]] = {}
        """By caller: its last number, and the version of that commit."""
        self.count = 0
        self.version_max = 0
        self._version_before = 0

    def next_process(self) -> None:
        self._version_before = self.version_max

    def note(self, line: bytes) -> None:
        caller, number, version = map(int, line.split())
        known, _ = self.callers.get(caller, (0, 0))
        assert number > known, f"caller {caller} was told of {number} after {known}"
        assert version > self._version_before, f"version {version} was used before"
        self.callers[caller] = (number, version)
        self.version_max = max(self.version_max, version)
        self.count += 1


class Victim:
    """A process under load. It says what it is about to do, and what it was told."""

    def __init__(self, acknowledged: Acknowledged) -> None:
        self.acknowledged = acknowledged
        self.count = 0
        self.said: set[bytes] = set()

    async def live(
        self, path: str, *args: str, close_after: int = 0, heard: Callable[["Victim"], None]
    ) -> bytes:
        """Run until killed or done, calling `heard` whenever something was heard.

        Returns what it complained about.
        """
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.engine.sqlite.child", path, str(close_after), *args),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await self._listen(heard)
            assert self.process.stderr is not None
            complaints = await self.process.stderr.read()
        finally:
            self.kill()
            await self.process.wait()
        return complaints

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()

    async def _listen(self, heard: Callable[["Victim"], None]) -> None:
        assert self.process.stdout is not None
        self.acknowledged.next_process()
        rest = b""
        while piece := await self.process.stdout.read(1 << 16):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line[:1].isdigit():
                    self.acknowledged.note(line)
                    self.count += 1
                else:
                    self.said.add(line)
            heard(self)


async def judge_files(path: str, acknowledged: Acknowledged) -> dict[int, int]:
    """Open the database and judge it; returns how far each caller has come."""
    async with SQLiteEngine(path) as engine:
        return await judge(engine, acknowledged.callers)


async def judge(engine: Engine, acknowledged: dict[int, tuple[int, int]]) -> dict[int, int]:
    """See that all acknowledged commits are there, and every one whole; returns the counters.

    `acknowledged` has for each caller its number and the version of that commit.
    """
    counters: dict[int, int] = {}
    for caller in range(CALLERS):
        [record] = await engine.get([counter(caller)], 0)
        number = 0 if record is None else int(record.value)
        known, version = acknowledged.get(caller, (0, 0))
        assert number >= known, f"caller {caller} was told of {known}, there is {number}"
        if record is not None and number == known:
            assert record.version == version, f"commit {known} of {caller} has another version"
        found = {row.key: value(row)["number"] for row in await engine.scan(f"kept#{caller}", 0)}
        wanted = {kept(caller, n): n for n in range(max(1, number - KEPT + 1), number + 1)}
        assert found == wanted, f"commit {number} of caller {caller} is there in part"
        counters[caller] = number
    money = sum(value(row) for row in await engine.scan("account", 0))
    assert money == 0, f"{money} has come from nowhere"
    return counters


def value(row: Record) -> object:
    return decode(row.value, object, row.key)
