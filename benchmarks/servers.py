"""Servers that sides start: child processes in a folder, on free ports."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

START_S = 60.0
POLL_S = 0.02


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class Server:
    """A process that serves on a port. Its output goes to a file in the folder."""

    def __init__(
        self,
        command: Sequence[str],
        folder: str | Path,
        port: int,
        environment: Mapping[str, str] | None = None,
        name: str = "server",
    ) -> None:
        """Start it, and wait until the port accepts connections. Raises `RuntimeError`."""
        self.port = port
        self._log = Path(folder) / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server did not start: {self.log[-300:]}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(POLL_S)
        raise RuntimeError(f"no response on its port after {START_S:.0f} s: {self.log[-300:]}")

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
