"""The demonstration, as it runs in this process or as `make demo` runs it."""

import asyncio
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from apps.demo.stage import Stage
from apps.demo.storm import Plan
from tests.server_process import environment, free_port


class Shown:
    """A demonstration that runs."""

    def __init__(self, pid: int, port: int) -> None:
        """`pid` is the process of its stage."""
        self.pid = pid
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def crew(self) -> dict[int, str]:
        """Its processes, the server and two workers, and how each was started."""
        found = {pid: how for pid, how in children(self.pid).items() if "apps.demo" in how}
        assert len(found) == 3, found
        return found

    def state(self) -> Any:
        with urlopen(f"{self.url}/demo/state") as answer:
            return json.load(answer)

    def ask(self, body: Any, path: str = "/demo/do", **headers: str) -> tuple[int, Any]:
        """The status and what is said to an order."""
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        asked = Request(f"{self.url}{path}", data, {"Content-Type": "application/json", **named})
        try:
            with urlopen(asked) as answer:
                return answer.status, json.load(answer)
        except HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)


@contextmanager
def staged(folder: Path, plan: Plan) -> Iterator[Shown]:
    """One whose stage is in this process, in a thread of its own."""
    port = free_port()
    stage = Stage(port, folder, plan=plan)
    there: Future[None] = Future()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    async def run() -> None:
        task = asyncio.create_task(stage.run(lambda url, link: there.set_result(None)))
        running.append((asyncio.get_running_loop(), task))
        await asyncio.wait([task])
        if not task.cancelled():
            there.set_exception(task.exception() or AssertionError("it has ended"))

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        there.result(timeout=100)
        yield Shown(os.getpid(), port)
    finally:
        for loop, task in running:
            loop.call_soon_threadsafe(task.cancel)
        thread.join()


class Demo(Shown):
    """One as `make demo` runs it, once it says that it is there."""

    def __init__(self, folder: Path, *options: str) -> None:
        port = free_port()
        self.log = folder / "demo.log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "apps.demo", "--port", str(port), *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=environment(),
            )
        super().__init__(self.process.pid, port)
        self.said = self._read("Ctrl-C")

    def _read(self, end: str) -> str:
        assert self.process.stdout is not None
        text = ""
        while end not in text:
            line = self.process.stdout.readline()
            assert line, self.log.read_text()
            text += line
        return text

    @property
    def console(self) -> str:
        found = re.search(r"(\S+#enter=\S+) opens the console", self.said)
        assert found is not None
        return found[1]

    def hear_of_restart(self) -> None:
        """Wait until it says that the server has restarted."""
        self.said = self._read("has restarted")

    def stop(self, number: signal.Signals) -> tuple[str, int]:
        """What it says in the end, and its exit code."""
        self.process.send_signal(number)
        said, _ = self.process.communicate(timeout=50)
        return said, self.process.returncode

    def __enter__(self) -> "Demo":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.communicate(timeout=50)
        elif self.process.stdout is not None:
            self.process.stdout.close()


def children(parent: int) -> dict[int, str]:
    """The children of a process by id, and how each was started."""
    found = {}
    for one in Path("/proc").iterdir():
        try:
            of = int((one / "stat").read_text().rpartition(")")[2].split()[1])
            words = (one / "cmdline").read_text().replace("\0", " ")
        except (OSError, ValueError, IndexError):
            continue
        if one.name.isdecimal() and of == parent:
            found[int(one.name)] = words.strip()
    return found


def is_there(pid: int) -> bool:
    """Whether a process is, other than as what is left of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_end(pids: list[int]) -> None:
    """Wait until all of these processes have ended, though they are not ours."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ended, _, _ = select.select([handle], [], [], 50)
            assert ended, f"{pid} has not ended"
        finally:
            os.close(handle)
