"""Many callers without credentials misbehave; those with credentials notice little of it."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from onceward.clock import boot_ns
from onceward.web.auth import digest_of
from tests.server_process import ROOT, ServerProcess, environment
from tests.web.strangers import MIXED, WAYS
from tests.web.wire import ANSWER_S

pytestmark = [pytest.mark.anonymous, pytest.mark.timeout(2_600)]

KEY = "ow_" + "5" * 64
CALLERS = 20
SAMPLES_MIN = 10_000
SLOWER_MAX = 10
GROWTH_MIB_MAX = 150
PAGE = ROOT / "docs/reliability.md"
BEGIN, END = "<!-- made by `make soak-anonymous` -->", "<!-- end of soak-anonymous -->"
_numbers = count(1)


class Figures(NamedTuple):
    """What callers with credentials saw."""

    answers: int
    failed: int
    p99_ms: float
    growth_mib: float
    """Of the memory of the server."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[ServerProcess]:
    """A new server, which takes messages of callers that have the key."""
    folder.mkdir()
    (folder / "onceward.toml").write_text(
        f'[[keys]]\nname = "shop"\ndigest = "{digest_of(KEY)}"\nscopes = ["all"]\n'
    )
    with ServerProcess(folder) as server:
        yield server


@contextlib.contextmanager
def strangers(port: int, way: str, connections: int, addresses: int) -> Iterator[None]:
    """They misbehave while the context lasts."""
    arguments = (str(port), way, str(connections), str(addresses))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.web.strangers", *arguments],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment(),
    )
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()


def resident_mib(pid: int) -> float:
    """How much memory a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def accept(port: int, until_ns: int, taken_ns: list[int]) -> int:
    """Send messages one after the other; returns how many were not accepted."""
    failed = 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while boot_ns() < until_ns:
        body = b'{"body":1,"key":"%d"}' % next(_numbers)
        head = f"POST /v1/inbox/q HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        begun_ns = boot_ns()
        try:
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            async with asyncio.timeout(ANSWER_S):
                answer = await reader.readuntil(b"\r\n\r\n")
                size = int(answer.lower().partition(b"content-length: ")[2].split()[0])
                await reader.readexactly(size)
            failed += not answer.startswith(b"HTTP/1.1 202")
        except (OSError, EOFError, TimeoutError):
            failed += 1
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        taken_ns.append(boot_ns() - begun_ns)
    writer.close()
    return failed


async def measure(server: ServerProcess, seconds: float) -> Figures:
    """Let callers with credentials send for a while, and watch the memory of the server."""
    before_mib = most_mib = resident_mib(server.pid)
    taken_ns: list[int] = []
    until_ns = boot_ns() + int(seconds * 1e9)
    calling = [asyncio.create_task(accept(server.port, until_ns, taken_ns)) for _ in range(CALLERS)]
    while (await asyncio.wait(calling, timeout=0.2))[1]:
        most_mib = max(most_mib, resident_mib(server.pid))
    failed = sum(task.result() for task in calling)
    taken_ns.sort()
    p99_ms = taken_ns[int(len(taken_ns) * 0.99)] / 1e6
    return Figures(len(taken_ns), failed, p99_ms, most_mib - before_mib)


def row(way: str, places: str, found: Figures) -> str:
    p99, memory = f"{found.p99_ms:.1f} ms", f"{found.growth_mib:.0f} MiB"
    return f"| {way} | {places} | {found.answers:,} | {found.failed} | {p99} | {memory} |"


def write_page(rows: list[str], page: Path = PAGE) -> None:
    """Put the figures into the documentation."""
    head = ["| anonymous clients | addresses | accepts | failed | p99 | memory growth |"]
    head.append("|---|---:|---:|---:|---:|---:|")
    before, rest = page.read_text().split(BEGIN)
    page.write_text("\n".join([before + BEGIN, "", *head, *rows, "", END]) + rest.split(END)[1])


async def beside(folder: Path, way: str, connections: int, addresses: int, s: float) -> Figures:
    """What callers see of a new server while strangers misbehave; without a way, while none do."""
    with serving(folder) as server:
        await measure(server, s / 10)
        if not way:
            return await measure(server, s)
        with strangers(server.port, way, connections, addresses):
            return await measure(server, s)


async def test_strangers_do_not_disturb_callers(tmp_path: Path) -> None:
    found = await beside(tmp_path / "server", MIXED, 200, 4, 4)
    assert found.failed == 0
    assert found.answers > CALLERS
    assert found.growth_mib < GROWTH_MIB_MAX


@pytest.mark.soak
async def test_a_thousand_strangers_of_each_kind_do_not_disturb_callers(tmp_path: Path) -> None:
    seconds = float(os.environ.get("ONCEWARD_ANONYMOUS_SECONDS", "60"))
    quiet = await beside(tmp_path / "quiet", "", 0, 0, seconds)
    rows, wrong = [row("none", "", quiet)], []
    print(rows[0], flush=True)
    for way in [*WAYS, MIXED]:
        for addresses in (1, 50):
            folder = tmp_path / f"{way} {addresses}"
            found = await beside(folder, way, 1_000, addresses, seconds)
            rows.append(row(way, str(addresses), found))
            print(rows[-1], flush=True)
            # Messages take memory, too: without strangers there are more of them than ever.
            growth_mib = found.growth_mib - quiet.growth_mib
            enough = found.answers >= min(SAMPLES_MIN, SAMPLES_MIN * seconds / 60)
            slow = found.p99_ms > SLOWER_MAX * quiet.p99_ms
            if found.failed or slow or growth_mib > GROWTH_MIB_MAX or not enough:
                wrong.append(rows[-1])
    if "ONCEWARD_ANONYMOUS_SECONDS" not in os.environ:
        write_page(rows)
    assert not wrong, "\n".join(wrong)
