"""A linearizability checker for one register, after Wing and Gong.

Operations overlap; each took effect at one moment between its call and its return. The
search looks for an order of these moments in which every operation saw what it says. It
knows nothing of stores and engines.

Every value is written by one operation only; just None, for no value, may come again. That
keeps the search short: what has been overwritten cannot be seen any more.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from onceward.testing.simulation.history import NEVER_NS, violated

STEPS_MAX: Final = 200_000
"""After so many steps the search is given up, loudly."""


class Mark(Enum):
    ANYTHING = "anything"
    SAME = "same"


ANYTHING: Final = Mark.ANYTHING
"""As `sees`: the operation says nothing about what it found."""
SAME: Final = Mark.SAME
"""As `leaves`: the operation changed nothing."""


class Operation(NamedTuple):
    """A read, a write, or both at once."""

    called_ns: int
    returned_ns: int
    """`NEVER_NS` if it did not return: then it may have taken effect, or never does."""
    sees: Any
    leaves: Any
    name: str = ""


def linearizable(operations: Sequence[Operation], initial: Any = None) -> bool:
    """Whether some order explains all operations that returned."""
    search = _Search(operations)
    # What has been tried: which operations are done, and the value they left.
    tried: set[tuple[int, Any]] = set()
    stack: list[tuple[int, Any]] = [(0, initial)]
    while stack:
        done, value = search.reads_done(*stack.pop())
        if done & search.must == search.must:
            return True
        if (done, value) not in tried:
            tried.add((done, value))
            stack += search.next(done, value)
        if len(tried) > STEPS_MAX:
            violated("undecided", f"no order in {STEPS_MAX} steps: {operations}")
    return False


class _Search:
    """The operations by their number: a set of them is an integer with their bits set."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.ops = sorted(operations, key=lambda op: (op.called_ns, op.returned_ns))
        self.must = sum(1 << i for i, op in enumerate(self.ops) if op.returned_ns != NEVER_NS)
        self._seen_by: dict[Any, int] = {}
        written: dict[Any, None] = {}
        for i, op in enumerate(self.ops):
            self._seen_by[op.sees] = self._seen_by.get(op.sees, 0) | 1 << i
            if op.leaves is not SAME and op.leaves is not None:
                if op.leaves in written:
                    raise ValueError(f"{op.leaves} is written twice")
                written[op.leaves] = None

    def reads_done(self, done: int, value: Any) -> tuple[int, Any]:
        """Whoever sees this value and leaves it may as well come now as later."""
        more = True
        while more:
            more = False
            for i, op in self._possible(done):
                if op.sees == value and op.leaves in (SAME, value):
                    done |= 1 << i
                    more = True
        return done, value

    def next(self, done: int, value: Any) -> Iterator[tuple[int, Any]]:
        """What may come next; all that changes the value."""
        waiting = self._seen_by.get(value, 0) & ~done
        possible = self._possible(done)
        if value is not None and waiting & self.must:
            # It will not be there again: only one can come now, and it is the last.
            possible = [(i, op) for i, op in possible if 1 << i == waiting & self.must]
        elif not waiting:
            for i, op in possible:
                if op.sees is ANYTHING and op.leaves not in self._seen_by:
                    # Nobody sees what it writes, nor this value: no other order is better.
                    possible = [(i, op)]
                    break
        for i, op in possible:
            if op.leaves is not SAME and (op.sees is ANYTHING or op.sees == value):
                yield done | 1 << i, op.leaves

    def _possible(self, done: int) -> list[tuple[int, Operation]]:
        """An operation may be next if no other had returned before it was called."""
        left = [(i, op) for i, op in enumerate(self.ops) if not done >> i & 1]
        first_return_ns = min((op.returned_ns for _, op in left), default=NEVER_NS)
        return [(i, op) for i, op in left if op.called_ns <= first_return_ns]
