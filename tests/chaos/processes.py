"""Processes that are killed and stopped, and started again whenever they have ended."""

import asyncio
import os
import platform
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from onceward.clock import Clock
from tests.chaos.history import Still
from tests.server_process import ROOT, environment

_PAUSE_S = 0.3
_TAIL_CHARS = 2_000


def _faketime() -> Path | None:
    """The library, where there is one for this machine."""
    found = find_spec("libfaketime")
    if (platform.system(), platform.machine()) != ("Linux", "x86_64") or found is None:
        return None
    return Path(found.origin or "").parent / "vendor/libfaketime/src/libfaketime.so.1"


FAKETIME = _faketime()


class Wall:
    """The wall clock of a process, by libfaketime; clocks that never jump are left alone."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    def set(self, off_s: int) -> None:
        """Set it, for a process that runs as well, within a second."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{off_s:+d}\n")
        new.replace(self._file)

    def environment(self) -> dict[str, str]:
        if FAKETIME is None:
            return {}
        return {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # Else threads that wait for the interpreter do not wait but spin.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }


class Process:
    """One of them. It is ready when it has said its first line."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        settings: dict[str, str] | None = None,
        wall: Wall | None = None,
        *,
        keeps_wall: bool = False,
    ) -> None:
        """With `keeps_wall` it may start while its wall clock is wrong."""
        self.name = name
        self.log = folder / f"{name}.log"
        self.wall = wall
        self.busy = asyncio.Lock()
        """Held by whoever does something to it."""
        self.ready = asyncio.Event()
        self.tally: Counter[str] = Counter()
        self.may_end = False
        """Whether it may end by itself now, since nobody could go on like this."""
        self.ends: list[str] = []
        """When it has ended by itself, and why."""
        self._keeps_wall = keeps_wall
        self._command = command
        self._folder = folder
        self._settings = settings or {}
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._leaving = False
        self._killed = False

    def start(self) -> None:
        """Start it, and again whenever it has ended; `ready` tells when."""
        self._keeping = asyncio.create_task(self._keep(), name=self.name)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def kill(self) -> None:
        """Without a warning; returns when another one is ready."""
        await self.ready.wait()
        self.ready.clear()
        self._killed = True
        self._signal(signal.SIGKILL)
        await self.ready.wait()

    async def stop_for(self, seconds: float) -> Still:
        """Let it stand still."""
        await self.ready.wait()
        clock, pid = Clock(), self.pid
        from_ns = clock.elapsed_ns()
        self._signal(signal.SIGSTOP)
        try:
            await clock.sleep(seconds)
            return Still(pid, from_ns, clock.elapsed_ns())
        finally:
            self._signal(signal.SIGCONT)

    async def leave(self) -> int:
        """End it in good order; returns its exit code."""
        await self.ready.wait()
        assert self._process is not None
        assert self._keeping is not None
        self._leaving = True
        self._signal(signal.SIGTERM)
        await asyncio.wait([self._keeping])
        self._keeping.result()
        return self._process.returncode or 0

    async def end(self) -> None:
        """End it in any case; twice is once."""
        self._leaving = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])

    def _signal(self, number: signal.Signals) -> None:
        # Not by `Process.send_signal`, which would look first whether it has just died.
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    async def _keep(self) -> None:
        while True:
            await self._live()
            if self._leaving:
                return
            await Clock().sleep(_PAUSE_S)

    async def _live(self) -> None:
        """One life of it."""
        if self.wall is not None and not self._keeps_wall:
            self.wall.set(0)
        extra = self.wall.environment() if self.wall is not None else {}
        with open(self.log, "ab") as log:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**environment(), **self._settings, **extra},
            )
        self.tally["starts"] += 1
        assert process.stdout is not None
        started = False
        try:
            if started := bool(await process.stdout.readline()):
                self.ready.set()
                while await process.stdout.readline():
                    pass
            await process.wait()
        finally:
            self.ready.clear()
            if process.returncode is None:
                self._signal(signal.SIGKILL)
                await process.wait()
        killed, self._killed = self._killed, False
        if not killed and not self._leaving:
            self.tally["ended by itself" if started else "did not start"] += 1
            if started and not self.may_end:
                said = self.log.read_text(errors="replace")[-_TAIL_CHARS:]
                self.ends.append(f"{self.name} ended with {process.returncode}: {said}")
