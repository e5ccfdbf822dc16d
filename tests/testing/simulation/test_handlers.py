"""Handlers of users go through the simulator: wrong ones are caught, repaired ones pass."""

import gc
import logging
import threading

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


class PlainCalls(Handlers):
    """The same by a plain function, which runs in a thread."""

    once = True

    def declare(self, app, outside):
        @app.handler("calls", lease_s=3, attempts_max=0, retry_max_s=1)
        def call(job):
            if self.once:
                receipt = job.step("call", outside.call, "call", job.id, at_most_once=True)
            else:
                receipt = job.call(outside.call, "call", job.id)
            job.sleep(1)
            job.tx.put(("count", "n"), (job.tx.get(("count", "n")) or 0) + 1)
            return receipt

    def message(self, random):
        return "calls", {}

    def judge_outcome(self, outcome):
        if any(times > 1 for times in outcome.counts("call").values()):
            violated("called twice", str(outcome.counts("call")))
        done = sum(job["state"] == "succeeded" for job in outcome.jobs.values())
        if outcome.records("count").get("n", 0) != done:
            violated("miscounted", f"{outcome.records('count')} of {done}")


class PlainCallsWithoutAStep(PlainCalls):
    once = False


@pytest.mark.simulate
def test_plain_functions_run_in_the_simulator_and_every_run_of_a_seed_is_equal():
    for seed in range(SEEDS):
        first, again = simulate(PlainCalls, seed), simulate(PlainCalls, seed)
        assert first.digest == again.digest
        assert first.trace == again.trace
    with pytest.raises(SimulationFailed) as found:
        simulate_many(PlainCallsWithoutAStep, range(SEEDS))
    assert found.value.kind == "called twice"


@pytest.mark.simulate
def test_threads_of_crashed_nodes_end(caplog):
    before = set(threading.enumerate())
    caplog.set_level(logging.CRITICAL, "onceward")  # records of errors refer to their nodes
    for seed in range(SEEDS):
        simulate(PlainCalls, seed)
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()
