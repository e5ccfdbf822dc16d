"""No command prints the password of a database URL, whatever goes wrong."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward import cli

URL = "postgresql://ann:hush@127.0.0.1:1/app?sslpassword=hush"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONCEWARD_SERVER", "http://127.0.0.1:1")
    monkeypatch.setattr("onceward.cli.calls._PATIENCE_S", 0.0)


def commands(parser: argparse.ArgumentParser, *words: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """All commands, with how many positional arguments each takes."""
    actions = parser._actions
    branches = [one for one in actions if isinstance(one, argparse._SubParsersAction)]
    if not branches:
        yield words, sum(not one.option_strings and one.nargs is None for one in actions)
    for branch in branches:
        for name, inner in branch.choices.items():
            yield from commands(inner, *words, name)


ALL = dict(commands(cli.make_parser().complete_all()))
# They go on for long, or ask nothing of a server.
LONG = {"console"}


def printed(capsys: Capture, *arguments: str) -> str:
    assert cli.main(arguments) != 0
    shown = capsys.readouterr()
    return shown.out + shown.err


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_a_command_refuses_wrong_arguments_without_the_password(
    capsys: Capture, words: tuple[str, ...]
) -> None:
    text = printed(capsys, *words, *[URL] * ALL[words], "--nonsense", URL)
    assert text.startswith("onceward: ")
    assert "hush" not in text


@pytest.mark.parametrize(
    "words", [words for words, count in ALL.items() if count and words[0] not in LONG], ids=" ".join
)
def test_a_command_given_a_database_url_fails_without_the_password(
    capsys: Capture, words: tuple[str, ...]
) -> None:
    assert "hush" not in printed(capsys, *words, *[URL] * ALL[words])


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--database", URL, "--port", "0"),
        ("serve", "--database", "postgresql://ann:x/hush@db/app"),
        ("serve", "--database", "mysql://ann:hush@db/app"),
        ("serve", "--port", URL),
        ("db", "inspect", URL),
        ("work", URL),
    ],
)
def test_errors_name_the_database_without_the_password(
    capsys: Capture, arguments: tuple[str, ...]
) -> None:
    text = printed(capsys, *arguments)
    assert text.count("[") >= 1
    assert "hush" not in text
