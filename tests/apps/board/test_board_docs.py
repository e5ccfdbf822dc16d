"""What the guide and the README say of the board is so."""

import re
from pathlib import Path
from typing import Any

import pytest

from onceward.app import App
from tests.apps.rps.test_game_docs import statements
from tests.console import blocks
from tests.server_process import ROOT

GUIDE = ROOT / "docs" / "board.md"
FOLDER = ROOT / "apps" / "board"


@pytest.mark.parametrize("number", range(2))
def test_the_applications_of_the_guide_can_be_declared(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOARD_SECRET", "s" * 32)
    names: dict[str, Any] = {}
    exec(blocks(GUIDE, "python")[number], names)
    assert isinstance(names["app"], App)
    assert list(names["app"].mounted) == ["/board"]


def test_the_lines_in_the_readme_are_lines_of_the_code() -> None:
    sources = [*FOLDER.glob("*.py"), FOLDER.parent / "demo" / "systems.py"]
    code = {line for path in sources for line in statements(path.read_text())}
    quoted = [
        line for block in blocks(FOLDER / "README.md", "python") for line in statements(block)
    ]
    assert len(quoted) >= 2
    assert [line for line in quoted if line not in code] == []
    scripts = "\n".join(path.read_text() for path in (FOLDER / "page").glob("*.js"))
    lines = [line for block in blocks(FOLDER / "README.md", "js") for line in block.splitlines()]
    assert len(lines) >= 9
    assert [line for line in lines if line.strip() not in scripts] == []


def test_the_keys_of_the_guide_are_keys_of_the_page() -> None:
    hands = (FOLDER / "page" / "hands.js").read_text()
    for key in set(re.findall(r"<kbd>(\w+)</kbd>", GUIDE.read_text())) - {"Ctrl", "Shift", "Z"}:
        assert f'"{key}"' in hands or f'"{key.lower()}"' in hands, key
