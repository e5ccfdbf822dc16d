"""Whether a history of one register is linearizable: a search after Wing and Gong.

Operations overlap; each took effect at one moment between its call and its return. The
search looks for an order of these moments in which every operation saw what it says. It
knows nothing of stores and engines.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from onceward.testing.simulation.history import NEVER_NS


class Mark(Enum):
    ANYTHING = "anything"
    SAME = "same"


ANYTHING: Final = Mark.ANYTHING
"""As `sees`: the operation says nothing about what it found."""
SAME: Final = Mark.SAME
"""As `leaves`: the operation changed nothing."""


class Operation(NamedTuple):
    """A read, a write, or both at once. None stands for no value."""

    called_ns: int
    returned_ns: int
    """`NEVER_NS` if it did not return: then it may have taken effect, or never does."""
    sees: Any
    leaves: Any
    name: str = ""


def linearizable(operations: Sequence[Operation], initial: Any = None) -> bool:
    """Whether some order explains all operations that returned."""
    ops = sorted(operations, key=lambda op: (op.called_ns, op.returned_ns))
    must = sum(1 << i for i, op in enumerate(ops) if op.returned_ns != NEVER_NS)
    # What has been tried: which operations are done, and the value they left.
    tried: set[tuple[int, Any]] = set()
    stack: list[tuple[int, Any]] = [(0, initial)]
    while stack:
        done, value = stack.pop()
        if done & must == must:
            return True
        if (done, value) in tried:
            continue
        tried.add((done, value))
        # An operation may be next if no other had returned before it was called.
        first_return_ns = min(op.returned_ns for i, op in enumerate(ops) if not done >> i & 1)
        for i, op in enumerate(ops):
            if op.called_ns > first_return_ns:
                break
            if not done >> i & 1 and (op.sees is ANYTHING or op.sees == value):
                stack.append((done | 1 << i, value if op.leaves is SAME else op.leaves))
    return False
