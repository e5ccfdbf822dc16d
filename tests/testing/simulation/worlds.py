"""Runs a scenario in many worlds."""

import sys
from collections.abc import Iterable

from onceward.testing.simulation import Scenario, simulate, simulate_many


def run_worlds(scenario: type[Scenario], seeds: Iterable[int], soak_seeds: int) -> None:
    """Run those of some seeds; or if there are so many for a long run, all of them, and see that
    each kind of fault has happened: for that a few are too few."""
    if soak_seeds:
        print(f"\n{simulate_many(scenario, range(soak_seeds), jobs=2, progress=sys.stderr)}")
    else:
        for seed in seeds:
            simulate(scenario, seed)
