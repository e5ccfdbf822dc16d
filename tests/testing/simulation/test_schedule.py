"""The proof of the schedule: many worlds without a violation, and every planted bug found."""

import os
import subprocess
import sys

import pytest

from onceward.testing.simulation import Weather, simulate, simulate_many
from onceward.testing.simulation.schedule import Jobs
from tests.testing.planted import shows
from tests.testing.planted_schedule import PLANTED

SOAK_SEEDS = 10_000
SEEDS = 35  # about 4 s; by count, so that a busy machine misses no kind of fault


@pytest.mark.parametrize(
    ("mode", "servers"), [("local", 1), ("shared", 1), ("shared", 2), ("shared", 5)]
)
def test_in_a_calm_world_nothing_is_found(mode, servers):
    report = simulate(Jobs, 1, mode=mode, servers=servers, weather=Weather())
    assert report.servers == servers
    assert report.answers == report.operations


@pytest.mark.simulate
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    assert shows(PLANTED[name])


@pytest.mark.simulate
@pytest.mark.parametrize("seed", sorted({bug.seed for bug in PLANTED.values()}))
def test_the_product_passes_where_the_planted_bugs_are_found(seed):
    assert simulate(Jobs, seed).digest == simulate(Jobs, seed).digest


@pytest.mark.simulate
def test_two_processes_with_different_hash_seeds_have_the_same_trace():
    def run(hash_seed: str) -> bytes:
        simulate = ["-m", "onceward.testing.simulate", "--scenario", "schedule", "--seed", "7"]
        return subprocess.run(
            [sys.executable, *simulate],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        ).stdout

    one, other = run("1"), run("2")
    assert b"trace " in one
    assert one == other


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_many_worlds_have_no_violation(soak):
    if soak:
        summary = simulate_many(Jobs, range(SOAK_SEEDS), jobs=2, progress=sys.stderr)
    else:
        summary = simulate_many(Jobs, range(SEEDS))
    print(f"\n{summary}")
