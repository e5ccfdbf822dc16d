import socket
from collections.abc import Iterator
from itertools import count

import pytest

from onceward.testing.postgres import PostgresServer

# What is not synced survives the end of a process, which is all that these tests look at.
UNSYNCED = {"fsync": "off"}
_numbers = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """One server for all tests of a process; each has a schema of its own in it."""
    with PostgresServer(UNSYNCED) as server:
        yield server


@pytest.fixture
def schema() -> str:
    return f"test_{next(_numbers)}"


@pytest.fixture
def url(server: PostgresServer, schema: str) -> str:
    return f"{server.url}?schema={schema}"


@pytest.fixture(scope="module")
def crashing() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    with PostgresServer(UNSYNCED) as server:
        yield server


@pytest.fixture
def unused_port() -> int:
    """A port where no one listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
