"""The proof of games at tables: many worlds without a violation, and every planted bug found."""

import sys

import pytest

from onceward.testing.simulation import Weather, simulate, simulate_many
from onceward.testing.simulation.games import Playings
from tests.testing.planted import find
from tests.testing.simulation.planted_games import PLANTED

SOAK_SEEDS = 1_500


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_in_a_calm_world_nothing_is_found(mode):
    report = simulate(Playings, 1, mode=mode, servers=2, weather=Weather())
    assert report.answers >= report.operations
    assert report.counts["game lost on time"]


@pytest.mark.simulate
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    # Whatever the course that the code under test takes now: it shows soon.
    bug = PLANTED[name]
    assert find(bug, range(bug.seed, bug.seed + 30)) is not None


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_many_worlds_have_no_violation(soak):
    if soak:
        summary = simulate_many(Playings, range(SOAK_SEEDS), jobs=2, progress=sys.stderr)
        print(f"\n{summary}")
    else:
        assert simulate(Playings, 999).digest == simulate(Playings, 999).digest
        for seed in range(1_000, 1_004):
            simulate(Playings, seed)
