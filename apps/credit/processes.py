"""Child processes of the storm: start, output, kill, pause and shutdown."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from onceward import Clock, OncewardError

_ROOT = Path(__file__).parents[2]
_END_S = 10.0
# Prefixes of environment variables of servers and applications.
_SETTINGS = ("ONCEWARD_", "CREDIT_")


class Child:
    """A Python process, with its standard error in a file."""

    def __init__(self, name: str, folder: Path, *arguments: str, **settings: str) -> None:
        """`settings` are added to its environment, which has no other settings of ours."""
        self.name = name
        self.log = folder / f"{name}.log"
        self._folder = folder
        self._arguments: Sequence[str] = arguments
        self._environment = _environment(settings)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._arguments,
                cwd=self._folder,
                env=self._environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is handled by the parent, which stops its children
            )

    async def line(self) -> str:
        """Return the next line of its output. Raises `OncewardError` if it has exited instead."""
        assert self._process is not None
        assert self._process.stdout is not None
        said = await self._process.stdout.readline()
        if not said:
            raise OncewardError(f"{self.name} has exited: {self._complaint()}", code="internal")
        return said.decode().strip()

    async def lines(self) -> AsyncIterator[str]:
        """Yield all lines of its output. Raises `OncewardError` if it fails."""
        assert self._process is not None
        assert self._process.stdout is not None
        async for said in self._process.stdout:
            yield said.decode().strip()
        if await self._process.wait() != 0:
            raise OncewardError(f"{self.name} has failed: {self._complaint()}", code="internal")

    async def wait(self) -> int:
        """Wait for its exit code."""
        assert self._process is not None
        return await self._process.wait()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    async def pause(self, seconds: float, clock: Clock) -> None:
        """Suspend it for a time."""
        self._signal(signal.SIGSTOP)
        try:
            await clock.sleep(seconds)
        finally:
            self._signal(signal.SIGCONT)

    async def end(self) -> None:
        """Terminate it, or kill it if that fails."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_END_S):
                await self._process.communicate()
        except TimeoutError:
            self.kill()
            await self._process.communicate()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def _complaint(self) -> str:
        return self.log.read_text(errors="replace")[-500:].strip() or "no output on standard error"


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_SETTINGS)}
    paths = [str(_ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **settings}
