"""Cases of Onceward in one process, alternating with the limits of the machine."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import FORMAT, OURS, Case, Report, Run, Side, run_of
from benchmarks.machine import SYNCS, limits_case, measure_limit, this_machine
from benchmarks.measure import Figures, measure_tasks
from benchmarks.ours import Onceward
from benchmarks.punctual import Fires, measure_punctuality
from onceward.errors import BadInput

# The measures, with their numbers of callers and descriptions.
MEASURES = {
    "accept": "accept a job",
    "work": "accept a job, and have it done",
    "ordered": "the same, in order for each of 10 keys",
    "lock": "take a lock and let it go",
    "contend": "one contended lock",
    "timers": "timers that come due one after the other: how late they are",
}
CALLERS = (1, 100)
TIMERS_PER_SECOND = 200
PACKAGES = ("onceward", "apsw", "msgspec", "uvloop")


def case_of(measure: str, callers: int, seconds: float) -> Case:
    """The case of a measure, without runs."""
    if measure == "timers":
        return Case(
            id="timers",
            title=f"timers, {TIMERS_PER_SECOND} a second",
            about=MEASURES[measure],
            family="timers",
            unit="ms late",
            measure="p99_ms",
            seconds=seconds,
            sides=[Side(OURS, Onceward.durable)],
        )
    many = f"{callers} callers" if callers > 1 else "1 caller"
    return Case(
        id=f"{measure}-{callers}",
        title=f"{measure}, {many}",
        about=MEASURES[measure],
        family=measure,
        limit=SYNCS if callers == 1 else "",  # many callers share a sync
        limit_calls=1.0 if measure == "accept" else 2.0,
        seconds=seconds,
        sides=[Side(OURS, Onceward.durable)],
    )


def plan(measures: list[str], callers: list[int], seconds: float) -> list[Case]:
    """The cases in order, the limits first. Raises `BadInput`."""
    for measure in measures:
        if measure not in MEASURES:
            raise BadInput(f"unknown case {measure!r}; use {', '.join(MEASURES)}")
    cases = [limits_case(seconds)]
    for measure in dict.fromkeys(measures):
        for count in [1] if measure == "timers" else dict.fromkeys(callers):
            cases.append(case_of(measure, count, seconds))
    return cases


def run(
    measures: list[str],
    callers: list[int],
    *,
    seconds: float,
    rounds: int,
    folder: Path,
    made: str,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Report:
    """Measure all cases `rounds` times, round by round. Raises `BadInput` before it starts; a case
    that fails later is part of the report."""
    admit_folder(folder)
    cases = plan(measures, callers, seconds)
    machine = this_machine(PACKAGES)
    turns = list(_turns(cases, rounds))
    for done, (case, side) in enumerate(turns):
        case.made = made
        progress(f"{case.title}: {side.name}", done, len(turns))
        side.runs.append(_run(case, side, folder, seconds))
    progress("done", len(turns), len(turns))
    machine.load.append(this_machine().load[0])
    return Report(FORMAT, machine, cases)


def admit_folder(folder: Path) -> None:
    """Check that files can be created in a folder. Raises `BadInput`."""
    try:
        TemporaryDirectory(prefix="onceward-bench-", dir=folder).cleanup()
    except OSError as error:
        raise BadInput(f"cannot measure in {folder}: {error.strerror}") from error


def _turns(cases: list[Case], rounds: int) -> Iterator[tuple[Case, Side]]:
    for _ in range(rounds):
        for case in cases:
            for side in case.sides:
                yield case, side


def _run(case: Case, side: Side, folder: Path, seconds: float) -> Run:
    try:
        if case.family == "limits":
            return measure_limit(side.name, folder, seconds)
        with TemporaryDirectory(prefix="onceward-bench-", dir=folder) as own:
            figures = _run_ours(case, f"sqlite:///{own}/bench.db", seconds)
        return run_of(figures)
    except Exception as error:
        return Run(failed=f"{type(error).__name__}: {error}")


def _run_ours(case: Case, url: str, seconds: float) -> Figures:
    import uvloop  # imported here, since Windows does not support it

    measure, _, callers = case.id.partition("-")
    side = Onceward(url, int(callers or 1))

    async def measured() -> Figures:
        await side.open(measure)
        try:
            if measure == "timers":
                fires = Fires()
                side.fire = fires.add
                count = max(int(TIMERS_PER_SECOND * seconds), 1)
                return await measure_punctuality(side, count, seconds, fires=fires)
            return await measure_tasks(getattr(side, measure), side.callers, seconds)
        finally:
            await side.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(measured())
