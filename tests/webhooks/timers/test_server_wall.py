"""Timers in a real process whose wall clock is set by an hour, while time goes on.

libfaketime is loaded into the process, and shows a wall clock that is off by what a file says;
the clocks that never jump are left alone.
"""

import asyncio
import os
import platform
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from onceward.limits import CLOCK_SLEW_PPM

ROOT = Path(__file__).parents[3]
HOUR_MS = 3_600_000
FAKETIME = find_spec("libfaketime")
pytestmark = [
    pytest.mark.skipif(
        FAKETIME is None or (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="libfaketime is not installed, or not for this machine",
    ),
    pytest.mark.timeout(240),  # a busy machine takes its time for processes
]


def least_ns(delay_ms: int) -> int:
    """What must have passed, at least: all of it, but for what the clock may be slewed by."""
    return delay_ms * (1_000_000 - CLOCK_SLEW_PPM)


class Wall:
    """The wall clock of a process."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "wall"
        self.set(0)

    def set(self, off_ms: int) -> None:
        """Set it, for those that run as well."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{off_ms // 1_000:+d}\n")
        new.replace(self._file)

    def environment(self) -> dict[str, str]:
        assert FAKETIME is not None
        assert FAKETIME.origin is not None
        library = Path(FAKETIME.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"
        return {
            **os.environ,
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # Else threads that wait for the interpreter do not wait but spin.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }


class Child:
    """The process, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._answers: asyncio.Queue[str] = asyncio.Queue()
        self._news = asyncio.Event()
        self.set_ns: dict[str, tuple[int, int]] = {}
        self.fired: dict[str, list[tuple[str, int]]] = defaultdict(list)
        """By name: the ids of the jobs, and when."""

    async def read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if not line.endswith(b"\n"):
                break  # the process was killed while it wrote
            what, *words = line.decode().split()
            if what == "fired":
                self.fired[words[0]].append((words[1], int(words[2])))
                self._news.set()
            else:
                self._answers.put_nowait(" ".join(words))
        self._answers.put_nowait("it has ended")

    async def said(self) -> str:
        return await self._answers.get()

    async def ask(self, *words: object) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        return await self.said()

    async def set(self, name: str, delay_ms: int) -> None:
        self.set_ns[name] = int(await self.ask("set", name, delay_ms)), delay_ms

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait until what has fired meets a condition."""
        while not met():
            self._news.clear()
            await self._news.wait()

    def kill(self) -> None:
        self._process.kill()


@asynccontextmanager
async def child(folder: Path, wall: Wall) -> AsyncIterator[Child]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.webhooks.timers_child", str(folder / "app.db")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=wall.environment(),
    )
    running = Child(process)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(running.read())
        try:
            await running.said()
            yield running
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()


async def test_setting_the_wall_clock_fires_nothing_early_and_loses_nothing(
    tmp_path: Path,
) -> None:
    wall = Wall(tmp_path)
    async with child(tmp_path, wall) as process:
        began_ns = int(await process.ask("every", "again", 200))
        for number, off_ms in enumerate([0, HOUR_MS, -HOUR_MS, 0]):
            # Some are set before the clock is, and some after.
            for index in range(5):
                await process.set(f"before-{number}-{index}", 100 * index)
            wall.set(off_ms)
            jump_ms = int(await process.ask("wall"))
            assert abs(jump_ms - off_ms) < 2_000, "it sees what the wall clock shows"
            for index in range(5):
                await process.set(f"after-{number}-{index}", 100 * index)
            # What repeats goes on.
            count = len(process.fired["again"])
            await process.until(lambda count=count: len(process.fired["again"]) > count)
        await process.until(lambda: set(process.set_ns) <= set(process.fired))
        for name, (before_ns, delay_ms) in process.set_ns.items():
            [(_, fired_ns)] = process.fired[name]
            assert fired_ns - before_ns >= least_ns(delay_ms), name
        for number, (_, fired_ns) in enumerate(process.fired["again"], 1):
            assert fired_ns - began_ns >= least_ns(number * 200)
        jobs = [job for firings in process.fired.values() for job, _ in firings]
        assert len(set(jobs)) == len(jobs)


async def test_a_process_that_starts_with_another_wall_clock_fires_all_under_one_id(
    tmp_path: Path,
) -> None:
    wall = Wall(tmp_path)
    ids: dict[str, set[str]] = defaultdict(set)
    soon = [f"soon-{number}" for number in range(12)]
    later = [f"later-{number}" for number in range(12)]

    def note(process: Child) -> None:
        for name, firings in process.fired.items():
            ids[name] |= {job for job, _ in firings}

    async with child(tmp_path, wall) as process:
        for name in later:
            await process.set(name, HOUR_MS // 2)
        for name in soon:
            await process.set(name, 100)
        await process.until(lambda: len(process.fired) >= 5)
        process.kill()
    note(process)
    assert not set(later) & set(ids)

    # An hour later by the wall clock: it counts from the start on.
    wall.set(HOUR_MS)
    async with child(tmp_path, wall) as process:
        assert await process.ask("wall") == "0"
        await process.set("far", HOUR_MS)
        await process.until(lambda: {*soon, *later} <= set(process.fired) | set(ids))
        states = {name: await process.ask("state", name) for name in (*soon, *later)}
        process.kill()
    note(process)
    ended = {name for name, state in states.items() if state == "success done"}

    # And two hours earlier: what has fired does not fire again, what has not is not lost.
    wall.set(-HOUR_MS)
    async with child(tmp_path, wall) as process:
        states = {name: await process.ask("state", name) for name in (*soon, *later, "far")}
        await process.set("now", 0)
        await process.until(lambda: "now" in process.fired)
    note(process)
    assert states.pop("far") == "active -"
    assert {state.split()[0] for state in states.values()} == {"success"}
    assert not ended & set(process.fired)
    assert "far" not in process.fired
    assert {name: len(found) for name, found in ids.items()} == dict.fromkeys(
        [*soon, *later, "now"], 1
    )
