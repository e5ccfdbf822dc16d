"""Performance targets of jobs, and whether they are met.

With many callers, Onceward should be well ahead of all embedded systems. With one caller, it should
be near the limit of the disk. On PostgreSQL, it should be ahead of others.
"""

from collections.abc import Iterable, Iterator

from benchmarks.figures import Case, Report, Side

_EMBEDDED = ("huey", "huey, one thread", "DBOS")
EMBEDDED = {"accept-100": _EMBEDDED, "work-100": (*_EMBEDDED, "huey, results")}
"""Systems that keep jobs in a file of the caller's process, and sync them. Their fastest variant
depends on the machine: the best result counts."""
TIMES_EMBEDDED = 3.0
SHARE_OF_SYNCS = 0.7
AHEAD_OF = ("procrastinate", "DBOS")

_ONE = ("accept-1",)
_POSTGRES = ("accept-postgres", "work-postgres")
CASES = (*EMBEDDED, *_ONE, *_POSTGRES)


def verdicts(report: Report) -> Iterator[str]:
    """A line for each target whose case was measured."""
    for case in report.cases:
        if case.id in EMBEDDED:
            yield f"{case.title}: {_times(case)}"
        elif case.id in _ONE:
            yield f"{case.title}: {_share(report, case)}"
        elif case.id in _POSTGRES:
            for side in _sides(case, AHEAD_OF):
                yield f"{case.title}: ahead of {side.name}: {_ahead(case, side)}"


def _times(case: Case) -> str:
    found = {
        side.name: ratio
        for side in _sides(case, EMBEDDED[case.id])
        if (ratio := case.ratio(side)) is not None
    }
    wanted = f"({TIMES_EMBEDDED:g} wanted)"
    if not found:
        return f"no durable embedded peer to compare with {wanted}: NOT judged"
    best = min(found, key=lambda name: found[name])
    absent = [name for name in EMBEDDED[case.id] if name not in found]
    without = f" (of all but {'; '.join(absent)})" if absent else ""
    return (
        f"{found[best]:.1f} times the best durable embedded peer {wanted}, {best}{without}: "
        f"{_judged(found[best] >= TIMES_EMBEDDED)}"
    )


def _share(report: Report, case: Case) -> str:
    share, wanted = report.share_of_limit(case), f"({SHARE_OF_SYNCS:.0%} wanted)"
    if share is None:
        return f"no fdatasync rate of the same run to compare with {wanted}: NOT judged"
    return (
        f"{share:.0%} of the fdatasync rate measured in the same run {wanted}: "
        f"{_judged(share >= SHARE_OF_SYNCS)}"
    )


def _ahead(case: Case, side: Side) -> str:
    ratio = case.ratio(side)
    if ratio is None:
        return "NOT judged"
    return f"{'yes' if ratio > 1 else 'NO'}, {ratio:.2f} times"


def _sides(case: Case, names: Iterable[str]) -> Iterator[Side]:
    for name in names:
        if (side := case.side(name)) is not None:
            yield side


def _judged(good: bool) -> str:
    return "as wanted" if good else "NOT as wanted"
