"""Engine certification: checks an engine against the contract in `onceward.engine.base`.

    await certify_engine(
        lambda: MyEngine(new_database()),
        reopen=lambda engine: MyEngine(engine.database),
    )

Each check is a small function with its guarantee as docstring. To see them one by one
in pytest, parametrize over `CHECKS` and call `run_check`.
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
"""All checks, from the simple to the involved: the first that fails says most."""


@dataclass
class Report:
    """What became of each check, by name."""

    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Not applicable, and why: for example, no way to reopen the engine was given."""
    failed: dict[str, str] = field(default_factory=dict)
    """What was seen."""

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
    """An engine does not keep the contract; `report` has every failed check."""

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
    """Run every check; returns what passed, or raises `NotCertified` with all that failed.

    `factory` makes an engine, not yet open, for each check: on an empty database, or on
    one that only these checks have used. The others get an engine and make one more on
    the same database, not yet open; checks that need one that is not given are skipped.

    - `reopen`: after the engine was closed; for engines that keep their data.
    - `second`: while it is open; for engines that several processes can share.
    - `crash`: ends the engine without closing it, and drops all that is not durable, as
      a killed process or a power cut would. Answers must not come after that.

    `hints=False` is for engines whose watches never wake. A check that takes longer than
    `timeout_s` has failed. The same `seed` makes the same random choices. Raises `BadInput` for
    what no engine could be certified with.
    """
    ways = {"factory": factory, "reopen": reopen, "second": second, "crash": crash}
    for name, way in ways.items():
        if not callable(way if name == "factory" or way is not None else factory):
            raise BadInput(f"`{name}` is a function that makes an engine, not {way!r:.100}")
    if type(seed) is not int:
        raise BadInput(f"a seed is a whole number, not {seed!r:.100}")
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
    """Run one check on a new engine, as `certify_engine` does.

    Raises `Violation` if the guarantee was not kept, whatever the engine raised, and
    `NotApplicable` if the check needs something that is not given.
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
        raise Violation("a call ended as cancelled although no one cancelled it") from error
    except TimeoutError as error:
        raise Violation(f"not finished after {timeout_s} s: a deadlock?") from error
    except Exception as error:
        raise Violation(f"an unexpected {error!r}") from error


def check_name(check: CheckFunction) -> str:
    return getattr(check, "__name__", repr(check))


def _guarantee(name: str) -> str:
    by_name = {check_name(check): check for check in CHECKS}
    return (by_name[name].__doc__ or "").strip() if name in by_name else ""
