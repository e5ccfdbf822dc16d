"""Someone who reads a page from top to bottom and does what it shows: saves files, types commands,
runs programs, and compares what they print."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.console import Console, commands, printed
from tests.docs.book import Block
from tests.docs.preloaded import READY, install
from tests.server_process import ROOT, environment, free_port

# The port of the pages. What is tried listens at another one.
SHOWN_PORT = "8080"
# What a program that goes on says when it is there.
UP = "Ctrl-C stops it|Uvicorn running|Press CTRL"
# What was killed may still have its files and its port for an instant.
_WAIT = "wait; while curl -s localhost:$ONCEWARD_PORT > /dev/null; do :; done; true"
_REMOTE = re.compile(
    r"localhost:|^onceward (send|jobs|queues|locks|timers|endpoints|rooms|tables|server) "
)
_VARIABLE = re.compile(r"([A-Z]+)=…")


class Reader:
    """In a folder of its own, with a shell in which commands find the server, and the server its
    port."""

    def __init__(self, folder: Path, programs: Path, more: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self._runs = False
        self._serves = False
        self._shown: list[str] = []
        settings = {
            **environment(),
            "ONCEWARD_PORT": str(self.port),
            "ONCEWARD_SERVER": f"http://localhost:{self.port}",
            "COLUMNS": "200",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the many that are installed here
            "PYTEST_PLUGINS": "onceward.testing.pytest_plugin,pytest_asyncio.plugin",
            **(more or {}),
        }
        settings["PATH"] = f"{programs}:{settings['PATH']}"
        self._console = Console(folder, settings)

    def here(self, text: str) -> str:
        """A text with the port that is used here."""
        return text.replace(SHOWN_PORT, str(self.port))

    def save(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.here(text))

    def type(self, block: Block, skipped: Any) -> int:
        """Type the commands of a block; returns how many were run. What is `skipped` is not."""
        count = 0
        for command, said in commands(block.text):
            if skipped(block.page, command):
                continue
            if _REMOTE.search(command) and not self._serves:
                self.serve("onceward serve")  # which the page takes for granted
            wanted = [self.here(line) for line in said if line]
            self._shown = self._typed(self.here(command))
            while "timers get" in command and not printed(self._shown, wanted):
                self._shown = self._typed(self.here(command))  # the answer is just being recorded
            assert printed(self._shown, wanted), (str(block), command, self._shown, wanted)
            count += 1
        return count

    def run(self, name: str, text: str) -> list[str]:
        """Save a program and run it; what it prints. It must go well, and complain of nothing."""
        self.save(name, text)
        if SHOWN_PORT in text and not self._serves:
            self.serve("onceward serve")
        if "async def main()" in text and "asyncio.run" not in text:
            self.save(name, f"{text}\n\nimport asyncio\n\nasyncio.run(main())\n")
        shown = self._console.run(
            f"python {name} 2> {name}.errors || {{ cat {name}.errors; false; }}"
        )
        assert not (complaints := (self.folder / f"{name}.errors").read_text()), complaints
        return [line for line in shown if line]

    def serve(self, command: str) -> list[str]:
        """Start a program that goes on, in place of the one that does."""
        if self._runs:
            self._console.run("kill $! && wait $!; true")
        self._runs, self._serves = True, not re.search("onceward work(?!.*--health-port)", command)
        return self._console.start(f"{command} 2>&1", UP)

    def _typed(self, command: str) -> list[str]:
        names = _VARIABLE.findall(command)
        if names:
            answer = json.loads(next(line for line in self._shown if line.startswith("{")))
            found = " ".join(f"{name}={_member(answer, name.lower())}" for name in names)
            return self._console.run(found)
        if re.match(r"onceward (serve|work|dev)|uvicorn|flask .* run ", command):
            return self.serve(command.removesuffix("&").rstrip())
        if re.search("(^|&& )kill ", command):
            self._runs = self._serves = False
            return self._console.run(f"{command}\n{_WAIT}")
        return self._console.run(command)

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._console.__exit__()


def _member(value: Any, name: str) -> str | None:
    """A member of an answer, wherever it is in it."""
    if isinstance(value, dict) and name in value:
        return str(value[name])
    inner = value.values() if isinstance(value, dict) else value
    inner = inner if isinstance(value, dict | list) else ()
    return next((found for one in inner if (found := _member(one, name)) is not None), None)


@contextmanager
def programs() -> Iterator[Path]:
    """A folder with `onceward` and `python`, for the PATH of a shell, which begin at once."""
    with TemporaryDirectory(prefix="onceward-docs-") as folder:
        address = f"{folder}/address"
        waiting = subprocess.Popen(
            [sys.executable, "-m", "tests.docs.preloaded", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment(),
        )
        assert waiting.stdin is not None
        assert waiting.stdout is not None
        try:
            assert waiting.stdout.readline().strip() == READY
            install(Path(folder) / "bin", address)
            yield Path(folder) / "bin"
        finally:
            waiting.stdin.close()
            waiting.wait(timeout=50)
            waiting.stdout.close()
