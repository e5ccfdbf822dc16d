"""Reports as tables on a terminal."""

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.figures import RUNS_MIN, Case, Report, Side

_COLUMNS = ("per second", "p50 ms", "p99 ms", "max ms", "cpu µs", "MiB")


def show(report: Report, out: Console) -> None:
    """Print the results case by case, with remarks."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("")
    for column in (*_COLUMNS, "ours is"):
        table.add_column(column, justify="right", no_wrap=True)
    for case in report.cases:
        alone = len(case.sides) == 1
        if not alone:
            table.add_row(Text(case.title, style="bold"))
        for side in case.sides:
            name = Text(case.title if alone else f"  {side.name}")
            table.add_row(name, *_figures(side), _verdict(report, case, side))
        if not alone:
            table.add_section()
    out.print(table)
    for line in remarks(report):
        out.print(line, highlight=False, markup=False)


def remarks(report: Report) -> Iterator[str]:
    """Important remarks on the results."""
    for case in report.cases:
        for side in case.sides:
            if why := side.why_not():
                yield f"{case.title}: {side.name} did not run: {why}"
            elif len(side.good()) < len(side.runs):
                failed = [run.failed for run in side.runs if run.failed]
                yield f"{case.title}: {side.name} failed {len(failed)} times: {failed[-1]}"
    fewest = min((len(side.runs) for case in report.cases for side in case.sides), default=0)
    if fewest < RUNS_MIN:
        yield f"fewer than {RUNS_MIN} runs ({fewest}): these are no medians to rely on"
    for case, side, ratio in report.behind():
        why = side.ahead or "no reason is known"
        yield f"behind: {case.title}: {side.name} is {1 / ratio:.1f} times ahead: {why}"


def _figures(side: Side) -> list[str]:
    if not side.good():
        return ["did not run", *[""] * (len(_COLUMNS) - 1)]

    def cell(what: str, form: str) -> str:
        value = side.median(what)
        return "" if value is None else format(value, form)

    return [
        cell("per_second", ",.0f"),
        cell("p50_ms", ".2f"),
        cell("p99_ms", ".2f"),
        f"{max(run.max_ms for run in side.good()):.1f}",
        cell("cpu_us", ",.0f"),
        cell("mib", ",.0f"),
    ]


def _verdict(report: Report, case: Case, side: Side) -> str:
    if side is case.ours:
        share = report.share_of_limit(case)
        return "" if share is None else f"{share:.0%} of {case.limit.split(',')[0]}"
    if case.family == "limits":
        return ""
    ratio = case.ratio(side)
    return "" if ratio is None else f"{ratio:.2f} ×" if ratio < 10 else f"{ratio:.0f} ×"
