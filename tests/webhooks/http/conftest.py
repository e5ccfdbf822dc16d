from collections.abc import AsyncIterator

import pytest

from onceward import limits
from onceward.webhooks.http.sender import Sender
from tests.webhooks.http.posting import LOCAL


@pytest.fixture
async def sender(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sender]:
    # So that a connection that should be closed at once is not closed for another reason.
    monkeypatch.setattr(limits, "IDLE_CONNECTION_S", 3_600.0)
    sender = Sender(LOCAL)
    yield sender
    await sender.close()
