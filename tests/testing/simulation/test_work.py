"""The proof of messages and handlers: worlds without a violation, and planted bugs found."""

import pytest

from onceward.testing.simulation import Weather, simulate
from onceward.testing.simulation.work import Work
from tests.testing.planted import shows
from tests.testing.simulation.planted_work import PLANTED, Killers
from tests.testing.simulation.worlds import run_worlds

SOAK_SEEDS = 10_000


class FairWork(Work):
    """Three senders, who take turns."""

    def options(self, queue, body, random):
        return {**super().options(queue, body, random), "caller": f"s{random.randrange(3)}"}

    def declare(self, app, outside):
        super().declare(app, outside)
        for queue in ("work", "ordered", "gated"):
            app.queue(queue, fair=True, depth_max=1_000)


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_in_a_calm_world_all_is_done(mode):
    report = simulate(Work, 1, mode=mode, servers=2, weather=Weather())
    assert report.answers == report.operations


@pytest.mark.simulate
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    assert shows(PLANTED[name])


@pytest.mark.simulate
def test_the_same_seed_is_the_same_run():
    assert simulate(Work, 3).digest == simulate(Work, 3).digest


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_many_worlds_have_no_violation(soak):
    run_worlds(Work, range(12), SOAK_SEEDS if soak else 0)


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_worlds_where_senders_take_turns_have_no_violation(soak):
    run_worlds(FairWork, range(6), SOAK_SEEDS if soak else 0)


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_worlds_where_jobs_crash_their_nodes_have_no_violation(soak):
    run_worlds(Killers, range(6), SOAK_SEEDS if soak else 0)
