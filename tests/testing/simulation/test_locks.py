"""The proof of locks: many worlds without a violation, and every planted bug found."""

import pytest

from onceward.testing.simulation import Weather, simulate
from onceward.testing.simulation.locks import LockUses
from tests.testing.planted import shows
from tests.testing.simulation.core.judging import Judged
from tests.testing.simulation.planted_locks import PLANTED
from tests.testing.simulation.worlds import run_worlds

SOAK_SEEDS = 5_000


class OneLock(LockUses):
    """A calm world in which all want the same lock."""

    def setup(self, random):
        super().setup(random)
        self.capacities = {"a": 1}


@pytest.mark.parametrize("mode", ["shared", "local"])
def test_in_a_calm_world_nothing_is_found(mode):
    report = simulate(LockUses, 1, mode=mode, servers=2, weather=Weather())
    assert report.answers >= report.operations


@pytest.fixture(scope="module")
def run() -> Judged:
    return Judged(OneLock, seed=1)


def test_a_calm_run_is_falsified_by_another_token(run):
    notes = run.history.notes
    granted = [n for n in notes if n.topic == "lock" and n.body[0] == "granted"]
    token = granted[-1].body[2]["tokens"]
    assert token["a"] > 1
    right, token["a"] = token["a"], 1
    run.violates("token twice")
    token["a"] = right
    run.scenario.judge(run.history)


def test_counts_that_do_not_agree_are_found(run):
    key = next(key for key in run.history.final if key[1] == "a#head")
    right = run.history.final[key]
    run.history.final[key] = right._replace(value={**right.value, "held": 1})
    run.violates("miscounted")
    del run.history.final[key]
    run.history.final["lock#0000", "a#hold#0000000000000001"] = right._replace(value={"id": "x"})
    run.violates("miscounted", "has no head")
    del run.history.final["lock#0000", "a#hold#0000000000000001"]
    run.history.final[key] = right


def test_one_who_waits_in_vain_is_found(run):
    key = next(key for key in run.history.final if key[1] == "a#head")
    right = run.history.final[key]
    request = {"id": "x", "places": {"a": 0}}
    added = {
        key: {**right.value, "held": 0, "waiting": 1},
        ("lock#0000", "a#wait#0000000000000000"): {"id": "x"},
        ("ask#0000#x", "request"): request,
    }
    run.history.final.update({k: right._replace(value=value) for k, value in added.items()})
    run.violates("stuck", "could be granted")
    run.history.final["due#0000", "0#x#lock-grant"] = right._replace(value=["a"])
    run.scenario.judge(run.history)


def test_a_write_that_is_gone_is_found(run):
    effect = run.history.values("effect")["a"]
    run.store("effect", "a", {**effect, "number": 0})
    run.violates("not durable")
    run.store("effect", "a", {**effect, "stale": 1})
    run.violates("stale write")
    run.store("effect", "a", effect)


@pytest.mark.simulate
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name):
    assert shows(PLANTED[name])


@pytest.mark.simulate
@pytest.mark.parametrize("seed", sorted({bug.seed for bug in PLANTED.values()}))
def test_the_product_passes_where_the_planted_bugs_are_found(seed):
    assert simulate(LockUses, seed).digest == simulate(LockUses, seed).digest


@pytest.mark.simulate
@pytest.mark.timeout(2700)
def test_many_worlds_have_no_violation(soak):
    run_worlds(LockUses, range(1_000, 1_012), SOAK_SEEDS if soak else 0)
