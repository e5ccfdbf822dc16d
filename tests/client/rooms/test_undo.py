"""Undo restores what one has changed, where nobody else has changed it since, and says why not."""

from typing import Any

import pytest
from hypothesis import given

from onceward import limits
from onceward.api import room_changes as op
from onceward.api.rooms import Schemas
from onceward.client.rooms.room import Room
from onceward.errors import BadInput
from tests.client.rooms.guests import Guest, guests, pump
from tests.rooms.making import STEPS


def plain(room: Room) -> Any:
    maps = room.replica.state.plain()["maps"]
    lists = {name: room.list(name).values() for name in room.replica.state.lists}
    return maps, lists


def edit_map(room: Room) -> None:
    room.map("m").set("k", 2)


def delete_key(room: Room) -> None:
    room.map("m").delete("k")


def make_key(room: Room) -> None:
    room.map("m").set("new", {"a": [1]})


def drop_map(room: Room) -> None:
    room.map("m").clear()


def push(room: Room) -> None:
    room.list("l").push("d")


def insert(room: Room) -> None:
    room.list("l").insert(1, "x")


def edit_item(room: Room) -> None:
    room.list("l").set(room.list("l").id_at(1), "B")


def move_item(room: Room) -> None:
    room.list("l").move(room.list("l").id_at(0), 2)


def delete_item(room: Room) -> None:
    room.list("l").delete(room.list("l").id_at(1))


def drop_list(room: Room) -> None:
    room.list("l").clear()


def count(room: Room) -> None:
    room.map("m").add("k", 2.5)


def batch(room: Room) -> None:
    with room.batch():
        room.map("m").set("k", 9)
        room.map("m").set("k", 10)
        room.map("m").add("k", 1)
        room.map("m").set("other", 1)
        room.list("l").insert(0, "front")
        room.list("l").move(room.list("l").id_at(0), 3)
        room.list("l").delete(room.list("l").id_at(0))


EDITS = [
    *(edit_map, delete_key, make_key, drop_map, push, insert, edit_item, move_item),
    *(delete_item, drop_list, count, batch),
]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
@pytest.mark.parametrize("acked", [False, True])
def test_a_step_is_undone_and_done_again_also_several_times(edit: Any, acked: bool) -> None:
    ann, bob = guests("ann", "bob")
    with ann.room.batch():
        ann.room.map("m").set("k", 1)
        for value in "abc":
            ann.room.list("l").push(value)
    pump(ann, bob)
    before = plain(ann.room)
    edit(ann.room)
    after = plain(ann.room)
    assert after != before
    for _ in range(2):
        if acked:
            pump(ann, bob)
        assert ann.room.undo().kept == []
        assert plain(ann.room) == before
        if acked:
            pump(ann, bob)
        assert ann.room.redo().kept == []
        assert plain(ann.room) == after
    pump(ann, bob)
    assert plain(bob.room) == after


def seen(room: Room) -> Any:
    """What is in it, but for maps and lists that are empty: those may stay."""
    state = room.replica.state
    lists = {
        name: [(id_, cell.value) for id_, cell in items.in_order()]
        for name, items in state.lists.items()
    }
    return (
        {name: values for name, values in state.plain()["maps"].items() if values},
        {name: items for name, items in lists.items() if items},
    )


@given(STEPS)
def test_whatever_one_did_is_undone_and_done_again_step_by_step(steps: Any) -> None:
    (ann,) = guests("ann")
    states = [seen(ann.room)]
    for ops in steps:
        # Counting is undone by counting back: what was not there is 0 then.
        if any(isinstance(does, op.MapAdd) for does in ops):
            continue
        try:
            step = ann.room.change(ops)
        except BadInput:
            continue
        if step.effects:
            states.append(seen(ann.room))
    again = []
    while len(states) > 1:
        after = states.pop()
        if ann.room.undo().step is not None:  # else there was nothing to be done
            again.append(after)
        assert seen(ann.room) == states[-1]
    assert not ann.room.can_undo
    while again:
        ann.room.redo()
        assert seen(ann.room) == again.pop()
    assert not ann.room.can_redo
    pump(ann)
    assert ann.room.waiting == 0


def test_steps_are_undone_from_the_last_one_on_also_on_one_key() -> None:
    (ann,) = guests("ann")
    notes = ann.room.map("m")
    for value in (1, 2, 3):
        notes.set("k", value)
        pump(ann)
    for value in (2, 1, None):
        assert ann.room.undo().kept == []
        pump(ann)
        assert notes.get("k") == value
    assert not ann.room.can_undo
    for value in (1, 2, 3):
        assert ann.room.redo().kept == []
        assert notes.get("k") == value
    assert not ann.room.can_redo
    for value in (2, 1):
        assert ann.room.undo().kept == []
        assert notes.get("k") == value


def test_what_others_have_changed_since_stays_and_is_told() -> None:
    ann, bob = guests("ann", "bob")
    with ann.room.batch():
        ann.room.map("m").set("k", 1)
        ann.room.map("m").set("j", 1)
    pump(ann, bob)
    bob.room.map("m").set("k", "bob's")
    pump(bob, ann)
    undone = ann.room.undo()
    assert undone.kept == ["'k' in 'm' was changed by others since, or its history is unknown"]
    pump(ann, bob)
    assert bob.room.map("m").whole() == {"k": "bob's"}
    assert ann.room.redo().kept == []
    assert ann.room.map("m").whole() == {"k": "bob's", "j": 1}


def test_when_nothing_can_be_restored_nothing_is_sent() -> None:
    ann, bob = guests("ann", "bob")
    ann.room.map("m").set("k", 1)
    pump(ann, bob)
    bob.room.map("m").set("k", 2)
    bob.room.map("m").set("k", 1)  # the same value, but not ann's
    pump(bob, ann)
    undone = ann.room.undo()
    assert undone.step is None
    assert len(undone.kept) == 1
    assert ann.room.waiting == 0
    assert not ann.room.can_redo


def test_what_others_did_before_one_s_own_change_arrived_is_what_undo_restores() -> None:
    ann, bob = guests("ann", "bob")
    ann.room.map("m").set("k", "ann's")
    bob.room.map("m").set("k", "bob's")
    bob.pump()
    ann.pump()
    assert ann.room.map("m").get("k") == "ann's", "it came to the server last"
    assert ann.room.undo().kept == []
    assert ann.room.map("m").get("k") == "bob's"


def test_counting_is_undone_whoever_has_counted_since() -> None:
    ann, bob = guests("ann", "bob")
    ann.room.map("m").add("n", 5)
    pump(ann, bob)
    bob.room.map("m").add("n", 1)
    pump(bob, ann)
    assert ann.room.undo().kept == []
    assert ann.room.map("m").get("n") == 1
    pump(ann, bob)
    bob.room.map("m").set("n", "text")
    pump(bob, ann)
    assert ann.room.redo().kept == ["'n' in 'm' is no longer a number"]


def test_a_refused_step_is_nothing_to_undo() -> None:
    (ann,) = guests("ann", schemas=Schemas(maps={"m": {"type": "integer"}}))
    ann.room.map("m").set("k", 1)
    ann.room.map("m").set("k", "text")
    pump(ann)
    assert ann.room.map("m").get("k") == 1
    assert ann.room.undo().kept == []
    assert ann.room.map("m").get("k") is None
    with pytest.raises(BadInput, match="nothing to undo"):
        ann.room.undo()


def test_a_new_change_ends_what_can_be_redone() -> None:
    (ann,) = guests("ann")
    ann.room.map("m").set("k", 1)
    ann.room.undo()
    assert ann.room.can_redo
    ann.room.map("m").set("j", 1)
    with pytest.raises(BadInput, match="nothing to redo"):
        ann.room.redo()


def test_in_a_batch_nothing_is_undone() -> None:
    (ann,) = guests("ann")
    ann.room.map("m").set("k", 1)
    with (
        ann.room.batch(),
        pytest.raises(BadInput, match="end it before you undo "),
    ):
        ann.room.undo()


def test_nothing_is_kept_of_steps_that_cannot_be_undone_any_more() -> None:
    (ann,) = guests("ann")
    items = ann.room.list("l")
    for number in range(3 * limits.ROOM_UNDO_MAX):
        items.delete(items.push(number).id)
        if number % 2:
            pump(ann)
    pump(ann)
    assert len(ann.replica.latest) <= limits.ROOM_UNDO_MAX + 1
    assert ann.room.undo().kept == []
    assert items.values() == [3 * limits.ROOM_UNDO_MAX - 1]


def test_only_so_many_steps_can_be_undone() -> None:
    (ann,) = guests("ann")
    for number in range(limits.ROOM_UNDO_MAX + 5):
        ann.room.map("m").set("k", number)
    for _ in range(limits.ROOM_UNDO_MAX):
        assert ann.room.undo().kept == []
    assert not ann.room.can_undo
    assert ann.room.map("m").get("k") == 4


def number_anew(guest: Guest, name: str) -> None:
    """Insert where it takes a longer position each time, until the list is numbered anew."""
    items = guest.room.list(name)
    low = items.id_at(0)
    for number in range(60):
        new = items.insert_after(low, number).id
        low = new if number % 2 else low
    assert guest.replica.numbered[name] > 0


@pytest.mark.parametrize("author", ["ann", "bob"])
def test_to_number_a_list_anew_is_no_change_of_its_items(author: str) -> None:
    ann, bob = guests("ann", "bob")
    guest = {"ann": ann, "bob": bob}[author]
    items = ann.room.list("l")
    one, two, three = (items.push(value).id for value in ("one", "two", "three"))
    pump(ann, bob)
    items.delete(three)
    items.move(two, 0)
    items.set(one, "ONE")
    four = items.push("four").id
    pump(ann, bob)
    before = len(items)
    number_anew(guest, "l")
    pump(bob, ann)
    assert ann.replica.numbered["l"] > 0
    for _ in range(60 if author == "ann" else 0):
        assert ann.room.undo().kept == []
    assert ann.room.undo().kept == []  # four was pushed
    assert four not in dict(items.items())
    assert ann.room.undo().kept == []
    assert dict(items.items())[one] == "one"
    order = [id_ for id_, _ in items.items()]
    undone = ann.room.undo()
    assert undone.kept == [f"{two!r} in 'l' keeps its position, because its list was renumbered"]
    assert [id_ for id_, _ in items.items()] == order
    assert ann.room.undo().kept == []
    assert dict(items.items())[three] == "three"
    pump(ann, bob)
    assert bob.room.list("l").values() == items.values()
    assert len(items) == before + (0 if author == "ann" else 60)
