"""The proof of games at tables: many worlds without a violation, and every planted bug found."""

import pytest

from onceward.testing.simulation import Weather, simulate
from onceward.testing.simulation.games import Playings
from tests.testing.planted import shows
from tests.testing.simulation.planted_games import PLANTED
from tests.testing.simulation.worlds import run_worlds

SOAK_SEEDS = 1_500


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_in_a_calm_world_nothing_is_found(mode):
    report = simulate(Playings, 4, mode=mode, servers=2, weather=Weather())
    assert report.answers >= report.operations
    assert report.counts["game lost on time"]


@pytest.mark.simulate
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    assert shows(PLANTED[name])


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_many_worlds_have_no_violation(soak):
    if not soak:
        assert simulate(Playings, 999).digest == simulate(Playings, 999).digest
    run_worlds(Playings, range(1_000, 1_004), SOAK_SEEDS if soak else 0)
