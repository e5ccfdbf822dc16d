"""The near future of a slot, and entries that give trouble."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.schedule.due_entries import DueEntries, Troubles


def entry(due_ms: int, id_: str = "x") -> str:
    return f"{due_ms:016d}#{id_}#job"


def taken(due_entries: DueEntries) -> list[str]:
    entries = []
    while due_entries.next is not None:
        entries.append(due_entries.take())
    return entries


def filled(*due_ms: int, bound_ms: int = 1_000, cut: bool = False) -> DueEntries:
    due_entries = DueEntries()
    due_entries.begin()
    due_entries.fill([entry(ms) for ms in due_ms], f"{bound_ms:016d}", cut=cut)
    return due_entries


def test_it_begins_stale_and_knows_nothing() -> None:
    due_entries = DueEntries()
    assert due_entries.stale
    assert due_entries.next is None
    assert due_entries.next_ms is None
    assert not due_entries.add(entry(1))
    assert len(due_entries) == 0


def test_entries_come_in_the_order_of_their_times() -> None:
    due_entries = filled(3, 5, 7)
    assert not due_entries.stale
    assert due_entries.add(entry(1))
    assert not due_entries.add(entry(4))
    assert due_entries.next_ms == 1
    assert taken(due_entries) == [entry(ms) for ms in (1, 3, 4, 5, 7)]
    assert not due_entries.stale


def test_an_entry_is_known_once() -> None:
    due_entries = filled(3)
    assert not due_entries.add(entry(3))
    assert taken(due_entries) == [entry(3)]


def test_what_is_beyond_the_bound_is_left_to_the_next_scan() -> None:
    due_entries = filled(3, bound_ms=10)
    assert not due_entries.add(entry(10))
    assert not due_entries.add(entry(11))
    due_entries.add(entry(9))
    assert taken(due_entries) == [entry(3), entry(9)]


@pytest.mark.parametrize("how", ["taken", "removed"])
def test_it_is_stale_when_a_cut_front_is_used_up(how: str) -> None:
    due_entries = filled(3, 5, cut=True)
    due_entries.take()
    assert not due_entries.stale
    if how == "taken":
        due_entries.take()
    else:
        due_entries.remove(entry(5))
    assert due_entries.stale


def test_what_was_removed_is_passed_over_and_may_come_back() -> None:
    due_entries = filled(3, 5)
    due_entries.remove(entry(3))
    due_entries.remove(entry(4))
    assert due_entries.next_ms == 5
    due_entries.add(entry(5, "y"))
    due_entries.remove(entry(5))
    due_entries.add(entry(5))
    assert taken(due_entries) == [entry(5), entry(5, "y")]


def test_what_is_added_while_a_scan_runs_is_not_lost() -> None:
    due_entries = filled(3, bound_ms=10)
    due_entries.begin()
    due_entries.add(entry(4))
    due_entries.add(entry(20))
    due_entries.add(entry(99))
    due_entries.fill([entry(3)], f"{50:016d}", cut=False)
    assert taken(due_entries) == [entry(3), entry(4), entry(20)]


def test_what_is_known_before_the_start_of_a_scan_is_not_lost() -> None:
    due_entries = filled(3, bound_ms=10)
    due_entries.add(entry(4))
    due_entries.add(entry(7))
    due_entries.remove(entry(3))
    due_entries.begin()
    due_entries.fill([entry(6)], f"{50:016d}", cut=False, start=entry(5))
    assert taken(due_entries) == [entry(4), entry(6)]


def test_the_bound_and_the_start_of_a_scan_belong_to_what_was_scanned_behind_them() -> None:
    due_entries = filled(5, 7)
    due_entries.begin()
    due_entries.add(entry(9))
    due_entries.fill([], entry(9), cut=False, start=entry(5))
    assert len(due_entries) == 0, "5 is not there any more, and 9 comes with the next scan"
    assert not due_entries.add(entry(9))
    assert len(due_entries) == 0


def scan(due_entries: DueEntries, *due_ms: int) -> None:
    due_entries.begin()
    due_entries.fill([entry(ms) for ms in due_ms], f"{1_000:016d}", cut=False)


def test_no_scan_brings_back_what_is_being_acted_on() -> None:
    due_entries = filled(3, 5)
    assert due_entries.take() == entry(3)
    for _ in range(2):
        scan(due_entries, 3, 5)
        assert due_entries.next == entry(5)
    due_entries.ended(entry(3))
    scan(due_entries, 3, 5)
    assert due_entries.next == entry(3), "it was not removed: that was in vain"


def test_a_scan_under_way_may_have_seen_what_has_ended_meanwhile() -> None:
    due_entries = filled(3, 5)
    due_entries.take()
    due_entries.begin()
    due_entries.ended(entry(3))
    due_entries.fill([entry(3), entry(5)], f"{1_000:016d}", cut=False)
    assert due_entries.next == entry(5)
    scan(due_entries, 3, 5)
    assert due_entries.next == entry(3), "the next one would know"


def test_what_has_ended_once_may_be_acted_on_again() -> None:
    due_entries = filled(3)
    due_entries.take()
    due_entries.begin()
    due_entries.ended(entry(3))
    due_entries.fill([], f"{1_000:016d}", cut=False)
    assert due_entries.add(entry(3))
    due_entries.take()
    for _ in range(2):
        scan(due_entries, 3)
        assert due_entries.next is None


def test_what_is_added_while_it_is_acted_on_stays() -> None:
    due_entries = filled(3)
    due_entries.take()
    assert due_entries.add(entry(3))
    scan(due_entries, 3)
    assert due_entries.next == entry(3)


def test_a_hint_while_a_scan_runs_is_not_lost() -> None:
    due_entries = DueEntries()
    due_entries.begin()
    due_entries.stale = True
    due_entries.fill([], "1", cut=False)
    assert due_entries.stale


def test_cleared_it_knows_nothing() -> None:
    due_entries = filled(3)
    due_entries.clear()
    assert due_entries.stale
    assert due_entries.next is None
    assert not due_entries.add(entry(1))


@given(
    st.lists(st.tuples(st.sampled_from(["add", "remove", "take"]), st.integers(0, 6))),
    st.sets(st.integers(0, 6)),
    st.booleans(),
)
def test_it_is_a_sorted_set_and_says_when_it_was_cut_and_is_used_up(
    steps: list[tuple[str, int]], start: set[int], cut: bool
) -> None:
    due_entries, model = filled(*start, cut=cut), {entry(ms) for ms in start}
    used_up = False
    for what, due_ms in steps:
        before = len(model)
        if what == "add":
            first = due_entries.add(entry(due_ms))
            assert first == (entry(due_ms) not in model and entry(due_ms) < min(model, default="x"))
            model.add(entry(due_ms))
        elif what == "remove":
            due_entries.remove(entry(due_ms))
            model.discard(entry(due_ms))
        elif model:
            assert due_entries.take() == min(model)
            model.remove(min(model))
        assert due_entries.next == min(model, default=None)
        assert len(due_entries) == len(model)
        used_up = used_up or (before > 0 and not model)
        assert due_entries.stale == (cut and used_up)


def test_an_entry_that_gave_trouble_rests_longer_each_time() -> None:
    troubles, error = Troubles(), ValueError("x")
    assert not troubles
    assert not troubles.rests("a", 0)
    now_ms = 0
    pause_ms = limits.TROUBLE_PAUSE_MS_MIN
    for _ in range(10):
        troubles.add("a", error, now_ms)
        assert troubles.rests("a", now_ms + pause_ms - 1)
        assert not troubles.rests("a", now_ms + pause_ms)
        now_ms += pause_ms
        pause_ms = min(2 * pause_ms, limits.TROUBLE_PAUSE_MS_MAX)
    assert pause_ms == limits.TROUBLE_PAUSE_MS_MAX
    assert troubles.errors == {"a": error}
    troubles.settle(["a", "b"])
    assert not troubles
    assert not troubles.rests("a", now_ms)


def test_one_entry_of_a_kind_that_nobody_knows_stands_for_all_as_long_as_it_is_there() -> None:
    troubles, error = Troubles(), ValueError("x")
    troubles.add_unknown("1#a#odd", error, 0)
    troubles.add_unknown("1#b#odd", error, 0)
    troubles.add_unknown("1#b#other", error, 0)
    assert troubles.errors == {"1#a#odd": error, "1#b#other": error}
    for sort in ("1#a#odd", "1#b#odd", "2#c#odd", "2#d#other"):
        assert troubles.rests(sort, 1 << 60)
    assert not troubles.rests("1#a#log", 0)
    troubles.settle(["1#b#odd"])
    assert troubles.rests("1#c#odd", 0)
    troubles.settle(["1#a#odd"])
    assert not troubles.rests("1#c#odd", 0)
    assert troubles.rests("2#d#other", 0)


def test_so_many_troubles_are_noted_and_looks_begin_behind_the_others_for_a_while() -> None:
    troubles, error = Troubles(), ValueError("x")
    for n in range(limits.TROUBLES_MAX):
        troubles.add(entry(n), error, 1_000)
    assert troubles.passed == ""
    for n in (500, 600):
        troubles.add(entry(n), error, 1_000)
        troubles.add_unknown(entry(n + 1), error, 1_000)
        assert entry(n + 1) < troubles.passed < entry(n + 2)
    troubles.add(entry(0), error, 1_000)
    assert entry(601) < troubles.passed < entry(602)
    assert sorted(troubles.errors) == [entry(n) for n in range(limits.TROUBLES_MAX)]
    troubles.reached_end(1_000 + limits.TROUBLE_PAUSE_MS_MAX - 1)
    assert troubles.passed != ""
    troubles.reached_end(1_000 + limits.TROUBLE_PAUSE_MS_MAX)
    assert troubles.passed == ""


def test_nothing_is_passed_over_where_others_may_yet_add_something() -> None:
    troubles = Troubles()
    troubles.pass_over(entry(1_001), 1_000)
    assert troubles.passed == ""
    troubles.pass_over(entry(1_000), 1_000)
    assert troubles.passed == entry(1_000)
    troubles.pass_over(entry(999), 1_000)
    assert troubles.passed == entry(1_000)


def test_looks_come_back_to_the_front_a_while_after_they_began_to_pass_over_it() -> None:
    troubles = Troubles()
    troubles.reached_end(0)
    assert troubles.passed == ""
    troubles.pass_over(entry(1), 1_000)
    troubles.pass_over(entry(2), 2_000)
    troubles.reached_end(1_000 + limits.TROUBLE_PAUSE_MS_MAX - 1)
    assert troubles.passed == entry(2)
    troubles.reached_end(1_000 + limits.TROUBLE_PAUSE_MS_MAX)
    assert troubles.passed == ""


def test_troubles_are_a_set_of_entries() -> None:
    troubles = Troubles()
    troubles.add(entry(1), ValueError("x"), 0)
    troubles.add_unknown("1#b#odd", ValueError("y"), 0)
    assert entry(1) in troubles
    assert "1#b#odd" in troubles
    assert entry(2) not in troubles
    assert sorted(troubles) == sorted([entry(1), "1#b#odd"])
