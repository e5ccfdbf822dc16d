"""Connection limits shared by all connections of a server.

A connection is anonymous until it has shown valid credentials. Anonymous connections have small
limits of their own, so that their number, their bytes and their requests cannot crowd out callers
that are authenticated:

- Connections: a new one takes the place of the oldest idle anonymous one when the total is
  reached, or the limit of its address. Authenticated ones are never closed for others.
- Bytes that are buffered: a budget for anonymous connections, and one for authenticated ones.
- Time: anonymous connections share a small part of each turn of the event loop.
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
    """A connection as it is counted."""

    def is_idle(self) -> bool:
        """Whether no request on it is being answered."""

    def evict(self) -> None:
        """Close it now, to make room for another one."""

    def go_on(self) -> None:
        """Parse what has come: it has its turn. `Turns` calls it."""


class Budget:
    """Bytes that connections of one kind hold."""

    __slots__ = ("_limit", "held_bytes")

    def __init__(self, limit: str) -> None:
        """`limit` is the name of one in `limits`."""
        self._limit = limit
        self.held_bytes = 0

    def hold(self, more_bytes: int) -> None:
        """Count more bytes, or fewer. Raises `overloaded`; then they are not counted."""
        if more_bytes > 0 and self.held_bytes + more_bytes > getattr(limits, self._limit):
            raise Unavailable("too much is being sent at once; retry later", code="overloaded")
        self.held_bytes += more_bytes


class Turns:
    """Shares a part of each turn of the event loop among anonymous connections.

    Without it a thousand of them would each have a request parsed and answered before the next
    authenticated one is. Those that do not fit into this turn wait in line, unread.
    """

    def __init__(self) -> None:
        self._left_ns = limits.ANONYMOUS_TURN_NS
        self._waiting: deque[Connection] = deque()
        self._renewing = False

    def begin(self, connection: Connection) -> bool:
        """Whether a connection has its turn now; else its `go_on` is called later."""
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)
        if self._left_ns > 0 and not self._waiting:
            return True
        self._waiting.append(connection)
        return False

    def charge(self, spent_ns: int) -> None:
        """Count time that was spent on an anonymous connection."""
        self._left_ns -= spent_ns

    def _renew(self) -> None:
        """In each turn of the event loop while there are such connections."""
        self._renewing = False
        idle = self._left_ns == limits.ANONYMOUS_TURN_NS
        # Time that was overdrawn is taken from the next turns.
        self._left_ns = min(self._left_ns, 0) + limits.ANONYMOUS_TURN_NS
        while self._waiting and self._left_ns > 0:
            self._waiting.popleft().go_on()
        if not self._renewing and (self._waiting or not idle):
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)


class Connections:
    """Those of one server, on one event loop."""

    def __init__(
        self,
        most: int = limits.CONNECTIONS_MAX,
        per_address: int = limits.CONNECTIONS_PER_ADDRESS,
        proxies: Iterable[str] = (),
    ) -> None:
        """`most`: in total. `per_address`: anonymous ones from one address, 0 for any number.
        `proxies`: networks to which that limit does not apply. Raises `bad_settings`."""
        self.most = most
        self.anonymous = Budget("ANONYMOUS_BYTES_MAX")
        self.authenticated = Budget("BODIES_BYTES_MAX")
        self.turns = Turns()
        self.meters: Meters | None = None
        """Counts those that were closed or refused. The server sets it."""
        self.buffer = memoryview(bytearray(limits.READ_BYTES))
        """Into which all connections read."""
        self.small_buffer = self.buffer[: limits.ANONYMOUS_READ_BYTES]
        self._per_address = per_address
        self._proxies = [_network(text) for text in proxies]
        self._place_of = lru_cache(limits.RATED_CALLERS_MAX)(self._find_place)
        self._all: dict[Connection, str] = {}
        """With the place that each comes from; empty if it is not limited."""
        self._anonymous: dict[Connection, None] = {}
        """The oldest ones first."""
        self._by_place: dict[str, dict[Connection, None]] = {}
        """Of those, where places are limited."""
        self._told_ns: dict[str, int] = {}

    @property
    def count(self) -> int:
        return len(self._all)

    def add(self, connection: Connection, peer: object) -> bool:
        """Count a new connection, which is anonymous. `peer` is what its transport calls
        `peername`. Another one may be closed for it. Returns False if there is no room."""
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
        """Close one, since the process has too many files open."""
        self._make_room(self._anonymous, "files", "")

    def authenticate(self, connection: Connection) -> None:
        """A connection has shown valid credentials. Idempotent."""
        if connection in self._anonymous:
            self._leave_place(connection)

    def remove(self, connection: Connection) -> None:
        """A connection is closed. Idempotent."""
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
        """Close the oldest idle one. Returns False if there is none."""
        looked_at = islice(among, limits.EVICTION_LOOKS)
        victim = next((one for one in looked_at if one.is_idle()), None)
        self._report(limit, place, "refused" if victim is None else "closed")
        if victim is None:
            return False
        self.remove(victim)
        victim.evict()
        return True

    def _report(self, limit: str, place: str, done: str) -> None:
        """Count it, and log it now and then."""
        if self.meters is not None:
            self.meters.count("connections_limited", limit=limit, outcome=done)
        now_ns = boot_ns()
        told_ns = self._told_ns.get(limit)
        if told_ns is not None and now_ns - told_ns < limits.RATED_TOLD_S * 1e9:
            return
        self._told_ns[limit] = now_ns
        if limit == "address":
            logger.warning(
                "%s has %d connections without credentials: idle ones are closed for new ones. If "
                "it is a proxy, add it to the setting `proxies`, or set "
                "`connections_per_address` to 0",
                *(place, self._per_address),
            )
        elif limit == "total":
            logger.warning(
                "there are %d connections, as many as the setting `connections` allows: %s",
                self.most,
                "a new one was refused" if done == "refused" else "an idle one was closed",
            )

    def _find_place(self, address: str) -> str:
        """What counts as one address; empty if it has no limit."""
        if not self._per_address or not address or self.is_proxy(address):
            return ""
        return network_of((address,))

    def is_proxy(self, address: str) -> bool:
        """Whether the setting `proxies` names this address: many callers come from it, and what
        it reports about them in headers is believed."""
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
