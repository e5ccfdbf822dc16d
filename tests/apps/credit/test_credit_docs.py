"""What the guide and the README say of credit intake is so."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from apps.credit import decision
from apps.credit.__main__ import _parser as credit_parser
from apps.credit.bureau import Ask
from apps.credit.credit import KINDS
from apps.credit.decision import decide, read_report
from apps.credit.salesforce import Result
from apps.credit.settings import PREFIX, Settings
from onceward.cli import make_parser
from tests.console import blocks, commands
from tests.quotes import links, statements
from tests.server_process import ROOT

GUIDE = ROOT / "docs" / "credit.md"
FOLDER = ROOT / "apps" / "credit"


def test_what_goes_out_and_comes_back_has_the_form_that_the_guide_shows() -> None:
    asked, report, told = blocks(GUIDE, "json")
    ask = msgspec.json.decode(asked, type=Ask)
    assert ask.reference == ask.applicant["Id"]
    decided = decide(read_report(report.encode()))
    result = msgspec.json.decode(told, type=Result)
    assert msgspec.convert(result.value, decision.Decision).outcome == "review"
    assert decided.outcome == "approved"
    assert [f"| `{kind}` |" in GUIDE.read_text() for kind in KINDS] == [True] * 3


def test_the_rules_of_the_guide_are_those_that_decide() -> None:
    text = " ".join(GUIDE.read_text().split())
    for words in (
        f"a score under {decision.SCORE_LEAST} or",
        f"more than {decision.LATE_DAYS_MOST} days late",
        f"a score under {decision.SCORE_GOOD},",
        f"more than {decision.DEBT_SHARE_MOST * 100:.0f} % of all limits",
    ):
        assert words in text


def test_every_setting_is_in_the_guide_and_no_other() -> None:
    named = set(re.findall(rf"`({PREFIX}[A-Z_]+)`", GUIDE.read_text()))
    assert named == {f"{PREFIX}{name.upper()}" for name in Settings.__struct_fields__}


def typed(path: Path) -> Iterator[list[str]]:
    """The commands of ours in a guide, as they are typed."""
    for block in blocks(path, "console"):
        for command, _ in commands(block):
            words = shlex.split(command.replace("\\\n", " "), comments=True)
            if words[0] == "onceward" or words[:3] == ["python", "-m", "apps.credit"]:
                yield [word for word in words if word != "&"]


def test_the_commands_of_the_guide_are_understood() -> None:
    ours = [words[1:] for words in typed(GUIDE) if words[0] == "onceward"]
    app = [words[3:] for words in typed(GUIDE) if words[0] == "python"]
    for parser, found in ((make_parser(), ours), (credit_parser(), app)):
        for words in found:
            parser.parse_args(words)
        with pytest.raises(SystemExit):
            parser.parse_args([*found[0], "--no-such-option"])
    assert {words[0] for words in ours} == {"serve", "queues"}
    assert {words[0] for words in app} == {"storm", "show", "settle", "pull-again", "senders"}


def test_the_lines_in_the_readme_are_lines_of_the_code() -> None:
    code = {line for path in FOLDER.glob("*.py") for line in statements(path.read_text())}
    readme = FOLDER / "README.md"
    quoted = [line for block in blocks(readme, "python") for line in statements(block)]
    assert len(quoted) >= 15
    assert [line for line in quoted if line not in code] == []


def test_every_file_is_in_the_readme_and_every_link_leads_somewhere() -> None:
    found = links(FOLDER / "README.md")
    assert [link for link in found if not (FOLDER / link).exists()] == []
    modules = {path.name for path in FOLDER.glob("*.py")} - {"__init__.py"}
    assert modules <= set(found)
