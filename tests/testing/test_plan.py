import random

import pytest

from onceward.errors import BadInput
from onceward.testing.plan import COMMIT_FAULTS, Chance, Fault, Script, Step


def test_a_script_counts_only_calls_of_its_kinds():
    script = Script({2: Fault.UNAVAILABLE, 3: Step(Fault.CRASH_ANSWER, 1.0)}, ["get", "scan"])
    steps = [script.step(kind) for kind in ("get", "commit", "commit", "scan", "get", "get")]
    assert [step.fault for step in steps] == [
        None,
        None,
        None,
        Fault.UNAVAILABLE,
        Fault.CRASH_ANSWER,
        None,
    ]
    assert steps[4].request_s == 1.0


def test_a_script_refuses_a_fault_that_such_a_call_cannot_have():
    with pytest.raises(BadInput, match="a get cannot have the fault"):
        Script({1: Fault.LOST_ANSWER}, ["get"]).step("get")


def test_chance_decides_alike_from_equal_seeds():
    def steps(seed):
        chance = Chance(random.Random(seed), dict.fromkeys(COMMIT_FAULTS, 0.1))
        return [chance.step("commit") for _ in range(200)]

    assert steps(1) == steps(1)
    assert steps(1) != steps(2)


def test_chance_brings_every_fault_at_its_rate_and_none_to_calls_that_cannot_have_it():
    rates = dict.fromkeys(Fault, 0.05)
    chance = Chance(random.Random(0), rates)
    commits = [chance.step("commit").fault for _ in range(4000)]
    for fault in COMMIT_FAULTS:
        assert 100 < commits.count(fault) < 300
    reads = {chance.step("get").fault for _ in range(1000)}
    assert reads == {None, Fault.UNAVAILABLE, Fault.CRASH_BEFORE, Fault.CRASH_ANSWER}
    assert {chance.step("watch").fault for _ in range(200)} == {None, Fault.DEAF}


def test_chance_is_mostly_fast_and_sometimes_slow_until_it_calms_down():
    chance = Chance(random.Random(0), {Fault.LATE: 0.5}, latency_s=0.001, slow_s=3)
    steps = [chance.step("commit") for _ in range(1000)]
    slow = sum(step.request_s > 0.002 for step in steps)
    assert 5 < slow < 50
    assert max(step.late_s for step in steps) > 2.5
    chance.calm()
    assert {chance.step("commit").fault for _ in range(100)} == {None}
    assert max(chance.step("commit").request_s for _ in range(1000)) <= 0.002
