"""Where cases are run: folders, a PostgreSQL server, environments, processes with a time limit."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg

from onceward.testing.postgres import PostgresServer

HERE = Path(__file__).parent
ROOT = HERE.parent
# A run may take so much longer than it measures, before it is given up.
GRACE_S = 60.0
# So long may it take to make what waits, for others and for us.
FILL_S = 60.0
OUR_FILL_S = 300.0
Figures = dict[str, Any]


class Workshop:
    """Everything made here is gone when it is closed."""

    def __init__(self, folder: Path | None = None) -> None:
        self._stack = ExitStack()
        made = tempfile.TemporaryDirectory(dir=folder or HERE, prefix="tmp-")
        self.folder = Path(self._stack.enter_context(made))
        self._server: PostgresServer | None = None
        self._filled: dict[tuple[str, int], Path | str] = {}

    def __enter__(self) -> "Workshop":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def place(self, where: str, filled: Path | None = None) -> Iterator[str]:
        """A new database, as a URL, or a folder; a copy of one that is filled, if there is one."""
        if where == "postgres":
            with self._postgres_database() as url:
                yield url
            return
        with tempfile.TemporaryDirectory(dir=self.folder) as own:
            if filled is not None:
                shutil.copytree(filled, own, dirs_exist_ok=True)
                os.sync()
            yield f"sqlite:///{own}/bench.db" if where == "sqlite" else own

    @contextmanager
    def _postgres_database(self) -> Iterator[str]:
        if self._server is None:
            self._server = self._stack.enter_context(PostgresServer())
        server = self._server

        async def execute(*statements: str) -> None:
            connection = await asyncpg.connect(server.url)
            for statement in statements:
                await connection.execute(statement)
            await connection.close()

        asyncio.run(execute("CREATE DATABASE bench", "CHECKPOINT"))
        yield server.url.removesuffix("postgres") + "bench"
        asyncio.run(execute("DROP DATABASE bench WITH (FORCE)"))

    def filled(self, python: str, side: str, where: str, size: int) -> Path:
        """A folder in which so much waits already, made once. Raises `RuntimeError`."""
        known = self._filled.get((side, size))
        if known is None:
            known = self._fill(python, side, where, size)
            self._filled[side, size] = known
        if isinstance(known, str):
            raise RuntimeError(known)
        return known

    def _fill(self, python: str, side: str, where: str, size: int) -> Path | str:
        folder = Path(tempfile.mkdtemp(dir=self.folder, prefix="filled-"))
        url = f"sqlite:///{folder}/bench.db" if where == "sqlite" else str(folder)
        bound_s = OUR_FILL_S if side.startswith("benchmarks.ours:") else FILL_S
        result = step(python, side, "fill", url, 1, 0.0, size, bound_s)
        return (
            folder if "failed" not in result else f"{size:,} could not be made: {result['failed']}"
        )


def python_of(environment: str) -> Path:
    """The interpreter of an environment that the Makefile makes: `bench`, `temporal`, `restate`.
    The first is the one that runs this."""
    if environment == "bench":
        return Path(sys.executable)
    return ROOT / f".venv-{environment}" / "bin" / "python"


def step(
    python: str,
    side: str,
    measure: str,
    url: str,
    callers: int,
    seconds: float,
    size: int = 0,
    bound_s: float = 0.0,
) -> Figures:
    """One run of one side in a process of its own; what went wrong is told as `failed`. Only one
    that uses a server of ours is on the same network."""
    options = {"side": side, "measure": measure, "url": url, "callers": callers}
    options |= {"seconds": seconds, "size": size}
    command = [str(python_of(python)), "-m", "benchmarks.step", json.dumps(options)]
    try:
        out = run(
            command, bound_s or seconds * 3 + GRACE_S, alone=not url.startswith("postgresql:")
        )
    except RuntimeError as error:
        return {"failed": str(error)}
    return last_json(out)


@cache
def secluded() -> list[str]:
    """What lets a command see no network but a loopback of its own, where that can be had: some
    servers ask the world for newer versions of themselves."""
    prefix = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "secluded"]
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    except OSError:
        return []
    return prefix if tried.returncode == 0 else []


def run(command: Sequence[str], bound_s: float, *, alone: bool = True) -> str:
    """What a program prints, on a network of its own if it is to be alone. Raises `RuntimeError`
    if it fails, or takes longer than it may: then all that it has started is ended, too."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*(secluded() if alone else []), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=bound_s)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"it took longer than {bound_s:.0f} s") from None
    finally:
        end_group(process)
    if process.returncode != 0:
        lines = errors.strip().splitlines() or [f"it ended with {process.returncode}"]
        raise RuntimeError(lines[-1][:300])
    return out


def end_group(process: "subprocess.Popen[str]") -> None:
    """End what a process has started and left behind, and itself."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate()


def last_json(out: str) -> Figures:
    try:
        return dict(json.loads(out.strip().splitlines()[-1]))
    except (IndexError, ValueError):
        return {"failed": f"it printed no figures, but {out[-200:]!r}"}
