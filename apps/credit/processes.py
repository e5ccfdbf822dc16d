"""Processes of the storm: started, listened to, killed, paused, and ended in the end."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from onceward import Clock, OncewardError

_ROOT = Path(__file__).parents[2]
_END_S = 10.0
# What a server or an application reads from its environment.
_SETTINGS = ("ONCEWARD_", "CREDIT_")


class Child:
    """A Python process, whose complaints go to a file."""

    def __init__(self, name: str, folder: Path, *arguments: str, **settings: str) -> None:
        """`settings` are added to its environment, which has no others of ours."""
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
                start_new_session=True,  # Ctrl-C is for the parent, which ends its children
            )

    async def line(self) -> str:
        """The next line that it says. Raises `OncewardError` if it has ended instead."""
        assert self._process is not None
        assert self._process.stdout is not None
        said = await self._process.stdout.readline()
        if not said:
            raise OncewardError(f"{self.name} has ended: {self._complaint()}", code="internal")
        return said.decode().strip()

    async def lines(self) -> AsyncIterator[str]:
        """All that it says. Raises `OncewardError` if it ends badly."""
        assert self._process is not None
        assert self._process.stdout is not None
        async for said in self._process.stdout:
            yield said.decode().strip()
        if await self._process.wait() != 0:
            raise OncewardError(f"{self.name} has failed: {self._complaint()}", code="internal")

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        assert self._process is not None
        return await self._process.wait()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    async def pause(self, seconds: float, clock: Clock) -> None:
        """Let it stand still for so long."""
        self._signal(signal.SIGSTOP)
        try:
            await clock.sleep(seconds)
        finally:
            self._signal(signal.SIGCONT)

    async def end(self) -> None:
        """End it in good order, or else without."""
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
        return self.log.read_text(errors="replace")[-500:].strip() or "it does not say why"


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_SETTINGS)}
    paths = [str(_ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **settings}
