import pytest

from onceward.testing.simulation.schedule.slots import judge_slots
from tests.testing.simulation.schedule.story import Story, violates

LEASE_S = 5


class Shares(Story):
    """Two nodes that divide two slots; both know, and all is calm since the beginning."""

    def __init__(self) -> None:
        super().__init__()
        for life, slot in (("a.1", 0), ("b.1", 1)):
            self.tell("starts", "", life)
            self.beat(f"{life}~x")
            self.take(slot, f"{life}~x", 1)
            self.tell("owns", [f"{life}~x", [slot]], life)

    def beat(self, name: str) -> None:
        self.commit(("node", name, {"count": 1}))

    def take(self, slot: int, name: str, epoch: int) -> None:
        self.commit(("slot", f"{slot:04d}", {"owner": name, "epoch": epoch}))

    def bury(self, name: str) -> None:
        self.commit(delete=(("node", name),))

    def restart(self) -> None:
        """One of them crashes; the other takes over, and then they share again."""
        self.at_s += LEASE_S
        self.bury("b.1~x")
        self.take(1, "a.1~x", 2)
        self.tell("owns", ["a.1~x", [0, 1]], "a.1")
        self.tell("starts", "", "b.2")
        self.tell("owns", ["b.2~y", []], "b.2")
        self.beat("b.2~y")
        self.take(1, "", 2)
        self.tell("owns", ["a.1~x", [0]], "a.1")
        self.take(1, "b.2~y", 3)
        self.tell("owns", ["b.2~y", [1]], "b.2")

    def judge(self, *, bound_s: float = 60, two_owners: bool = False) -> dict[str, int]:
        history = self.history
        judge_slots(
            history,
            2,
            lease_ns=LEASE_S * 10**9,
            bound_ns=round(bound_s * 1e9),
            two_owners=two_owners,
        )
        return {what: count for what, count in history.seen.items() if count}


@pytest.fixture
def shares() -> Shares:
    return Shares()


@pytest.fixture
def wrong(shares):
    return lambda match, **options: violates("slots", lambda: shares.judge(**options), match)


def test_slots_that_are_shared_are_right(shares):
    assert shares.judge() == {"slots judged": 1}


def test_slots_that_are_taken_over_and_handed_over_are_counted(shares):
    shares.restart()
    assert shares.judge() == {"slots judged": 1, "slot taken over": 1, "slot handed over": 1}


def test_what_nodes_believe_does_not_matter_where_they_believe_what_they_want(shares):
    shares.tell("owns", ["b.1~x", [0, 1]], "b.1")
    assert shares.judge(two_owners=True) == {"two owners at once": 1}


def test_the_end_is_judged_only_if_there_was_time(shares):
    shares.tell("owns", ["b.1~x", [0, 1]], "b.1")
    assert shares.judge(bound_s=0) == {}


def test_a_node_that_is_given_up_too_early_is_found(shares, wrong):
    shares.at_s += 1
    shares.bury("b.1~x")
    wrong("was removed")


def test_a_node_that_leaves_may_be_removed_at_once(shares):
    shares.tell("leaves", "", "b.1")
    shares.bury("b.1~x")
    shares.take(1, "a.1~x", 2)
    assert shares.judge(bound_s=0) == {"slot taken over": 1}


def test_a_node_alone_may_remove_what_was_before_it(shares):
    shares.mode = "local"
    shares.bury("b.1~x")
    assert shares.judge(bound_s=0) == {}


def test_a_slot_that_is_taken_from_the_living_is_found(shares, wrong):
    shares.take(1, "a.1~x", 2)
    wrong("which was alive")


def test_a_slot_that_is_taken_by_the_dead_is_found(shares, wrong):
    shares.at_s += LEASE_S
    shares.bury("b.1~x")
    shares.take(1, "", 1)
    shares.take(1, "b.1~x", 2)
    wrong("had been removed")


def test_an_epoch_that_does_not_grow_is_found(shares, wrong):
    shares.take(1, "", 1)
    shares.take(1, "a.1~x", 1)
    wrong("went from")


def test_a_slot_that_nobody_owns_is_found(shares, wrong):
    shares.take(1, "", 1)
    wrong("but the nodes believe")


def test_a_slot_that_its_owner_does_not_know_is_found(shares, wrong):
    shares.tell("owns", ["b.1~x", []], "b.1")
    wrong("but the nodes believe")


def test_a_slot_of_a_former_life_is_found(shares, wrong):
    shares.tell("starts", "", "b.2")
    shares.tell("owns", ["b.2~y", []], "b.2")
    wrong("but the nodes believe")


def test_a_slot_that_found_its_owner_too_late_is_found(shares, wrong):
    shares.restart()
    wrong("after the bound", bound_s=8)


def test_more_than_a_fair_share_is_found(shares, wrong):
    shares.take(1, "", 1)
    shares.tell("owns", ["b.1~x", []], "b.1")
    shares.take(1, "a.1~x", 2)
    shares.tell("owns", ["a.1~x", [0, 1]], "a.1")
    wrong("more than its share")


def test_a_record_of_someone_gone_is_found(shares, wrong):
    shares.beat("c.1~z")
    wrong("records exist for")
