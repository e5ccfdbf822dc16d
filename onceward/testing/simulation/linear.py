"""A linearizability checker for one register, after Wing and Gong.

Operations overlap. Each took effect at one moment between its call and its return. The search looks
for an order of these moments that explains the value seen by every operation. It is independent of
stores and engines.

Every value is written by one operation only; only None, for no value, may recur. That keeps the
search short: overwritten values cannot be seen again.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from onceward.testing.simulation.history import NEVER_NS, violated

STEPS_MAX: Final = 200_000
"""The number of steps after which the search fails as undecided."""


class Mark(Enum):
    ANYTHING = "anything"
    SAME = "same"


ANYTHING: Final = Mark.ANYTHING
"""As `sees`: the operation did not report the value it found."""
SAME: Final = Mark.SAME
"""As `leaves`: the operation changed nothing."""


class Operation(NamedTuple):
    """A read, a write, or both at once."""

    called_ns: int
    returned_ns: int
    """`NEVER_NS` if it did not return: then it may or may not have taken effect."""
    sees: Any
    leaves: Any
    name: str = ""


def linearizable(operations: Sequence[Operation], initial: Any = None) -> bool:
    """Whether some order explains all operations that returned."""
    search = _Search(operations)
    # Visited states: the set of done operations, and the value they left.
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
    """The operations by number: a set of them is an integer with their bits set."""

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
        """Add operations that see this value and keep it: their order does not matter."""
        more = True
        while more:
            more = False
            for i, op in self._possible(done):
                if op.sees == value and op.leaves in (SAME, value):
                    done |= 1 << i
                    more = True
        return done, value

    def next(self, done: int, value: Any) -> Iterator[tuple[int, Any]]:
        """The possible next operations that change the value."""
        waiting = self._seen_by.get(value, 0) & ~done
        possible = self._possible(done)
        if value is not None and waiting & self.must:
            # The value will not recur: only one operation can come now, the last that sees it.
            possible = [(i, op) for i, op in possible if 1 << i == waiting & self.must]
        elif not waiting:
            for i, op in possible:
                if op.sees is ANYTHING and op.leaves not in self._seen_by:
                    # Neither its value nor the current one is seen by others: no other order is
                    # better.
                    possible = [(i, op)]
                    break
        for i, op in possible:
            if op.leaves is not SAME and (op.sees is ANYTHING or op.sees == value):
                yield done | 1 << i, op.leaves

    def _possible(self, done: int) -> list[tuple[int, Operation]]:
        """Operations that may be next: no other operation had returned before their call."""
        left = [(i, op) for i, op in enumerate(self.ops) if not done >> i & 1]
        first_return_ns = min((op.returned_ns for _, op in left), default=NEVER_NS)
        return [(i, op) for i, op in left if op.called_ns <= first_return_ns]
