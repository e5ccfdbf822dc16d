"""The command `onceward simulate`."""

import argparse
import itertools
import sys
from typing import Any

from onceward.cli.options import read_json
from onceward.cli.parser import Parser
from onceward.errors import BadInput


def fill(parser: Parser) -> None:
    parser.description = (
        "Run an application in simulated worlds with crashes, lost responses, repeated messages "
        "and expired leases, and compare the outcomes with those of runs without faults."
    )
    parser.epilog = "example: onceward simulate shop:app --seconds 60"
    parser.add_argument("app", metavar="MODULE:NAME", help="The App object, as in shop:app")
    add = parser.add_argument
    add("--seeds", type=int, metavar="N", help="Number of seeds [until the time is up]")
    add("--seconds", type=float, metavar="S", help="Stop after this time [60 without --seeds]")
    add("--seed", type=int, metavar="N", help="Run this seed only")
    add("--jobs", metavar="FILE", help="Send these recorded jobs (onceward jobs list --json)")
    help_ = "Ignore lines of outcomes that begin with TEXT"
    add("--ignore", action="append", default=[], metavar="TEXT", help=help_)
    help_ = "Send events to jobs that wait for them [repeatable]"
    add("--event", action="append", default=[], metavar="NAME=JSON", help=help_)
    add("--write-test", metavar="FILE", help="Write a test that fails as the simulation does")
    parser.set_defaults(run=run)


def read_events(given: list[str]) -> dict[str, list[Any]]:
    """The values of events, from `NAME=JSON`. Raises `BadInput`."""
    found: dict[str, list[Any]] = {}
    for text in given:
        name, is_, value = text.partition("=")
        if not is_ or not name:
            raise BadInput(f"--event is {text!r}; use NAME=JSON, as in --event approval=true")
        found.setdefault(name, []).append(read_json(value, "--event"))
    return found


def run(arguments: argparse.Namespace) -> int:
    """Run it; returns the exit code: 1 if a run differs."""
    # Loaded here: commands for servers do not need it.
    from onceward.testing import proof

    sys.path.insert(0, "")
    messages = proof.read_jobs(arguments.jobs) if arguments.jobs else ()
    options = {"ignore": arguments.ignore, "events": read_events(arguments.event)}
    made = proof.Proof(arguments.app, messages=messages, **options)
    seconds = arguments.seconds
    if arguments.seed is not None:
        seeds = iter([arguments.seed])
    elif arguments.seeds is not None:
        seeds = iter(range(arguments.seeds))
    else:
        seeds, seconds = itertools.count(), 60.0 if seconds is None else seconds
    progress = sys.stderr if sys.stderr.isatty() else None
    try:
        totals = proof.prove(made, seeds, seconds=seconds, progress=progress)
    except proof.Difference as found:
        print(found)
        if arguments.write_test:
            proof.write_test(made, found, arguments.write_test)
            print(f"wrote {arguments.write_test}")
        return 1
    except proof.SimulationFailed as failed:
        print(failed)
        return 1
    print(f"{totals}, {totals.runs / max(totals.real_s, 0.001):.1f} seeds per second")
    return 0
