"""A run that shows too little fails, and what it shows is kept and put on the page."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.chaos import report
from tests.chaos.auditor import Violation
from tests.chaos.faults import POSTGRES, SQLITE
from tests.chaos.minimum import OPERATIONS, shortcomings
from tests.chaos.storm import Outcome, Plan

PLAN = Plan("sqlite", 7, 45.0, 1.0, 0.1, 60.0)


def outcome(engine: str = "sqlite") -> Outcome:
    """One of a short run that shows enough."""
    kinds = SQLITE if engine == "sqlite" else POSTGRES
    plan = PLAN if engine == "sqlite" else Plan("postgres", 8, 45.0, 1.0, 0.1, 60.0)
    return Outcome(
        plan,
        seconds=45.2,
        drained_s=3.1,
        faults=dict.fromkeys(kinds, 1),
        operations={name: counts[0] for name, counts in OPERATIONS.items()},
        troubles={"engine_unreachable": 4},
    )


def too_few(run: Outcome, *, soak: bool = False) -> list[str]:
    return shortcomings(run.faults, run.operations, run.left_out, soak=soak)


def test_enough_is_enough_and_a_long_run_takes_more() -> None:
    assert too_few(outcome()) == []
    assert len(too_few(outcome(), soak=True)) == len(SQLITE) + len(OPERATIONS)


def test_a_fault_or_an_operation_that_never_happened_is_too_few() -> None:
    run = outcome()
    run.faults["disk full"] = 0
    del run.operations["games"]
    assert too_few(run) == [
        "0 times disk full, which is less than 1",
        "0 games, which is less than 1",
    ]


def test_where_no_disk_can_be_full_nothing_has_to_fill_it() -> None:
    run = outcome()
    del run.faults["disk full"]
    run.left_out = ["disk full"]
    run.operations["large messages"] = 0
    assert too_few(run) == []
    assert "left out: disk full" in report.text(_document(run))


def test_what_is_printed_has_the_seed_all_counts_and_all_that_is_wrong() -> None:
    run = outcome()
    run.faults["server killed"] = 0
    run.violations = [Violation("lost message", "m is gone")]
    text = report.text(_document(run))
    assert "seed 7, 45.2 s of faults" in text
    assert "VIOLATION: lost message: m is gone" in text
    assert "TOO FEW: 0 times server killed" in text
    for name in (*run.faults, *run.operations):
        assert name in text


def test_the_page_has_a_column_for_each_engine(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{report.BEGIN}\nold\n{report.END}\n\nafter\n")
    for engine in ("sqlite", "postgres"):
        report.save(outcome(engine), tmp_path)
    report.write_page(page, tmp_path)
    once = page.read_text()
    report.write_page(page, tmp_path)
    assert page.read_text() == once
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert "old" not in once
    assert "| | SQLite, one server | PostgreSQL, three nodes |" in once
    assert "| PostgreSQL crashed | – | 1 |" in once
    assert "| server killed | 1 | 1 |" in once
    assert "| **violations** | **0** | **0** |" in once


def test_a_page_without_a_place_for_it_and_a_folder_without_runs_are_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="there is nothing"):
        report.write_page(page, tmp_path)
    report.save(outcome(), tmp_path)
    with pytest.raises(ValueError, match="no place"):
        report.write_page(page, tmp_path)
    assert page.read_text() == "nothing"


def test_the_real_page_has_its_place() -> None:
    text = report.PAGE.read_text()
    assert text.count(report.BEGIN) == text.count(report.END) == 1


def _document(run: Outcome) -> dict[str, Any]:
    """What is saved of a run."""
    with TemporaryDirectory() as folder:
        report.save(run, Path(folder))
        found: dict[str, Any] = json.loads((Path(folder) / "sqlite.json").read_text())
    return found
