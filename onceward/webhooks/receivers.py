"""Receivers that do not respond: callers affected, and the time of the next call.

In memory and per node. An entry ends when the host responds, or when no further call to it is
expected.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from onceward import limits
from onceward.webhooks.hosts import Hosts

HostKey = tuple[str, str, int]


class Scope(NamedTuple):
    """The grant that a caller needs to see this entry."""

    action: Literal["endpoint", "timer"]
    """`endpoint`, or `timer` for a timer with a URL."""
    name: str


class Paused(NamedTuple):
    """A host that does not respond, and a caller whose calls wait for it."""

    host: HostKey
    caller: str
    scope: Scope
    failures: int
    """The number of calls in a row without a response."""
    since_ms: int
    until_ms: int
    """The time of the next call; in the past if it is running."""
    reason: str


class Receivers:
    """The hosts that the callers of one node wait for."""

    def __init__(self, hosts: Hosts, now_ms: Callable[[], int]) -> None:
        self._hosts = hosts
        self._now_ms = now_ms
        self._waiting: dict[tuple[str, HostKey], tuple[Scope, int]] = {}
        """With the time of the next call of each."""

    def wait(self, caller: str, host: HostKey, scope: Scope, until_ms: int) -> None:
        """Record that a call waits for a host that does not respond."""
        # The most recent entries are at the end; the oldest are dropped beyond the limit.
        known = self._waiting.pop((caller, host), None)
        if known is not None and self._now_ms() < known[1] < until_ms:
            scope, until_ms = known
        self._waiting[caller, host] = scope, until_ms
        if len(self._waiting) > limits.ENDPOINTS_KNOWN_MAX:
            del self._waiting[next(iter(self._waiting))]

    def list_paused(self) -> list[Paused]:
        """Return the hosts that do not respond, the longest outage first."""
        found, now_ms = list[Paused](), self._now_ms()
        for (caller, host), (scope, until_ms) in list(self._waiting.items()):
            trouble = self._hosts.pause(host)
            # A running call may take this long before it reports the time of the next one.
            if trouble is None or until_ms < now_ms - limits.OUTWARD_TIMEOUT_MS_MAX:
                del self._waiting[caller, host]
                continue
            since_ms = now_ms - int(trouble.since_s * 1_000)
            next_ms = max(until_ms, now_ms + int(trouble.wait_s * 1_000))
            failures, reason = trouble.failures, trouble.reason
            found.append(Paused(host, caller, scope, failures, since_ms, next_ms, reason))
        return sorted(found, key=lambda one: (one.since_ms, one.host, one.caller))
