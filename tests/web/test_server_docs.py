"""What the guide to the server says of its settings is so, and how what it shows is compared."""

import re
from pathlib import Path

from onceward.web.settings import Settings, load
from tests.console import blocks, commands, printed
from tests.server_process import ROOT

GUIDE = ROOT / "docs" / "server.md"


def test_the_settings_of_the_guide_are_settings(tmp_path: Path) -> None:
    example = next(text for text in blocks(GUIDE, "toml") if "database" in text)
    (tmp_path / "example.toml").write_text(example)
    settings, _ = load({}, {}, file=str(tmp_path / "example.toml"))
    assert (settings.log, len(settings.keys), len(settings.jwt)) == ("json", 1, 1)
    listed = re.findall(r"^\| `(\w+)` \| .*ONCEWARD_", GUIDE.read_text(), re.MULTILINE)
    assert tuple(listed) == Settings.__struct_fields__


def test_what_is_printed_is_compared_line_by_line() -> None:
    assert printed(["a 1 b", "x", " c "], ["a … b", "c"])
    assert not printed(["c", "a 1 b"], ["a … b", "c"])
    assert not printed(["a 1 b d"], ["a … b"])
    assert commands("$ one \\\n  two\nout\n$ three\n") == [
        ("one \\\n  two", ["out"]),
        ("three", []),
    ]
