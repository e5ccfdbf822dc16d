"""What the guide and the README say about the server works as it stands."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.web.settings import Settings, load
from tests.console import Console, blocks, commands, printed
from tests.server_process import ROOT, environment, free_port

pytestmark = pytest.mark.timeout(300)  # for many processes on a busy machine

GUIDE = ROOT / "docs" / "server.md"
README = ROOT / "README.md"


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def console(tmp_path: Path, port: int) -> Iterator[Console]:
    """A shell in which commands find the server, and the server its port."""
    bin_ = Path(sys.executable).parent
    settings = {
        **environment(),
        "ONCEWARD_PORT": str(port),
        "ONCEWARD_SERVER": f"http://localhost:{port}",
    }
    settings["PATH"] = f"{bin_}:{settings['PATH']}"
    with Console(tmp_path, settings) as console:
        yield console


def here(text: str, port: int) -> str:
    return text.replace("8080", str(port))


def test_every_command_of_the_guide_works_as_it_stands(console: Console, port: int) -> None:
    shown: list[str] = []
    tried = 0
    for block in blocks(GUIDE, "console"):
        for command, said in commands(block):
            if command.startswith("pip install"):
                continue
            if command.startswith("onceward serve"):
                shown = console.start(here(command, port), "Ctrl-C stops it")
            elif command.startswith("ID="):
                [job] = json.loads(shown[0])["jobs"]
                shown = console.run(f"ID={job['id']} TOKEN={job['token']}")
            else:
                shown = console.run(here(command, port))
            assert printed(shown, [here(line, port) for line in said if line]), (command, shown)
            tried += 1
    assert tried > 15
    working, mounted, _ = blocks(GUIDE, "python")
    script = subprocess.run(
        [sys.executable, "-c", here(working, port)],
        capture_output=True,
        text=True,
        timeout=50,
        env=environment(),
    )
    assert script.stderr == ""
    assert script.stdout.splitlines() == ["done lamp shipped", "token 1"]
    assert mounted in (ROOT / "examples" / "mounted.py").read_text()


def test_the_commands_of_the_readme_work_as_they_stand(console: Console, port: int) -> None:
    for title in ("Over HTTP", "On time"):
        section = README.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
        [block] = re.findall(r"^```console\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
        for command, said in commands(block):
            if command.startswith("onceward serve"):
                console.start(here(command.removesuffix(" &"), port), "Ctrl-C stops it")
            else:
                shown = console.run(here(command, port))
                assert printed(shown, said), (command, shown)


def test_the_settings_of_the_guide_are_settings(tmp_path: Path) -> None:
    [example] = blocks(GUIDE, "toml")
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
