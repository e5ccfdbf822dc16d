"""Engine certification: checks an engine against the contract in `onceward.engine.base`.

    await certify_engine(
        lambda: MyEngine(new_database()),
        reopen=lambda engine: MyEngine(engine.database),
    )

Each check is a small function with its guarantee as docstring. To see them one by one in pytest,
parametrize over `CHECKS` and call `run_check`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from onceward.clock import Clock
from onceward.engine.base import Engine
from onceward.errors import BadInput
from onceward.ids import Ids
from onceward.schedule import milliseconds
from onceward.testing.certify import (
    bounds,
    commits,
    expiry,
    lifetimes,
    model,
    races,
    scans,
    watches,
)
from onceward.testing.certify.lab import Lab, NotApplicable, Violation

__all__ = [
    "CHECKS",
    "CheckFunction",
    "NotApplicable",
    "NotCertified",
    "Report",
    "Violation",
    "certify_engine",
    "run_check",
]

E = TypeVar("E", bound=Engine)
CheckFunction = Callable[[Lab], Awaitable[None]]

CHECKS: tuple[CheckFunction, ...] = (
    *commits.CHECKS,
    *scans.CHECKS,
    *expiry.CHECKS,
    *bounds.CHECKS,
    *races.CHECKS,
    *watches.CHECKS,
    *lifetimes.CHECKS,
    *model.CHECKS,
)
"""All checks, from simple to complex: the first failure is the most informative."""


@dataclass
class Report:
    """The result of each check, by name."""

    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Checks that do not apply, with the reason, such as a missing `reopen`."""
    failed: dict[str, str] = field(default_factory=dict)
    """Failed checks with the observed behaviour."""

    def __str__(self) -> str:
        lines = [
            f"{len(self.passed)} checks passed, {len(self.failed)} failed, "
            f"{len(self.skipped)} did not apply"
        ]
        for name, seen in self.failed.items():
            lines.append(f"- {name}: {_guarantee(name)}\n  Seen: {seen}")
        lines += [f"- {name}: did not apply, {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)


class NotCertified(AssertionError):
    """An engine violates the contract; `report` has every failed check."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(str(report))


async def certify_engine(
    factory: Callable[[], E],
    *,
    reopen: Callable[[E], E | Awaitable[E]] | None = None,
    second: Callable[[E], E | Awaitable[E]] | None = None,
    crash: Callable[[E], E | Awaitable[E]] | None = None,
    hints: bool = True,
    seed: int = 0,
    timeout_s: float = 60.0,
    checks: Iterable[CheckFunction] = CHECKS,
) -> Report:
    """Run every check; returns the passed ones, or raises `NotCertified` with all failures.

    `factory` creates an unopened engine for each check: on an empty database, or on one that only
    these checks have used. The other functions get an engine and create another one on the same
    database, also unopened. Checks whose function is missing are skipped.

    - `reopen`: called after the engine was closed; for engines that keep their data.
    - `second`: called while it is open; for engines that several processes can share.
    - `crash`: ends the engine without closing it, and drops all data that is not durable, like
      a killed process or a power cut. Calls must not return after that.

    `hints=False` is for engines whose watches never wake. A check that takes longer than
    `timeout_s` fails. The same `seed` makes the same random choices. Raises `BadInput` for invalid
    arguments.
    """
    ways = {"factory": factory, "reopen": reopen, "second": second, "crash": crash}
    for name, way in ways.items():
        if not callable(way if name == "factory" or way is not None else factory):
            raise BadInput(f"`{name}` must be a function that creates an engine, not {way!r:.100}")
    if type(seed) is not int:
        raise BadInput(f"a seed must be a whole number, not {seed!r:.100}")
    milliseconds(timeout_s, "the time for a check")
    report = Report()
    for check in checks:
        name = check_name(check)
        try:
            await run_check(
                check,
                factory,
                reopen=reopen,
                second=second,
                crash=crash,
                hints=hints,
                seed=seed,
                timeout_s=timeout_s,
            )
        except NotApplicable as why:
            report.skipped[name] = str(why)
        except Violation as violation:
            report.failed[name] = str(violation)
        else:
            report.passed.append(name)
    if report.failed:
        raise NotCertified(report)
    return report


async def run_check(
    check: CheckFunction,
    factory: Callable[[], E],
    *,
    reopen: Callable[[E], E | Awaitable[E]] | None = None,
    second: Callable[[E], E | Awaitable[E]] | None = None,
    crash: Callable[[E], E | Awaitable[E]] | None = None,
    hints: bool = True,
    seed: int = 0,
    timeout_s: float = 60.0,
) -> None:
    """Run one check on a new engine, like `certify_engine`.

    Raises `Violation` if the guarantee is violated or the engine raises an unexpected error, and
    `NotApplicable` if the check needs a function that is missing.
    """
    clock = Clock()
    partition = f"certify#{Ids(clock.now_ms).new()}#{check_name(check)}"
    try:
        async with (
            asyncio.timeout(timeout_s),
            Lab(
                factory(),
                partition,
                clock.now_ms(),
                seed,
                reopen=reopen,
                second=second,
                crash=crash,
                hints=hints,
            ) as lab,
        ):
            await check(lab)
    except (NotApplicable, Violation):
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise Violation("a call ended as cancelled although nothing cancelled it") from error
    except TimeoutError as error:
        raise Violation(f"not finished after {timeout_s} s; possibly a deadlock") from error
    except Exception as error:
        raise Violation(f"an unexpected {error!r}") from error


def check_name(check: CheckFunction) -> str:
    return getattr(check, "__name__", repr(check))


def _guarantee(name: str) -> str:
    by_name = {check_name(check): check for check in CHECKS}
    return (by_name[name].__doc__ or "").strip() if name in by_name else ""
