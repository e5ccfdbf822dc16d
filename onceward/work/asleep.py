"""The exceptions by which a handler releases its worker: it sleeps, or waits for something.

They are not `Exception`s, so that handlers that catch errors do not catch them.
"""

from onceward.schedule import Schedule
from onceward.schedule.children import CHILDREN_DUE, ring
from onceward.store.transaction import Transaction
from onceward.work import events, steps
from onceward.work.steps import Step


class Asleep(BaseException):
    """The handler sleeps: its worker returns the job to the queue until then, and records the sleep
    if it has a name."""

    def __init__(self, name: str, until_ms: int) -> None:
        super().__init__(f"asleep until {until_ms}")
        self.name = name
        self.until_ms = until_ms

    async def release(self, tx: Transaction, schedule: Schedule, id_: str, token: str) -> None:
        """Return the job to the queue. Raises `StaleToken`, `NoSuchJob`, `BadInput`."""
        if self.name:
            step = Step(until_ms=self.until_ms)
            await steps.record(tx, schedule, id_, token, self.name, step)
        await schedule.release(tx, id_, token, self.until_ms)


class AwaitsEvent(Asleep):
    """The handler waits for an event, until a time if it is not 0."""

    def __init__(self, name: str, event: str, until_ms: int) -> None:
        super().__init__(name, until_ms)
        self.event = event

    async def release(self, tx: Transaction, schedule: Schedule, id_: str, token: str) -> None:
        step = Step(until_ms=self.until_ms)
        await steps.record(tx, schedule, id_, token, self.name, step)
        await events.wait(tx, schedule, id_, token, self.event, self.until_ms)


class AwaitsChildren(Asleep):
    """The handler waits for children."""

    def __init__(self, family: int) -> None:
        super().__init__("", 0)
        self.family = family

    async def release(self, tx: Transaction, schedule: Schedule, id_: str, token: str) -> None:
        await schedule.release(tx, id_, token, waits=f"{CHILDREN_DUE} {self.family}")
        ring(tx, id_)  # some may have ended before
