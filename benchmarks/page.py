"""A page with the results and plots, such as `docs/benchmarks.md`.

The whole page is rewritten. It starts with the cases in which others are ahead.
"""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from benchmarks import plots
from benchmarks.figures import RUNS_MIN, Case, Report, Side
from onceward.errors import BadInput

_HEAD = """# Benchmarks

<!-- Written by `make bench` and `make bench-peers`: do not edit. -->
"""
_HOW = """All sides of a case run in turns on one machine, each in a separate process with a
separate database. The figures are medians of the runs; the plots also show the minimum
and the maximum.

*Ours is* compares Onceward with the other side in adjacent rounds, so that other load on
the machine affects both. Above 1, Onceward is better; below 1, the other side is. The
guarantees of the sides differ: they are listed below each table. *fdatasync* is the disk
alone. *echo* is a message to another process and back.

`make bench` measures a selection in 10 minutes, and `make bench-peers` all cases in 40.
Software that cannot be installed does not take part. `make bench-local` measures only
Onceward and the limits of the machine.
"""


def write(report: Report, page: Path) -> list[Path]:
    """Write the page, and its plots into a folder with the same name; returns the written files.

    Plots in the folder that belong to no case are removed. Raises `BadInput`.
    """
    folder = page.with_suffix("")
    pictures = dict(_pictures(report))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.svg"):
            if old.name not in pictures:
                old.unlink()
        for name, svg in pictures.items():
            (folder / name).write_text(svg, encoding="utf-8")
        page.write_text(text(report, folder.name), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {page}: {error.strerror}") from error
    return [page, *[folder / name for name in pictures]]


def text(report: Report, folder: str) -> str:
    """The page, with plots from that folder."""
    blocks = [_HEAD, *_behind(report), *_absent(report), "## How it was measured\n", _HOW]
    blocks.append(_where(report))
    for family, cases in _families(report):
        blocks += _family(report, family, cases, folder)
    return "\n".join(blocks).rstrip() + "\n"


def _behind(report: Report) -> Iterator[str]:
    yield "## Where others are ahead\n"
    rows = [
        f"| {_cell(case.title)} | {_cell(side.name)} | {1 / ratio:.2f} | "
        f"{_cell(side.ahead or 'Unknown.')} |"
        for case, side, ratio in report.behind()
    ]
    if not rows:
        yield "No other side is ahead in the cases on this page.\n"
        return
    yield "\n".join(["| case | who | times ahead | why |", "|---|---|---:|---|", *rows]) + "\n"


def _absent(report: Report) -> Iterator[str]:
    rows = [
        f"- {case.title}: {side.name}: {_cell(why)}"
        for case in report.cases
        for side in case.sides
        if (why := side.why_not())
    ]
    if rows:
        yield "## What did not run\n"
        yield "\n".join(rows) + "\n"


def _where(report: Report) -> str:
    machine = report.machine
    facts = [f"{machine.cores} cores", f"{machine.memory_mib:,} MiB of memory"]
    facts += [f"Python {machine.python}", machine.system]
    lines = ["Machine: " + ", ".join(facts) + "."]
    if machine.load:
        before_after = ", ".join(f"{load:.1f}" for load in machine.load)
        lines.append(f"Load before and after the last run: {before_after}.")
    if machine.packages:
        versions = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
        lines.append(f"Versions: {versions}.")
    return "\n".join(lines) + "\n"


def _family(report: Report, family: str, cases: list[Case], folder: str) -> Iterator[str]:
    yield f"## {cases[0].title if len(cases) == 1 else family[:1].upper() + family[1:]}\n"
    sized = any(case.size for case in cases)
    if sized:
        yield f"{cases[0].about}\n"
        yield f"![{family}]({folder}/{_slug(family)}.svg)\n"
    for case in cases:
        if len(cases) > 1:
            yield f"### {case.title}\n"
        if not sized and case.about:
            yield f"{case.about[:1].upper()}{case.about[1:]}\n"
        if not sized:
            yield f"![{case.title}]({folder}/{_slug(case.id)}.svg)\n"
        yield _table(report, case)
        made = f"Measured on {case.made}, " if case.made else "Measured with "
        yield f"{made}{case.run or f'{case.seconds:g} s a run'}.\n"
    sides = {side.name: side.durable for case in cases for side in case.sides if side.durable}
    if sides:
        yield "Guarantees:\n"
        yield "\n".join(f"- **{name}**: {durable}" for name, durable in sides.items()) + "\n"


def _table(report: Report, case: Case) -> str:
    head = f"| side | {case.unit} | p50 ms | p99 ms | max ms | CPU µs | MiB | ours is | runs |"
    rows = [head, "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for side in case.sides:
        if not side.good():
            rows.append(f"| {_cell(side.name)} | did not run | | | | | | | 0 |")
            continue
        cells = [_cell(side.name), _rate(case, side)]
        cells += [
            _figure(side, what, form) for what, form in (("p50_ms", ".2f"), ("p99_ms", ".2f"))
        ]
        cells.append(f"{max(run.max_ms for run in side.good()):,.1f}")
        cells += [_figure(side, what, ",.0f") for what in ("cpu_us", "mib")]
        count = len(side.good())
        cells += [
            _comparison(report, case, side),
            f"{count}" if count >= RUNS_MIN else f"only {count}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _rate(case: Case, side: Side) -> str:
    """The relevant figure, in the case's unit."""
    value = side.median(case.measure)
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def _figure(side: Side, what: str, form: str) -> str:
    value = side.median(what)
    return "" if value is None else format(value, form)


def _comparison(report: Report, case: Case, side: Side) -> str:
    if side is case.ours:
        share = report.share_of_limit(case)
        return "" if share is None else f"{share:.0%} of {case.limit}"
    ratio = None if case.family == "limits" else case.ratio(side)
    return "" if ratio is None else f"{ratio:.2f} ×"


def _pictures(report: Report) -> Iterator[tuple[str, str]]:
    for family, cases in _families(report):
        if any(case.size for case in cases):
            yield f"{_slug(family)}.svg", _lines(family, cases)
            continue
        for case in cases:
            yield f"{_slug(case.id)}.svg", plots.bars(case)


def _lines(family: str, cases: list[Case]) -> str:
    names = dict.fromkeys(side.name for case in cases for side in case.sides)
    series = []
    for name in names:
        points = [
            (case.size, value)
            for case in cases
            if (side := case.side(name)) and (value := side.median(case.measure)) is not None
        ]
        series.append((name, points))
    return plots.lines(family[:1].upper() + family[1:], cases[0].unit, series)


def _families(report: Report) -> list[tuple[str, list[Case]]]:
    """Cases that are shown together, in the order of the first of each."""
    order = list(dict.fromkeys(case.family or case.title for case in report.cases))
    placed = sorted(report.cases, key=lambda case: order.index(case.family or case.title))
    groups = groupby(placed, key=lambda case: case.family or case.title)
    return [(family, list(cases)) for family, cases in groups]


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")
