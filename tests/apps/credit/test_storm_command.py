"""The command line of the storm: options, and how results are shown."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from apps.credit import __main__ as program
from apps.credit.__main__ import main
from apps.credit.storm import Course, Plan
from apps.credit.storm_display import Sight, print_course


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
    assert main(["storm", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("[bad_request]\n")
    assert arguments[0] in said.err, "it says which option"


def test_a_storm_blows_as_hard_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    blown: list[Plan] = []

    async def blow(plan: Plan, database: str | None, folder: Path, sight: Sight) -> Course:
        blown.append(plan)
        return small(plan)

    monkeypatch.setattr(program, "_blow", blow)
    main(["storm", "--json"])
    told = {"concurrency": 2, "pull_leases": 1.5, "failing": 0.2, "lease_s": 0.5, "kills": 1}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in told.items()]
    main(["storm", "--json", *options])
    assert blown == [Plan(lease_s=1.0), Plan(**told)]


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

    monkeypatch.setattr(program, "_blow", blow)
    arguments = ["--no-keys", "--applications", "2", "--times", "4", "--pauses", "0"]
    command = ["storm", "--json", *arguments]
    assert main([*command, "--kills", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["pulled"]["done"], told["wrong"]) == (2, [])
    assert main([*command, "--kills", "2"]) == 1
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
