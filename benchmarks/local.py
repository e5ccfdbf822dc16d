"""Measures the limits of this machine and the performance of Onceward, alternately.

    python -m benchmarks.local --cases accept,work --folder /var/lib/onceward

`make bench-local` runs it. It writes only to the folder, and removes its files.
"""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from benchmarks import figures, machine, page, session, table
from benchmarks.figures import Report
from onceward.cli.display import Display, complain, print_json
from onceward.clock import Clock
from onceward.errors import BadInput, OncewardError

SAVE = "onceward-bench.json"
SECONDS, ROUNDS = 2.0, 5
# An upper bound for the duration of a run.
SECONDS_MAX = 600.0
ROUNDS_MAX = 100
CALLERS_MAX = 1_000
_EXIT_WRONG = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return _bench(arguments)
    except OncewardError as error:
        complain(str(error))
        return error.kind.exit


def _parser() -> argparse.ArgumentParser:
    bench = argparse.ArgumentParser(
        prog="python -m benchmarks.local",
        description="Measure the limits of this machine (synced writes, bytes over loopback), and "
        "the performance of Onceward, alternately: jobs accepted and done, jobs in order, locks, "
        "and the lateness of timers. Takes about three minutes. Writes only to the folder, and "
        "removes its files.",
        epilog="example: python -m benchmarks.local --cases accept,work --folder /var/lib/onceward",
    )
    bench.add_argument(
        "--cases", metavar="A,B", help="of accept, work, ordered, lock, contend, timers [all]"
    )
    bench.add_argument(
        "--callers",
        default="1,100",
        metavar="N,N",
        help="numbers of concurrent callers [1,100]",
    )
    bench.add_argument(
        "--seconds", default=SECONDS, metavar="S", help=f"seconds per run [{SECONDS:g}]"
    )
    bench.add_argument("--rounds", default=ROUNDS, metavar="N", help=f"number of runs [{ROUNDS}]")
    bench.add_argument(
        "--folder", default=".", help="folder for databases, on the disk to measure [.]"
    )
    bench.add_argument("--save", default=SAVE, metavar="FILE", help=f"file for figures [{SAVE}]")
    bench.add_argument("--page", metavar="FILE.md", help="write a page with plots")
    bench.add_argument("--json", action="store_true", help="print JSON")
    bench.add_argument("--quiet", action="store_true", help="show no progress")
    return bench


def _bench(arguments: argparse.Namespace) -> int:
    seconds = _number(arguments.seconds, float, "--seconds", SECONDS_MAX)
    rounds = _number(arguments.rounds, int, "--rounds", ROUNDS_MAX)
    callers = [
        _number(text, int, "--callers", CALLERS_MAX) for text in arguments.callers.split(",")
    ]
    measures = [name.strip() for name in (arguments.cases or ",".join(session.MEASURES)).split(",")]
    save = Path(arguments.save)
    _must_take(save, figures.load)
    if arguments.page and not Path(arguments.page).parent.is_dir():
        raise BadInput(f"the folder of the page, {Path(arguments.page).parent}, does not exist")
    made = datetime.fromtimestamp(Clock().now_ms() / 1000, UTC).date().isoformat()
    with Display(quiet=arguments.quiet or arguments.json) as display:
        report = session.run(
            measures,
            callers,
            seconds=seconds,
            rounds=rounds,
            folder=Path(arguments.folder),
            made=made,
            progress=display.show,
        )
    figures.save(report, save)
    if arguments.page:
        page.write(report, Path(arguments.page))
    if arguments.json:
        print_json(msgspec.to_builtins(report))
    else:
        width = None if sys.stdout.isatty() else 100
        table.show(report, Console(highlight=False, width=width))
        syncs = report.cases[0].side(machine.SYNCS)
        if syncs is not None and any(map(machine.in_memory, syncs.runs)):
            print(f"{arguments.folder} is in memory: nothing is durable there")
        print(f"saved to {save}")
    return _judge(report)


def _judge(report: Report) -> int:
    failed = [case.title for case in report.cases if any(side.why_not() for side in case.sides)]
    if failed:
        complain(f"these did not run: {', '.join(failed)} [internal]")
    return _EXIT_WRONG if failed else 0


def _must_take(save: Path, load: Callable[[Path], object]) -> None:
    """Check before the measurement that the file can be written, and replaces only figures."""
    if save.exists():
        try:
            load(save)
        except BadInput as error:
            raise BadInput(f"{save} exists and has no figures; choose another file") from error
    elif not save.parent.is_dir():
        raise BadInput(f"the folder of the figures, {save.parent}, does not exist")


def _number(text: str, kind: type[Any], option: str, most: float) -> Any:
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= most:
        what = "whole number" if kind is int else "number"
        raise BadInput(f"{option} must be a {what} above 0 and at most {most:g}, not {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
