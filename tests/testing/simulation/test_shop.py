"""The proof of SQL outboxes and SQL steps: worlds without a violation, and planted bugs found."""

import pytest

from onceward.testing.simulation import Weather, simulate
from onceward.testing.simulation.shop import Shop
from tests.testing.planted import shows
from tests.testing.simulation.planted_shop import PLANTED
from tests.testing.simulation.worlds import run_worlds

SOAK_SEEDS = 10_000


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_in_a_calm_world_all_is_done(mode):
    simulate(Shop, 1, mode=mode, servers=2, weather=Weather())


@pytest.mark.simulate
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    assert shows(PLANTED[name])


@pytest.mark.simulate
def test_the_same_seed_is_the_same_run():
    assert simulate(Shop, 3).digest == simulate(Shop, 3).digest


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_many_worlds_have_no_violation(soak):
    run_worlds(Shop, range(8), SOAK_SEEDS if soak else 0)
