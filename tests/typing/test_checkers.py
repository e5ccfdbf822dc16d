"""Type checkers find each mistake in a program, and none in the correct one.

`correct.py` and `mistakes.py` are the same program, but for the lines that are marked. What is
found has to be on such a line, so that its cause is easy to see.
"""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onceward.app import App
from tests.needs import missing, need, need_program
from tests.server_process import ROOT

HERE = Path(__file__).parent
FILES = [str(HERE / f"{name}.py") for name in ("correct", "mistakes")]
MARK = "# mistake: "
Finding = tuple[str, int]


def by_mypy(files: list[str] = FILES) -> set[Finding]:
    need("mypy")
    # Its own configuration, as that of a user, and thus its own cache.
    options = ["--strict", "--config-file=", "--python-version=3.11"]
    cache = f"--cache-dir={ROOT / '.mypy_cache' / 'users'}"
    printed = output([sys.executable, "-m", "mypy", *options, cache, *files])
    assert re.search(r"^(Found \d+ errors? in|Success:)", printed, re.M), printed
    return {
        (Path(found[1]).name, int(found[2]))
        for found in re.finditer(r"^(\S+\.py):(\d+)(?::\d+)?: error:", printed, re.M)
    }


def by_pyright() -> set[Finding]:
    node, program = need_program("node"), ROOT / ".venv-npm/node_modules/pyright/index.js"
    if not program.is_file():
        missing("there is no pyright here: scripts/npm.sh installs it")
    options = ["--outputjson", "--pythonpath", sys.executable]
    printed = output([node, str(program), *options, *FILES])
    report = json.loads(printed)
    assert report["summary"]["filesAnalyzed"] == len(FILES), printed
    # With a wrong decorator, a function has no `enqueue`: that would hide what is wrong with calls.
    assert "reportFunctionMemberAccess" not in printed
    return {
        (Path(found["file"]).name, found["range"]["start"]["line"] + 1)
        for found in report["generalDiagnostics"]
        if found["severity"] != "information"
    }


def output(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode in (0, 1), (done.returncode, done.stdout, done.stderr)
    return done.stdout


def lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines()


@pytest.mark.parametrize("find", [by_mypy, by_pyright])
def test_each_mistake_is_found_on_its_line_and_nothing_else(
    find: Callable[[], set[Finding]],
) -> None:
    planted = {number: line for number, line in enumerate(lines(FILES[1]), 1) if MARK in line}
    assert len(planted) >= 20
    found = find()
    assert {number for file, number in found if file == "correct.py"} == set()
    numbers = {number for file, number in found if file == "mistakes.py"}
    assert [planted[number] for number in sorted(set(planted) - numbers)] == [], "not found"
    assert sorted(numbers - set(planted)) == [], "found elsewhere"


def test_each_mistake_is_found_without_the_others(tmp_path: Path) -> None:
    correct, mistaken = map(lines, FILES)
    alone = {}
    for number, line in enumerate(mistaken):
        if MARK in line:
            path = tmp_path / f"mistake_{number + 1}.py"
            path.write_text("\n".join([*correct[:number], line, *correct[number + 1 :], ""]))
            alone[path.name, number + 1] = line
    found = by_mypy([str(tmp_path / name) for name, _ in alone])
    assert [line for finding, line in alone.items() if finding not in found] == []


def test_the_programs_differ_in_the_marked_lines() -> None:
    correct, mistaken = map(lines, FILES)
    assert len(correct) == len(mistaken)
    for right, wrong in zip(correct[1:], mistaken[1:], strict=True):
        assert (right != wrong) == (MARK in right) == (MARK in wrong), (right, wrong)


def test_the_correct_program_can_be_run() -> None:
    assert isinstance(importlib.import_module("tests.typing.correct").app, App)
