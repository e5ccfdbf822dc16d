import io
import itertools
import pickle

import pytest

from onceward.errors import BadInput
from onceward.testing import simulate as exported
from onceward.testing.simulation import SimulationFailed, Weather, simulate, simulate_many
from onceward.testing.simulation.weather import KINDS
from tests.testing.simulation.toy import Forgetful, Greeting


def test_the_same_seed_is_the_same_run_event_by_event():
    one, other = simulate(Greeting, 7), simulate(Greeting, 7)
    assert one.trace == other.trace
    assert one == other
    assert one.digest != simulate(Greeting, 8).digest
    assert exported is simulate


def test_a_report_says_what_happened():
    report = simulate(Greeting, 7, mode="shared", servers=3)
    assert (report.seed, report.mode, report.servers) == (7, "shared", 3)
    assert report.operations == 12
    assert report.answers >= 12
    assert report.virtual_s > 0
    assert sum(report.counts.values()) > 0


def test_a_local_database_has_one_server():
    assert simulate(Greeting, 7, mode="local", servers=3).servers == 1


def failure() -> SimulationFailed:
    with pytest.raises(SimulationFailed) as found:
        simulate(Forgetful, 3, mode="shared", weather=Weather(duplicate=0.8))
    return found.value


def test_a_failure_names_the_seed_and_the_call_that_replays_it():
    failed = failure()
    assert (failed.seed, failed.kind) == (3, "miscounted")
    assert "Forgetful with seed 3 (shared, " in str(failed)
    assert "replay: simulate(Forgetful, seed=3, mode='shared', weather=Weather(" in str(failed)
    assert " hears from " in str(failed)


def test_a_failure_of_the_seed_alone_can_be_replayed_from_the_command_line():
    class Wrong(Greeting):
        async def handle(self, node, message):
            raise ValueError("a bug")

    with pytest.raises(SimulationFailed, match="ValueError: a bug") as found:
        simulate(Wrong, 5, servers=2)
    assert found.value.kind == "error"
    assert "python -m onceward.testing.simulate --scenario" in str(found.value)
    assert str(found.value).endswith("--seed 5 --servers 2")


def test_a_failure_can_travel_between_processes():
    failed = failure()
    copy = pickle.loads(pickle.dumps(failed))
    assert (str(copy), copy.seed, copy.kind) == (str(failed), failed.seed, failed.kind)


def test_many_runs_are_summed_up_and_every_kind_of_fault_has_happened():
    progress = io.StringIO()
    summary = simulate_many(Greeting, range(60), progress=progress)
    assert (summary.runs, summary.operations) == (60, 720)
    assert summary.missing(Greeting) == []
    assert "60 runs" in progress.getvalue()
    assert "720  operations" in str(summary)
    assert "shared, 3 servers" in str(summary)


def test_many_runs_fail_if_some_fault_never_happened():
    with pytest.raises(SimulationFailed, match=r"in 1 runs these faults never happened: .*crash"):
        simulate_many(Greeting, [1])


def test_many_runs_fail_if_something_else_that_should_happen_never_did():
    class Lucky(Greeting):
        kinds = ("a prize",)
        without = frozenset((*KINDS["shared"], *KINDS["local"]))

        def judge(self, history):
            super().judge(history)
            history.seen["a prize"] += len(history.calls) > 100

    with pytest.raises(SimulationFailed, match="never happened: a prize"):
        simulate_many(Lucky, [1])


def test_many_runs_stop_at_the_first_violation():
    class Counted(Forgetful):
        made = 0

        def __init__(self):
            Counted.made += 1

    with pytest.raises(SimulationFailed, match="miscounted"):
        simulate_many(Counted, range(1000))
    assert Counted.made < 100


def test_many_runs_stop_when_the_time_is_up():
    class Easy(Greeting):
        operations = (1, 1)
        without = frozenset((*KINDS["shared"], *KINDS["local"]))

    summary = simulate_many(Easy, itertools.count(), seconds=0.2)
    assert summary.runs >= 20
    assert summary.real_s < 20


def test_many_runs_can_share_several_processes():
    alone = simulate_many(Greeting, range(60))
    shared = simulate_many(Greeting, range(60), jobs=2)
    assert (shared.runs, shared.counts) == (alone.runs, alone.counts)


def test_a_violation_in_another_process_is_reported():
    with pytest.raises(SimulationFailed, match="Forgetful with seed"):
        simulate_many(Forgetful, range(200), jobs=2)


NO_RUNS = {
    "scenario": [(scenario, 1) for scenario in (None, 5, "Greeting", Greeting(), int)],
    "seed": [(Greeting, seed) for seed in (None, "1", True, 1.5, [1])],
}


@pytest.mark.parametrize("what", NO_RUNS)
def test_what_cannot_be_simulated_is_told_before_it_runs(what):
    for scenario, seed in NO_RUNS[what]:
        with pytest.raises(BadInput, match=f"a {'seed' if what == 'seed' else 'class'}"):
            simulate(scenario, seed)


@pytest.mark.parametrize(
    "options",
    [
        *({"mode": mode} for mode in ("both", "", 5, ["shared"])),
        *({"servers": servers} for servers in (0, -1, 1.5, True, "2")),
        *({"weather": weather} for weather in (5, "rain", {"duplicate": 1})),
    ],
)
def test_a_world_that_cannot_be_is_told_before_it_runs(options):
    with pytest.raises(BadInput):
        simulate(Greeting, 1, **options)


@pytest.mark.parametrize(
    ("seeds", "options"),
    [
        (5, {}),
        (None, {}),
        (range(1), {"jobs": 0}),
        (range(1), {"jobs": "2"}),
        (range(1), {"jobs": True}),
        (range(1), {"seconds": -1}),
        (range(1), {"seconds": "1"}),
        (["1"], {}),
    ],
)
def test_many_runs_that_cannot_be_are_told_before_they_begin(seeds, options):
    with pytest.raises(BadInput):
        simulate_many(Greeting, seeds, **options)
    with pytest.raises(BadInput, match="a class of `Scenario`"):
        simulate_many("Greeting", range(1))
