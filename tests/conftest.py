import gc
import logging
import os
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

from onceward.testing.postgres import PostgresServer
from tests.failover import Servers

# Server keys that are made by tests, and by processes that they start, go here.
_STATE = tempfile.TemporaryDirectory(prefix="onceward-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name
for _variable in ("ONCEWARD_SERVER_KEY", "ONCEWARD_SERVER_KEY_FILE"):
    os.environ.pop(_variable, None)

# Two busy cores make any single example slow now and then; that is no finding.
settings.register_profile("onceward", deadline=None, print_blob=True)
settings.load_profile("onceward")

# What is not synced survives the end of a process, which is all that tests look at.
UNSYNCED = {"fsync": "off"}
_numbers = count(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Coverage is earned by tests that assert on a behaviour, not by the simulator passing by.
    And what is for long runs alone is left out of short ones."""
    for item in items:
        if item.get_closest_marker("simulate"):
            item.add_marker(pytest.mark.no_cover)
    if os.environ.get("ONCEWARD_SOAK") != "1":
        long = [item for item in items if item.get_closest_marker("soak")]
        if long:
            config.hook.pytest_deselected(items=long)
            items[:] = [item for item in items if item not in long]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """All that is collected stays to the end: no need to look through it for garbage again and
    again, which took a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[object]:
    """Restore the log after programs that have set it up in this process: the streams that they
    write to are closed."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        return (yield)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether this is a long run (`make soak-…`), where counts are the large ones."""
    return os.environ.get("ONCEWARD_SOAK") == "1"


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests of a process; each has a schema of its own in it."""
    with PostgresServer(UNSYNCED) as server:
        yield server


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """A primary that fails over to standbys, for all tests of a process."""
    servers = Servers(UNSYNCED)
    yield servers
    servers.remove()


@pytest.fixture
def schema() -> str:
    return f"test_{next(_numbers)}"


@pytest.fixture
def url(server: PostgresServer, schema: str) -> str:
    return f"{server.url}?schema={schema}"


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB: the first journal segment fits, the next does not."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        _run("mount", "-t", "tmpfs", "-o", "size=3M", "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no tmpfs here: {error}")
    yield folder
    _run("umount", str(folder))


def enlarge(tmpfs: Path) -> None:
    """Give it space for all that a test writes."""
    _run("mount", "-o", "remount,size=64M", str(tmpfs))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)
