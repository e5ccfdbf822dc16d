"""Receivers that do not answer are listed while calls wait for them."""

from onceward import limits
from onceward.webhooks.hosts import Hosts, Slot
from onceward.webhooks.receivers import HostKey, Receivers, Scope

HOST: HostKey = ("https", "shop.example", 443)
OTHER: HostKey = ("https", "other.example", 443)
TIMER = Scope("timer", "t")


class Office:
    """Receivers and hosts at a time that stands still."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.hosts = Hosts(lambda: 0.0, lambda: self.now_ms * 1_000_000)
        self.receivers = Receivers(self.hosts, lambda: self.now_ms)

    def call(self, host: HostKey, *, answered: bool, reason: str = "") -> None:
        slot = self.hosts.admit(host)
        assert isinstance(slot, Slot)
        slot.give_back(answered, reason=reason)


def test_the_next_call_is_the_earliest_one_that_is_known() -> None:
    office = Office()
    office.call(HOST, answered=False, reason="refused")
    for after_ms in (9_000, 5_000, 7_000):
        office.receivers.wait("ann", HOST, TIMER, office.now_ms + after_ms)
    [found] = office.receivers.list_paused()
    assert (found.failures, found.since_ms, found.until_ms, found.reason) == (
        *(1, office.now_ms, office.now_ms + 5_000),
        "refused",
    )
    office.now_ms += 6_000
    office.call(HOST, answered=False, reason="timed out")
    office.receivers.wait("ann", HOST, TIMER, office.now_ms + 60_000)
    [found] = office.receivers.list_paused()
    assert (found.failures, found.since_ms) == (2, office.now_ms - 6_000)
    assert (found.until_ms, found.reason) == (office.now_ms + 60_000, "timed out")


def test_the_next_call_is_not_before_the_end_of_the_pause() -> None:
    office = Office()
    office.call(HOST, answered=False)
    office.receivers.wait("ann", HOST, TIMER, office.now_ms + 1)
    [found] = office.receivers.list_paused()
    assert found.until_ms == office.now_ms + 500


def test_a_host_that_answers_is_not_listed_for_any_caller() -> None:
    office = Office()
    for host in (HOST, OTHER):
        office.call(host, answered=False)
        for caller in ("ann", "ben"):
            office.receivers.wait(caller, host, TIMER, office.now_ms + 5_000)
    office.now_ms += 5_000
    office.call(HOST, answered=True)
    assert [(one.host, one.caller) for one in office.receivers.list_paused()] == [
        (OTHER, "ann"),
        (OTHER, "ben"),
    ]
    office.call(HOST, answered=False)
    office.receivers.wait("ben", HOST, TIMER, office.now_ms + 5_000)
    since_ms = {one.host: one.since_ms for one in office.receivers.list_paused()}
    assert since_ms == {OTHER: office.now_ms - 5_000, HOST: office.now_ms}


def test_a_host_without_calls_to_come_is_dropped() -> None:
    office = Office()
    office.call(HOST, answered=False)
    office.receivers.wait("ann", HOST, TIMER, office.now_ms + 1_000)
    office.now_ms += 1_000 + limits.OUTWARD_TIMEOUT_MS_MAX
    assert len(office.receivers.list_paused()) == 1
    office.now_ms += 1
    assert office.receivers.list_paused() == []


def test_the_number_of_waiting_callers_is_bounded() -> None:
    office = Office()
    office.call(HOST, answered=False)
    for n in range(limits.ENDPOINTS_KNOWN_MAX + 5):
        office.receivers.wait(f"{n:05}", HOST, TIMER, office.now_ms + 1_000)
    found = office.receivers.list_paused()
    assert len(found) == limits.ENDPOINTS_KNOWN_MAX
    assert found[0].caller == "00005"
