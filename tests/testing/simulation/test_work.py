"""The proof of messages and handlers: worlds without a violation, and planted bugs found."""

import itertools
import sys

import pytest

from onceward.testing.simulation import SimulationFailed, Weather, simulate, simulate_many
from onceward.testing.simulation.work import Work
from tests.testing.simulation.planted_work import PLANTED

SOAK_SEEDS = 10_000


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_in_a_calm_world_all_is_done(mode):
    report = simulate(Work, 1, mode=mode, servers=2, weather=Weather())
    assert report.answers == report.operations


@pytest.mark.simulate
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    bug = PLANTED[name]
    # If nothing is raised, the code under test may have changed its course, and the seed is
    # stale: python -m tests.testing.simulation.planted_work finds another one.
    with bug.plant(), pytest.raises(SimulationFailed) as found:
        simulate(Work, bug.seed)
    assert found.value.kind in bug.kinds


@pytest.mark.simulate
def test_the_same_seed_is_the_same_run():
    assert simulate(Work, 3).digest == simulate(Work, 3).digest


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_many_worlds_have_no_violation(soak):
    if soak:
        summary = simulate_many(Work, range(SOAK_SEEDS), jobs=2, progress=sys.stderr)
        print(f"\n{summary}")
    else:
        # Too few for every fault to happen: that is for the soak to see.
        for seed in itertools.islice(itertools.count(), 12):
            simulate(Work, seed)
