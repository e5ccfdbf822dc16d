"""What tests of the sender share."""

from collections.abc import Coroutine
from typing import Any

import pytest

from onceward.errors import Unreachable
from onceward.webhooks.answers import Answer
from onceward.webhooks.http.addresses import Guard
from onceward.webhooks.http.sender import Sender
from tests.webhooks.http.endpoint import Endpoint

LOCAL = Guard(["127.0.0.1:*"])
# Long enough to never matter, where a test waits for something else; and as short as can be.
LONG, SHORT = 30.0, 0.25


async def post(
    sender: Sender,
    to: Endpoint | str,
    body: bytes = b"{}",
    *,
    connect_s: float = LONG,
    total_s: float = LONG,
) -> Answer:
    url = to if isinstance(to, str) else to.url()
    return await sender.send(url, {}, body, connect_s=connect_s, total_s=total_s)


async def failure(posting: Coroutine[Any, Any, Answer]) -> Unreachable:
    """How it failed."""
    with pytest.raises(Unreachable) as failed:
        await posting
    return failed.value
