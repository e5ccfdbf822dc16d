"""`onceward serve` as a process of its own, to be killed and started again."""

import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
ONCEWARD = (sys.executable, "-m", "onceward")
SERVER_KEY = "5e" * 32


def environment() -> dict[str, str]:
    """That of this process, without settings of a server but a server key."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")}
    return {**kept, "PYTHONPATH": str(ROOT), "ONCEWARD_SERVER_KEY": SERVER_KEY}


def free_port() -> int:
    """A port that nobody else gets while this process runs, also while its server is down: not one
    of those that connections are given, of which one might even connect to itself."""
    while True:
        port = random.randint(15_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if _reserve(port):
            return port


def _reserve(port: int) -> bool:
    """Keep a port from other test processes, by a lock on one byte of a file that they share.
    Returns whether it was free."""
    global _ports_fd
    if _ports_fd is None:
        path = os.path.join(tempfile.gettempdir(), f"onceward-test-ports-{os.getuid()}")
        _ports_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if port in _ports:
        return False
    try:
        fcntl.lockf(_ports_fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _ports.add(port)
    return True


_ports_fd: int | None = None
_ports: set[int] = set()


class ServerProcess:
    """A server on a database in a folder, always at the same address; with `--app` among the
    options, on that of the application."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.database = folder / "server.db"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        self.kills = 0
        self._options = options
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it; `until_ready` waits until it listens."""
        own = "--app" in self._options
        database = () if own else ("--database", f"sqlite:///{self.database}")
        with open(self.log, "a") as log:
            self._process = subprocess.Popen(
                [
                    *(*ONCEWARD, "serve", "--port", str(self.port), *database),
                    *self._options,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
                env=environment(),
            )

    def until_ready(self) -> str:
        """What it says once it listens."""
        assert self._process is not None
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said, self.log.read_text()
        return said

    def console_link(self) -> str:
        """The link into the console that it prints then."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()[0]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Without a warning."""
        assert self._process is not None
        assert self._process.poll() is None, f"it has ended by itself: {self.log.read_text()}"
        self._end(signal.SIGKILL)
        self.kills += 1

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """In good order; returns its exit code."""
        return self._end(number)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        assert process.stdout is not None
        with process.stdout:
            return process.wait(timeout=50)

    def __enter__(self) -> "ServerProcess":
        self.start()
        self.until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._end(signal.SIGKILL)
