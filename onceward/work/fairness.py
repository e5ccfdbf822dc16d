"""Fairness between senders in queues with the setting `fair`.

This is start-time fair queueing. A ready job is ordered by its sender's turn instead of the time at
which it became ready. The turns of one sender are `FAIR_TURN_MS` apart. A sender without a backlog
gets the current turn, so it waits for at most one job of each other sender, regardless of their
backlogs. Only the position of each job is stored. Turns are kept in memory; after a restart or on
another node they start at the first waiting job.

Each node assigns turns independently. A sender that uses several nodes has a share on each.
"""

import asyncio
from dataclasses import dataclass, field

from onceward import keys, limits
from onceward.engine.base import Record
from onceward.schedule import ready_partition
from onceward.store import Store


@dataclass(slots=True)
class _Course:
    """The turns of one queue and rank."""

    now: int = 0
    """The current turn."""
    read_ns: int | None = None
    """The time of the last lookup; None: never."""
    last: dict[str, int] = field(default_factory=dict)
    """The last turn of each sender that may have a backlog."""
    kept: int = field(default_factory=lambda: limits.FAIR_SENDERS_KEPT)
    """The number of senders above which idle ones are removed."""


class Fairness:
    """Assigns the turns of one node."""

    def __init__(self, store: Store, slots: int) -> None:
        self._store = store
        self._slots = slots
        self._courses: dict[tuple[str, int], _Course] = {}

    async def turn_ms(self, queue: str, rank: int, sender: str, now_ms: int) -> int:
        """The turn of a sender's next job among the ready jobs."""
        course = self._courses.setdefault((queue, rank), _Course(now_ms))
        if self._is_old(course):
            await self._read(queue, rank, course, now_ms)
        turn = course.now
        if sender in course.last:
            turn = max(turn, course.last[sender] + limits.FAIR_TURN_MS)
        course.last[sender] = turn
        if len(course.last) > course.kept:
            self._forget_idle(course)
        return turn

    def started(self, queue: str, place: str) -> None:
        """A job was claimed from this position: its turn is now the current one."""
        rank, turn = (int(word) for word in place.split("#")[:2])
        course = self._courses.get((queue, rank))
        if course is not None:
            course.now = max(course.now, turn)

    def _is_old(self, course: _Course) -> bool:
        if course.read_ns is None:
            return True
        age_ns = self._store.clock.elapsed_ns() - course.read_ns
        return self._store.engine.shared and age_ns > limits.FAIR_READ_S * 1e9

    async def _read(self, queue: str, rank: int, course: _Course, now_ms: int) -> None:
        """Find the first turn of all waiting jobs; other nodes may have claimed jobs."""
        first = course.read_ns is None
        if not first:
            course.read_ns = self._store.clock.elapsed_ns()  # others continue with the known turn
        heads = await asyncio.gather(
            *[self._head(queue, rank, slot, now_ms) for slot in range(self._slots)]
        )
        turns = [int(record.key[1].split("#")[1]) for page in heads for record in page]
        if first and course.read_ns is not None:
            return  # a concurrent call was faster and has assigned turns since
        course.now = min(turns, default=now_ms)
        if not turns:
            course.last.clear()
        course.read_ns = self._store.clock.elapsed_ns()

    async def _head(self, queue: str, rank: int, slot: int, now_ms: int) -> list[Record]:
        start, end = keys.below(rank)
        return await self._store.engine.scan(
            ready_partition(slot, queue), now_ms, start=start, end=end, limit=1
        )

    @staticmethod
    def _forget_idle(course: _Course) -> None:
        """Remove senders whose last turn has passed: they have no backlog."""
        course.last = {s: turn for s, turn in course.last.items() if turn >= course.now}
        # Adaptive, so that it does not run for each job when many senders have a backlog.
        course.kept = max(limits.FAIR_SENDERS_KEPT, 2 * len(course.last))
