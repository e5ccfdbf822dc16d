from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.figures import FORMAT, Case, Machine, Report, Run, Side
from benchmarks.page import text, write
from onceward.errors import BadInput


def side(name: str, rate: float, ahead: str = "", runs: int = 5) -> Side:
    return Side(name, f"{name} syncs", ahead, [Run(rate, 1, 2, 3, mib=50)] * runs)


def report(*cases: Case) -> Report:
    return Report(FORMAT, Machine(2, 1024, "3.11", "Linux", [0.1, 0.2], {"huey": "3"}), list(cases))


CASE = Case(
    "work-100",
    "work, 100 callers",
    "accept a job",
    "work",
    made="2026-11-16",
    seconds=2,
    sides=[
        side("onceward", 100),
        side("quick", 250, "It keeps | nothing."),
        side("slow", 50),
        Side("absent", "absent syncs", runs=[Run(failed="it is not installed")]),
    ],
)
SIZED = [
    Case(f"waiting-{size}", f"{size:,} wait", "beside others", "waiting", size=size, sides=[s])
    for size, s in ((1_000, side("onceward", 9)), (10_000, side("onceward", 8)))
]


def test_those_who_are_ahead_stand_first_with_the_reason() -> None:
    page = text(report(CASE), "plots")
    head, _, rest = page.partition("## How it was measured")
    assert "| work, 100 callers | quick | 2.50 | It keeps \\| nothing. |" in head
    assert "| slow |" not in head
    assert "absent: it is not installed" in head
    assert "| slow | 50.00 | 1.00 | 2.00 | 3.0 |  | 50 | 2.00 × | 5 |" in rest
    assert "- **quick**: quick syncs" in rest
    assert "Measured on 2026-11-16, 2 s a run." in rest


def test_a_reason_that_is_not_known_is_not_made_up() -> None:
    case = Case("c", "c", sides=[side("onceward", 1), side("quick", 2)])
    assert "| c | quick | 2.00 | Unknown. |" in text(report(case), "plots")


def test_nobody_ahead_is_said_so() -> None:
    case = Case("c", "c", sides=[side("onceward", 2), side("slow", 1)])
    assert "No other side is ahead" in text(report(case), "plots")


def test_too_few_runs_are_marked() -> None:
    case = Case("c", "c", sides=[side("onceward", 2, runs=3)])
    assert "| only 3 |" in text(report(case), "plots")


def test_sizes_share_one_plot(tmp_path: Path) -> None:
    written = write(report(*SIZED), tmp_path / "benchmarks.md")
    assert [path.name for path in written] == ["benchmarks.md", "waiting.svg"]
    page = written[0].read_text()
    assert page.count("![") == 1
    assert "### 1,000 wait" in page


def test_the_page_shows_exactly_the_plots_that_are_written(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "gone.svg").write_text("old")
    (tmp_path / "benchmarks" / "results.json").write_text("{}")
    write(report(CASE, *SIZED), page)
    plots = {path.name for path in (tmp_path / "benchmarks").glob("*.svg")}
    assert plots == {"work-100.svg", "waiting.svg"}
    assert (tmp_path / "benchmarks" / "results.json").exists()
    for name in plots:
        assert f"(benchmarks/{name})" in page.read_text()
        ElementTree.parse(tmp_path / "benchmarks" / name)


def test_written_again_it_is_the_same(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    write(report(CASE, *SIZED), page)
    before = page.read_bytes()
    write(report(CASE, *SIZED), page)
    assert page.read_bytes() == before


def test_a_page_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot write"):
        write(report(CASE), tmp_path / "file" / "benchmarks.md")
