import random

from onceward.testing.plan import LOSSES, Fault
from onceward.testing.simulation.weather import KINDS, Weather


def test_weather_comes_from_the_seed():
    assert Weather.draw(random.Random(3), "shared") == Weather.draw(random.Random(3), "shared")
    assert Weather.draw(random.Random(3), "shared") != Weather.draw(random.Random(4), "shared")


def test_a_local_database_loses_no_answers():
    for seed in range(50):
        engine = Weather.draw(random.Random(seed), "local").engine
        assert not set(engine) & set(LOSSES)
    assert set(LOSSES) <= set(KINDS["shared"])
    assert not set(LOSSES) & set(KINDS["local"])


def test_each_fault_is_frequent_in_some_runs_and_absent_in_others():
    rates = [Weather.draw(random.Random(seed), "shared").engine for seed in range(50)]
    for fault in (Fault.CONFLICT, Fault.LATE, Fault.CRASH_AFTER):
        assert min(rate[fault] for rate in rates) == 0
        assert max(rate[fault] for rate in rates) > 0.03


def test_weather_that_is_not_asked_for_is_calm():
    plan = Weather().plan(random.Random(0))
    assert {plan.step("commit").fault for _ in range(100)} == {None}
