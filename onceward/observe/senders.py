"""Statistics of senders: messages, duplicates and response times by queue.

They are kept in memory, since the start of the process.
"""

from collections.abc import Awaitable, Iterator
from functools import partial

from onceward import limits
from onceward.errors import KeyReused
from onceward.meters import Counter, Histogram
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.work.inbox import Receipt

OTHERS = "(others)"
"""The name for all further senders when there are too many."""


class Sender:
    """The statistics of one caller in one queue."""

    __slots__ = ("ack_seconds", "causes", "first", "last_ms", "rejected", "repeats", "slowest_s")

    def __init__(self) -> None:
        self.first = 0
        """The number of new messages."""
        self.repeats = 0
        self.causes: dict[str, int] = {}
        """Why messages were repeated, where known."""
        self.rejected = 0
        """The number of known keys with another body."""
        self.last_ms = 0
        self.ack_seconds = Histogram()
        """The time until a message was durable or known to be a duplicate. If the application
        responds to its senders itself, the time until its response."""
        self.slowest_s = 0.0

    def ack_s(self, fraction: float) -> float | None:
        """The response time of a fraction of the messages."""
        found = self.ack_seconds.quantile(fraction)
        return None if found is None else min(found, self.slowest_s)


class Senders:
    """The statistics of one node by sender."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._senders: dict[tuple[str, str], Sender] = {}
        self._accepted: dict[tuple[str, bool], Counter] = {}

    async def count(self, queue: str, caller: str, accepting: Awaitable[Receipt]) -> Receipt:
        """Await the acceptance of a message and count it. Raises the errors of `accepting`."""
        begun_ns = self._store.clock.elapsed_ns()
        try:
            receipt = await accepting
        except KeyReused as rejected:
            self._note(queue, caller, rejected, begun_ns)
            raise
        self._note(queue, caller, receipt, begun_ns)
        return receipt

    async def count_within(
        self,
        tx: Transaction,
        queue: str,
        caller: str,
        accepting: Awaitable[Receipt],
        begun_ns: int | None = None,
    ) -> Receipt:
        """Await the acceptance of a message in a transaction, and count it when that is durable.

        `begun_ns` is the time of its arrival if the response follows the commit. Otherwise the
        application calls `acknowledged` when it responds.
        """
        try:
            receipt = await accepting
        except KeyReused as rejected:
            tx.on_durable(partial(self._note, queue, caller, rejected, begun_ns))
            raise
        tx.on_durable(partial(self._note, queue, caller, receipt, begun_ns))
        return receipt

    def acknowledged(self, queue: str, caller: str, took_s: float) -> None:
        """Count a response of the application to a sender, with its response time."""
        sender = self._of(queue, caller)
        sender.last_ms = self._store.clock.now_ms()
        sender.slowest_s = max(sender.slowest_s, took_s)
        sender.ack_seconds.observe(took_s)

    def repeated(self, queue: str, caller: str, cause: str) -> None:
        """Count a duplicate that the application has detected, with its cause."""
        sender = self._of(queue, caller)
        sender.repeats += 1
        sender.causes[cause] = sender.causes.get(cause, 0) + 1
        (self._accepted.get((queue, True)) or self._counter(queue, True)).value += 1

    def _note(
        self, queue: str, caller: str, verdict: Receipt | KeyReused, begun_ns: int | None
    ) -> None:
        if isinstance(verdict, Receipt):
            sender = self._of(queue, caller)
            known = self._accepted.get((queue, verdict.duplicate))
            counter = known or self._counter(queue, verdict.duplicate)
            counter.value += 1
            if verdict.duplicate:
                sender.repeats += 1
            else:
                sender.first += 1
            clock = self._store.clock
            sender.last_ms = clock.now_ms()
            if begun_ns is not None:
                took_s = (clock.elapsed_ns() - begun_ns) / 1e9
                sender.ack_seconds.observe(took_s)
                if took_s > sender.slowest_s:
                    sender.slowest_s = took_s
        else:
            self._of(queue, caller).rejected += 1

    def _counter(self, queue: str, duplicate: bool) -> Counter:
        if len(self._accepted) >= limits.METERS_MAX:
            self._accepted.clear()
        told = "yes" if duplicate else "no"
        counter = self._store.meters.counter("accepted", queue=queue, duplicate=told)
        self._accepted[queue, duplicate] = counter
        return counter

    def _of(self, queue: str, caller: str) -> Sender:
        found = self._senders.get((queue, caller))
        if found is None:
            if len(self._senders) >= limits.METERS_MAX:
                queue, caller = OTHERS, OTHERS
            found = self._senders.setdefault((queue, caller), Sender())
        return found

    def __iter__(self) -> Iterator[tuple[str, str, Sender]]:
        """Queue, caller and statistics, in order."""
        for (queue, caller), sender in sorted(self._senders.items(), key=lambda item: item[0]):
            yield queue, caller, sender
