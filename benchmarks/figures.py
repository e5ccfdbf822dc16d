"""Figures of benchmarks as data: cases, the sides that alternate in them, and their runs.

All benchmark programs write files of these (`save`, `load`), and the page of the documentation is
generated from them.
"""

import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from onceward.errors import BadInput

FORMAT = 1
OURS = "onceward"
Measure = Literal["per_second", "p50_ms", "p99_ms"]
# Fewer runs do not give a reliable median.
RUNS_MIN = 5
TIME_MS_MIN = 0.01


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one side in one round, or the reason why it did not run."""

    per_second: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    cpu_us: float | None = None
    """Processor time per call."""
    mib: float | None = None
    """Final resident memory of all processes of the side."""
    failed: str = ""


class Side(msgspec.Struct, omit_defaults=True):
    """One of the compared systems."""

    name: str
    durable: str = ""
    """The guarantee after a call has returned."""
    ahead: str = ""
    """Why it is faster than Onceward, if it is."""
    runs: list[Run] = msgspec.field(default_factory=list)

    def good(self) -> list[Run]:
        return [run for run in self.runs if not run.failed]

    def median(self, what: str) -> float | None:
        """The median of a figure over successful runs, or None."""
        found = [value for run in self.good() if (value := getattr(run, what)) is not None]
        return statistics.median(found) if found else None

    def why_not(self) -> str:
        """Why it did not run, if it never did."""
        if self.good():
            return ""
        return self.runs[-1].failed if self.runs else "it was not tried"


class Case(msgspec.Struct, omit_defaults=True):
    """One measurement. The first side is Onceward."""

    id: str
    title: str
    about: str = ""
    family: str = ""
    """Cases of a family are shown together."""
    unit: str = "per second"
    measure: Measure = "per_second"
    """The relevant figure: higher is better for rates, lower for times."""
    size: int = 0
    """The amount of existing data, if it varies within a family."""
    limit: str = ""
    """The side of the case `limits` that bounds this one."""
    limit_calls: float = 1.0
    """The minimum number of calls of the limit per call of this case."""
    run: str = ""
    """What a run consists of, if it does not depend on the seconds."""
    made: str = ""
    """The date of the measurement."""
    seconds: float = 0.0
    """The duration of a run."""
    sides: list[Side] = msgspec.field(default_factory=list)

    def side(self, name: str) -> Side | None:
        return next((side for side in self.sides if side.name == name), None)

    @property
    def ours(self) -> Side | None:
        return self.sides[0] if self.sides else None

    def ratio(self, other: Side, ours: Side | None = None) -> float | None:
        """How many times better Onceward is than the other side; None if one of them did not run.

        Compares adjacent rounds, so that other load on the machine affects both.
        """
        ours = ours or self.ours
        if ours is None or other is ours:
            return None
        ratios = [
            _times(getattr(one, self.measure), getattr(two, self.measure), self.measure)
            for one, two in zip(ours.runs, other.runs, strict=False)
            if not (one.failed or two.failed)
        ]
        return statistics.median(ratios) if ratios else None


class Machine(msgspec.Struct, omit_defaults=True):
    """The machine of the measurement."""

    cores: int = 0
    memory_mib: int = 0
    python: str = ""
    system: str = ""
    load: list[float] = msgspec.field(default_factory=list)
    """The load of the machine before and after."""
    packages: dict[str, str] = msgspec.field(default_factory=dict)


class Report(msgspec.Struct, omit_defaults=True):
    """All results, in the order of display."""

    format: int
    machine: Machine
    cases: list[Case]

    def case(self, id_: str) -> Case | None:
        return next((case for case in self.cases if case.id == id_), None)

    def merged(self, newer: "Report") -> "Report":
        """A report in which cases of a newer one replace those of the same id."""
        fresh = {case.id: case for case in newer.cases}
        kept = [fresh.pop(case.id, case) for case in self.cases]
        packages = {**self.machine.packages, **newer.machine.packages}
        machine = msgspec.structs.replace(newer.machine, packages=packages)
        return Report(FORMAT, machine, [*kept, *fresh.values()])

    def share_of_limit(self, case: Case) -> float | None:
        """Onceward's rate as a fraction of the machine's limit, if that was measured."""
        limits, ours = self.case("limits"), case.ours
        limit = limits.side(case.limit) if limits and case.limit else None
        if limit is None or ours is None or case.measure != "per_second":
            return None
        most, rate = limit.median("per_second"), ours.median("per_second")
        return rate * case.limit_calls / most if most and rate else None

    def behind(self) -> Iterator[tuple[Case, Side, float]]:
        """Cases in which another side is ahead, with the factor, worst first."""
        found = [
            (case, side, ratio)
            for case in self.cases
            for side in case.sides[1:]
            if case.family != "limits"
            and not side.name.startswith(OURS)
            and (ratio := case.ratio(side)) is not None
            and ratio < 1
        ]
        yield from sorted(found, key=lambda row: row[2])


def run_of(figures: Any) -> Run:
    """A run from the output of a program, which may contain more. Raises `BadInput`."""
    try:
        return msgspec.convert(figures, Run)
    except msgspec.ValidationError as error:
        raise BadInput(f"not the figures of a run: {error}") from error


def save(report: Report, path: Path) -> None:
    """Write the report atomically. Raises `BadInput` if that fails."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
        part.replace(path)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error


def load(path: Path) -> Report:
    """Read a file written by `save`. Raises `BadInput` for other files."""
    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} has no figures of a benchmark: {error}") from error
    if report.format != FORMAT:
        raise BadInput(f"{path} has format {report.format}, but this version reads {FORMAT}")
    return report


def spread(runs: Iterable[Run], what: str) -> tuple[float, float] | None:
    """The minimum and maximum of a figure."""
    found = [getattr(run, what) for run in runs]
    return (min(found), max(found)) if found else None


def _times(ours: float, theirs: float, measure: Measure) -> float:
    """How many times better Onceward is. Times are rounded up to the resolution of clocks."""
    if measure == "per_second":
        return ours / max(theirs, 1e-9)
    return max(theirs, TIME_MS_MIN) / max(ours, TIME_MS_MIN)
