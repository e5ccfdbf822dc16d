"""Demonstrations: what they are asked for is checked, and what came of them is told."""

import io
import json
import socket
from pathlib import Path

import pytest
from rich.console import Console

from onceward import cli
from onceward.apps.credit.storm import Course, Plan
from onceward.cli import demo
from onceward.cli.demo import Sight, print_course


@pytest.mark.parametrize(
    "arguments",
    [
        ("--applications", "0"),
        ("--times", "3"),
        ("--lease-s", "-1"),
        ("--pull-leases", "0"),
        ("--failing", "1"),
        ("--concurrency", "2", "--no-keys"),
        ("--database", "sqlite:///x.db"),
    ],
)
def test_a_storm_that_cannot_be_is_refused(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", "credit-storm", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("[bad_request]\n")
    assert arguments[0] in said.err, "it says which option"


def test_a_storm_blows_as_hard_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    blown: list[Plan] = []

    async def blow(plan: Plan, database: str | None, folder: Path, sight: Sight) -> Course:
        blown.append(plan)
        return small(plan)

    monkeypatch.setattr(demo, "_blow", blow)
    cli.main(["demo", "credit-storm", "--json"])
    told = {"concurrency": 2, "pull_leases": 1.5, "failing": 0.2, "lease_s": 0.5, "kills": 1}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in told.items()]
    cli.main(["demo", "credit-storm", "--json", *options])
    assert blown == [Plan(lease_s=1.0), Plan(**told)]


def test_the_demonstration_tells_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for text in ("pull the plug", "--port", "--folder", "--no-traffic", "credit-storm", "Ctrl-C"):
        assert text in said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--port", "http"), 2, "invalid int value: 'http'"),
        (("--port", "70000"), 78, "cannot listen at 127.0.0.1:70000"),
        (("--applications", "0"), 2, "--applications is 1 to 500, not 0"),
        (("--applications", "501"), 2, "--applications is 1 to 500, not 501"),
        (("--folder", "/dev/null/demo"), 78, "--folder cannot be used"),
        (("--host=0.0.0.0",), 2, "unrecognized arguments: --host=0.0.0.0"),
        (("sofa",), 2, "invalid choice: 'sofa'"),
    ],
)
def test_a_demonstration_that_cannot_be_is_refused(
    arguments: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err


def test_a_port_that_is_taken_is_said_to_be_so(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["demo", "--port", str(port)]) == 78
    said = capsys.readouterr().err
    assert said.startswith(f"onceward: cannot listen at 127.0.0.1:{port}")
    assert "make demo PORT=" in said
    assert said.count("\n") == 1


def small(plan: Plan) -> Course:
    """A storm that went well."""
    course = Course(plan, envelopes=3, acknowledged=8, slowest_s=0.12, kills=1, decided=2)
    course.pulled.done, course.pulled.most, course.told.results = 2, 1, 6
    course.accepted, course.repeats, course.causes = 2, 6, {"acknowledged": 6}
    return course


def test_a_storm_is_told_of_for_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def blow(plan: Plan, database: str | None, folder: Path, sight: Sight) -> Course:
        assert (plan.applications, plan.keys, database, folder.is_dir()) == (2, False, None, True)
        return small(plan)

    monkeypatch.setattr(demo, "_blow", blow)
    arguments = ["--no-keys", "--applications", "2", "--times", "4", "--pauses", "0"]
    command = ["demo", "credit-storm", "--json", *arguments]
    assert cli.main([*command, "--kills", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["pulled"]["done"], told["wrong"]) == (2, [])
    assert cli.main([*command, "--kills", "2"]) == 1
    assert json.loads(capsys.readouterr().out)["wrong"] == [
        "only 1 workers were killed and 0 paused"
    ]


def test_a_storm_is_told_of() -> None:
    plan = Plan(applications=2, times=4, kills=1, pauses=0)
    course = small(plan)
    out = Console(file=io.StringIO(), width=100, force_terminal=True, highlight=False)
    with Sight(plan, out) as sight:
        sight.show(course)
    print_course(course, out)
    assert isinstance(out.file, io.StringIO)
    said = out.file.getvalue()
    assert "messages acknowledged" in said
    assert "8/8" in said
    assert "the slowest in 120 ms" in said
    assert "One pull for each application." in said
    course.pulled.most = 2
    print_course(course, out)
    assert "an application was pulled 2 times" in out.file.getvalue()
