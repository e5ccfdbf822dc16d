"""The command line of the simulator."""

import argparse
import importlib
import itertools
import sys
from collections.abc import Sequence

from onceward.testing.simulation.run import SimulationFailed, simulate, simulate_many
from onceward.testing.simulation.scenario import Scenario

SCENARIOS = {
    "core": "onceward.testing.simulation.core:Core",
    "schedule": "onceward.testing.simulation.schedule:Jobs",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 1 after a violation."""
    options = _parser().parse_args(arguments)
    scenario = _scenario(options.scenario)
    out = sys.stdout
    try:
        if options.seed is not None:
            report = simulate(scenario, options.seed, mode=options.mode, servers=options.servers)
            if options.trace:
                out.write("\n".join(report.trace) + "\n")
            out.write(
                f"seed {report.seed} ({report.mode}, {report.servers} servers): "
                f"{report.operations} operations in {report.virtual_s:.1f} virtual seconds, "
                f"trace {report.digest}\n"
            )
            return 0
        seeds = itertools.count(options.first)
        chosen = seeds if options.seeds is None else itertools.islice(seeds, options.seeds)
        summary = simulate_many(
            scenario, chosen, seconds=options.seconds, jobs=options.jobs, progress=sys.stderr
        )
        out.write(f"{summary}\n{summary.runs / summary.real_s:,.1f} runs per second\n")
    except SimulationFailed as failed:
        out.write(f"\n{failed}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m onceward.testing.simulate",
        description="Run whole nodes with faults from a seed, and check their guarantees.",
    )
    parser.add_argument(
        "--scenario", default="core", help="core, schedule or module:Class (default: core)"
    )
    many = parser.add_argument_group("many runs")
    many.add_argument("--seeds", type=int, help="number of seeds [until the time is up]")
    many.add_argument("--first", type=int, default=0, help="first seed [0]")
    many.add_argument("--seconds", type=float, help="stop after this time")
    many.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    one = parser.add_argument_group("one run")
    one.add_argument("--seed", type=int, help="replay this seed")
    one.add_argument("--mode", choices=("shared", "local"), help="mode [drawn from the seed]")
    one.add_argument("--servers", type=int, help="number of servers [drawn from the seed]")
    one.add_argument("--trace", action="store_true", help="show every event")
    return parser


def _scenario(place: str) -> type[Scenario]:
    module, _, name = SCENARIOS.get(place, place).partition(":")
    found = getattr(importlib.import_module(module), name, None)
    if not (isinstance(found, type) and issubclass(found, Scenario)):
        raise SystemExit(f"{place} is not a Scenario; use module:Class")
    return found
