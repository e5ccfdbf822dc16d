"""The program of the repository that runs all benchmarks, as far as nothing is measured."""

import subprocess
import sys
from pathlib import Path

from benchmarks.figures import FORMAT, Case, Machine, Report, Run, Side, load, save

ROOT = Path(__file__).parent.parent.parent


def report(*cases: Case) -> Report:
    return Report(FORMAT, Machine(cores=2), list(cases))


def case(id_: str, rate: float) -> Case:
    return Case(id_, id_, sides=[Side("onceward", runs=[Run(per_second=rate)] * 5)])


def test_a_page_of_saved_figures_keeps_the_cases_it_had(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    save(report(case("old", 7), case("both", 8)), tmp_path / "page" / "results.json")
    save(report(case("both", 9), case("new", 10)), tmp_path / "new.json")
    command = [sys.executable, "-m", "benchmarks", "--of", str(tmp_path / "new.json")]
    subprocess.run(
        [*command, "--page", str(tmp_path / "page.md")],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        check=True,
        timeout=50,
    )
    kept = load(tmp_path / "page" / "results.json")
    found = [(case.id, case.sides[0].median("per_second")) for case in kept.cases]
    assert found == [("old", 7), ("both", 9), ("new", 10)]
    text = (tmp_path / "page.md").read_text()
    for name in ("old", "both", "new"):
        assert f"(page/{name}.svg)" in text
        assert (tmp_path / "page" / f"{name}.svg").exists()
