"""The limits of the machine for any program: synced writes, and round trips of bytes."""

import asyncio
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.figures import Case, Machine, Run, Side, run_of
from benchmarks.measure import Figures, summary
from onceward.clock import boot_ns
from onceward.engine.sqlite.disk import Disk
from onceward.errors import Unavailable

FILE_BYTES = 16 << 20
WRITE_BYTES = 1024
# No disk makes this many consecutive synced writes: it is memory.
SYNCS_MAX = 100_000
MESSAGE = b"x" * 100
SYNCS, ECHO_ONE, ECHO_MANY = "fdatasync", "echo, 1 connection", "echo, 64 connections"
LIMITS = {
    SYNCS: "1 KiB is written and synced, one write after the other",
    ECHO_ONE: "100 bytes to another Python process and back; nothing is stored",
    ECHO_MANY: "the same on 64 connections at once; nothing is stored",
}


def limits_case(seconds: float) -> Case:
    """The case for the limits."""
    return Case(
        id="limits",
        title="The limits of the machine",
        about=(
            "The upper bounds on this machine: the disk and a local socket, without any "
            "software in between."
        ),
        family="limits",
        seconds=seconds,
        sides=[Side(name, durable) for name, durable in LIMITS.items()],
    )


def measure_limit(name: str, folder: Path, seconds: float) -> Run:
    """One run of one of `LIMITS`."""
    if name == SYNCS:
        return run_of(fdatasync_rate(str(folder), seconds))
    return run_of(echo_rate(1 if name == ECHO_ONE else 64, seconds))


def fdatasync_rate(folder: str, seconds: float, file_bytes: int = FILE_BYTES) -> Figures:
    """Bare 1 KiB writes, each synced, to a preallocated file."""
    path = os.path.join(folder, f"onceward-bench-{os.getpid()}")
    fd = Disk().create(path, file_bytes, b"")
    data, took_ns = bytes(WRITE_BYTES), []
    try:
        begun_ns = boot_ns()
        until_ns, offset = begun_ns + int(seconds * 1e9), 0
        while (start_ns := boot_ns()) < until_ns:
            os.pwrite(fd, data, offset % file_bytes)
            os.fdatasync(fd)
            offset += WRITE_BYTES
            took_ns.append(boot_ns() - start_ns)
        return summary(took_ns, boot_ns() - begun_ns)
    finally:
        os.close(fd)
        os.unlink(path)


def echo_rate(connections: int, seconds: float) -> Figures:
    """Round trips of messages to a separate process, one at a time per connection. Raises
    `Unavailable`."""
    command = [sys.executable, "-m", "benchmarks.echo"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line.isdecimal():
            raise Unavailable("the echo process did not start")
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_echo(int(line), connections, seconds))


async def _echo(port: int, connections: int, seconds: float) -> Figures:
    loop = asyncio.get_running_loop()
    start_ns = boot_ns()
    took_ns: list[int] = []
    until_ns = start_ns + int(seconds * 1e9)
    callers = [_Caller(until_ns, took_ns, loop.create_future()) for _ in range(connections)]
    for caller in callers:
        await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*[caller.ended for caller in callers])
    return summary(took_ns, boot_ns() - start_ns)


class _Caller(asyncio.Protocol):
    """Sends a message again as soon as it returns."""

    def __init__(self, until_ns: int, took_ns: list[int], ended: asyncio.Future[None]) -> None:
        self.ended = ended
        self._until_ns = until_ns
        self._took_ns = took_ns
        self._left = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._start_ns, self._left = boot_ns(), len(MESSAGE)
        self._transport.write(MESSAGE)

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left:
            return
        now_ns = boot_ns()
        self._took_ns.append(now_ns - self._start_ns)
        if now_ns < self._until_ns:
            self._send()
            return
        self.ended.set_result(None)
        self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error or ConnectionError("the process that echoes has gone"))


def this_machine(packages: tuple[str, ...] = ()) -> Machine:
    """The machine, and the installed versions of the packages."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = {name: version for name in packages if (version := installed(name))}
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory_mib=pages >> 20,
        python=platform.python_version(),
        system=platform.platform(),
        load=[os.getloadavg()[0]],
        packages=found,
    )


def installed(package: str) -> str:
    """The version of a package; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def in_memory(syncs: Run) -> bool:
    """Whether syncs are so fast that they do not reach a disk."""
    return not syncs.failed and syncs.per_second > SYNCS_MAX


def _loop_factory() -> Any:
    import uvloop  # imported here, since Windows does not support it

    return uvloop.new_event_loop
