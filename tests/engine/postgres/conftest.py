import socket
from collections.abc import Iterator

import pytest

from onceward.testing.postgres import PostgresServer
from tests.conftest import UNSYNCED


@pytest.fixture(scope="session")
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
