"""Rate limits of HTTP requests by caller: a sustained rate and a burst.

A token bucket for each caller, stored as one number: the time at which it will be full again.
"""

import logging
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any

from onceward import limits
from onceward.clock import Clock
from onceward.errors import Unavailable
from onceward.meters import Meters

logger = logging.getLogger("onceward.http")


class Rates:
    """The buckets of all callers of one node; limited to the most recent callers."""

    def __init__(self, per_second: float, at_once: int, clock: Clock, meters: Meters) -> None:
        """`at_once` is the size of a bucket; 0 for the number of requests per second."""
        self.per_second = per_second
        self.at_once = at_once or max(int(per_second), 1)
        # Integers, since rounding errors of floats would reject one request too many.
        self._gap_ns = round(1e9 / per_second)
        self._clock = clock
        self._meters = meters
        self._full_ns: dict[str, int] = {}
        """When each bucket is full, the most recent caller last."""
        self._told_ns: dict[str, int] = {}
        """When the excess of each caller was last logged."""

    def take(self, name: str) -> None:
        """Count a request of a caller. Raises `rate_limited` with the time to wait if the bucket is
        empty; then it is not counted."""
        now_ns = self._clock.elapsed_ns()
        full_ns = max(self._full_ns.pop(name, now_ns), now_ns)
        wait_ns = full_ns - now_ns - (self.at_once - 1) * self._gap_ns
        refused = wait_ns > 0
        _keep(self._full_ns, name, full_ns if refused else full_ns + self._gap_ns)
        if refused:
            self._meters.count("throttled")
            self._tell(name, now_ns)
            raise Unavailable(
                f"rate limit of {name!r} exceeded: {self.per_second:g} requests a second, "
                f"{self.at_once} at once; retry in {wait_ns / 1e9:.3f} s",
                code="rate_limited",
                retry_after_s=wait_ns / 1e9,
            )

    def _tell(self, name: str, now_ns: int) -> None:
        """Log the excess of each caller at intervals."""
        told_ns = self._told_ns.pop(name, None)
        if told_ns is None or now_ns - told_ns >= limits.RATED_TOLD_S * 1e9:
            told_ns = now_ns
            logger.warning("%r makes more than %g requests a second", name, self.per_second)
        _keep(self._told_ns, name, told_ns)


def network_of(client: Sequence[Any] | None) -> str:
    """The unit of rate limits for the `client` of an ASGI scope.

    An IPv4 address, or the /64 network of an IPv6 address, which is one subscriber.
    """
    return _network(str(client[0])) if client else "unknown"


@lru_cache(maxsize=limits.RATED_CALLERS_MAX)
def _network(host: str) -> str:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 6:
        return str(address.ipv4_mapped or ip_network((int(address), 64), strict=False))
    return str(address)


def _keep(found: dict[str, int], name: str, time_ns: int) -> None:
    """Add an entry at the end, and drop the oldest beyond the limit."""
    found[name] = time_ns
    if len(found) > limits.RATED_CALLERS_MAX:
        del found[next(iter(found))]
