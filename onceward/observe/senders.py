"""Statistics of senders: messages, duplicates and response times by queue.

They are kept in memory, from the start of the process on.
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
"""In place of a sender's name, where there are too many to tell apart."""


class Sender:
    """One caller and one queue."""

    __slots__ = ("ack_seconds", "causes", "first", "last_ms", "rejected", "repeats", "slowest_s")

    def __init__(self) -> None:
        self.first = 0
        """How many messages were new."""
        self.repeats = 0
        self.causes: dict[str, int] = {}
        """Why messages were repeated, where that is known."""
        self.rejected = 0
        """Known keys with another body."""
        self.last_ms = 0
        self.ack_seconds = Histogram()
        """How long it took until a message was durable, or known to be; where an application
        answers its senders itself, until it did."""
        self.slowest_s = 0.0

    def ack_s(self, fraction: float) -> float | None:
        """Within how long so large a part of all messages was answered."""
        found = self.ack_seconds.quantile(fraction)
        return None if found is None else min(found, self.slowest_s)


class Senders:
    """All of one node."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._senders: dict[tuple[str, str], Sender] = {}
        self._accepted: dict[tuple[str, bool], Counter] = {}

    async def count(self, queue: str, caller: str, accepting: Awaitable[Receipt]) -> Receipt:
        """Wait for a message to be accepted, and count it. Raises what that raises."""
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
        """Wait for a message to be accepted in a transaction, and count it when that is durable:
        one that is rolled back counts nothing. `begun_ns`: when it came, if it is answered when
        the transaction ends; else only the application knows when, and calls `acknowledged`."""
        try:
            receipt = await accepting
        except KeyReused as rejected:
            tx.on_durable(partial(self._note, queue, caller, rejected, begun_ns))
            raise
        tx.on_durable(partial(self._note, queue, caller, receipt, begun_ns))
        return receipt

    def acknowledged(self, queue: str, caller: str, took_s: float) -> None:
        """An application has answered a sender, after so long."""
        sender = self._of(queue, caller)
        sender.last_ms = self._store.clock.now_ms()
        sender.slowest_s = max(sender.slowest_s, took_s)
        sender.ack_seconds.observe(took_s)

    def repeated(self, queue: str, caller: str, cause: str) -> None:
        """An application knows a message again, and why it was repeated."""
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
        """Queue, caller and what is known of them, in order."""
        for (queue, caller), sender in sorted(self._senders.items(), key=lambda item: item[0]):
            yield queue, caller, sender
