"""Host limits: a slow or unavailable host does not delay calls to others.

A new host gets few concurrent requests, and more while it responds well (`concurrency`). A host
that does not respond gets one request at a time, with doubling pauses, until it responds again. All
hosts without a response to their last request share a part of the total limit, so hanging hosts
always leave room for healthy ones.

The state is in memory and per process; after a restart it is measured again with a few requests.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

from onceward import limits
from onceward.clock import boot_ns
from onceward.webhooks.concurrency import Concurrency


class Trouble(NamedTuple):
    """A host whose last requests got no response."""

    wait_s: float
    """Seconds until the next request may start; 0 if one is running."""
    failures: int
    """The number of requests in a row without a response."""
    since_s: float
    """Seconds since the first of them failed."""
    reason: str
    """Why the last of them failed."""


class Hosts:
    """The state of each host. A key identifies a unit of failure, usually scheme, name and port
    (`Target.key`)."""

    def __init__(
        self,
        fraction: Callable[[], float],
        elapsed_ns: Callable[[], int] = boot_ns,
        *,
        requests_max: int = limits.HOST_REQUESTS_MAX,
        doubtful_max: int = limits.DOUBTFUL_REQUESTS_MAX,
        known_max: int = limits.HOSTS_KNOWN_MAX,
    ) -> None:
        """`fraction` returns random numbers in [0, 1), such as `Ids.fraction`."""
        self._fraction = fraction
        self._elapsed_ns = elapsed_ns
        self._requests_max = requests_max
        self._doubtful_max = doubtful_max
        self._known_max = known_max
        self._busy: dict[Hashable, _Host] = {}
        self._idle: OrderedDict[Hashable, _Host] = OrderedDict()
        """Hosts without requests, least recently used first."""
        self._doubtful = 0
        """Running requests to hosts that had not responded to their previous request."""

    def admit(self, key: Hashable) -> "Slot | float":
        """Return a slot for one request, to be given back; or the seconds after which to ask again.
        Callers keep their own queue."""
        host = self._busy.get(key) or self._idle.get(key)
        if host is None:
            host = _Host(self._requests_max)
        now_ns = self._elapsed_ns()
        if host.pause_until_ns > now_ns:
            return (host.pause_until_ns - now_ns) / 1e9
        doubtful = not host.answers
        crowded = self._doubtful >= self._doubtful_max // 2
        if host.requests >= (
            1 if host.failures or (doubtful and crowded) else host.concurrency.limit
        ):
            return host.wait_s(now_ns)
        # The second half is for hosts without measurements; one request each gives the result.
        if doubtful and (self._doubtful >= self._doubtful_max or (crowded and host.failures)):
            return limits.HOST_WAIT_S_MAX
        self._idle.pop(key, None)
        self._busy[key] = host
        self._forget()
        host.requests += 1
        host.begun_ns = now_ns
        self._doubtful += doubtful
        return Slot(self, key, host, doubtful, now_ns, host.concurrency.start())

    def answers(self, key: Hashable) -> bool:
        """Whether the last request to a host got a response."""
        host = self._busy.get(key) or self._idle.get(key)
        return host is not None and host.answers

    def pause(self, key: Hashable) -> Trouble | None:
        """The pause of a host and its reason; None if the last request got a response, or the host
        is unknown."""
        host = self._busy.get(key) or self._idle.get(key)
        if host is None or not host.failures:
            return None
        now_ns = self._elapsed_ns()
        wait_s = max(host.pause_until_ns - now_ns, 0) / 1e9
        return Trouble(wait_s, host.failures, (now_ns - host.failing_ns) / 1e9, host.reason)

    def turn_s(self, key: Hashable, count: int) -> float:
        """Estimate the time until `count` more requests to a responding host have started."""
        host = self._busy.get(key) or self._idle.get(key)
        return 0.0 if host is None else host.concurrency.turn_s(count)

    def in_trouble(self, key: Hashable) -> bool:
        """Whether the last request to a host got no response."""
        host = self._busy.get(key) or self._idle.get(key)
        return host is not None and host.failures > 0

    def __len__(self) -> int:
        """The number of known hosts."""
        return len(self._busy) + len(self._idle)

    def _take_back(self, slot: "Slot", answered: bool | None, well: bool, reason: str) -> None:
        host, now_ns = slot.host, self._elapsed_ns()
        host.requests -= 1
        self._doubtful -= slot.doubtful
        time_s = (now_ns - slot.since_ns) / 1e9
        host.concurrency.learn_time(time_s)
        if answered and well:
            host.concurrency.answered(slot.number, time_s, host.requests + 1)
        elif answered is not None:
            host.concurrency.failed(slot.number)
        if answered:
            host.answers = True
            host.failures = 0
            host.news_ns = now_ns
            host.pause_until_ns = 0
        # A failure is ignored if another request succeeded or failed after this one began:
        # concurrent requests fail together and count as one failure.
        elif answered is not None and slot.since_ns >= host.news_ns:
            host.answers = False
            if not host.failures:
                host.failing_ns = now_ns
            host.failures += 1
            host.reason = reason
            host.news_ns = now_ns
            host.pause_until_ns = now_ns + int(self._pause_s(host.failures) * 1e9)
        if not host.requests:
            del self._busy[slot.key]
            self._idle[slot.key] = host
            self._forget()

    def _forget(self) -> None:
        while len(self) > self._known_max and self._idle:
            self._idle.popitem(last=False)

    def _pause_s(self, failures: int) -> float:
        """A random pause between half and all of a duration that doubles with each failure."""
        doubled_s = limits.HOST_PAUSE_S_MIN * (1 << min(failures - 1, 30))
        longest_s = min(limits.HOST_PAUSE_S_MAX, doubled_s)
        return longest_s * (1 + self._fraction()) / 2


class Slot:
    """Permission for one request."""

    __slots__ = ("_hosts", "doubtful", "host", "key", "number", "since_ns")

    def __init__(
        self,
        hosts: Hosts,
        key: Hashable,
        host: "_Host",
        doubtful: bool,
        since_ns: int,
        number: int,
    ) -> None:
        self._hosts: Hosts | None = hosts
        self.key = key
        self.host = host
        self.doubtful = doubtful
        self.since_ns = since_ns
        self.number = number

    def give_back(self, answered: bool | None, *, well: bool = True, reason: str = "") -> None:
        """End the request. Idempotent.

        `answered` is whether there was a response of any kind; None if unknown, for example if the
        request was never sent. `well` is False for a response of a failing or overloaded receiver.
        `reason` explains a missing response.
        """
        hosts, self._hosts = self._hosts, None
        if hosts is not None:
            hosts._take_back(self, answered, well, reason)


class _Host:
    """The state of one host."""

    __slots__ = (
        *("answers", "begun_ns", "concurrency", "failing_ns", "failures", "news_ns"),
        *("pause_until_ns", "reason", "requests"),
    )

    def __init__(self, requests_max: int) -> None:
        self.requests = 0
        self.concurrency = Concurrency(requests_max)
        self.begun_ns = 0
        """When the last request began."""
        self.answers = False
        """Whether its last request got a response."""
        self.failures = 0
        """The number of failures in a row."""
        self.failing_ns = 0
        """When the first of them occurred."""
        self.reason = ""
        """Why the last of them occurred."""
        self.news_ns = 0
        """When it last responded or failed."""
        self.pause_until_ns = 0

    def wait_s(self, now_ns: int) -> float:
        """Estimate when a running request ends.

        By measured durations or, if the host does not respond, by the age of the request.
        """
        left_s = self.concurrency.time_s / self.requests
        if not self.answers:
            left_s = (now_ns - self.begun_ns) / 1e9
        return min(limits.HOST_WAIT_S_MAX, max(limits.HOST_WAIT_S_MIN, left_s))
