"""Queues of calls that wait for a host at its concurrency limit.

Who will not have to wait for long waits here, in the order they came, and goes on when one before
is over. The others would keep their hands from calling other hosts: these are told when their
turn will be, one behind the other, and come back then.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable

from onceward import limits
from onceward.webhooks.hosts import Hosts, Slot


class HostWaiters:
    """Admits requests to hosts, for one process."""

    def __init__(self, hosts: Hosts, elapsed_ns: Callable[[], int], waiting_max: int) -> None:
        """`waiting_max`: so many wait here for one host at the most."""
        self._hosts = hosts
        self._elapsed_ns = elapsed_ns
        self._waiting_max = waiting_max
        self._lines: dict[Hashable, _Line] = {}

    async def enter(self, host: Hashable) -> Slot | float:
        """Leave for a request, to be given back by `leave`; or in how many seconds to come back."""
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
        # Nothing is known of it yet. Soon it will be, or it takes long: then that is no hurry.
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
        """The request is over, as for `Slot.give_back`; the next one in line may go on."""
        slot.give_back(answered, well=well, reason=reason)
        self._wake(host)

    def _gap_s(self, host: Hashable, wait_s: float) -> float:
        """How long it takes until one more request is over: of who does not answer, unknown."""
        return wait_s if self._hosts.answers(host) else max(wait_s, limits.HOST_WAIT_S_MAX)

    def _is_long(self, host: Hashable, line: "_Line") -> bool:
        count = len(line.waiting)
        if count >= self._waiting_max:
            return True
        return self._hosts.turn_s(host, count) >= limits.HOST_LINE_S

    def _later_s(self, host: Hashable, line: "_Line", now_ns: int) -> float:
        """When the turn will be of one more who comes back: one behind the other, at the pace
        that the host will have by then."""
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
        # Should nothing be under way any more, and nobody say that it is over.
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
        """Whether a host that nothing is known of should have answered by now."""
        return (self._elapsed_ns() - line.since_ns) / 1e9 >= limits.HOST_UNKNOWN_S

    def _wake(self, host: Hashable) -> None:
        """Let as many go on as may."""
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
    """Those who wait for one host."""

    def __init__(self, now_ns: int) -> None:
        self.waiting: deque[asyncio.Future[Slot | float]] = deque()
        self.since_ns = now_ns
        self.next_ns = now_ns
        """When the turn of the last one is who was told to come back."""
        self.told = 0.0
        """About how many were told to come back, and have not yet."""
        self._told_ns = now_ns
        self.gap_s = limits.HOST_WAIT_S_MIN
        """How long it takes until one more request is over."""

    def tell(self, now_ns: int) -> int:
        """Count one more who is told to come back; returns how many there are."""
        left_ns = max(self.next_ns - now_ns, 0)
        # They come back one after the other until the last one's turn.
        self.told *= left_ns / max(self.next_ns - self._told_ns, 1)
        self.told += 1
        self._told_ns = now_ns
        return int(self.told)
