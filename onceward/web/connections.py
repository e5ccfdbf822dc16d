"""Connection limits shared by all connections of a server.

A connection is anonymous until it has sent valid credentials. Anonymous connections have separate
small limits, so that their number, bytes and requests cannot crowd out authenticated callers:

- Connections: a new one replaces the oldest idle anonymous one when the total or the limit of its
  address is reached. Authenticated connections are never closed for others.
- Buffered bytes: a budget for anonymous connections, and one for authenticated ones.
- Time: anonymous connections share a small part of each iteration of the event loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import islice
from typing import Protocol

from onceward import limits
from onceward.clock import boot_ns
from onceward.errors import OncewardError, Unavailable
from onceward.meters import Meters
from onceward.web.rates import network_of

logger = logging.getLogger("onceward.http")

Network = IPv4Network | IPv6Network


class Connection(Protocol):
    """A counted connection."""

    def is_idle(self) -> bool:
        """Whether it has no request in progress."""

    def evict(self) -> None:
        """Close it immediately, to make room for another one."""

    def go_on(self) -> None:
        """Parse received data. `Turns` calls it."""


class Budget:
    """The buffered bytes of one kind of connections."""

    __slots__ = ("_limit", "held_bytes")

    def __init__(self, limit: str) -> None:
        """`limit` is the name of a constant in `limits`."""
        self._limit = limit
        self.held_bytes = 0

    def hold(self, more_bytes: int) -> None:
        """Count more bytes, or fewer. Raises `overloaded` without counting them."""
        if more_bytes > 0 and self.held_bytes + more_bytes > getattr(limits, self._limit):
            raise Unavailable(
                "too many requests are being received at once; retry later", code="overloaded"
            )
        self.held_bytes += more_bytes


class Turns:
    """Shares a part of each iteration of the event loop among anonymous connections.

    Otherwise a thousand of them would each have a request processed before the next authenticated
    one. Connections beyond the share wait in a queue, unread.
    """

    def __init__(self) -> None:
        self._left_ns = limits.ANONYMOUS_TURN_NS
        self._waiting: deque[Connection] = deque()
        self._renewing = False

    def begin(self, connection: Connection) -> bool:
        """Whether a connection can continue now; otherwise its `go_on` is called later."""
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)
        if self._left_ns > 0 and not self._waiting:
            return True
        self._waiting.append(connection)
        return False

    def charge(self, spent_ns: int) -> None:
        """Count the time spent on an anonymous connection."""
        self._left_ns -= spent_ns

    def _renew(self) -> None:
        """Called in each iteration of the event loop while anonymous connections wait."""
        self._renewing = False
        idle = self._left_ns == limits.ANONYMOUS_TURN_NS
        # Overdrawn time is taken from the next iterations.
        self._left_ns = min(self._left_ns, 0) + limits.ANONYMOUS_TURN_NS
        while self._waiting and self._left_ns > 0:
            self._waiting.popleft().go_on()
        if not self._renewing and (self._waiting or not idle):
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)


class Connections:
    """The connections of one server, on one event loop."""

    def __init__(
        self,
        most: int = limits.CONNECTIONS_MAX,
        per_address: int = limits.CONNECTIONS_PER_ADDRESS,
        proxies: Iterable[str] = (),
    ) -> None:
        """`most` is the total limit, `per_address` the limit of anonymous connections from one
        address (0 for none), and `proxies` the networks without that limit. Raises
        `bad_settings`."""
        self.most = most
        self.anonymous = Budget("ANONYMOUS_BYTES_MAX")
        self.authenticated = Budget("BODIES_BYTES_MAX")
        self.turns = Turns()
        self.meters: Meters | None = None
        """Counts closed and refused connections. Set by the server."""
        self.buffer = memoryview(bytearray(limits.READ_BYTES))
        """The buffer into which all connections read."""
        self.small_buffer = self.buffer[: limits.ANONYMOUS_READ_BYTES]
        self._per_address = per_address
        self._proxies = [_network(text) for text in proxies]
        self._place_of = lru_cache(limits.RATED_CALLERS_MAX)(self._find_place)
        self._all: dict[Connection, str] = {}
        """With the address of each; empty if it is not limited."""
        self._anonymous: dict[Connection, None] = {}
        """Anonymous connections, the oldest first."""
        self._by_place: dict[str, dict[Connection, None]] = {}
        """Anonymous connections by address, where it is limited."""
        self._told_ns: dict[str, int] = {}

    @property
    def count(self) -> int:
        return len(self._all)

    def add(self, connection: Connection, peer: object) -> bool:
        """Count a new, anonymous connection; another one may be closed for it. Returns False if
        there is no room.

        `peer` is the `peername` of its transport.
        """
        place = self._place_of(str(peer[0]) if isinstance(peer, tuple) else "")
        here = self._by_place.get(place, {})
        full = bool(place) and len(here) >= self._per_address
        if full and not self._make_room(here, "address", place):
            return False
        if len(self._all) >= self.most and not self._make_room(self._anonymous, "total", ""):
            return False
        self._all[connection] = place
        self._anonymous[connection] = None
        if place:
            self._by_place.setdefault(place, {})[connection] = None
        return True

    def relieve(self) -> None:
        """Close an idle connection, because the process has too many open files."""
        self._make_room(self._anonymous, "files", "")

    def authenticate(self, connection: Connection) -> None:
        """Record that a connection has valid credentials. Idempotent."""
        if connection in self._anonymous:
            self._leave_place(connection)

    def remove(self, connection: Connection) -> None:
        """Record that a connection was closed. Idempotent."""
        self._leave_place(connection)
        self._all.pop(connection, None)

    def _leave_place(self, connection: Connection) -> None:
        self._anonymous.pop(connection, None)
        place = self._all.get(connection, "")
        here = self._by_place.get(place)
        if here is not None:
            here.pop(connection, None)
            if not here:
                del self._by_place[place]

    def _make_room(self, among: dict[Connection, None], limit: str, place: str) -> bool:
        """Close the oldest idle connection. Returns False if all are busy."""
        looked_at = islice(among, limits.EVICTION_LOOKS)
        victim = next((one for one in looked_at if one.is_idle()), None)
        self._report(limit, place, "refused" if victim is None else "closed")
        if victim is None:
            return False
        self.remove(victim)
        victim.evict()
        return True

    def _report(self, limit: str, place: str, done: str) -> None:
        """Count it, and log it at intervals."""
        if self.meters is not None:
            self.meters.count("connections_limited", limit=limit, outcome=done)
        now_ns = boot_ns()
        told_ns = self._told_ns.get(limit)
        if told_ns is not None and now_ns - told_ns < limits.RATED_TOLD_S * 1e9:
            return
        self._told_ns[limit] = now_ns
        if limit == "address":
            logger.warning(
                "%s has %d connections without credentials; idle ones are closed for new ones. If "
                "it is a proxy, add it to the setting `proxies`, or set "
                "`connections_per_address` to 0",
                *(place, self._per_address),
            )
        elif limit == "total":
            logger.warning(
                "%d connections are open, the limit of the setting `connections`: %s",
                self.most,
                "a new one was rejected" if done == "refused" else "an idle one was closed",
            )

    def _find_place(self, address: str) -> str:
        """The unit that counts as one address; empty if it has no limit."""
        if not self._per_address or not address or self.is_proxy(address):
            return ""
        return network_of((address,))

    def is_proxy(self, address: str) -> bool:
        """Whether the setting `proxies` has this address: it serves many callers, and its headers
        about them are trusted."""
        try:
            ip = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        ip = getattr(ip, "ipv4_mapped", None) or ip
        return any(ip in one for one in self._proxies)


def _network(text: str) -> Network:
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError as error:
        raise OncewardError(
            f"{text[:100]!a} in the setting `proxies` is not an IP address or network; write "
            "10.0.0.7 or 10.0.0.0/24",
            code="bad_settings",
        ) from error
