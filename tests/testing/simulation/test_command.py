import os
import re
import subprocess
import sys

import pytest

from onceward.testing.simulation.command import SCENARIOS, main

TOY = "tests.testing.simulation.toy"


def test_one_seed_can_be_replayed_with_its_trace(capsys):
    replay = ["--scenario", f"{TOY}:Greeting", "--seed", "4", "--mode", "shared"]
    assert main(replay) == 0
    short = capsys.readouterr().out
    assert re.fullmatch(
        r"seed 4 \(shared, \d servers\): 12 operations in .* trace [0-9a-f]{32}\n", short
    )
    assert main([*replay, "--trace"]) == 0
    assert "asks" in capsys.readouterr().out


def test_many_seeds_end_with_counts(capsys):
    assert main(["--scenario", f"{TOY}:Greeting", "--seeds", "60", "--first", "100"]) == 0
    said = capsys.readouterr()
    assert "60  runs" in said.out
    assert "crash before applying" in said.out
    assert "runs per second" in said.out
    assert "60 runs, " in said.err


def test_a_violation_is_told_with_its_replay_and_exit_code_1(capsys):
    assert main(["--scenario", f"{TOY}:Forgetful", "--seeds", "200"]) == 1
    said = capsys.readouterr().out
    [command] = re.findall(r"or: python -m onceward.testing.simulate (.*)", said)
    assert main(command.split()) == 1
    assert "miscounted" in capsys.readouterr().out


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_scenarios_of_the_project_have_short_names(name, capsys):
    assert main(["--scenario", name, "--seed", "1", "--mode", "local"]) == 0
    assert "seed 1 (local, 1 servers)" in capsys.readouterr().out


def test_what_is_no_scenario_is_refused():
    with pytest.raises(SystemExit, match="not a Scenario"):
        main(["--scenario", "onceward.testing.simulation.command:main"])


def test_two_processes_with_different_hash_seeds_have_the_same_trace():
    def run(hash_seed: str) -> bytes:
        return subprocess.run(
            [sys.executable, "-m", "onceward.testing.simulate", "--seed", "12"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        ).stdout

    one, other = run("1"), run("2")
    assert b"trace " in one
    assert one == other
