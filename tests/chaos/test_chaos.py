"""All parts at once under load while everything fails: nothing that was acknowledged is lost, and
nothing takes effect twice."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import report
from tests.chaos.storm import Plan, Storm, show_logs
from tests.chaos.world import Engine

SOAK = os.environ.get("ONCEWARD_SOAK") == "1"
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(2_700 if SOAK else 900)]

SHORT = {"seconds": 0.0, "fault_pause_s": 0.25, "pause_s": 0.5, "patience_s": 600.0}
LONG = {"seconds": 1_080.0, "fault_pause_s": 1.2, "pause_s": 0.12, "patience_s": 600.0}
# To see the same faults again, and to see fewer or more of them.
SEED, SECONDS = "ONCEWARD_CHAOS_SEED", "ONCEWARD_CHAOS_SECONDS"


def plan(engine: Engine, soak: bool) -> Plan:
    seed = int(os.environ.get(SEED, random.randrange(1 << 32)))
    settings = LONG if soak else SHORT
    seconds = float(os.environ.get(SECONDS, settings["seconds"]))
    print(f"\n{engine}: seed {seed}, {seconds:.0f} s of faults", flush=True)
    return Plan(engine, seed, **{**settings, "seconds": seconds}, soak=soak)


async def blow(engine: Engine, folder: Path, soak: bool) -> dict[str, Any]:
    storm = Storm(plan(engine, soak), folder)
    try:
        outcome = await storm.run()
    except BaseException:
        show_logs(storm.world)
        raise
    document = report.save(outcome)
    print(report.text(document), flush=True)
    if outcome.violations:
        show_logs(storm.world)
    return document


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_what_was_acknowledged_is_there_once_whatever_fails(
    engine: Engine, tmp_path: Path, soak: bool
) -> None:
    document = await blow(engine, tmp_path, soak)
    assert document["violations"] == []
    assert document["too_few"] == []
    if soak:
        report.write_page()
