"""Receivers that do not respond: callers affected, and the time of the next call.

In memory only, for one node. An entry ends when the host answers, or when no call to it is
expected any more.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from onceward import limits
from onceward.webhooks.hosts import Hosts

HostKey = tuple[str, str, int]


class Scope(NamedTuple):
    """What a caller needs a grant for to see that it waits."""

    action: Literal["endpoint", "timer"]
    """`endpoint`, or `timer` for a timer with a URL of its own."""
    name: str


class Paused(NamedTuple):
    """A host that does not answer, and a caller whose calls wait for it."""

    host: HostKey
    caller: str
    scope: Scope
    failures: int
    """How many calls in a row got no answer."""
    since_ms: int
    until_ms: int
    """When the next call is made; the past, if that is under way."""
    reason: str


class Receivers:
    """The hosts that callers of one node wait for."""

    def __init__(self, hosts: Hosts, now_ms: Callable[[], int]) -> None:
        self._hosts = hosts
        self._now_ms = now_ms
        self._waiting: dict[tuple[str, HostKey], tuple[Scope, int]] = {}
        """With the time of the next call of each."""

    def wait(self, caller: str, host: HostKey, scope: Scope, until_ms: int) -> None:
        """A call waits for a host that does not answer."""
        # The most recent ones are at the end: the others are dropped if there are too many.
        known = self._waiting.pop((caller, host), None)
        if known is not None and self._now_ms() < known[1] < until_ms:
            scope, until_ms = known
        self._waiting[caller, host] = scope, until_ms
        if len(self._waiting) > limits.ENDPOINTS_KNOWN_MAX:
            del self._waiting[next(iter(self._waiting))]

    def list_paused(self) -> list[Paused]:
        """Those that do not answer, the longest first."""
        found, now_ms = list[Paused](), self._now_ms()
        for (caller, host), (scope, until_ms) in list(self._waiting.items()):
            trouble = self._hosts.pause(host)
            # A call may be under way for so long before it says when the next one is.
            if trouble is None or until_ms < now_ms - limits.OUTWARD_TIMEOUT_MS_MAX:
                del self._waiting[caller, host]
                continue
            since_ms = now_ms - int(trouble.since_s * 1_000)
            next_ms = max(until_ms, now_ms + int(trouble.wait_s * 1_000))
            failures, reason = trouble.failures, trouble.reason
            found.append(Paused(host, caller, scope, failures, since_ms, next_ms, reason))
        return sorted(found, key=lambda one: (one.since_ms, one.host, one.caller))
