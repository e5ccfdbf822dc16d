from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from onceward import limits
from onceward.webhooks.hosts import Hosts, Slot

FEW, MANY = limits.HOST_REQUESTS_FIRST, limits.HOST_REQUESTS_BASE


class Time:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def __call__(self) -> int:
        return self.now_ns

    def pass_s(self, seconds: float) -> None:
        # One more, since the seconds were rounded.
        self.now_ns += int(seconds * 1e9) + 1


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def hosts(time: Time) -> Hosts:
    return Hosts(lambda: 0.0, time)


def slot(hosts: Hosts, key: str = "a") -> Slot:
    given = hosts.admit(key)
    assert isinstance(given, Slot), f"try again after {given} s"
    return given


def wait_s(hosts: Hosts, key: str = "a") -> float:
    given = hosts.admit(key)
    assert not isinstance(given, Slot)
    return given


def slots(hosts: Hosts, key: str = "a") -> list[Slot]:
    """As many as there are."""
    taken = []
    while isinstance(given := hosts.admit(key), Slot):
        taken.append(given)
    return taken


def answer(hosts: Hosts, times: int, key: str = "a") -> None:
    for _ in range(times):
        slot(hosts, key).give_back(True)


def test_a_host_that_nothing_is_known_of_gets_few_requests_at_once(hosts: Hosts) -> None:
    assert len(slots(hosts)) == FEW
    assert len(slots(hosts, "b")) == FEW, "others are not concerned"


def test_with_each_answer_a_host_gets_one_more_up_to_many(hosts: Hosts) -> None:
    answer(hosts, 3)
    assert len(slots(hosts)) == FEW + 3
    answer(hosts, 100, "b")
    assert len(slots(hosts, "b")) == MANY


def test_a_host_in_trouble_gets_one_request_at_a_time_after_a_pause(
    hosts: Hosts, time: Time
) -> None:
    answer(hosts, 100)
    slot(hosts).give_back(False)
    assert hosts.in_trouble("a")
    time.pass_s(wait_s(hosts))
    assert len(slots(hosts)) == 1


def test_time_may_begin_at_zero(hosts: Hosts, time: Time) -> None:
    time.now_ns = 0
    slot(hosts).give_back(False)
    assert wait_s(hosts) == limits.HOST_PAUSE_S_MIN / 2
    answer(hosts, 2, "b")
    assert len(slots(hosts, "b")) == FEW + 2


def test_pauses_double_up_to_the_longest(hosts: Hosts, time: Time) -> None:
    pauses = []
    for _ in range(10):
        slot(hosts).give_back(False)
        pauses.append(wait_s(hosts))
        time.pass_s(pauses[-1])
    longest = limits.HOST_PAUSE_S_MAX / 2
    assert pauses == [min(0.5 * 2**n, longest) for n in range(10)]


@given(fraction=st.floats(0, 1, exclude_max=True), failures=st.integers(1, 40))
def test_a_pause_is_random_between_a_half_and_all_of_it(fraction: float, failures: int) -> None:
    time = Time()
    hosts = Hosts(lambda: fraction, time)
    for _ in range(failures):
        slot(hosts).give_back(False)
        pause_s = wait_s(hosts)
        time.pass_s(pause_s)
    longest_s = min(limits.HOST_PAUSE_S_MAX, limits.HOST_PAUSE_S_MIN * 2 ** (failures - 1))
    assert longest_s / 2 <= pause_s <= longest_s


def test_what_fails_together_is_trouble_once(hosts: Hosts, time: Time) -> None:
    answer(hosts, 100)
    sharing = slots(hosts)
    time.pass_s(10)
    for taken in sharing:
        taken.give_back(False)
    assert wait_s(hosts) == limits.HOST_PAUSE_S_MIN / 2


def test_one_answer_ends_the_trouble_at_once(hosts: Hosts, time: Time) -> None:
    answer(hosts, 100)
    well, ill = slot(hosts), slot(hosts)
    ill.give_back(False)
    assert wait_s(hosts) > 0
    well.give_back(True)
    assert not hosts.in_trouble("a")
    assert len(slots(hosts)) == int(MANY * 0.7), "it is tried with less than before"


def test_one_that_hangs_says_nothing_of_a_host_that_answers_others(
    hosts: Hosts, time: Time
) -> None:
    answer(hosts, 100)
    hanging = slots(hosts)[:8]
    time.pass_s(10)
    hanging.pop().give_back(True)
    time.pass_s(5)
    for taken in hanging:
        taken.give_back(False)
    assert hosts.answers("a")
    assert not hosts.in_trouble("a")
    time.pass_s(1)
    slot(hosts).give_back(False)
    assert not hosts.answers("a")
    assert hosts.in_trouble("a")


def test_a_request_that_was_never_sent_says_nothing_of_the_host(hosts: Hosts) -> None:
    slot(hosts).give_back(None)
    assert not hosts.in_trouble("a")
    assert len(slots(hosts)) == FEW


def test_giving_back_twice_does_nothing(hosts: Hosts) -> None:
    one, *_others = slots(hosts)
    one.give_back(True)
    one.give_back(False)
    assert not hosts.in_trouble("a")
    assert len(slots(hosts)) == 2, "one is free again, and one more"


def test_who_has_to_wait_for_a_request_to_end_waits_about_that_long(
    hosts: Hosts, time: Time
) -> None:
    for _ in range(100):
        taken = slot(hosts)
        time.pass_s(1.6)
        taken.give_back(True)
    slots(hosts)
    assert wait_s(hosts) == pytest.approx(1.6 / MANY, rel=0.01)


def test_how_long_a_request_takes_is_learned_by_an_eighth_of_each(hosts: Hosts, time: Time) -> None:
    for taken_ns in (800_000_000, 1_600_000_000):
        taken = slot(hosts)
        time.now_ns += taken_ns
        taken.give_back(True)
    assert len(slots(hosts)) == FEW + 2
    assert wait_s(hosts) == (0.8 + (1.6 - 0.8) / 8) / (FEW + 2)


def test_who_has_to_wait_for_a_host_that_has_not_answered_waits_as_long_again(
    hosts: Hosts, time: Time
) -> None:
    for _ in range(FEW - 1):
        slot(hosts)
    time.now_ns += 1_000_000_000
    slot(hosts)  # the last one counts
    time.now_ns += 300_000_000
    assert wait_s(hosts) == 0.3


def test_who_has_to_wait_for_a_host_that_has_not_answered_asks_less_and_less_often(
    hosts: Hosts, time: Time
) -> None:
    slots(hosts)
    assert wait_s(hosts) == limits.HOST_WAIT_S_MIN
    asked = 0
    while (again_s := wait_s(hosts)) < limits.HOST_WAIT_S_MAX:
        time.pass_s(again_s)
        asked += 1
    assert asked < 12


def test_hosts_that_do_not_answer_leave_room_for_those_that_do(time: Time) -> None:
    hosts = Hosts(lambda: 0.0, time, doubtful_max=10)
    answer(hosts, 100, "well")
    hanging = [slot for number in range(100) for slot in slots(hosts, f"hangs {number}")]
    assert len(hanging) == 10
    assert wait_s(hosts, "new") == limits.HOST_WAIT_S_MAX
    assert len(slots(hosts, "well")) == MANY
    hanging[0].give_back(False)
    assert isinstance(hosts.admit("new"), Slot)


def test_where_many_hang_each_new_host_gets_one_request_to_show_that_it_is_well(
    time: Time,
) -> None:
    hosts = Hosts(lambda: 0.0, time, doubtful_max=10)
    counts = [len(slots(hosts, f"hangs {number}")) for number in range(8)]
    assert counts == [4, 1, 1, 1, 1, 1, 1, 0]


def test_hosts_in_trouble_leave_room_for_new_ones(time: Time) -> None:
    hosts = Hosts(lambda: 0.0, time, doubtful_max=10)
    for number in range(20):
        slot(hosts, f"ill {number}").give_back(False)
    time.pass_s(60)
    tried = [slot for number in range(20) for slot in slots(hosts, f"ill {number}")]
    assert len(tried) == 5
    assert len(slots(hosts, "new")) == 1
    tried[0].give_back(False)
    assert wait_s(hosts, "ill 19") == limits.HOST_WAIT_S_MAX
    tried[1].give_back(False)
    assert isinstance(hosts.admit("ill 19"), Slot)


def test_hosts_that_were_not_used_for_the_longest_are_forgotten(time: Time) -> None:
    hosts = Hosts(lambda: 0.0, time, known_max=3)
    for key in "abcd":
        slot(hosts, key).give_back(False)
    assert len(hosts) == 3
    assert [key for key in "abcd" if hosts.in_trouble(key)] == ["b", "c", "d"]


def test_hosts_with_requests_are_not_forgotten(time: Time) -> None:
    hosts = Hosts(lambda: 0.0, time, known_max=3)
    busy = [slots(hosts, key) for key in "abcdef"]
    answer(hosts, 1, "g")
    assert len(hosts) == 6
    for taken in busy:
        for one in taken:
            one.give_back(True)
    assert len(hosts) == 3


def test_a_host_is_kept_in_mind_once(hosts: Hosts) -> None:
    answer(hosts, 2)
    slots(hosts)
    assert len(hosts) == 1


def test_asking_for_a_host_does_not_take_memory(hosts: Hosts) -> None:
    full = Hosts(lambda: 0.0, doubtful_max=1)
    slot(full)
    for number in range(100):
        wait_s(full, f"{number}")
    assert len(full) == 1


class Calls(RuleBasedStateMachine):
    """Requests to a few hosts, ending in any order and any way."""

    def __init__(self) -> None:
        super().__init__()
        self.time = Time()
        self.hosts = Hosts(self.fraction, self.time, doubtful_max=6, known_max=3)
        self.taken: list[Slot] = []

    fraction: Callable[[], float] = staticmethod(lambda: 0.5)

    @rule(key=st.sampled_from("abcde"))
    def ask(self, key: str) -> None:
        given = self.hosts.admit(key)
        if isinstance(given, Slot):
            self.taken.append(given)
        else:
            assert 0 < given <= limits.HOST_PAUSE_S_MAX

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), answered=st.sampled_from([True, False, None]))
    def end(self, data: st.DataObject, answered: bool | None) -> None:
        taken = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        taken.give_back(answered)
        if answered:
            assert not self.hosts.in_trouble(taken.key)

    @rule(seconds=st.floats(0.001, 100))
    def wait(self, seconds: float) -> None:
        self.time.pass_s(seconds)

    @rule(key=st.sampled_from("abcde"))
    def a_pause_ends(self, key: str) -> None:
        """Whoever waits as long as told, with nothing under way, is let in."""
        while self.taken:
            self.taken.pop().give_back(None)
        given = self.hosts.admit(key)
        if not isinstance(given, Slot):
            self.time.pass_s(given)
            given = self.hosts.admit(key)
        assert isinstance(given, Slot)
        given.give_back(None)

    @invariant()
    def limits_are_kept(self) -> None:
        keys = [taken.key for taken in self.taken]
        assert all(keys.count(key) <= limits.HOST_REQUESTS_MAX for key in keys)
        assert sum(taken.doubtful for taken in self.taken) <= 6
        assert len(self.hosts) <= max(3, len(set(keys)))


TestCalls = Calls.TestCase


def test_a_pause_tells_how_long_why_and_since_when(hosts: Hosts, time: Time) -> None:
    assert hosts.pause("a") is None
    answer(hosts, 1)
    assert hosts.pause("a") is None
    slot(hosts).give_back(False, reason="refused")
    assert hosts.pause("a") == (limits.HOST_PAUSE_S_MIN / 2, 1, 0.0, "refused")
    time.now_ns += 500_000_000
    trouble = hosts.pause("a")
    assert trouble == (0.0, 1, 0.5, "refused")
    time.now_ns += 1_500_000_000
    again = slot(hosts)
    assert hosts.pause("a") == (0.0, 1, 2.0, "refused")
    again.give_back(False)
    assert hosts.pause("a") == (limits.HOST_PAUSE_S_MAX / 2, 2, 2.0, "")
    time.now_ns += 2_000_000_000
    answer(hosts, 1)
    assert hosts.pause("a") is None
    slot(hosts).give_back(False, reason="timed out")
    assert hosts.pause("a") == (limits.HOST_PAUSE_S_MIN / 2, 1, 0.0, "timed out")


def test_the_turn_of_a_request_depends_on_what_others_take(hosts: Hosts, time: Time) -> None:
    assert hosts.turn_s("a", 5) == 0.0
    taken = slot(hosts)
    time.now_ns += 2_000_000_000
    taken.give_back(True)
    assert hosts.turn_s("a", 5) == pytest.approx(2.0)
    assert hosts.turn_s("a", 0) == 0.0
    taken = slot(hosts)
    assert hosts.turn_s("a", 5) == pytest.approx(2.0)


@pytest.mark.parametrize(("under_way", "limit"), [(MANY // 2, MANY + 1), (MANY // 2 - 1, MANY)])
def test_a_limit_grows_only_if_half_of_it_is_used(hosts: Hosts, under_way: int, limit: int) -> None:
    answer(hosts, 100)
    taken = [slot(hosts) for _ in range(under_way)]
    taken[0].give_back(True)
    assert len(slots(hosts)) == limit - under_way + 1
