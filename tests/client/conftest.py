from collections.abc import AsyncIterator

import pytest

from onceward.client import Client
from tests.client.served import Cutter, Served


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with Served() as served:
        yield served


@pytest.fixture
async def cutter(served: Served) -> AsyncIterator[Cutter]:
    async with Cutter(served.port) as cutter:
        yield cutter


@pytest.fixture
async def client(cutter: Cutter) -> AsyncIterator[Client]:
    async with Client(cutter.url, patience_s=20) as client:
        yield client
