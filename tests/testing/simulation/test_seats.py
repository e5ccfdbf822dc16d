"""The proof of tables: many worlds without a violation, and every planted bug found."""

import pytest

from onceward.testing.simulation import Weather, simulate
from onceward.testing.simulation.seats import Seatings
from tests.testing.planted import shows
from tests.testing.simulation.planted_seats import PLANTED
from tests.testing.simulation.worlds import run_worlds

SOAK_SEEDS = 5_000


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_in_a_calm_world_nothing_is_found(mode):
    report = simulate(Seatings, 1, mode=mode, servers=2, weather=Weather())
    assert report.answers >= report.operations
    assert report.counts["seated from the line"]


@pytest.mark.simulate
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    assert shows(PLANTED[name])


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_many_worlds_have_no_violation(soak):
    if not soak:
        assert simulate(Seatings, 999).digest == simulate(Seatings, 999).digest
    run_worlds(Seatings, range(1_000, 1_006), SOAK_SEEDS if soak else 0)
