"""A client that keeps whole responses, since methods can return one member of a response."""

from typing import Any, TypeVar

from onceward.api.operation import Operation
from onceward.client import Client

R = TypeVar("R")


class RecordingClient(Client):
    """A client that keeps the response to the last operation."""

    response: Any = None

    async def run(
        self, operation: Operation[R], *path: str, body: Any = None, query: Any = None
    ) -> R:
        self.response = await super().run(operation, *path, body=body, query=query)
        return self.response  # type: ignore[no-any-return]
