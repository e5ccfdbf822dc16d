"""The module map is up to date, and every module has a summary that fits into it."""

from pathlib import Path

from scripts import modules
from tests.docs.book import ROOT

WORDS_MAX = 20


def test_the_module_map_is_up_to_date() -> None:
    assert modules.PAGE.read_text(encoding="utf-8") == modules.page(), "run `make modules`"


def test_the_module_map_changes_with_a_docstring(tmp_path: Path) -> None:
    package = tmp_path / "onceward"
    package.mkdir()
    (package / "__init__.py").write_text('"""The package."""\n')
    (package / "clock.py").write_text('"""The clock.\n\nMore.\n"""\n')
    before = modules.page(package)
    assert before.endswith(
        "The package.\n\n| module | contents |\n|---|---|\n| `clock.py` | The clock. |\n"
    )
    (package / "clock.py").write_text('"""Time."""\n')
    assert modules.page(package) == before.replace("The clock.", "Time.")


def test_every_module_begins_with_a_summary_of_at_most_20_words() -> None:
    lines = {path: modules.summary(path) for path in (ROOT / "onceward").rglob("*.py")}
    assert len(lines) > 300
    bad = {
        path.relative_to(ROOT).as_posix(): line
        for path, line in lines.items()
        if not line.endswith(".") or len(line.split()) > WORDS_MAX
    }
    assert not bad
