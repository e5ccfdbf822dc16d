"""What the guide and the README say of the game is so."""

import re
from pathlib import Path
from typing import Any

import pytest

from onceward.app import App
from tests.apps.rps.test_game_docs import statements
from tests.console import blocks
from tests.server_process import ROOT

FOLDER = ROOT / "apps" / "tictactoe"
GUIDE = ROOT / "docs" / "tictactoe.md"


def test_the_application_of_the_guide_can_be_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(blocks(GUIDE, "python")[0], names)
    app = names["app"]
    assert isinstance(app, App)
    assert list(app.mounted) == ["/tictactoe"]


def test_the_lines_in_the_readme_are_lines_of_the_code() -> None:
    known = {line for path in FOLDER.glob("*.py") for line in statements(path.read_text())}
    quoted = [line for code in blocks(FOLDER / "README.md", "python") for line in statements(code)]
    assert len(quoted) >= 4
    assert [line for line in quoted if line not in known] == []


def test_every_link_leads_somewhere_and_every_file_is_named() -> None:
    links = re.findall(r"\]\((?!http)([^)]+)\)", (FOLDER / "README.md").read_text())
    assert [link for link in links if not (FOLDER / link).exists()] == []
    assert {path.name for path in FOLDER.glob("*.py")} - {"__init__.py"} <= set(links)
