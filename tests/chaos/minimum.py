"""The least that a run must have done to mean anything."""

from collections.abc import Mapping, Sequence

# The least that must have been done in a short run and in a long one. What is not named may not
# happen at all: whether anything is cut off is a matter of luck.
OPERATIONS = {
    "messages accepted": (30, 5_000),
    "messages sent again": (2, 500),
    "messages in order": (50, 10_000),
    "large messages": (5, 100),
    "steps run": (60, 10_000),
    "jobs of workers over HTTP": (20, 4_000),
    "locks granted": (10, 1_000),
    "writes with a fencing token": (10, 1_000),
    "timers set": (10, 1_500),
    "timers moved": (1, 100),
    "timers cancelled": (1, 100),
    "firings arrived": (15, 2_000),
    "room steps acknowledged": (40, 10_000),
    "joins at a table": (6, 150),
    "leaves of a table": (1, 150),
    "moves acknowledged": (4, 1_000),
    "games": (1, 150),
    "steps of a table seen": (10, 1_000),
}
FAULTS = (1, 12)
"""Of each kind."""


def shortcomings(
    faults: Mapping[str, int],
    operations: Mapping[str, int],
    left_out: Sequence[str] = (),
    *,
    soak: bool,
) -> list[str]:
    """What was done too rarely, in a short run or in a long one."""
    found = [
        f"{count} times {kind}, which is less than {FAULTS[soak]}"
        for kind, count in faults.items()
        if count < FAULTS[soak]
    ]
    for name, counts in OPERATIONS.items():
        if name == "large messages" and any(kind.startswith("disk full") for kind in left_out):
            continue  # they are there to fill a disk
        if operations.get(name, 0) < counts[soak]:
            found.append(f"{operations.get(name, 0)} {name}, which is less than {counts[soak]}")
    return found
