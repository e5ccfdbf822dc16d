from collections.abc import Iterator

import pytest

from onceward.sync import App, Client
from onceward.sync.bridge import Portal
from tests.client.served import Served


@pytest.fixture
def app() -> Iterator[App]:
    """An application that is not started, and whose test may start it."""
    app = App("memory://", slots=4)
    yield app
    app.stop()


@pytest.fixture
def served() -> Iterator[Served]:
    """A server in the background thread."""
    portal, served = Portal(), Served()
    portal.run(served.__aenter__())
    yield served
    portal.run(served.__aexit__(None, None, None))


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.url) as client:
        yield client
