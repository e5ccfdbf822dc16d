"""What a run has shown: printed, saved as JSON, and put into docs/reliability.md as a table.

`python -m tests.chaos.report` makes that table anew from what was saved last.
"""

import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.chaos.minimum import shortcomings
from tests.chaos.storm import Outcome
from tests.server_process import ROOT

RESULTS = ROOT / "build" / "chaos"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- made by `make soak-chaos` -->", "<!-- end of what was made -->"
ENGINES = {"sqlite": "SQLite, one server", "postgres": "PostgreSQL, three nodes"}
SHOWN_MAX = 20


def save(outcome: Outcome, folder: Path = RESULTS) -> dict[str, Any]:
    """Keep what a run has shown, instead of what the run before it has."""
    plan, soak = outcome.plan, outcome.plan.soak
    document = {
        "engine": plan.engine,
        "command": "make soak-chaos" if soak else "pytest tests/chaos",
        "seed": plan.seed,
        "seconds": round(outcome.seconds, 1),
        "drained_s": round(outcome.drained_s, 1),
        "stages": outcome.stages,
        "faults": outcome.faults,
        "left_out": outcome.left_out,
        "operations": outcome.operations,
        "troubles": outcome.troubles,
        "too_few": shortcomings(outcome.faults, outcome.operations, outcome.left_out, soak=soak),
        "violations": [list(violation) for violation in outcome.violations[:SHOWN_MAX]],
        "violation_count": len(outcome.violations),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{plan.engine}.json"
    file.write_text(json.dumps(document, indent=1) + "\n")
    return document


def text(document: Mapping[str, Any]) -> str:
    """For a terminal."""
    lines = [
        f"{ENGINES[document['engine']]}: seed {document['seed']}, {document['seconds']} s of "
        f"faults, at rest after {document['drained_s']} s more; {document['stages']}"
    ]
    for title in ("faults", "operations", "troubles"):
        lines.append(f"  {title}")
        lines += [f"    {count:>8,}  {name}" for name, count in sorted(document[title].items())]
    if document["left_out"]:
        lines.append(f"  left out: {', '.join(document['left_out'])}")
    lines += [f"  TOO FEW: {what}" for what in document["too_few"]]
    lines += [f"  VIOLATION: {kind}: {what}" for kind, what in document["violations"]]
    lines.append(f"  {document['violation_count']} violations")
    return "\n".join(lines)


def table(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """For the page: a column for each engine that there is a run of."""
    engines = [engine for engine in ENGINES if engine in documents]
    runs = [documents[engine] for engine in engines]
    rows: list[tuple[str, list[str]]] = [
        ("command", [f"`{run['command']}`, seed {run['seed']}" for run in runs]),
        ("time of faults", [f"{run['seconds']:,.0f} s" for run in runs]),
        ("until all was at rest", [f"{run['drained_s']:,.0f} s" for run in runs]),
    ]
    for title, what in (("faults", "**faults**"), ("operations", "**operations**")):
        totals = [sum(run[title].values()) for run in runs]
        rows.append((what, [f"{total:,}" if title == "faults" else "" for total in totals]))
        names = list(dict.fromkeys(name for run in runs for name in run[title]))
        for name in names:
            cells = [f"{run[title][name]:,}" if name in run[title] else "–" for run in runs]
            rows.append((name, cells))
    told = [sum(run["troubles"].values()) for run in runs]
    rows.append(("calls refused for a while, and made again", [f"{count:,}" for count in told]))
    rows.append(("**violations**", [f"**{run['violation_count']}**" for run in runs]))
    lines = [
        f"| | {' | '.join(ENGINES[engine] for engine in engines)} |",
        f"|---|{'---:|' * len(engines)}",
    ]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows]
    return "\n".join(lines)


def write_page(page: Path = PAGE, folder: Path = RESULTS) -> None:
    """Put the table of what was saved last between its marks. Raises `ValueError` if there are
    no marks, or nothing was saved."""
    documents = {}
    for engine in ENGINES:
        file = folder / f"{engine}.json"
        if file.exists():
            documents[engine] = json.loads(file.read_text())
    if not documents:
        raise ValueError(f"there is nothing in {folder}")
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table")
    page.write_text(f"{before}{BEGIN}\n\n{table(documents)}\n\n{END}{after}")


if __name__ == "__main__":
    write_page(*map(Path, sys.argv[1:]))
