"""What a person is told: where something looks other than before, and by whom it was."""

from typing import Any

from onceward.api import room_changes as op
from onceward.client.rooms.replica import Replica, Who
from onceward.rooms.frames import Ack, Refused, Snapshot
from tests.client.rooms.copies import by_bob, hear, joined, live, put

ANN, BOB = Who("ann", True), Who("bob", False)


def told(replica: Replica) -> Any:
    """Places by whose they are; and from now on what comes next."""
    found: dict[Who, set[Any]] = {}
    for one in replica.changed:
        found.setdefault(one.who, set()).update(one.places)
    replica.changed.clear()
    return found


def key(*names: str) -> set[Any]:
    return {("map", "m", name) for name in names}


MAP: Any = {("map", "m", None)}


def test_one_s_own_changes_are_told_as_one_s_own() -> None:
    replica = live()
    replica.change([put("a"), put("b")])
    assert told(replica) == {ANN: MAP | key("a", "b")}
    replica.change([put("a")])
    assert told(replica) == {}, "it is the same as before"
    replica.change([op.ListInsert("l", "i", 1)])
    assert told(replica) == {ANN: {("list", "l", None), ("list", "l", "i")}}
    replica.begin()
    replica.change([put("a", 2), put("c")])
    assert told(replica) == {ANN: key("a", "c")}
    replica.abort()
    assert told(replica) == {ANN: key("a", "c")}
    hear(replica, Ack("r", 1, 1))
    assert told(replica) == {}


def test_changes_of_others_are_told_where_they_show() -> None:
    replica = live({"m": {"a": 0, "b": 0}})
    replica.change([put("a")])
    told(replica)
    hear(replica, by_bob(1, put("a", 2), put("b", 2)))
    assert told(replica) == {BOB: key("b")}, "one's own is on top of the other"
    hear(replica, Ack("r", 1, 2))
    assert told(replica) == {}
    hear(replica, by_bob(3, put("a", 3)), by_bob(4, put("b", 2), put("a", 1)))
    assert told(replica) == {}, "in the end all is as before"


def test_all_that_came_is_told_at_once_each_as_whose_it_is() -> None:
    replica = live({"m": {"a": 0, "b": 0, "c": 0, "n": 0}})
    replica.change([op.MapAdd("m", "n", 1)])
    told(replica)
    hear(replica, by_bob(1, put("a")), Ack("r", 1, 2), by_bob(3, put("b"), put("n", 5)))
    assert told(replica) == {BOB: key("a", "b", "n")}
    eve = by_bob(5, put("b", 2))
    hear(replica, by_bob(4, put("a", 2)), type(eve)("r", 5, eve.ops, "eve"))
    assert told(replica) == {BOB: key("a"), Who("eve"): key("b")}


def test_what_shows_again_when_a_step_is_refused_is_one_s_own_change() -> None:
    replica = live({"m": {"a": 0}})
    replica.change([put("a")])
    replica.change([put("b")])
    told(replica)
    hear(replica, Refused("r", 1, "bad_shape"))
    assert told(replica) == {ANN: key("a")}


def test_what_does_not_fit_any_more_is_the_doing_of_who_came_between() -> None:
    replica = live({"m": {"k": 1}})
    replica.change([op.MapCompare("m", "k", 2, 1), put("a")])
    told(replica)
    hear(replica, by_bob(1, put("k", 5)))
    assert told(replica) == {BOB: key("k", "a")}


def test_what_came_before_a_batch_is_given_up_is_not_its_doing() -> None:
    replica = live({"m": {"k": 1}})
    replica.change([op.MapCompare("m", "k", 2, 1), put("a")])
    replica.begin()
    replica.change([put("z")])
    told(replica)
    replica.receive(by_bob(1, put("k", 5)))
    replica.abort()
    assert told(replica) == {BOB: key("k", "a"), ANN: key("z")}


def test_of_a_snapshot_the_differences_are_told_and_nobody_is_named() -> None:
    lists = {"l": [("i", "a0", 1), ("j", "a1", 1)], "gone": [("x", "a0", 1)]}
    replica = live({"m": {"a": 0, "b": 0}, "old": {"k": 0}}, lists)
    replica.change([put("own")])
    told(replica)
    replica.join()
    maps = {"m": {"a": 0, "b": 1}, "new": {"k": 1}}
    replica.receive(joined(9, reset="gap"))
    replica.receive(Snapshot("r", 9, maps, {}, more=True))
    assert told(replica) == {}
    hear(replica, Snapshot("r", 9, {}, {"l": [("i", "a0", 1), ("k", "a1", 1)]}))
    assert told(replica) == {
        Who(""): {
            *key("b"),
            *(("map", "old", None), ("map", "old", "k"), ("map", "new", None), ("map", "new", "k")),
            *(("list", "l", "j"), ("list", "l", "k")),
            *(("list", "gone", None), ("list", "gone", "x")),
        }
    }


# Whose change is the latest: what can be undone.


def test_the_latest_change_of_one_s_own_is_known_by_place() -> None:
    replica = live({"m": {"a": 0, "b": 0}})
    one = replica.change([put("a"), put("b")])
    two = replica.change([put("a", 2)])
    a, b = ("map", "m", "a"), ("map", "m", "b")
    assert replica.latest == {a: two, b: one}
    assert two.below == {a: one}
    assert one.below == {a: None, b: None}
    replica.begin()
    replica.change([put("a", 3)])
    replica.change([put("a", 4)])
    replica.abort()
    assert replica.latest == {a: two, b: one}


def test_what_others_change_is_no_longer_one_s_own_unless_that_is_on_top() -> None:
    replica = live({"m": {"a": 0, "b": 0}})
    one = replica.change([put("a"), put("b")])
    hear(replica, Ack("r", 1, 1))
    two = replica.change([put("a", 2)])
    a, b = ("map", "m", "a"), ("map", "m", "b")
    hear(replica, by_bob(2, put("a", 3)))
    assert replica.latest == {a: two, b: one}
    assert two.below == {a: None}
    hear(replica, Ack("r", 2, 3), by_bob(4, put("a", 4)))
    assert replica.latest == {b: one}


def test_a_step_that_is_answered_together_with_what_came_before_it_is_on_top_of_that() -> None:
    replica = live({"m": {"a": 0}})
    replica.change([put("a")])
    hear(replica, Ack("r", 1, 1))
    two = replica.change([put("a", 2)])
    two.kept = True
    hear(replica, by_bob(2, put("a", 3)), Ack("r", 2, 3))
    assert replica.latest == {("map", "m", "a"): two}
    assert two.below == {("map", "m", "a"): None}


def test_a_refused_step_was_never_the_latest() -> None:
    replica = live({"m": {"a": 0}})
    one = replica.change([put("a")])
    hear(replica, Ack("r", 1, 1))
    one.kept = True
    replica.change([put("a", 2), put("b")])
    hear(replica, Refused("r", 2, "bad_shape"))
    assert replica.latest == {("map", "m", "a"): one}


def test_after_a_snapshot_only_what_waits_is_the_latest() -> None:
    replica = live({"m": {"a": 0}})
    replica.change([put("a")])
    hear(replica, Ack("r", 1, 1))
    late = replica.change([put("b")])
    replica.join()
    hear(replica, joined(9, 1, reset="gap"), Snapshot("r", 9, {"m": {"a": 1}}, {}))
    assert replica.latest == {("map", "m", "b"): late}


LAST = "h" + "z" * 8


def test_lists_that_are_numbered_anew_are_counted_whoever_does_it() -> None:
    lists = {"l": [("i", "a0", 1), ("j", LAST, 1)], "m": [("i", "a0", 1), ("j", LAST, 1)]}
    replica = live({}, lists)
    early = replica.change([op.ListInsert("l", "front", 1, after="")])
    assert (replica.numbered, early.numbered) == ({}, {})
    own = replica.change([op.ListInsert("l", "end", 1), op.MapSet("n", "k", 1)])
    assert (replica.numbered, own.numbered) == ({"l": 1}, {})
    later = replica.change([op.ListInsert("l", "more", 1)])
    assert (replica.numbered, later.numbered) == ({"l": 1}, {"l": 1})
    hear(replica, Ack("r", 1, 1), Ack("r", 2, 2), Ack("r", 3, 3))
    hear(replica, by_bob(4, op.ListInsert("m", "end", 1)))
    assert replica.numbered == {"l": 1, "m": 1}
    hear(replica, by_bob(5, op.ListMove("l", "more", at=LAST)))
    assert replica.numbered == {"l": 1, "m": 1}
    hear(replica, by_bob(6, op.ListInsert("l", "last", 1)))
    assert replica.numbered == {"l": 2, "m": 1}
