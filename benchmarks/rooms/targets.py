"""Performance targets of rooms, and whether they are met, by the medians of all rounds."""

import statistics
from collections.abc import Iterator
from typing import Any

OURS, MAP = "onceward, said", "onceward, map"
BACK_S = 15.0
MUTE_P99_MS = 250.0
# The maximum that a server buffers for a client that does not read.
BUFFER_BYTES = (1 << 20) + (64 << 10)
_TIMES = (
    # Cases by the start and end of their names: Onceward's side, the other side, the factor.
    ("fan-out", "64 under way", OURS, "Socket.IO", 6.0),
    ("fan-out", ", 1 under way", OURS, "ws", 1.0),
    ("fan-out", "64 under way", MAP, "Socket.IO", 2.0),
    ("", "rooms of 10", OURS, "Socket.IO", 1.0),
    ("", "rooms of 10", MAP, "Socket.IO", 1.0),
)

Run = dict[str, Any]
Results = dict[str, dict[str, list[Run]]]


def judged(results: Results) -> Iterator[tuple[str, str, bool]]:
    """Each measured target, with the result and whether it is met."""
    for case, sides in results.items():
        for begin, end, ours, theirs, times in _TIMES:
            if case.startswith(begin) and case.endswith(end):
                found = ratio(sides, ours, theirs)
                if found is not None:
                    target = f"{case}: {ours} at least {times:g} × {theirs}"
                    yield target, f"{found:.2f}", found >= times
        yield from _others(case, [run for runs in sides.values() for run in runs])


def _others(case: str, runs: list[Run]) -> Iterator[tuple[str, str, bool]]:
    back = [run for run in runs if "back" in run]
    if back:
        seconds, gaps = statistics.median(r["seconds"] for r in back), max(r["gaps"] for r in back)
        target = f"{case}: within {BACK_S:.0f} s, and none with a gap"
        yield target, f"{seconds:.1f} s, {gaps} gaps", seconds <= BACK_S and not gaps
    mute = [run for run in runs if "mutes" in run]
    if mute:
        p99_ms = statistics.median(run["p99_ms"] for run in mute)
        yield (
            f"{case}: readers' p99 under {MUTE_P99_MS:.0f} ms",
            f"{p99_ms:.0f} ms",
            (p99_ms < MUTE_P99_MS),
        )
        least = min(run["cut_off"] for run in mute)
        yield f"{case}: all of them cut off", f"{least:,}", least == mute[0]["mutes"]
        most, bound = max(run["peak_bytes"] for run in mute), mute[0]["mutes"] * BUFFER_BYTES
        yield (
            f"{case}: at most {bound / 1e6:,.0f} MB more memory",
            f"{most / 1e6:,.0f} MB",
            most <= bound,
        )


def ratio(sides: dict[str, list[Run]], ours: str, theirs: str) -> float | None:
    """The ratio of delivered messages in adjacent rounds."""
    pairs = zip(sides.get(ours, []), sides.get(theirs, []), strict=False)
    ratios = [
        one["per_cpu_second"] / other["per_cpu_second"]
        for one, other in pairs
        if other.get("per_cpu_second") and one["delivered"]
    ]
    return statistics.median(ratios) if ratios else None
