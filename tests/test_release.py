import json
import re
from pathlib import Path

import pytest

import onceward
from scripts.release import problems

ROOT = Path(__file__).parents[1]
STAGES = {"a": "alpha", "b": "beta", "rc": "rc"}
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.0] - 2027-01-31\n"
README = "[docs](https://example.com/docs), [below](#below)"
PROJECT = '[project]\nname = "x"\nurls = { Source = "https://example.com" }\n'


def semantic(version: str) -> str:
    """A version of Python as npm writes it: 0.1.0a1 is 0.1.0-alpha.1."""
    return re.sub(r"(a|b|rc)(\d+)$", lambda m: f"-{STAGES[m[1]]}.{m[2]}", version)


def test_the_npm_package_has_the_version_of_the_python_package() -> None:
    manifest = json.loads((ROOT / "clients" / "js" / "package.json").read_text())
    assert manifest["version"] == semantic(onceward.__version__)


def test_the_changelog_has_a_section_for_the_version() -> None:
    sections = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[:2] == ["Unreleased", onceward.__version__]


def test_workflows_pin_actions_by_commit() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for used in re.findall(r"uses: (.+)", path.read_text()):
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used), used


def test_a_release_that_is_ready_has_no_problems() -> None:
    assert list(problems("v1.0", "1.0", CHANGELOG, README, PROJECT)) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tag": "v1.1"}, "the tag is v1.1"),
        ({"changelog": "## [Unreleased]"}, "no section [1.0]"),
        ({"changelog": "## [1.0] - soon"}, "is 'soon'"),
        ({"project": "[project]\n"}, "no [project.urls]"),
        ({"readme": "[docs](docs/index.md)"}, "README.md links to docs/index.md"),
        ({"readme": '<img src="docs/demo.png">'}, "README.md links to docs/demo.png"),
    ],
)
def test_a_release_with_a_problem_is_reported(change: dict[str, str], problem: str) -> None:
    given = {
        "tag": "v1.0",
        "version": "1.0",
        "changelog": CHANGELOG,
        "readme": README,
        "project": PROJECT,
    }
    (found,) = problems(**(given | change))
    assert problem in found
