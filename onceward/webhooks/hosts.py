"""Host limits: a slow or unavailable host does not delay calls to others.

A host that nothing is known of gets few requests at once, and more while it answers well
(`concurrency`). One that does not answer gets one at a time, with pauses between them that double,
until it answers again.
And all who have not answered the last time together get only a part of what may be under way: so
however many of them hang, there is room for those that are well.

In memory only, and for one process: what is forgotten is learned again with a few requests.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

from onceward import limits
from onceward.clock import boot_ns
from onceward.webhooks.concurrency import Concurrency


class Trouble(NamedTuple):
    """A host whose last requests got no answer."""

    wait_s: float
    """In how many seconds the next request may begin; 0, if one is under way."""
    failures: int
    """How many in a row got no answer."""
    since_s: float
    """How long ago the first of them failed."""
    reason: str
    """Why the last of them failed."""


class Hosts:
    """What is known of each host. A key is whatever is in trouble as one, usually scheme, name
    and port (`Target.key`)."""

    def __init__(
        self,
        fraction: Callable[[], float],
        elapsed_ns: Callable[[], int] = boot_ns,
        *,
        requests_max: int = limits.HOST_REQUESTS_MAX,
        doubtful_max: int = limits.DOUBTFUL_REQUESTS_MAX,
        known_max: int = limits.HOSTS_KNOWN_MAX,
    ) -> None:
        """`fraction` gives random numbers in [0, 1), such as `Ids.fraction`."""
        self._fraction = fraction
        self._elapsed_ns = elapsed_ns
        self._requests_max = requests_max
        self._doubtful_max = doubtful_max
        self._known_max = known_max
        self._busy: dict[Hashable, _Host] = {}
        self._idle: OrderedDict[Hashable, _Host] = OrderedDict()
        """Those without requests, the ones that were used last at the end."""
        self._doubtful = 0
        """Requests under way to hosts that had not answered the last time when they began."""

    def admit(self, key: Hashable) -> "Slot | float":
        """Leave for one request, which is to be given back; or after how many seconds to ask
        again. Who asks again has no place in a line: the caller keeps that."""
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
        # The second half is for those of whom nothing is known: one request each will tell.
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
        """Whether the last request to a host got an answer."""
        host = self._busy.get(key) or self._idle.get(key)
        return host is not None and host.answers

    def pause(self, key: Hashable) -> Trouble | None:
        """How long a host is left alone, and why; None if its last request was answered, or
        nothing is known."""
        host = self._busy.get(key) or self._idle.get(key)
        if host is None or not host.failures:
            return None
        now_ns = self._elapsed_ns()
        wait_s = max(host.pause_until_ns - now_ns, 0) / 1e9
        return Trouble(wait_s, host.failures, (now_ns - host.failing_ns) / 1e9, host.reason)

    def turn_s(self, key: Hashable, count: int) -> float:
        """How long it takes until so many more requests to a host that answers have begun."""
        host = self._busy.get(key) or self._idle.get(key)
        return 0.0 if host is None else host.concurrency.turn_s(count)

    def in_trouble(self, key: Hashable) -> bool:
        """Whether the last request to a host got no answer."""
        host = self._busy.get(key) or self._idle.get(key)
        return host is not None and host.failures > 0

    def __len__(self) -> int:
        """How many hosts are kept in mind."""
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
        # One that fails says nothing new of the host if others have been answered since it began;
        # nor if others failed: what is under way together fails together, and is trouble once.
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
        """Random between a half and all of what doubles with each failure."""
        doubled_s = limits.HOST_PAUSE_S_MIN * (1 << min(failures - 1, 30))
        longest_s = min(limits.HOST_PAUSE_S_MAX, doubled_s)
        return longest_s * (1 + self._fraction()) / 2


class Slot:
    """Leave for one request."""

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
        """Say that the request is over, and whether there was an answer, good or bad; None if
        nobody knows, as when it was never sent. `well` is False for an answer that says that the
        receiver has too much to do, or fails; `reason` is why there was none. To give it back
        again does nothing."""
        hosts, self._hosts = self._hosts, None
        if hosts is not None:
            hosts._take_back(self, answered, well, reason)


class _Host:
    """What is known of one host."""

    __slots__ = (
        *("answers", "begun_ns", "concurrency", "failing_ns", "failures", "news_ns"),
        *("pause_until_ns", "reason", "requests"),
    )

    def __init__(self, requests_max: int) -> None:
        self.requests = 0
        self.concurrency = Concurrency(requests_max)
        self.begun_ns = 0
        """When the last one began."""
        self.answers = False
        """Whether it has answered the last time."""
        self.failures = 0
        """In a row."""
        self.failing_ns = 0
        """When the first of them was."""
        self.reason = ""
        """Why the last of them was."""
        self.news_ns = 0
        """When it has answered, or failed, the last time."""
        self.pause_until_ns = 0

    def wait_s(self, now_ns: int) -> float:
        """When one of the requests under way may be over: of a host that answers by what they
        take, else as long again as it has taken already."""
        left_s = self.concurrency.time_s / self.requests
        if not self.answers:
            left_s = (now_ns - self.begun_ns) / 1e9
        return min(limits.HOST_WAIT_S_MAX, max(limits.HOST_WAIT_S_MIN, left_s))
