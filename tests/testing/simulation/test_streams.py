"""The proof of streams: worlds without a violation, and planted bugs found."""

import pytest

from onceward.testing.simulation import Weather, simulate
from onceward.testing.simulation.streams import Streams
from tests.testing.planted import shows
from tests.testing.simulation.planted_streams import PLANTED
from tests.testing.simulation.worlds import run_worlds

SOAK_SEEDS = 10_000


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_in_a_calm_world_all_is_done(mode):
    report = simulate(Streams, 1, mode=mode, servers=2, weather=Weather())
    assert report.answers == report.operations


@pytest.mark.simulate
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    assert shows(PLANTED[name])


@pytest.mark.simulate
def test_the_same_seed_is_the_same_run():
    assert simulate(Streams, 3).digest == simulate(Streams, 3).digest


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_many_worlds_have_no_violation(soak):
    run_worlds(Streams, range(4), SOAK_SEEDS if soak else 0)
