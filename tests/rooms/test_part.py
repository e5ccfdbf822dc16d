"""Rooms in transactions: what was committed is there once, in order, and found again."""

import asyncio
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.api import room_changes as op
from onceward.api.rooms import Schemas
from onceward.errors import BadInput, Conflict, HistoryGone, NoSuchRoom, OncewardError
from onceward.rooms.part import Rooms
from onceward.rooms.records import ROOM_DUE
from onceward.rooms.room import Room
from onceward.store.transaction import Transaction
from tests.rooms.making import STEPS
from tests.rooms.rooming import house


def set_to(value: Any, key: str = "k") -> op.MapSet:
    return op.MapSet("m", key, value)


async def code_of(call: Any) -> str:
    with pytest.raises(OncewardError) as refused:
        await call
    return refused.value.code


async def test_a_room_is_made_once_and_gets_an_id_if_it_has_none() -> None:
    home = await house()
    id_, info = await home.create("chess", by="ann", meta={"kind": "game"}, capacity=2)
    assert (id_, info.by, info.meta, info.capacity) == ("chess", "ann", {"kind": "game"}, 2)
    assert await code_of(home.create("chess")) == "room_exists"
    named, _ = await home.create("")
    assert len(named) == 26
    assert await home.state("chess") == {"maps": {}, "lists": {}}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"id_": "x" * 257}, "bad_name"),
        ({"id_": 7}, "bad_name"),
        ({"by": "x" * 329}, "bad_name"),
        ({"meta": {"a": "x" * 20_000}}, "value_too_large"),
        ({"meta": {"a": float("nan")}}, "bad_value"),
        ({"meta": {"a": [2**53]}}, "bad_value"),
        ({"meta": [1]}, "wrong_type"),
        ({"capacity": 0}, "bad_request"),
        ({"per_user": 0}, "bad_request"),
        ({"keep": 1.5}, "bad_request"),
        ({"schemas": Schemas(maps={"m": {"odd": 1}})}, "bad_schema"),
    ],
)
async def test_what_cannot_be_a_room_is_refused(options: Any, code: str) -> None:
    home = await house()
    assert await code_of(home.create(**options)) == code
    assert home.records("room") == []


async def test_every_call_for_a_room_that_is_not_there_says_so() -> None:
    home = await house()
    calls: list[Any] = [
        home.change(set_to(1)),
        home.load(),
        home.run(lambda tx: home.rooms.log(tx, "r", 0)),
        home.run(lambda tx: home.rooms.remove(tx, "r")),
        home.run(lambda tx: home.rooms.configure(tx, "r", capacity=3)),
        home.run(lambda tx: home.rooms.map(tx, "r", "m")),
    ]
    for call in calls:
        with pytest.raises(NoSuchRoom):
            await call


async def test_steps_have_numbers_without_gaps_and_are_found_again_by_another_node() -> None:
    home = await house()
    await home.create()
    for number in range(1, 6):
        entry = await home.change(set_to(number), by="ann")
        assert entry is not None
        assert entry.seq == number
    other = await house(home.engine.memory)
    assert await other.state() == {"maps": {"m": {"k": 5}}, "lists": {}}
    log = await other.run(lambda tx: other.rooms.log(tx, "r", 2))
    assert [(entry.seq, entry.by, entry.ops) for entry in log] == [
        (number, "ann", [set_to(number)]) for number in (3, 4, 5)
    ]
    assert [entry.seq for entry in await other.run(lambda tx: other.rooms.log(tx, "r", 2, 1))] == [
        3
    ]
    await other.change(set_to(6))
    await home.change(set_to(7))
    assert (await home.load()).seq == 7


async def test_a_step_of_a_client_is_taken_once_on_whatever_node() -> None:
    home = await house()
    other = await house(home.engine.memory)
    await home.create()
    add = op.MapAdd("m", "k", 1)
    assert await home.change(add, by="ann", client="c", n=1)
    assert await other.change(add, by="ann", client="c", n=1) is None
    assert await other.change(add, by="ann", client="c", n=2)
    assert await home.change(add, by="ann", client="c", n=2) is None
    assert (await home.state())["maps"] == {"m": {"k": 2}}


async def test_very_many_at_once_each_count_once() -> None:
    home = await house()
    other = await house(home.engine.memory)
    await home.create()
    add = op.MapAdd("m", "k", 1)
    await asyncio.gather(
        *[(home, other)[number % 2].change(add, client=f"c{number}", n=1) for number in range(40)]
    )
    assert (await home.state())["maps"] == {"m": {"k": 40}}
    assert (await home.load()).seq == 40


async def test_several_steps_of_one_transaction_see_each_other_and_are_one_commit() -> None:
    home = await house()
    await home.create()
    await home.change(set_to(1))

    async def work(tx: Transaction) -> Any:
        rooms = home.rooms
        await rooms.map_set(tx, "r", "m", "k", {"a": (1, 2)}, by="robot")
        assert await rooms.map_compare(tx, "r", "m", "k", 3, expect={"a": [1, 2]})
        assert not await rooms.map_compare(tx, "r", "m", "k", 4, expect=1)
        assert not await rooms.map_compare(tx, "r", "m", "k", 4)
        assert await rooms.map_compare(tx, "r", "m", "new", 0)
        assert await rooms.map_add(tx, "r", "m", "k", 2.5) == 5.5
        await rooms.map_delete(tx, "r", "m", "new")
        first = await rooms.list_push(tx, "r", "l", "b")
        await rooms.list_insert(tx, "r", "l", 0, "a")
        last = await rooms.list_insert_after(tx, "r", "l", first, "c")
        await rooms.list_move(tx, "r", "l", first, "")
        await rooms.list_set(tx, "r", "l", last, "z")
        await rooms.list_delete(tx, "r", "l", "nobody")
        await rooms.map_make(tx, "r", "empty")
        await rooms.list_make(tx, "r", "gone")
        await rooms.list_drop(tx, "r", "gone")
        tx.put(("other", "record"), "in the same commit")
        return await rooms.map(tx, "r", "m"), await rooms.list(tx, "r", "l")

    found, items = await home.run(work)
    assert found == {"k": 5.5}
    assert [item.value for item in items] == ["b", "a", "z"]
    state = await home.state()
    assert state["maps"] == {"m": {"k": 5.5}, "empty": {}}
    assert [value for _, _, value in state["lists"]["l"]] == ["b", "a", "z"]
    assert "gone" not in state["lists"]
    log = await home.run(lambda tx: home.rooms.log(tx, "r", 0))
    assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
    assert log[1].by == "robot"


async def test_a_transaction_that_fails_changes_no_room() -> None:
    home = await house()
    await home.create()

    async def work(tx: Transaction) -> None:
        await home.rooms.map_set(tx, "r", "m", "k", 1)
        raise BadInput("no")

    with pytest.raises(BadInput):
        await home.run(work)
    assert (await home.state())["maps"] == {}
    await home.change(set_to(2))
    assert (await home.load()).seq == 1


async def test_a_room_can_be_made_and_filled_in_one_transaction() -> None:
    home = await house()

    async def work(tx: Transaction) -> Any:
        await home.rooms.create(tx, "r")
        await home.rooms.map_set(tx, "r", "m", "k", 1)
        await home.rooms.map_add(tx, "r", "m", "k")
        return await home.rooms.map_get(tx, "r", "m", "k")

    assert await home.run(work) == 2
    assert (await home.state())["maps"] == {"m": {"k": 2}}


async def test_what_a_caller_gets_is_its_own() -> None:
    home = await house()
    await home.create()
    value = {"a": [1]}
    await home.run(lambda tx: home.rooms.map_set(tx, "r", "m", "k", value))
    value["a"].append(2)
    got = await home.run(lambda tx: home.rooms.map_get(tx, "r", "m", "k"))
    got["a"].append(3)
    assert (await home.state())["maps"] == {"m": {"k": {"a": [1]}}}
    assert await home.run(lambda tx: home.rooms.map_get(tx, "r", "m", "k")) == {"a": [1]}


async def test_bad_input_to_the_functions_for_handlers_changes_nothing() -> None:
    home = await house()
    await home.create(schemas=Schemas(maps={"m": {"type": "integer"}}))
    rooms = home.rooms
    calls: list[Any] = [
        lambda tx: rooms.map_set(tx, "r", "m", "k", "text"),
        lambda tx: rooms.map_set(tx, "r", "n", "k", float("inf")),
        lambda tx: rooms.map_set(tx, "r", "n", "k", object()),
        lambda tx: rooms.map_set(tx, "r", "", "k", 1),
        lambda tx: rooms.map_add(tx, "r", "n", "k", 2**60),
        lambda tx: rooms.list_insert(tx, "r", "l", 1, "x"),
        lambda tx: rooms.list_insert(tx, "r", "l", -1, "x"),
        lambda tx: rooms.change(tx, "r", []),
        lambda tx: rooms.change(tx, "r", [set_to(1)], by="x" * 329),
        lambda tx: rooms.change(tx, "r", [set_to(1)], client="é", n=1),
    ]
    for call in calls:
        with pytest.raises(BadInput):
            await home.run(call)
    assert (await home.load()).seq == 0


# A room in memory, as who serves it has it.


async def test_steps_taken_in_memory_are_written_together() -> None:
    home = await house()
    await home.create()
    room = await home.load()
    entries = [room.take([set_to(number)], client="c", n=number).entry for number in (1, 2, 3)]  # type: ignore[union-attr]
    head = await home.run(lambda tx: home.rooms.append(tx, "r", room, entries))
    assert head.seq == 3
    assert len(home.records("roomlog")) == 1
    assert (await home.load()).clients == room.clients


async def test_who_serves_a_room_notices_steps_of_others_and_its_deletion() -> None:
    home = await house()
    await home.create()
    room = await home.load()
    await home.change(set_to("by another"))
    taken = room.take([set_to(1)])
    assert taken is not None
    with pytest.raises(Conflict):
        await home.run(lambda tx: home.rooms.append(tx, "r", room, [taken.entry]))
    room.give_back(taken)
    for entry in await home.run(lambda tx: home.rooms.log(tx, "r", room.seq)):
        room.follow(entry)
    again = room.take([set_to(1)])
    assert again is not None
    await home.run(lambda tx: home.rooms.append(tx, "r", room, [again.entry]))
    await home.run(lambda tx: home.rooms.remove(tx, "r"))
    last = room.take([set_to(2)])
    assert last is not None
    with pytest.raises(NoSuchRoom):
        await home.run(lambda tx: home.rooms.append(tx, "r", room, [last.entry]))
    await home.create()
    with pytest.raises(NoSuchRoom):
        await home.run(lambda tx: home.rooms.append(tx, "r", room, [last.entry]))


# Snapshots, history, and what is removed.


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots after ten steps, in small pieces."""
    monkeypatch.setattr(limits, "ROOM_SNAPSHOT_STEPS", 10)
    monkeypatch.setattr(limits, "ROOM_SWEEP_RECORDS", 3)


@pytest.mark.usefixtures("small")
async def test_a_room_is_seen_as_it_was_as_far_back_as_is_kept() -> None:
    home = await house()
    await home.create(keep=25)
    for number in range(1, 101):
        await home.change(set_to(number), client="c" if number <= 50 else "d", n=number)
    head = await home.run(lambda tx: home.rooms.head(tx, "r"))
    assert head.floor == 70
    for seq in (70, 71, 79, 80, 95, 100):
        assert (await home.state(at=seq))["maps"] == {"m": {"k": seq}}
    for seq in (69, 101, -1):
        with pytest.raises(HistoryGone):
            await home.state(at=seq)
        with pytest.raises(HistoryGone):
            await home.run(lambda tx, seq=seq: home.rooms.log(tx, "r", seq))
    assert (await home.load()).clients.keys() == {("", "c"), ("", "d")}
    home.clock.at_ms += limits.ROOM_CLIENT_MS
    assert (await home.load()).clients.keys() == {("", "d")}
    assert len(home.records("roomlog")) < 45
    assert len(home.records("roomsnap")) < 8


@pytest.mark.usefixtures("small")
async def test_a_large_room_is_kept_in_pieces_within_the_limits_of_a_commit() -> None:
    home = await house()
    await home.create(keep=1)
    for number in range(12):
        await home.change(op.MapSet("m", f"k{number}", "x" * 150_000))
    assert len(home.records("roomsnap")) > 4
    other = await house(home.engine.memory)
    room = await other.load()
    assert (room.seq, len(room.state.maps["m"])) == (12, 12)
    assert await code_of(home.change(op.MapSet("m", "more", "x" * 250_000))) == "room_too_large"


async def test_a_deleted_room_is_gone_at_once_and_its_records_go_in_pieces() -> None:
    home = await house()
    _, first = await home.create()
    for number in range(100):
        await home.change(set_to(number))
    await home.run(lambda tx: home.rooms.remove(tx, "r"))
    with pytest.raises(NoSuchRoom):
        await home.load()
    _, second = await home.create()
    await home.change(set_to("new"))
    assert second.epoch != first.epoch
    rounds = 0
    while entries := [key for key in home.records("due") if key[1].endswith(ROOM_DUE)]:
        await home.run(lambda tx, entry=entries[0]: home.rooms.purge(tx, entry))
        rounds += 1
    assert rounds == 3
    assert [key[0] for key in home.records("roomlog")] == [f"roomlog#r#{second.epoch}"]
    assert (await home.state())["maps"] == {"m": {"k": "new"}}


@given(STEPS, st.integers(2, 7))
async def test_rooms_on_records_are_as_rooms_in_memory(steps: Any, every: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "ROOM_SNAPSHOT_STEPS", every)
        patch.setattr(limits, "ROOM_PIECE_BYTES", 50)
        home, model, seen = await house(), Room("e"), {}
        await home.create(keep=5)
        for number, ops in enumerate(steps, 1):
            codes = ["", ""]
            try:
                await home.change(*ops, by="ann", client="c", n=number)
            except BadInput as error:
                codes[0] = error.code
            try:
                model.take(ops, by="ann", client="c", n=number)
            except BadInput as error:
                codes[1] = error.code
            assert codes[0] == codes[1]
            seen[model.seq] = model.state.plain()
            if number % 5 == 0:
                home = await house(home.engine.memory)  # another node goes on
        floor = (await home.run(lambda tx: home.rooms.head(tx, "r"))).floor
        assert floor >= model.seq - 5 - 2 * every
        for seq in range(floor, model.seq + 1):
            assert seq == 0 or await home.state(at=seq) == seen[seq]
        assert (await home.load()).state.plain() == model.state.plain()


async def test_only_so_much_is_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROOMS_KEPT_MAX", 3)
    monkeypatch.setattr(limits, "ROOMS_KEPT_BYTES_MAX", 10_000)
    home = await house()
    for number in range(6):
        await home.create(f"r{number}")
        await home.change(set_to(number), room=f"r{number}")
    await home.change(set_to(1), room="r4")
    assert list(home.rooms._kept) == ["r3", "r5", "r4"]
    await home.change(set_to("x" * 20_000), room="r4")
    await home.change(set_to(2), room="r4")  # it is followed when it is used the next time
    await home.change(set_to(3), room="r1")
    assert list(home.rooms._kept) == ["r1"]
    for number in range(6):
        assert (await home.load(f"r{number}")).seq == {1: 2, 4: 4}.get(number, 1)


# Lists of rooms.


async def test_rooms_are_found_by_prefix_and_metadata_page_by_page() -> None:
    home = await house()
    for name in ("chess-1", "chess-2", "chess-3", "go-1", "go#1"):
        await home.create(name, meta={"open": name != "chess-2", "size": 2})

    async def find(**options: Any) -> tuple[list[str], str]:
        found, more = await home.run(lambda tx: home.rooms.find(tx, **options))
        return [one.id for one in found], more

    assert await find() == (["chess-1", "chess-2", "chess-3", "go#1", "go-1"], "")
    assert await find(prefix="chess") == (["chess-1", "chess-2", "chess-3"], "")
    assert await find(prefix="go#") == (["go#1"], "")
    assert await find(prefix="x") == ([], "")
    assert (await find(meta={"open": True}))[0] == ["chess-1", "chess-3", "go#1", "go-1"]
    assert (await find(meta={"open": 1}))[0] == []
    assert (await find(meta={"size": 2.0, "open": False}))[0] == ["chess-2"]
    assert await find(limit=2) == (["chess-1", "chess-2"], "chess-2")
    assert await find(limit=3, after="chess-2") == (["chess-3", "go#1", "go-1"], "")
    for most in (0, limits.LIST_MAX + 1, "2"):
        with pytest.raises(BadInput):
            await find(limit=most)


async def test_settings_can_be_changed_and_count_for_later_steps() -> None:
    home = await house()
    await home.create(meta={"a": 1})
    await home.change(set_to("text"))
    schemas = Schemas(maps={"m": {"type": "integer"}})
    await home.run(lambda tx: home.rooms.configure(tx, "r", schemas=schemas, meta={"b": 2}))
    assert await code_of(home.change(set_to("more text"))) == "bad_shape"
    await home.change(set_to(1))
    info = await home.run(lambda tx: home.rooms.info(tx, "r"))
    assert (info.meta, info.capacity) == ({"b": 2}, limits.ROOM_MEMBERS_MAX)
    head = await home.run(lambda tx: home.rooms.head(tx, "r"))
    assert (head.seq, head.settings) == (2, 1)
    for options in ({"capacity": 0}, {"schemas": Schemas(maps={"m": {"odd": 1}})}):
        with pytest.raises(BadInput):
            await home.run(lambda tx, options=options: home.rooms.configure(tx, "r", **options))


async def test_a_room_full_of_keys_that_take_many_bytes_can_still_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "ROOM_SNAPSHOT_STEPS", 5)
    home = await house()
    await home.create()
    steps = [
        [set_to(1, f"{step}.{number}" + "\x01" * 240) for number in range(100)]
        for step in range(14)
    ]
    for ops in steps[:13]:
        await home.change(*ops)
    assert await code_of(home.change(*steps[13])) == "room_too_large"
    assert len(home.records("roomsnap")) > 3
    for number in range(6):
        await home.change(set_to(number, "0.0" + "\x01" * 240))
    await home.change(op.MapDrop("m"))
    assert (await home.state())["maps"] == {}


async def test_rooms_are_listed_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.rooms.part._LISTED_MAX", 4)
    home = await house()
    for number in range(9):
        await home.create(f"r{number}", meta={"kind": "even" if number % 2 else "odd"})
    for meta in ({}, {"kind": "even"}):
        found, after, pages = [], "", 0
        while pages == 0 or after:
            page, after = await home.run(
                lambda tx, after=after, meta=meta: home.rooms.find(  # type: ignore[misc]
                    tx, meta=meta, after=after, limit=2
                )
            )
            found += [room.id for room in page]
            pages += 1
        assert found == [f"r{number}" for number in range(9) if number % 2 or not meta]


class Plain(NamedTuple):
    """Looks like a list in JSON."""

    x: int
    y: int


async def test_what_programs_put_into_a_room_is_kept_as_others_read_it() -> None:
    home = await house()
    await home.create()
    mine = {"list": [1]}
    values = [Plain(1, 2), {1: "a", "1": "b"}, msgspec.Raw(b'{ "a" : 1.50 }'), (1, (2,)), mine]
    for number, value in enumerate(values):
        await home.change(op.MapSet("m", str(number), value))
    mine["list"].append(2)
    expected = [[1, 2], {"1": "b"}, {"a": 1.5}, [1, [2]], {"list": [1]}]
    for home_ in (home, await house(home.engine.memory)):
        found = await home_.run(lambda tx, rooms=home_.rooms: rooms.map(tx, "r", "m"))  # type: ignore[misc]
        assert found == {str(number): value for number, value in enumerate(expected)}


@pytest.mark.parametrize("amount", ["1", None, True, [1]])
async def test_only_numbers_are_added(amount: Any) -> None:
    home = await house()
    await home.create()
    with pytest.raises(BadInput) as refused:
        await home.run(lambda tx: home.rooms.map_add(tx, "r", "m", "k", amount))
    assert refused.value.code == "wrong_type"


CHANGES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "change": (([set_to(1)],), {"maps": {"m": {"k": 1}}, "lists": {}}),
    "map_set": (("m", "k", 1), {"maps": {"m": {"k": 1}}, "lists": {}}),
    "map_delete": (("m", "k"), {"maps": {}, "lists": {}}),
    "map_add": (("m", "k", 2), {"maps": {"m": {"k": 2}}, "lists": {}}),
    "map_compare": (("m", "k", 1), {"maps": {"m": {"k": 1}}, "lists": {}}),
    "map_make": (("m",), {"maps": {"m": {}}, "lists": {}}),
    "map_drop": (("m",), {"maps": {}, "lists": {}}),
    "list_push": (("l", 1), {"maps": {}, "lists": {"l": [1]}}),
    "list_insert": (("l", 0, 1), {"maps": {}, "lists": {"l": [1]}}),
    "list_insert_after": (("l", "", 1), {"maps": {}, "lists": {"l": [1]}}),
    "list_set": (("l", "i", 1), {"maps": {}, "lists": {}}),
    "list_move": (("l", "i", ""), {"maps": {}, "lists": {}}),
    "list_delete": (("l", "i"), {"maps": {}, "lists": {}}),
    "list_make": (("l",), {"maps": {}, "lists": {"l": []}}),
    "list_drop": (("l",), {"maps": {}, "lists": {}}),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_creates_its_room_if_it_may(name: str) -> None:
    home = await house()
    arguments, state = CHANGES[name]
    change = getattr(home.rooms, name)

    async def made(room: str, **how: Any) -> None:
        await home.store.run(lambda tx: change(tx, room, *arguments, **how))

    assert await code_of(made("r", by="ann")) == "no_such_room"
    assert await code_of(made("", create=True)) == "bad_name"
    assert await code_of(made("x" * 257, create=True)) == "bad_name"
    for _ in range(2 if name in ("change", "map_set") else 1):
        await made("r", by="ann", create=True)
    assert shown(await home.state("r")) == state
    info = await home.store.run(lambda tx: home.rooms.info(tx, "r"))
    assert (info.by, info.reserved) == ("ann", False)


def shown(state: Any) -> Any:
    lists = {name: [item[-1] for item in items] for name, items in state["lists"].items()}
    return {"maps": state["maps"], "lists": lists}


def test_every_function_that_changes_a_room_can_create_it() -> None:
    changing = {
        name
        for name in vars(Rooms)
        if name.startswith(("map_", "list_")) and not name.endswith("_get")
    }
    assert changing | {"change"} == set(CHANGES)


async def test_a_room_that_a_rejected_change_created_is_gone_with_its_transaction() -> None:
    home = await house()

    async def rejected(tx: Transaction) -> None:
        await home.rooms.map_set(tx, "r", "m", "k", 1, create=True)
        await home.rooms.map_add(tx, "r", "m", "k", 1, create=True)
        raise KeyError("no")

    with pytest.raises(KeyError):
        await home.store.run(rejected)
    assert await code_of(home.state("r")) == "no_such_room"
