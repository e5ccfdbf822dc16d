import random

import pytest

from onceward.testing.simulation import Combined, Scenario, Weather, simulate, violated
from onceward.testing.simulation.world import World
from tests.testing.simulation.toy import Forgetful, Greeting


class Two(Combined):
    parts = (Greeting, Forgetful)
    operations = (30, 30)


def test_a_scenario_must_say_what_is_asked_done_and_judged():
    scenario = Scenario()
    with pytest.raises(NotImplementedError):
        scenario.request(random.Random(0))
    with pytest.raises(NotImplementedError):
        scenario.handle(None, None)
    with pytest.raises(NotImplementedError):
        scenario.judge(None)


def test_parts_of_a_combined_scenario_judge_only_their_own_calls():
    seen = []

    class Left(Greeting):
        async def prepare(self, store):
            seen.append("prepared")

        def request(self, random):
            return "left"

        def judge(self, history):
            seen.append({call.request for call in history.calls})

    class Right(Left):
        def request(self, random):
            return "right"

    class Both(Combined):
        parts = (Left, Right)

        def setup(self, random):
            super().setup(random)
            self._weights = [1.0, 1.0]

    World(Both(), 0, "shared", 1, Weather()).run()
    assert seen == ["prepared", "prepared", {"left"}, {"right"}]


def test_a_combined_scenario_draws_its_mixture_from_the_seed():
    def weights(seed):
        two = Two()
        two.setup(random.Random(seed))
        return two._weights

    assert weights(1) == weights(1)
    assert len({tuple(weights(seed)) for seed in range(20)}) > 3


def test_engine_and_store_can_be_replaced():
    made = []

    class Replaced(Greeting):
        def make_engine(self, engine):
            made.append("engine")
            return super().make_engine(engine)

        def make_store(self, engine, clock, ids):
            made.append("store")
            return super().make_store(engine, clock, ids)

        def judge(self, history):
            if not made:
                violated("unmade", "")

    simulate(Replaced, 0, mode="shared", servers=2, weather=Weather())
    assert made == ["engine", "store"] * 2
