"""Queues of calls that wait for a host at its concurrency limit.

Short waits happen here, first in, first out. Calls with longer waits are postponed to their
estimated time, one after the other, so that their workers can call other hosts.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable

from onceward import limits
from onceward.webhooks.hosts import Hosts, Slot


class HostWaiters:
    """Admits requests to hosts, for one process."""

    def __init__(self, hosts: Hosts, elapsed_ns: Callable[[], int], waiting_max: int) -> None:
        """`waiting_max` limits the number of calls that wait here for one host."""
        self._hosts = hosts
        self._elapsed_ns = elapsed_ns
        self._waiting_max = waiting_max
        self._lines: dict[Hashable, _Line] = {}

    async def enter(self, host: Hashable) -> Slot | float:
        """Return a slot for a request, to be returned with `leave`; or the seconds after which to
        retry."""
        line = self._lines.get(host)
        if line is None or not line.waiting:
            slot = self._hosts.admit(host)
            if isinstance(slot, Slot):
                return slot
            if line is None:
                line = self._lines[host] = _Line(self._elapsed_ns())
            line.gap_s = self._gap_s(host, slot)
        now_ns = self._elapsed_ns()
        if self._hosts.answers(host):
            if self._is_long(host, line):
                return self._later_s(host, line, now_ns)
            return await self._wait(host, line, line.gap_s)
        if self._hosts.in_trouble(host):
            return self._later_s(host, line, now_ns)
        # No measurements exist yet. They will soon, or the host is slow; in both cases it can wait.
        since_s = (now_ns - line.since_ns) / 1e9
        if since_s < limits.HOST_UNKNOWN_S and len(line.waiting) < self._waiting_max:
            return await self._wait(host, line, limits.HOST_UNKNOWN_S - since_s)
        line.next_ns = max(line.next_ns, now_ns + int(limits.HOST_UNKNOWN_S * 1e9))
        behind_s = line.tell(now_ns) * limits.HOST_BEHIND_S
        return max(limits.HOST_UNKNOWN_S, since_s) + min(behind_s, limits.HOST_WAIT_S_MAX)

    def leave(
        self,
        host: Hashable,
        slot: Slot,
        answered: bool | None,
        *,
        well: bool = True,
        reason: str = "",
    ) -> None:
        """End a request, as for `Slot.give_back`, and admit the next waiter."""
        slot.give_back(answered, well=well, reason=reason)
        self._wake(host)

    def _gap_s(self, host: Hashable, wait_s: float) -> float:
        """Estimate the time until one more request ends; unknown for a host that does not
        respond."""
        return wait_s if self._hosts.answers(host) else max(wait_s, limits.HOST_WAIT_S_MAX)

    def _is_long(self, host: Hashable, line: "_Line") -> bool:
        count = len(line.waiting)
        if count >= self._waiting_max:
            return True
        return self._hosts.turn_s(host, count) >= limits.HOST_LINE_S

    def _later_s(self, host: Hashable, line: "_Line", now_ns: int) -> float:
        """Estimate when one more postponed call can start, after all others, at the host's future
        pace."""
        count = line.tell(now_ns) + len(line.waiting)
        if self._hosts.answers(host):
            later_s = max(self._hosts.turn_s(host, count), line.gap_s + count * 1e-6)
        else:
            # One of them finds out whether the host responds again; the others follow. Together,
            # the callers of all such hosts return at a bounded rate: each return is a commit, and
            # calls to healthy hosts must not wait for those.
            gap_s = max(limits.HOST_BACK_S, len(self._lines) / limits.HOST_RETURNS_PER_S)
            later_s = line.gap_s + min(count * gap_s, limits.HOST_BACK_S_MAX)
        line.next_ns = max(line.next_ns, now_ns + int(later_s * 1e9))
        return later_s

    async def _wait(self, host: Hashable, line: "_Line", look_s: float) -> Slot | float:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[Slot | float] = loop.create_future()
        line.waiting.append(turn)
        # A fallback in case no running request is left to wake the waiters.
        waker = loop.call_later(look_s, self._wake, host)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and isinstance(slot := turn.result(), Slot):
                self.leave(host, slot, None)
            raise
        finally:
            waker.cancel()

    def _is_overdue(self, line: "_Line") -> bool:
        """Whether a host without measurements should have responded by now."""
        return (self._elapsed_ns() - line.since_ns) / 1e9 >= limits.HOST_UNKNOWN_S

    def _wake(self, host: Hashable) -> None:
        """Admit waiters up to the limit."""
        line = self._lines.get(host)
        if line is None:
            return
        while line.waiting:
            turn = line.waiting[0]
            if not turn.done():
                slot = self._hosts.admit(host)
                if not isinstance(slot, Slot):
                    line.gap_s = self._gap_s(host, slot)
                    if self._hosts.answers(host):
                        return
                    if not self._hosts.in_trouble(host) and not self._is_overdue(line):
                        return
                    slot = self._later_s(host, line, self._elapsed_ns())
                turn.set_result(slot)
            line.waiting.popleft()
        if line.next_ns <= self._elapsed_ns():
            del self._lines[host]


class _Line:
    """The waiters for one host."""

    def __init__(self, now_ns: int) -> None:
        self.waiting: deque[asyncio.Future[Slot | float]] = deque()
        self.since_ns = now_ns
        self.next_ns = now_ns
        """When the last postponed call can start."""
        self.told = 0.0
        """The estimated number of postponed calls that have not returned."""
        self._told_ns = now_ns
        self.gap_s = limits.HOST_WAIT_S_MIN
        """The time until one more request ends."""

    def tell(self, now_ns: int) -> int:
        """Count one more postponed call; returns their number."""
        left_ns = max(self.next_ns - now_ns, 0)
        # Postponed calls return evenly until the time of the last one.
        self.told *= left_ns / max(self.next_ns - self._told_ns, 1)
        self.told += 1
        self._told_ns = now_ns
        return int(self.told)
