"""Steps of many rooms that come at once share a commit, and none of them suffers for another."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from onceward import limits
from onceward.api.room_changes import MapAdd
from onceward.api.rooms import Schemas
from onceward.errors import Unavailable
from onceward.rooms.records import Head
from onceward.store.store import Commit, Store
from onceward.store.transaction import Transaction
from tests.rooms.people import House, Person, map_set, open_house

ROOMS = [f"r{number}" for number in range(10)]
ADD = {"op": "map.add", "map": "m", "key": "k", "by": 1}


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as house:
        yield house


@pytest.fixture
async def people(house: House) -> dict[str, Person]:
    """One in each room."""
    found = {}
    for room in ROOMS:
        found[room] = await house.enter(f"user of {room}")
        await found[room].join(room, create=True)
    return found


@pytest.fixture
def commits(house: House) -> list[Commit]:
    """Those that were made since."""
    made: list[Commit] = []
    house.store.on_durable(made.append)
    return made


async def test_rooms_with_little_to_do_share_a_commit(
    people: dict[str, Person], commits: list[Commit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_WRITES_MAX", 12)
    for n in (1, 2):
        for room, person in people.items():
            person.step(room, n, ADD)
        acks = [await person.next("ack") for person in people.values()]
        assert [ack["seq"] for ack in acks] == [n] * len(ROOMS)
        assert len(commits) == 3, "of 4, 4 and 2 rooms"
        commits.clear()


async def test_a_room_with_much_to_do_is_committed_alone(
    people: dict[str, Person], commits: list[Commit]
) -> None:
    for n in range(1, limits.ROOM_FEW_STEPS + 2):
        people["r0"].step("r0", n, ADD)
    people["r1"].step("r1", 1, ADD)
    people["r2"].step("r2", 1, ADD)
    for room, last in (("r0", limits.ROOM_FEW_STEPS + 1), ("r1", 1), ("r2", 1)):
        while (await people[room].next("ack"))["seq"] < last:
            pass
    assert len(commits) == 2


async def test_a_room_that_was_deleted_holds_up_no_other(
    house: House, people: dict[str, Person], commits: list[Commit]
) -> None:
    house.hub._unhook()
    house.hub._unhook = lambda: None  # nobody hears of it before the next commit
    await house.store.run(lambda tx: house.parts.remove(tx, "r3"))
    commits.clear()
    for room, person in people.items():
        person.step(room, 1, ADD)
    for room, person in people.items():
        answer = await person.next("ack", "left")
        assert answer.get("code", "") == ("room_deleted" if room == "r3" else "")
    assert len(commits) == 1, "the others need not be committed again"


async def test_a_room_that_has_moved_holds_up_no_other(
    house: House,
    people: dict[str, Person],
    commits: list[Commit],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for room, person in people.items():
        person.step(room, 1, ADD)
        await person.next("ack")
    commits.clear()
    monkeypatch.setattr(house.hub.owners, "own", lambda id_: id_ != "r3")
    for room, person in people.items():
        person.step(room, 2, ADD)
    for room, person in people.items():
        answer = await person.next("ack", "left")
        assert answer.get("code", "") == ("room_moved" if room == "r3" else "")
    assert len(commits) == 1, "the others need not be committed again"
    assert "has moved to another node; members must join again" in caplog.text
    monkeypatch.undo()
    joined = await (await house.enter("late")).join("r3")
    assert joined["maps"] == {"m": {"k": 1}}


async def test_others_who_change_a_room_at_the_same_time_hold_up_no_other(
    house: House, people: dict[str, Person]
) -> None:
    async def change(tx: Transaction) -> None:
        await house.parts.map_add(tx, "r5", "m", "k", 100)

    for n in range(1, 21):
        racing = asyncio.create_task(house.store.run(change))
        for room, person in people.items():
            person.step(room, n, ADD)
        for person in people.values():
            assert (await person.next("ack"))["n"] == n
        await racing
    await house.until(lambda: people["r5"].got[-1].get("seq") == 40)
    told = [frame["seq"] for frame in people["r5"].got if frame["t"] in ("ack", "change")]
    assert told == list(range(1, 41))
    late = await house.enter("late")
    for room in ROOMS:
        expected = 20 + 2_000 * (room == "r5")
        assert (await late.join(room))["maps"] == {"m": {"k": expected}}


async def test_steps_of_the_same_size_by_others_are_not_taken_for_one_s_own(
    house: House, people: dict[str, Person]
) -> None:
    async def change(tx: Transaction, n: int) -> None:
        add = MapAdd("m", "k", 1)
        await house.parts.change(tx, "r5", [add], by="user of r5", client="d", n=n)

    for n in range(1, 11):
        racing = asyncio.create_task(house.store.run(lambda tx, n=n: change(tx, n)))
        people["r4"].step("r4", n, ADD)
        people["r5"].step("r5", n, ADD)
        await racing
        assert (await people["r5"].next("ack"))["n"] == n
    await house.until(lambda: people["r5"].got[-1].get("seq") == 20)
    told = [frame["seq"] for frame in people["r5"].got if frame["t"] in ("ack", "change")]
    assert told == list(range(1, 21))
    late = await house.enter("late")
    assert (await late.join("r5"))["maps"] == {"m": {"k": 20}}


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_settings_that_were_changed_count_for_the_next_step(
    house: House, people: dict[str, Person], elsewhere: bool
) -> None:
    house.hub._unhook()
    house.hub._unhook = lambda: None  # nobody hears of it before the next commit
    for room, person in people.items():
        person.step(room, 1, ADD)
    for person in people.values():
        await person.next("ack")
    store = Store(house.store.engine) if elsewhere else house.store
    shape = Schemas(maps={"m": {"type": "string"}})
    await store.run(lambda tx: house.parts.configure(tx, "r3", schemas=shape))
    for room, person in people.items():
        person.step(room, 2, ADD)
    assert (await people.pop("r3").next("refused", "ack"))["code"] == "bad_shape"
    assert [(await person.next("ack"))["seq"] for person in people.values()] == [2] * 9


async def test_others_get_their_turn_where_much_changes_in_few_steps(
    house: House, people: dict[str, Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    for room, person in people.items():
        person.step(room, 1, ADD)
    for person in people.values():
        await person.next("ack")
    monkeypatch.setattr(limits, "ROOM_CHANGES_MAX", 5)
    turns: list[int] = []

    def turn() -> None:
        turns.append(sum(person.got[-1]["t"] == "ack" for person in people.values()))
        if len(turns) < 1_000 and turns[-1] < len(ROOMS):
            asyncio.get_running_loop().call_soon(turn)

    for person in people.values():
        person.got.append({"t": "none"})
    few = [map_set("m", f"k{number}", 1) for number in range(3)]
    for room, person in people.items():
        person.step(room, 2, *few)
        person.step(room, 3, *few)
    turn()
    for person in people.values():
        while (await person.next("ack"))["n"] < 3:
            pass
    assert turns.count(0) > len(ROOMS)


async def test_a_step_that_is_refused_is_so_alone(people: dict[str, Person]) -> None:
    for room, person in people.items():
        person.step(room, 1, {**ADD, "by": 2**60} if room == "r7" else ADD)
    assert (await people.pop("r7").next("refused", "ack"))["code"] == "bad_value"
    assert [(await person.next("ack"))["seq"] for person in people.values()] == [1] * 9


async def test_steps_of_rooms_that_cannot_be_committed_come_again(
    house: House, people: dict[str, Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = house.store.run

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("out of reach")

    monkeypatch.setattr(house.store, "run", fail)
    for room, person in people.items():
        person.step(room, 1, ADD)
    for person in people.values():
        assert (await person.next("left"))["code"] == "engine_unreachable"
    monkeypatch.setattr(house.store, "run", run)
    for room, person in people.items():
        epoch = (await person.join(room))["epoch"]
        person.ask("leave", room=room)
        steps = [{"n": 1, "ops": [ADD]}]
        await person.join(room, epoch=epoch, seq=0, steps=steps)
        assert (await person.next("ack"))["seq"] == 1


async def test_rooms_that_always_share_their_commits_get_snapshots_and_are_swept(
    house: House, people: dict[str, Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROOM_SNAPSHOT_STEPS", 10)
    for room in ROOMS:
        await house.store.run(lambda tx, room=room: house.parts.configure(tx, room, keep=10))
    for n in range(1, 61):
        for room, person in people.items():
            person.step(room, n, map_set("m", "k", n))
        for person in people.values():
            await person.next("ack")

    async def heads(tx: Transaction) -> list[Head]:
        return [await house.parts.head(tx, room) for room in ROOMS]

    for head in await house.store.run(heads):
        assert head.seq == 60
        assert head.floor >= 30
        assert head.swept >= head.floor - 20
