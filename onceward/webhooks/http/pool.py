"""The pool of idle connections.

Never for long: the other side may close one at any time, a name may have moved, and what is open
costs both sides memory.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from onceward import limits
from onceward.webhooks.http.connection import Connection

Key = tuple[str, str, int]
"""Scheme, host and port (`Target.key`)."""


class Pool:
    """Keeps connections to hosts, a few seconds each."""

    def __init__(self, elapsed_ns: Callable[[], int]) -> None:
        self._elapsed_ns = elapsed_ns
        self._hosts: dict[Key, list[Connection]] = {}
        """The one that was used last at the end; none without a connection."""
        self._keys: OrderedDict[Connection, Key] = OrderedDict()
        """Of all of them, the one that was used last at the end."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def take(self, key: Key) -> Connection | None:
        """The connection to a host that was used last: it is the least likely to be closed by
        the other side just now."""
        while (connections := self._hosts.get(key)) is not None:
            connection = connections[-1]
            self.forget(connection)
            if connection.usable and connection.idle_ns > self._oldest_ns() and connection.silent:
                return connection
            connection.abort()
        return None

    def keep(self, key: Key, connection: Connection) -> None:
        """Keep a connection whose request is over, if it can be used again; else end it."""
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
        """It is not kept any more, for whatever reason; nothing happens if it was not."""
        key = self._keys.pop(connection, None)
        if key is not None:
            connections = self._hosts[key]
            connections.remove(connection)
            if not connections:
                del self._hosts[key]

    def close(self) -> None:
        """End all connections that are kept."""
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
        # One for all: to set one for each would take as long as the rest.
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
        """Who was used then or before is not used again."""
        return self._elapsed_ns() - int(limits.IDLE_CONNECTION_S * 1e9)
