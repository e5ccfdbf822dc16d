"""The environment of cases: folders, a PostgreSQL server, interpreters, and processes."""

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
# A run is aborted when it takes this much longer than its measurement.
GRACE_S = 60.0
# The time limit for filling a database.
FILL_S = 60.0
OUR_FILL_S = 300.0
Figures = dict[str, Any]


class Workshop:
    """Temporary resources, all removed when it is closed."""

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
        """The URL of a new database, or a folder; a copy of `filled` if given."""
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
        """A folder with `size` waiting jobs, created once. Raises `RuntimeError`."""
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
    """The interpreter of an environment that the Makefile creates: `bench`, `temporal`, `restate`.
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
    """One run of one side in a separate process; errors are returned as `failed`. Only sides that
    use a shared server are on the same network."""
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
    """A prefix that gives a command only a separate loopback network, where supported.

    Some servers check for newer versions on the internet.
    """
    prefix = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "secluded"]
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    except OSError:
        return []
    return prefix if tried.returncode == 0 else []


def run(command: Sequence[str], bound_s: float, *, alone: bool = True) -> str:
    """The output of a program, on a separate network with `alone`.

    Raises `RuntimeError` if it fails or exceeds its time limit; then its descendants are ended as
    well.
    """
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
        raise RuntimeError(f"it exceeded the time limit of {bound_s:.0f} s") from None
    finally:
        end_group(process)
    if process.returncode != 0:
        lines = errors.strip().splitlines() or [f"it ended with {process.returncode}"]
        raise RuntimeError(lines[-1][:300])
    return out


def end_group(process: "subprocess.Popen[str]") -> None:
    """End a process and its descendants."""
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
