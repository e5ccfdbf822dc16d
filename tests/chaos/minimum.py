"""The least that a run must have done to mean anything."""

from collections.abc import Mapping, Sequence

# The least that must have been done in a short run and in a long one. What is not named may not
# happen at all: whether anything is cut off is a matter of luck.
OPERATIONS = {
    "messages accepted": (30, 2_500),
    "messages sent again": (2, 300),
    "messages in order": (50, 4_000),
    "large messages": (5, 40),
    "steps run": (60, 5_000),
    "jobs of workers over HTTP": (20, 1_500),
    "locks granted": (10, 400),
    "writes with a fencing token": (10, 500),
    "timers set": (10, 800),
    "timers moved": (1, 50),
    "timers cancelled": (1, 50),
    "firings arrived": (15, 1_200),
    "room steps acknowledged": (40, 1_500),
    "joins at a table": (6, 80),
    "leaves of a table": (1, 50),
    "moves acknowledged": (4, 120),
    "games": (1, 30),
    "steps of a table seen": (10, 400),
}
FAULTS = (1, 8)
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
