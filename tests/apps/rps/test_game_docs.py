"""What the guide and the README say of the game is so."""

import re
from pathlib import Path
from typing import Any

import pytest

from apps.rps import rules
from apps.rps.rules import Wrong
from onceward.app import App
from tests.console import blocks
from tests.quotes import links, statements
from tests.server_process import ROOT

GUIDE = ROOT / "docs" / "rps.md"
FOLDER = ROOT / "apps" / "rps"


@pytest.mark.parametrize("number", range(3))
def test_the_applications_of_the_guide_can_be_declared(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r'environ\["(\w+)"\]', GUIDE.read_text()):
        monkeypatch.setenv(name, "secret")
    names: dict[str, Any] = {}
    applications = [one for one in blocks(GUIDE, "python") if "Game(app" in one]
    exec(applications[number], names)
    app = names["app"]
    assert isinstance(app, App)
    assert list(app.mounted) == ["/rps"]
    paths = [route.path for route in app.mounted["/rps"].routes]
    assert [["/phones"], ["/twilio"], ["/sns"]][number] == paths[:1]


def test_the_commands_of_the_guide_are_commands() -> None:
    rows = re.findall(r"^\| (`.*?) \|", GUIDE.read_text(), re.MULTILINE)
    said = [text for row in rows for text in re.findall(r"`([^`]+)`", row)]
    known = {word for words in rules.COMMANDS.values() for word in words}
    assert {text.split()[0] for text in said} == known
    for text in said:
        if "PLAY" not in text and len(text) > 2:
            assert rules.read(text.replace("NAME", "Ann")) != Wrong(rules.words.unknown(text))


def test_the_lines_in_the_readme_are_lines_of_the_code() -> None:
    sources = [*FOLDER.glob("*.py"), FOLDER.parent / "demo" / "systems.py"]
    code = {line for path in sources for line in statements(path.read_text())}
    quoted = [
        line for block in blocks(FOLDER / "README.md", "python") for line in statements(block)
    ]
    assert len(quoted) >= 11
    assert [line for line in quoted if line not in code] == []


def test_every_file_is_in_the_readme_and_every_link_leads_somewhere() -> None:
    found = links(FOLDER / "README.md")
    assert [link for link in found if not (FOLDER / link).exists()] == []
    modules = {path.name for path in FOLDER.glob("*.py")} - {"__init__.py"}
    assert modules <= set(found)
