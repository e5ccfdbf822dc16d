"""The pool of idle connections.

Connections are kept only for a few seconds: the receiver may close them, addresses of names change,
and open connections use memory on both sides.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from onceward import limits
from onceward.webhooks.http.connection import Connection

Key = tuple[str, str, int]
"""Scheme, host and port (`Target.key`)."""


class Pool:
    """Keeps connections to hosts for a few seconds each."""

    def __init__(self, elapsed_ns: Callable[[], int]) -> None:
        self._elapsed_ns = elapsed_ns
        self._hosts: dict[Key, list[Connection]] = {}
        """Connections by host, most recently used last; no empty lists."""
        self._keys: OrderedDict[Connection, Key] = OrderedDict()
        """All connections, most recently used last."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def take(self, key: Key) -> Connection | None:
        """Return the most recently used connection to a host, which is the least likely to be
        closed by the receiver."""
        while (connections := self._hosts.get(key)) is not None:
            connection = connections[-1]
            self.forget(connection)
            if connection.usable and connection.idle_ns > self._oldest_ns() and connection.silent:
                return connection
            connection.abort()
        return None

    def keep(self, key: Key, connection: Connection) -> None:
        """Keep a connection after its request if it is reusable; close it otherwise."""
        connection.idle_ns = self._elapsed_ns()
        age_ns = connection.idle_ns - connection.made_ns
        if not connection.usable or age_ns > limits.CONNECTION_S_MAX * 1e9:
            connection.abort()
            return
        self._hosts.setdefault(key, []).append(connection)
        self._keys[connection] = key
        if len(self._keys) > limits.IDLE_CONNECTIONS_MAX:
            self._drop_oldest()
        self._set_timer()

    def forget(self, connection: Connection) -> None:
        """Remove a connection from the pool. Idempotent."""
        key = self._keys.pop(connection, None)
        if key is not None:
            connections = self._hosts[key]
            connections.remove(connection)
            if not connections:
                del self._hosts[key]

    def close(self) -> None:
        """Close all pooled connections."""
        while self._keys:
            self._drop_oldest()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop_oldest(self) -> None:
        connection = next(iter(self._keys))
        self.forget(connection)
        connection.abort()

    def _set_timer(self) -> None:
        # One timer for all connections, since setting one for each is expensive.
        if self._timer is None and self._keys:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(limits.IDLE_CONNECTION_S / 4, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        oldest_ns = self._oldest_ns()
        while self._keys and next(iter(self._keys)).idle_ns <= oldest_ns:
            self._drop_oldest()
        self._set_timer()

    def _oldest_ns(self) -> int:
        """Connections that were last used at this time or before are expired."""
        return self._elapsed_ns() - int(limits.IDLE_CONNECTION_S * 1e9)
