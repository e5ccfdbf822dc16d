"""Bugs planted into joint commits, each of a kind that the scenario must find."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from onceward.errors import Conflict
from onceward.store import Store
from onceward.testing.faults import FaultEngine
from onceward.testing.simulation.joint import TABLE, Joint, JointSession
from tests.testing.planted import Bug, search


@contextmanager
def records_commit_apart() -> Iterator[None]:
    """The records commit before the statements of the application."""
    real = JointSession.commit

    async def commit(self: Any, writes: Any, now_ms: int, visible: Any = None) -> Any:
        if writes:
            await self._engine.commit(writes, now_ms, visible)
        return await real(self, [], now_ms)

    with patch.object(JointSession, "commit", commit):
        yield


@contextmanager
def lost_answer_is_a_failure() -> Iterator[None]:
    """A commit whose response was lost counts as not applied, so that the handler runs again."""
    real = FaultEngine.settle

    async def settle(self: Any, sent: Any) -> Any:
        if any(write.key[0] == TABLE for write in sent.writes):
            return Conflict("not applied")
        return await real(self, sent)

    with patch.object(FaultEngine, "settle", settle):
        yield


@contextmanager
def statements_of_failures_commit() -> Iterator[None]:
    """The statements of a handler that raised an error are committed."""
    real = Store.end

    async def end(self: Any, tx: Any, *, write: bool = True, **options: Any) -> None:
        if not write and tx.session is not None:
            await tx.session.commit([], tx.now_ms)
        await real(self, tx, write=write, **options)

    with patch.object(Store, "end", end):
        yield


PLANTED: dict[str, Bug] = {
    "records commit apart": Bug(Joint, ("apart", "serials", "adjusted"), 0, records_commit_apart),
    "a lost answer is a failure": Bug(
        Joint, ("apart", "serials", "adjusted", "not once"), 6, lost_answer_is_a_failure
    ),
    "statements of failures commit": Bug(
        Joint, ("apart", "serials", "not once"), 0, statements_of_failures_commit
    ),
}


if __name__ == "__main__":
    search(PLANTED)
