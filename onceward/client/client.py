"""The `Client` class: operations of a server by noun, and shortcuts for the most common ones."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import msgspec

from onceward.api.messages import Message, MessageVerdict, Receipt
from onceward.client.jobs import Jobs
from onceward.client.locks import Locks
from onceward.client.operations.callers import CallersOperations
from onceward.client.operations.endpoints import EndpointsOperations
from onceward.client.operations.keys import KeysOperations
from onceward.client.operations.matches import MatchesOperations
from onceward.client.operations.messages import MessagesOperations
from onceward.client.operations.rooms import RoomsOperations
from onceward.client.operations.server import ServerOperations
from onceward.client.operations.sessions import SessionsOperations
from onceward.client.operations.timers import TimersOperations
from onceward.client.queues import Queues
from onceward.client.rooms.live import Credentials, Live
from onceward.client.tables import Tables
from onceward.client.transport import CONNECT_S, Transport, problem
from onceward.client.work import Handler, Worker, WorkerKeywords
from onceward.clock import Clock
from onceward.errors import OncewardError
from onceward.ids import Ids


class Client(Transport):
    """A client of a server. Use it with `async with`.

    Operations are methods of namespaces: `client.jobs`, `client.queues`, `client.locks`,
    `client.timers`, `client.endpoints`, `client.rooms`, `client.tables`, `client.matches`,
    `client.messages`, `client.server`, `client.keys`, `client.callers` and `client.sessions`.
    `client.send` is `client.messages.send`.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        patience_s: float | None = None,
        connect_s: float = CONNECT_S,
        connections: int = 100,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        """Raises `BadInput`.

        Args:
            key: An API key or a token.
            patience_s: How long a request without a response is repeated. It is the time limit of
                a call, in addition to its `wait_s`. Default: 5, and 60 in workers.
            connect_s: The time limit of a connection to the server.
            connections: The maximum number of connections.
        """
        super().__init__(
            url,
            key=key,
            patience_s=patience_s,
            connect_s=connect_s,
            connections=connections,
            clock=clock,
            ids=ids,
        )
        self.messages = MessagesOperations(self)
        self.jobs = Jobs(self)
        self.queues = Queues(self)
        self.locks = Locks(self)
        self.timers = TimersOperations(self)
        self.endpoints = EndpointsOperations(self)
        self.rooms = RoomsOperations(self)
        self.tables = Tables(self)
        self.matches = MatchesOperations(self)
        self.server = ServerOperations(self)
        self.keys = KeysOperations(self)
        self.callers = CallersOperations(self)
        self.sessions = SessionsOperations(self)
        self.send = self.messages.send

    async def send_many(
        self, queue: str, messages: Sequence[Message | Mapping[str, Any]]
    ) -> list[Receipt | OncewardError]:
        """Send messages: mappings with `body`, `key` and the other arguments of `send`.

        Returns a receipt or an error for each message, in order. Safe to repeat for messages with
        keys. Raises `BadInput` if the whole request is rejected.
        """
        return [_verdict(one) for one in await self.messages.send_many(queue, messages)]

    def worker(self, queue: str, handler: Handler, **options: Unpack[WorkerKeywords]) -> Worker:
        """A worker that runs a function on the jobs of a queue. Options are those of `Worker`."""
        return Worker(self, queue, handler, **options)

    def live(self, *, token: Credentials = None) -> Live:
        """A WebSocket connection to rooms, for use with `async with`.

        It uses the key of this client, another token, or a function that returns tokens.
        """
        return Live(self._url, token=token or self._key, clock=self.clock, ids=self.ids)


def _verdict(verdict: MessageVerdict) -> Receipt | OncewardError:
    if verdict.accepted is not None:
        return verdict.accepted
    assert verdict.rejected is not None
    return problem(verdict.rejected.status, msgspec.json.encode(verdict.rejected))
