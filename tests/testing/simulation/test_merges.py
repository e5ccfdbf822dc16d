"""The proof of debounce keys and batch keys: worlds without a violation, and planted bugs found."""

import pytest

from onceward.testing.simulation import Weather, simulate
from onceward.testing.simulation.merges import Merges
from tests.testing.planted import shows
from tests.testing.simulation.planted_merges import PLANTED
from tests.testing.simulation.worlds import run_worlds

SOAK_SEEDS = 10_000


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_in_a_calm_world_all_is_done(mode):
    report = simulate(Merges, 1, mode=mode, servers=2, weather=Weather())
    assert report.answers == report.operations


@pytest.mark.simulate
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    assert shows(PLANTED[name])


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_many_worlds_have_no_violation(soak):
    run_worlds(Merges, range(8), SOAK_SEEDS if soak else 0)
