"""Handlers of users go through the simulator: wrong ones are caught, repaired ones pass."""

import pytest

from examples.handlers import PAIRS
from onceward.testing.simulation import SimulationFailed, simulate, simulate_many, violated
from onceward.testing.simulation.handlers import Handlers

SEEDS = 8


@pytest.mark.simulate
@pytest.mark.parametrize("wrong", [wrong for wrong, _ in PAIRS])
def test_a_wrong_handler_is_caught(wrong):
    with pytest.raises(SimulationFailed) as found:
        simulate_many(wrong, range(SEEDS))
    assert found.value.kind in ("paid twice", "oversold", "miscounted")


@pytest.mark.simulate
@pytest.mark.parametrize("right", [right for _, right in PAIRS])
def test_its_repaired_twin_passes_the_same_worlds(right):
    for seed in range(SEEDS):
        simulate(right, seed)


class Silent(Handlers):
    """Has no handler for what is sent."""

    operations = (3, 3)

    def declare(self, app, outside):
        app.queue("nowhere")

    def message(self, random):
        return "nowhere", None


def test_messages_that_nobody_handles_are_stuck():
    with pytest.raises(SimulationFailed, match="stuck"):
        simulate(Silent, 0)


class Calls(Handlers):
    """Calls the outside world with an idempotency key: a plain step is enough."""

    def declare(self, app, outside):
        @app.handler("calls", lease_s=3, attempts_max=0, retry_max_s=1)
        async def call(job):
            receipt = await job.step("call", outside.call_once, "call", job.id)
            await outside.set(job.id, receipt)
            assert await outside.get(job.id) == receipt
            return receipt

    def message(self, random):
        return "calls", {}

    def judge_outcome(self, outcome):
        for id_, job in outcome.jobs.items():
            if outcome.counts("call")[id_] != 1 or outcome.values[id_] != job["result"]:
                violated("called", f"{id_}: {job}")


@pytest.mark.simulate
def test_a_receiver_that_drops_repeats_is_called_once():
    for seed in range(SEEDS):
        simulate(Calls, seed)
