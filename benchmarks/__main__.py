"""All benchmarks as one program: Onceward and other systems alternate, round by round.

    python -m benchmarks                       a selection, in 10 minutes (`make bench`)
    python -m benchmarks --full                all of it, in 40 minutes (`make bench-peers`)
    python -m benchmarks --only work,locks     only these families or cases
    python -m benchmarks --of benchmarks/results/bench.json    only the page, from saved figures

Prints a table and verdicts, saves the figures as JSON, and writes docs/benchmarks.md with its
plots. Cases and sides are in plan.py. A side that is not installed or fails is reported and
skipped.
"""

import argparse
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks import page, table, targets
from benchmarks.figures import FORMAT, RUNS_MIN, Report, Run, load, run_of, save
from benchmarks.machine import limits_case, measure_limit, this_machine
from benchmarks.plan import PACKAGES, Contender, Entry, entries, peers
from benchmarks.workshop import ROOT, Workshop
from onceward.errors import OncewardError

RESULTS = Path(__file__).parent / "results" / "bench.json"
PAGE = ROOT / "docs" / "benchmarks.md"
LIMIT_S = 0.5
# A side that fails this many times in a row is skipped.
FAILURES_MAX = 2


class Bench:
    """Runs the cases round by round, and keeps the results."""

    def __init__(self, plan: list[Entry], seconds: float, console: Console) -> None:
        self.plan = plan
        self.seconds = seconds
        self.console = console
        self.limits = limits_case(LIMIT_S)
        self.machine = this_machine(PACKAGES)
        self._failures: dict[tuple[str, str], int] = {}
        today = datetime.now(UTC).date().isoformat()
        for case in (self.limits, *[entry.case for entry in plan]):
            case.made = today
            case.seconds = case.seconds or seconds

    @property
    def report(self) -> Report:
        machine = self.machine
        return Report(FORMAT, machine, [self.limits, *[entry.case for entry in self.plan]])

    def round(self, workshop: Workshop) -> None:
        for side in self.limits.sides:
            side.runs.append(measure_limit(side.name, workshop.folder, LIMIT_S))
        for entry in self.plan:
            for contender, side in zip(entry.contenders, entry.case.sides, strict=True):
                side.runs.append(self._run(entry, contender, workshop))

    def _run(self, entry: Entry, contender: Contender, workshop: Workshop) -> Run:
        key = (entry.case.id, contender.name)
        if why := contender.unavailable():
            return Run(failed=why)
        if self._failures.get(key, 0) >= FAILURES_MAX:
            return Run(failed=f"skipped after {FAILURES_MAX} failures in a row")
        begun = time.monotonic()
        try:
            run = run_of(contender.run(workshop, entry, self.seconds))
        except (OncewardError, RuntimeError, OSError) as error:
            run = Run(failed=f"{type(error).__name__}: {error}")
        took = time.monotonic() - begun
        self._failures[key] = self._failures.get(key, 0) + 1 if run.failed else 0
        told = f"[red]{run.failed}[/]" if run.failed else f"{getattr(run, entry.case.measure):,.1f}"
        self.console.print(
            f"[dim]{entry.case.title}: {contender.name}[/] {told} [dim]{took:.1f} s[/]"
        )
        return run


def run(bench: Bench, rounds: int, minutes: float, results: Path, workshop: Workshop) -> int:
    """Run rounds while time is left; returns the number of rounds."""
    begun = time.monotonic()
    last_s = 0.0  # the first round also fills databases
    for number in range(rounds):
        now = time.monotonic()
        if now - begun + last_s > minutes * 60:
            bench.console.print(f"[red]no time for round {number + 1}: {minutes:g} minutes[/]")
            return number
        bench.console.print(f"round {number + 1} of {rounds}, after {now - begun:.0f} s")
        bench.round(workshop)
        last_s = time.monotonic() - now
        save(bench.report, results)  # keep the results even if a later round fails
    bench.console.print(f"{rounds} rounds in {time.monotonic() - begun:.0f} s")
    return rounds


def write_page(report: Report, path: Path) -> None:
    """Write the page from these cases and those that it already had."""
    kept = path.with_suffix("") / "results.json"
    if kept.exists():
        report = load(kept).merged(report)
    page.write(report, path)
    save(report, kept)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--full", action="store_true", help="all cases and sides")
    parser.add_argument("--only", default="", help="families, cases or sides, separated by commas")
    parser.add_argument("--list", action="store_true", help="list the cases without a run")
    parser.add_argument("--seconds", type=float, default=0.0, help="seconds per run of one side")
    parser.add_argument("--rounds", type=int, default=RUNS_MIN, help="rounds of all sides")
    parser.add_argument("--minutes", type=float, default=0.0, help="start no round after this time")
    parser.add_argument("--folder", type=Path, help="folder for files (on a real disk)")
    parser.add_argument("--save", type=Path, default=RESULTS)
    parser.add_argument(
        "--page", type=Path, help=f"page to write after {RUNS_MIN} rounds or more [{PAGE}]"
    )
    parser.add_argument("--no-page", action="store_true", help="do not write the page")
    parser.add_argument("--of", type=Path, help="write the page from these figures without a run")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    chosen = [name for name in options.only.split(",") if name]
    plan = entries(full=options.full or bool(chosen), only=chosen)
    if not plan:
        parser.error(f"there is nothing of that: {options.only}")
    if options.list:
        for entry in plan:
            names = ", ".join(contender.name for contender in entry.contenders)
            console.print(f"{entry.case.family} / {entry.case.id}: {names}", soft_wrap=True)
        return 0
    if options.of:
        write_page(load(options.of), options.page or PAGE)
        return 0
    # So that servers and files are removed as well.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    options.save.parent.mkdir(exist_ok=True)
    bench = Bench(plan, options.seconds or (1.2 if options.full else 1.0), console)
    minutes = options.minutes or (39.0 if options.full else 9.5)
    with Workshop(options.folder) as workshop:
        done = run(bench, options.rounds, minutes, options.save, workshop)
    bench.machine.load.append(this_machine().load[0])
    bench.machine.packages.update(peers())
    save(bench.report, options.save)
    table.show(bench.report, console)
    for line in targets.verdicts(bench.report):
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"saved to {options.save}")
    if done < RUNS_MIN and not (options.page or options.no_page):
        console.print(f"no page: {done} rounds are too few (--of {options.save} writes it anyway)")
    if options.page or (done >= RUNS_MIN and not options.no_page):
        write_page(bench.report, options.page or PAGE)
        console.print(f"wrote {options.page or PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
