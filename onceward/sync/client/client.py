"""Synchronous classes. Written by `make generate` from `onceward.client.client`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from onceward.api import messages as api
from onceward.api.messages import Message, Receipt
from onceward.client.client import Client as AsyncClient
from onceward.client.transport import CONNECT_S
from onceward.client.work import SyncWorkerJob, WorkerKeywords
from onceward.clock import Clock
from onceward.errors import OncewardError
from onceward.ids import Ids
from onceward.sync.bridge import Portal, Root
from onceward.sync.client.callers import CallersOperations
from onceward.sync.client.endpoints import EndpointsOperations
from onceward.sync.client.jobs import Jobs
from onceward.sync.client.keys import KeysOperations
from onceward.sync.client.live import Live
from onceward.sync.client.locks import Locks
from onceward.sync.client.matches import MatchesOperations
from onceward.sync.client.messages import MessagesOperations
from onceward.sync.client.queues import Queues
from onceward.sync.client.rooms import RoomsOperations
from onceward.sync.client.server import ServerOperations
from onceward.sync.client.sessions import SessionsOperations
from onceward.sync.client.tables import Tables
from onceward.sync.client.timers import TimersOperations
from onceward.sync.client.work import Worker


class Client(Root[AsyncClient]):
    """A client of a server. Use it with `with`."""

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
        """Raises `BadInput`."""
        super().__init__(
            Portal(renews=True),
            AsyncClient(
                url,
                key=key,
                patience_s=patience_s,
                connect_s=connect_s,
                connections=connections,
                clock=clock,
                ids=ids,
            ),
        )
        self._target.opens_itself = True
        self._portal.closes_with(self._target.close)

    @property
    def messages(self) -> MessagesOperations:
        return MessagesOperations(self._portal, self._target.messages)

    @property
    def jobs(self) -> Jobs:
        return Jobs(self._portal, self._target.jobs)

    @property
    def queues(self) -> Queues:
        return Queues(self._portal, self._target.queues)

    @property
    def locks(self) -> Locks:
        return Locks(self._portal, self._target.locks)

    @property
    def rooms(self) -> RoomsOperations:
        return RoomsOperations(self._portal, self._target.rooms)

    @property
    def tables(self) -> Tables:
        return Tables(self._portal, self._target.tables)

    @property
    def timers(self) -> TimersOperations:
        return TimersOperations(self._portal, self._target.timers)

    @property
    def endpoints(self) -> EndpointsOperations:
        return EndpointsOperations(self._portal, self._target.endpoints)

    @property
    def matches(self) -> MatchesOperations:
        return MatchesOperations(self._portal, self._target.matches)

    @property
    def server(self) -> ServerOperations:
        return ServerOperations(self._portal, self._target.server)

    @property
    def keys(self) -> KeysOperations:
        return KeysOperations(self._portal, self._target.keys)

    @property
    def callers(self) -> CallersOperations:
        return CallersOperations(self._portal, self._target.callers)

    @property
    def sessions(self) -> SessionsOperations:
        return SessionsOperations(self._portal, self._target.sessions)

    def send_many(
        self, queue: str, messages: Sequence[Message | Mapping[str, Any]]
    ) -> list[Receipt | OncewardError]:
        """Send messages: mappings with `body`, `key` and the other arguments of `send`."""
        return self._portal.run(self._target.send_many(queue, messages))

    def worker(
        self, queue: str, handler: Callable[[SyncWorkerJob], Any], **options: Unpack[WorkerKeywords]
    ) -> Worker:
        """A worker that runs a function on the jobs of a queue. Options are those of `Worker`."""
        return Worker(self._portal, self._target.worker(queue, handler, **options))

    def live(self, *, token: str | Callable[[], str] | None = None) -> Live:
        """A WebSocket connection to rooms, for use with `with`."""
        return Live(Portal(), self._target.live(token=self._portal.asynchronous(token)))

    def send(
        self,
        queue: str,
        body: Any,
        *,
        order_key: str | None = None,
        limit_key: str | None = None,
        priority: int | None = None,
        attempts_max: int | None = None,
        tags: Sequence[str] = (),
        key: str | None = None,
        delay_s: float | None = None,
        due_ms: int | None = None,
        debounce_key: str | None = None,
        debounce_s: float | None = None,
        debounce_max_s: float | None = None,
        batch_key: str | None = None,
        batch_s: float | None = None,
        batch_size: int | None = None,
        wait_s: float = 0.0,
    ) -> api.Receipt:
        """Send a message."""
        return self._portal.run(
            self._target.send(
                queue,
                body,
                order_key=order_key,
                limit_key=limit_key,
                priority=priority,
                attempts_max=attempts_max,
                tags=tags,
                key=key,
                delay_s=delay_s,
                due_ms=due_ms,
                debounce_key=debounce_key,
                debounce_s=debounce_s,
                debounce_max_s=debounce_max_s,
                batch_key=batch_key,
                batch_s=batch_s,
                batch_size=batch_size,
                wait_s=wait_s,
            )
        )

    def open(self) -> Self:
        """Open the connection. The first request does that as well."""
        self._open(self._target.open, self._target.close)
        return self

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._close(self._target.close)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()
