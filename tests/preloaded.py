"""gunicorn with workers that are forked after the application was imported."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.needs import need
from tests.server_process import environment, free_port

# From Python 3.12 on, a process with threads warns of a fork.
QUIET = ("-W", "ignore::DeprecationWarning")


@contextmanager
def gunicorn(web: str, folder: Path, **variables: str) -> Iterator[str]:
    """Four preloaded workers, and their address."""
    need("gunicorn")
    port = free_port()
    command = [sys.executable, *QUIET, "-m", "gunicorn", "--preload", "--workers", "4"]
    command += ["--bind", f"127.0.0.1:{port}", "--no-control-socket", web]
    ready = threading.Event()
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**environment(), **variables},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        lines: list[str] = []

        def read() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                lines.append(line)
                if sum("Booting worker" in one for one in lines) == 4:
                    ready.set()
            ready.set()

        reading = threading.Thread(target=read)
        reading.start()
        try:
            assert ready.wait(100)
            assert process.poll() is None, "".join(lines)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            reading.join()
    assert process.returncode == 0, "".join(lines)
    assert not [one for one in lines if "Traceback" in one], "".join(lines)
