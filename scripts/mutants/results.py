"""The results of mutation testing: storage, explanations and a table."""

import hashlib
import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHARE_MIN = 0.9
MARKS = ("<!-- mutants -->", "<!-- /mutants -->")


@dataclass
class Result:
    """The verdicts on a module's mutants, by name."""

    module: str
    source: str = ""
    """A digest of the module's text: verdicts on another text are invalid."""
    tests: str = ""
    """A digest of its tests."""
    verdicts: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def keep(self, names: Iterable[str]) -> None:
        """Remove the verdicts on all other mutants."""
        here = set(names)
        self.verdicts = {name: told for name, told in self.verdicts.items() if name in here}

    def names(self, *verdicts: str) -> list[str]:
        return [name for name, verdict in self.verdicts.items() if verdict in verdicts]


def load(folder: Path, module: str) -> Result:
    path = _path(folder, module)
    return Result(**json.loads(path.read_text())) if path.exists() else Result(module)


def save(folder: Path, result: Result) -> None:
    path = _path(folder, result.module)
    path.write_text(json.dumps(vars(result), indent=1, ensure_ascii=False) + "\n")


def forget(folder: Path, module: str) -> None:
    _path(folder, module).unlink(missing_ok=True)


def _path(folder: Path, module: str) -> Path:
    return folder / f"{module.replace('/', '.')}.json"


def digest(root: Path, paths: list[str]) -> str:
    text = b"\0".join((root / path).read_bytes() for path in paths)
    return hashlib.sha256(text).hexdigest()[:16]


def explanations(path: Path) -> dict[str, dict[str, str]]:
    """Why surviving mutants are harmless, by module and name of the mutant."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def stale(explained: dict[str, dict[str, str]], results: dict[str, Result]) -> list[str]:
    """Explanations of mutants that are gone or killed."""
    found = []
    for module, names in explained.items():
        if module not in results:
            found.append(f"{module} is not tried: it needs no explanation")
            continue
        for name in names:
            verdict = results[module].verdicts.get(name, "not there")
            if verdict != "survived":
                found.append(f"{module}: {name} is explained, and {verdict}")
    return found


def rows(explained: dict[str, dict[str, str]], results: dict[str, Result]) -> list[dict[str, Any]]:
    """A row for each module, and a total."""
    told = []
    for module, result in sorted(results.items()):
        survived = result.names("survived")
        known = [name for name in survived if name in explained.get(module, {})]
        told.append(_row(module, len(result.verdicts), len(survived), len(known)))
    columns = ("mutants", "survived", "explained")
    totals = [sum(row[column] for row in told) for column in columns]
    survived_all = totals[1] + totals[2]
    return [*told, _row("all", totals[0], survived_all, totals[2])]


def _row(module: str, mutants: int, survived: int, explained: int) -> dict[str, Any]:
    killed = mutants - survived
    return {
        "module": module,
        "mutants": mutants,
        "killed": killed,
        "explained": explained,
        "survived": survived - explained,
        "share": round(killed / mutants, 4) if mutants else 1.0,
    }


def shortcomings(told: list[dict[str, Any]]) -> list[str]:
    """The problems of these rows, of which the last is the total."""
    found = [
        f"{row['module']}: {row['survived']} survive, and are not explained"
        for row in told[:-1]
        if row["survived"]
    ]
    if told[-1]["share"] < SHARE_MIN:
        found.append(f"only {told[-1]['share']:.1%} are killed")
    return found


def table(told: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| module | mutants | killed | explained | survived | killed, share |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in told:
        name = "**all**" if row["module"] == "all" else f"`{row['module']}`"
        numbers = [f"{row[column]:,}" for column in ("mutants", "killed", "explained", "survived")]
        lines.append(f"| {name} | {' | '.join(numbers)} | {row['share']:.1%} |")
    return "\n".join(lines) + "\n"


def write_between(page: Path, text: str) -> None:
    """Replace the text between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
    _, mark, behind = rest.partition(MARKS[1])
    if not mark:
        raise SystemExit(f"{page} has no {MARKS[0]} and {MARKS[1]} to write between")
    page.write_text(f"{before}{MARKS[0]}\n\n{text}\n{MARKS[1]}{behind}", encoding="utf-8")
