import json
import os
from pathlib import Path

import pytest

from benchmarks import local
from benchmarks.figures import load

TINY = ("--seconds", "0.05", "--rounds", "1", "--quiet")
Capture = pytest.CaptureFixture[str]


def run(folder: Path, *arguments: str) -> int:
    return local.main(
        [*TINY, "--folder", str(folder), "--save", str(folder / "b.json"), *arguments]
    )


def test_the_command_explains_itself(capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        local.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "example: python -m benchmarks.local " in text
    for name in ("accept", "work", "ordered", "lock", "contend", "timers"):
        assert name in text


def test_a_tiny_run_measures_every_case_and_leaves_nothing_behind(
    tmp_path: Path, capsys: Capture
) -> None:
    assert run(tmp_path, "--callers", "3", "--page", str(tmp_path / "page.md")) == 0
    shown = capsys.readouterr().out
    report = load(tmp_path / "b.json")
    ids = [case.id for case in report.cases]
    assert ids == ["limits", "accept-3", "work-3", "ordered-3", "lock-3", "contend-3", "timers"]
    for case in report.cases:
        for side in case.sides:
            assert len(side.good()) == 1, side.runs
            assert side.durable
        assert case.title.split(",")[0] in shown
    assert "fewer than 5 runs" in shown
    assert f"saved to {tmp_path / 'b.json'}" in shown
    assert "accept-3.svg" in (tmp_path / "page.md").read_text()
    assert sorted(os.listdir(tmp_path)) == ["b.json", "page", "page.md"]


def test_one_caller_is_compared_with_the_disk(tmp_path: Path, capsys: Capture) -> None:
    assert run(tmp_path, "--cases", "accept", "--callers", "1", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [case["id"] for case in document["cases"]] == ["limits", "accept-1"]
    report = load(tmp_path / "b.json")
    share = report.share_of_limit(report.cases[1])
    assert share is not None
    assert share > 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--cases", "accept,speed"), "unknown case 'speed'"),
        (("--seconds", "0"), "--seconds must be a number above 0"),
        (("--seconds", "nan"), "--seconds must be a number above 0"),
        (("--seconds", "soon"), "not 'soon'"),
        (("--rounds", "1.5"), "--rounds must be a whole number above 0"),
        (("--rounds", "1000"), "at most 100"),
        (("--callers", "1,-2"), "--callers must be a whole number"),
        (("--callers", ""), "--callers must be a whole number"),
        (("--callers", "1000000"), "at most 1000"),
        (("--folder", "/no/such"), "cannot measure in /no/such: No such file"),
        (("--save", "/no/such/b.json"), "the folder of the figures, /no/such, does not exist"),
        (("--page", "/no/such/b.md"), "the folder of the page, /no/such, does not exist"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: Capture, arguments: tuple[str, ...], told: str
) -> None:
    assert run(tmp_path, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert told in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_holds_something_else_is_not_overwritten(
    tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "b.json").write_text("precious")
    assert run(tmp_path) == 2
    assert "choose another file" in capsys.readouterr().err
    assert (tmp_path / "b.json").read_text() == "precious"


def test_a_case_that_fails_is_told_and_the_others_are_measured(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.ours import Onceward

    async def broken(self: Onceward, name: str) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(Onceward, "accept", broken)
    assert run(tmp_path, "--cases", "accept,lock", "--callers", "1") == 1
    captured = capsys.readouterr()
    assert "these did not run: accept, 1 caller" in captured.err
    assert "the disk is full" in captured.out
    report = load(tmp_path / "b.json")
    assert [len(case.sides[0].good()) for case in report.cases[1:]] == [0, 1]
