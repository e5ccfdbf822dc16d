"""The proof of recurring timers: worlds without a violation, and planted bugs found."""

import pytest

from onceward.testing.simulation import Weather, simulate
from onceward.testing.simulation.recurring import Recurring
from tests.testing.planted import shows
from tests.testing.simulation.planted_recurring import PLANTED
from tests.testing.simulation.worlds import run_worlds

SOAK_SEEDS = 2_000


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_in_a_calm_world_all_is_answered(mode):
    report = simulate(Recurring, 1, mode=mode, servers=2, weather=Weather())
    assert report.answers == report.operations


@pytest.mark.simulate
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    assert shows(PLANTED[name])


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_many_worlds_have_no_violation(soak):
    run_worlds(Recurring, range(4), SOAK_SEEDS if soak else 0)
