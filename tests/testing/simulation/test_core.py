"""The proof of the core: many worlds without a violation, and every planted bug found."""

import sys

import pytest

from onceward.testing.simulation import Weather, simulate, simulate_many
from onceward.testing.simulation.core import Core
from tests.testing.planted import PLANTED, shows

SEEDS, SOAK_SEEDS = 100, 25_000


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_in_a_calm_world_nothing_is_found(mode):
    report = simulate(Core, 1, mode=mode, servers=2, weather=Weather())
    assert report.answers == report.operations


@pytest.mark.simulate
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    # If not, python -m tests.testing.planted finds other seeds.
    assert shows(PLANTED[name])


@pytest.mark.simulate
@pytest.mark.parametrize("seed", sorted({bug.seed for bug in PLANTED.values()}))
def test_the_product_passes_where_the_planted_bugs_are_found(seed):
    assert simulate(Core, seed).digest == simulate(Core, seed).digest


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_many_worlds_have_no_violation(soak):
    if soak:
        summary = simulate_many(Core, range(SOAK_SEEDS), jobs=2, progress=sys.stderr)
    else:
        summary = simulate_many(Core, range(SEEDS))
    print(f"\n{summary}")
