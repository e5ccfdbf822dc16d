from collections.abc import AsyncIterator

import pytest

from onceward.outward.sender import Sender
from tests.outward.posting import LOCAL


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    sender = Sender(LOCAL)
    yield sender
    await sender.close()
