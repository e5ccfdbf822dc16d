"""Rooms and the people in them, without a network."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onceward import limits
from onceward.alarms import DAMAGED_RECORDS
from onceward.api.rooms import Schemas
from onceward.errors import BadInput, Unavailable
from onceward.rooms.live import LiveRoom
from onceward.rooms.loaded import LoadedRoom
from onceward.rooms.records import log_partition
from onceward.rooms.room import Room
from onceward.rooms.schemas import Shapes
from onceward.store.transaction import Transaction
from tests.rooms.people import Badge, House, Person, map_set, open_house


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as house:
        yield house


async def test_a_step_is_acknowledged_and_told_to_all_others(house: House) -> None:
    ann, ben = await house.enter("ann"), await house.enter("ben")
    await ann.join("r", create=True)
    joined = await ben.join("r", "b")
    assert [member["user"] for member in joined["members"]] == ["ann", "ben"]
    assert (await ann.next("came"))["user"] == "ben"
    ann.step("r", 1, map_set("m", "k", 1))
    ack = await ann.next()
    digest = ack.pop("digest")
    assert ack == {"t": "ack", "room": "r", "n": 1, "seq": 1}
    change = {"t": "change", "room": "r", "seq": 1, "ops": [map_set("m", "k", 1)]}
    assert await ben.next() == {**change, "by": "ann", "client": "c", "n": 1, "digest": digest}
    cat = await house.enter("cat")
    joined = await cat.join("r")
    assert (joined["seq"], joined["maps"]) == (1, {"m": {"k": 1}})
    assert joined["digest"] == digest


async def test_steps_of_one_turn_are_one_commit_and_one_write(house: House) -> None:
    ann, ben = await house.enter("ann"), await house.enter("ben")
    await ann.join("r", create=True)
    await ben.join("r")
    await ann.next("came")
    commits = 0

    def count(_: object) -> None:
        nonlocal commits
        commits += 1

    house.store.on_durable(count)
    writes = ben.writes
    for n in range(1, 51):
        ann.step("r", n, map_set("m", "k", n))
        ben.step("r", n, map_set("m", "l", n))
    await house.until(lambda: len(ben.got) >= 100)
    assert (commits, ben.writes - writes) == (1, 1)
    told = [(frame["t"], frame["seq"]) for frame in ben.got[-100:]]
    assert told == [("change" if seq % 2 else "ack", seq) for seq in range(1, 101)]


async def test_a_step_that_comes_again_is_taken_once(house: House) -> None:
    ann = await house.enter("ann")
    await ann.join("r", create=True)
    ann.step("r", 1, {"op": "map.add", "map": "m", "key": "k", "by": 1})
    await ann.next("ack")
    ann.step("r", 1, {"op": "map.add", "map": "m", "key": "k", "by": 1})
    assert await ann.next() == {"t": "ack", "room": "r", "n": 1, "seq": 1}
    ben = await house.enter("ben")
    assert (await ben.join("r"))["maps"] == {"m": {"k": 1}}


async def test_a_refused_step_ends_nothing(house: House) -> None:
    ann, ben = await house.enter("ann"), await house.enter("ben")
    await ann.join("r", create=True)
    await ben.join("r")
    await ann.next("came")
    ann.step("r", 1, {"op": "map.compare", "map": "m", "key": "k", "value": 2, "expect": 1})
    ann.step("r", 2, map_set("m", "k", 3))
    refused, ack = await ann.next(), await ann.next()
    assert (refused["t"], refused["n"], refused["code"]) == ("refused", 1, "not_expected")
    assert (ack["t"], ack["n"], ack["seq"]) == ("ack", 2, 1)
    assert (await ben.next())["seq"] == 1


async def test_numbers_beyond_the_limit_enter_no_room(house: House) -> None:
    ann = await house.enter("ann")
    await ann.join("r", create=True)
    ann.step("r", 1, map_set("m", "k", {"deep": [2**53]}))
    ann.ask("presence.set", room="r", name="p", value=2**53)
    ann.ask("say", room="r", event="e", value=[1e17])
    ann.step("r", 2, map_set("m", "k", 2**53 - 1))
    ann.step("r", 3, {"op": "map.add", "map": "m", "key": "k", "by": 1})
    told = [await ann.next() for _ in range(5)]
    assert [frame.get("code") for frame in told if frame["t"] == "error"] == ["bad_value"] * 2
    steps = [(frame["t"], frame.get("code")) for frame in told if frame["t"] != "error"]
    assert steps == [("refused", "bad_value"), ("ack", None), ("refused", "not_countable")]
    with pytest.raises(BadInput, match="9007199254740993 is outside"):
        await house.store.run(lambda tx: house.parts.map_set(tx, "r", "m", "k", [2**53 + 1]))


async def test_who_comes_back_gets_exactly_what_was_missed(house: House) -> None:
    ann, ben = await house.enter("ann"), await house.enter("ben")
    epoch = (await ann.join("r", create=True))["epoch"]
    await ben.join("r")
    ben.lose()
    for n in range(1, 4):
        ann.step("r", n, map_set("m", "k", n))
    digest = (await ann.next("ack"))["digest"]
    again = await house.enter("ben")
    joined = await again.join("r", epoch=epoch, seq=1, digest=digest)
    assert (joined.get("reset", ""), joined["seq"]) == ("", 3)
    assert [(await again.next())["seq"] for _ in range(2)] == [2, 3]


async def test_steps_sent_again_with_the_join_are_taken_once(house: House) -> None:
    ann = await house.enter("ann")
    epoch = (await ann.join("r", create=True))["epoch"]
    ann.step("r", 1, {"op": "map.add", "map": "m", "key": "k", "by": 1})
    await ann.next("ack")
    ann.lose()
    again = await house.enter("ann")
    add = [{"op": "map.add", "map": "m", "key": "k", "by": 1}]
    steps = [{"n": 1, "ops": add}, {"n": 2, "ops": add}]
    joined = await again.join("r", epoch=epoch, seq=0, steps=steps)
    assert joined["n"] == 1
    assert (await again.next())["t"] == "change"  # its own, which counts as an ack
    ack = await again.next()
    assert (ack["t"], ack["n"], ack["seq"]) == ("ack", 2, 2)


@pytest.mark.parametrize(
    ("position", "reset"),
    [({"epoch": "other", "seq": 1}, "epoch"), ({"seq": 99}, "ahead"), ({"seq": 0}, "gap")],
)
async def test_who_cannot_be_told_what_was_missed_starts_anew(
    house: House, monkeypatch: pytest.MonkeyPatch, position: dict[str, object], reset: str
) -> None:
    monkeypatch.setattr(limits, "REPLAY_STEPS_MAX", 2)
    ann = await house.enter("ann")
    epoch = (await ann.join("r", create=True))["epoch"]
    for n in range(1, 5):
        ann.step("r", n, map_set("m", "k", n))
        await ann.next("ack")
    ben = await house.enter("ben")
    joined = await ben.join("r", **{"epoch": epoch, **position})
    assert (joined["reset"], joined["maps"]) == (reset, {"m": {"k": 4}})


async def test_a_room_leaves_memory_and_comes_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROOM_IDLE_S", 0.0)
    ann = await house.enter("ann")
    epoch = (await ann.join("r", create=True))["epoch"]
    ann.step("r", 1, map_set("m", "k", 1))
    await ann.next("ack")
    ann.ask("leave", room="r")
    await house.until(lambda: not house.hub.rooms)
    joined = await ann.join("r", epoch=epoch, seq=0)
    assert joined.get("reset", "") == ""  # what was missed comes from the store
    assert (await ann.next())["seq"] == 1


async def test_a_room_that_comes_back_reads_no_more_of_its_log_than_it_keeps(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPLAY_BYTES_MAX", 20_000)
    await house.make("r")
    for number in range(60):
        value = f"{number} " + "x" * 1_000
        await house.store.run(lambda tx, value=value: house.parts.map_set(tx, "r", "m", "k", value))
    read: list[int] = []
    add = LoadedRoom.add
    monkeypatch.setattr(
        LoadedRoom, "add", lambda ledger, entry: (read.append(entry.seq), add(ledger, entry))[1]
    )
    ann, ben = await house.enter("ann"), await house.enter("ben")
    epoch = (await ann.join("r"))["epoch"]
    assert read == list(range(61 - len(read), 61))
    assert 15 <= len(read) <= 20
    past = await house.store.run(lambda tx: house.parts.load(tx, "r", 50))
    again = await ben.join("r", epoch=epoch, seq=50, digest=past.digest)
    assert again.get("reset", "") == ""
    assert [(await ben.next("change"))["seq"] for _ in range(10)] == list(range(51, 61))
    cat = await house.enter("cat")
    assert (await cat.join("r", epoch=epoch, seq=30))["reset"] == "gap"


async def test_idle_rooms_are_not_kept_without_end(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROOMS_IDLE_MAX", 2)
    ann = await house.enter("ann")
    for number in range(5):
        await ann.join(f"r{number}", create=True)
    for number in range(5):
        ann.ask("leave", room=f"r{number}")
    await house.until(lambda: len(house.hub.rooms) == 2)
    assert sorted(house.hub.rooms) == ["r3", "r4"]


@pytest.mark.parametrize("create", [False, True])
async def test_a_damaged_room_is_not_served_as_empty(
    house: House, create: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def damage(tx: Transaction) -> None:
        [row] = await tx.scan(log_partition("r", made.epoch))
        tx.delete(row.key)

    _, made = await house.store.run(lambda tx: house.parts.create(tx, "r"))
    await house.store.run(lambda tx: house.parts.map_set(tx, "r", "m", "k", 1))
    await house.store.run(damage)
    ann = await house.enter("ann")
    ann.ask("join", room="r", client="c", create=create)
    left = await ann.next()
    assert (left["t"], left["code"]) == ("left", "damaged")
    assert "cannot join the room r: the room 'r' is damaged: entry 1 of its log" in caplog.text
    assert house.hub.rooms == {}
    alarm = house.store.alarms.get(DAMAGED_RECORDS)
    assert alarm is not None
    assert "entry 1 of its log is missing" in alarm.message


async def test_what_any_transaction_changes_is_told(house: House) -> None:
    ann = await house.enter("ann")
    await ann.join("r", create=True)

    async def change(tx: Transaction) -> None:
        await house.parts.map_set(tx, "r", "m", "k", 1, by="shop")

    await house.store.run(change)
    told = await ann.next("change")
    assert (told["seq"], told["by"], told["ops"]) == (1, "shop", [map_set("m", "k", 1)])
    ann.step("r", 1, map_set("m", "k", 2))
    await house.store.run(change)
    seqs = {(await ann.next("ack", "change"))["seq"] for _ in range(2)}
    assert seqs == {2, 3}


async def test_steps_race_with_other_transactions_and_all_arrive_in_order(house: House) -> None:
    ann, ben = await house.enter("ann"), await house.enter("ben")
    await ann.join("r", create=True)
    await ben.join("r")
    await ann.next("came")

    async def change() -> None:
        await house.store.run(lambda tx: house.parts.map_add(tx, "r", "m", "k"))

    for n in range(1, 21):
        ann.step("r", n, {"op": "map.add", "map": "m", "key": "k", "by": 1})
        await change()
    seqs = [(await ben.next())["seq"] for _ in range(40)]
    assert seqs == list(range(1, 41))
    cat = await house.enter("cat")
    assert (await cat.join("r"))["maps"] == {"m": {"k": 40}}


async def test_a_deleted_room_lets_its_members_go(house: House) -> None:
    ann = await house.enter("ann")
    first = await ann.join("r", create=True)
    await ann.join("other", create=True)
    await house.store.run(lambda tx: house.parts.remove(tx, "r"))
    left = await ann.next("left")
    assert (left["room"], left["code"]) == ("r", "room_deleted")
    ann.step("r", 1, map_set("m", "k", 1))
    assert (await ann.next())["code"] == "not_joined"
    ann.step("other", 1, map_set("m", "k", 1))
    assert (await ann.next())["t"] == "ack"
    again = await ann.join("r", create=True, epoch=first["epoch"], seq=0)
    assert again["reset"] == "epoch"


async def test_a_room_holds_no_more_than_its_capacity(house: House) -> None:
    await house.make("r", capacity=1)
    ann, ben = await house.enter("ann"), await house.enter("ben")
    await ann.join("r")
    ben.ask("join", room="r", client="b")
    left = await ben.next("left")
    assert left["code"] == "room_full"
    ann.ask("leave", room="r")
    await ben.join("r")


async def test_one_user_cannot_fill_a_room(house: House) -> None:
    await house.make("r", capacity=2, per_user=3)
    greedy = [await house.enter("ann") for _ in range(5)]
    for number, person in enumerate(greedy[:3]):
        await person.join("r", f"c{number}")
    for person in greedy[3:]:
        person.ask("join", room="r", client="more")
        left = await person.next("left")
        assert left["code"] == "room_full"
        assert "'ann' has 3 connections to the room 'r', the maximum" in left["detail"]
    await (await house.enter("ben")).join("r", "b")
    await (await house.enter("ben")).join("r", "b2")
    eve = await house.enter("eve")
    eve.ask("join", room="r", client="e")
    assert "has 2 users" in (await eve.next("left"))["detail"]
    greedy[0].ask("leave", room="r")
    await greedy[4].join("r", "c0")


async def test_users_have_100_connections_to_a_room_by_default(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = [await house.enter("ann") for _ in range(101)]
    for number, person in enumerate(ann[:100]):
        await person.join("r", f"c{number}", create=True)
    ann[100].ask("join", room="r", client="one more")
    assert (await ann[100].next("left"))["code"] == "room_full"
    monkeypatch.setattr(limits, "ROOM_MEMBERS_MAX", 101)
    await (await house.enter("ben")).join("r")
    eve = await house.enter("eve")
    eve.ask("join", room="r", client="e")
    assert "has 101 connections" in (await eve.next("left"))["detail"]


async def test_concurrent_joins_and_leaves_lose_no_member(house: House) -> None:
    watcher = await house.enter("watcher")
    await watcher.join("r", create=True)
    crowd = [await house.enter(f"u{number}") for number in range(40)]
    await asyncio.gather(*[person.join("r") for person in crowd])
    for person in crowd[::2]:
        person.lose()
    await house.until(lambda: sum(frame["t"] == "went" for frame in watcher.got) == 20)
    here = {frame["id"]: frame["user"] for frame in watcher.got if frame["t"] == "came"}
    for frame in watcher.got:
        if frame["t"] == "went":
            del here[frame["id"]]
    assert sorted(here.values()) == sorted(f"u{number}" for number in range(1, 40, 2))
    late = await house.enter("late")
    joined = await late.join("r")
    assert {m["id"] for m in joined["members"]} - {joined["me"]} > set(here)
    assert len(joined["members"]) == 22


async def test_what_is_said_reaches_all_others_and_is_not_kept(house: House) -> None:
    ann, ben, cat = [await house.enter(name) for name in ("ann", "ben", "cat")]
    me = (await ann.join("r", create=True))["me"]
    await ben.join("r")
    to = (await cat.join("r"))["me"]
    ann.ask("say", room="r", event="wave", value=1)
    ann.ask("tell", room="r", to=to, event="hush", value=2)
    said = {"t": "said", "room": "r", "event": "wave", "value": 1, "sender": me, "by": "ann"}
    assert await ben.next("said") == said
    assert await cat.next("said") == said
    assert (await cat.next("said"))["direct"] is True
    ann.ask("tell", room="r", to="nobody", event="hush")
    assert (await ann.next("said", "error"))["code"] == "no_such_member"
    assert sum(frame["t"] == "said" for frame in ben.got) == 1


async def test_a_connection_with_much_unanswered_is_read_no_further(house: House) -> None:
    ann = await house.enter("ann")
    await ann.join("r", create=True)
    for n in range(1, limits.STEPS_AHEAD_MAX + 1):
        assert not ann.paused
        ann.step("r", n, map_set("m", "k", n))
    assert ann.paused
    await house.until(lambda: ann.got[-1].get("seq") == limits.STEPS_AHEAD_MAX)
    assert not ann.paused


async def test_a_commit_that_fails_makes_members_join_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = await house.enter("ann")
    epoch = (await ann.join("r", create=True))["epoch"]
    run = house.store.run

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("out of reach")

    monkeypatch.setattr(house.store, "run", fail)
    ann.step("r", 1, map_set("m", "k", 1))
    left = await ann.next("left")
    assert left["code"] == "engine_unreachable"
    monkeypatch.setattr(house.store, "run", run)
    steps = [{"n": 1, "ops": [map_set("m", "k", 1)]}]
    await ann.join("r", epoch=epoch, seq=0, steps=steps)
    assert (await ann.next("ack"))["seq"] == 1


async def test_who_is_let_in_just_when_the_room_ends_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.make("r")
    admit = LiveRoom._admit

    def admit_and_end(room: LiveRoom, *joining: Any) -> Any:
        member = admit(room, *joining)
        room.end("room_moved", "it has moved")
        return member

    monkeypatch.setattr(LiveRoom, "_admit", admit_and_end)
    ann = await house.enter("ann")
    ann.ask("join", room="r", client="c")
    assert (await ann.next("left"))["code"] == "room_moved"
    ann.step("r", 1, map_set("m", "k", 1))
    assert (await ann.next())["code"] == "not_joined"


async def test_steps_that_are_too_large_together_are_committed_apart(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROOM_COMMIT_BYTES_MAX", 3_000)
    ann = await house.enter("ann")
    await ann.join("r", create=True)
    for n in range(1, 9):
        ann.step("r", n, map_set("m", str(n), "x" * 1_000))
    ann.step("r", 9, map_set("m", "9", "x" * 4_000))
    seqs = [(await ann.next("ack"))["seq"] for _ in range(8)]
    assert seqs == list(range(1, 9))
    refused = await ann.next("refused")
    assert (refused["n"], refused["code"]) == (9, "commit_too_large")
    ann.step("r", 10, map_set("m", "10", 1))
    assert (await ann.next("ack"))["seq"] == 9


async def test_the_hub_lets_everyone_go_when_their_steps_are_answered(house: House) -> None:
    ann, ben = await house.enter("ann"), await house.enter("ben")
    await ann.join("r", create=True)
    ann.step("r", 1, map_set("m", "k", 1))
    house.hub.drain()
    assert await ben.closed() == "node_stopped"
    assert await ann.closed() == "node_stopped"
    assert (ann.got[-1]["t"], ann.got[-1]["n"]) == ("ack", 1)
    with pytest.raises(Unavailable):
        Person(house.hub, Badge("late"))


async def test_frames_that_come_while_a_room_is_fetched_wait_for_it(house: House) -> None:
    await house.make("r")
    ann = await house.enter("ann")
    ann.ask("join", room="r", client="c")
    assert ann.paused
    ann.step("r", 1, map_set("m", "k", 1))
    ann.ask("join", room="none", client="c")
    ann.ask("ping")
    kinds = [(await ann.next())["t"] for _ in range(5)]
    assert sorted(kinds) == ["ack", "joined", "left", "pong", "snapshot"]
    assert kinds[:2] == ["joined", "snapshot"]
    assert not ann.paused
    assert json.dumps(ann.got)  # all of it is JSON


async def test_a_position_at_the_end_of_all_numbers_harms_no_list(house: House) -> None:
    ann = await house.enter("ann")
    await ann.join("r", create=True)
    insert = {"op": "list.insert", "list": "l", "value": 0}
    ann.step("r", 1, {**insert, "id": "a", "at": "z" * 27})
    assert (await ann.next("ack", "refused"))["code"] == "bad_value"
    for n, more in ((2, {"at": "hzzzzzzzz"}), (3, {}), (4, {}), (5, {"after": ""})):
        ann.step("r", n, {**insert, "id": str(n), **more})
        assert (await ann.next("ack", "refused", "left"))["t"] == "ack"
    ben = await house.enter("ben")
    assert [item[0] for item in (await ben.join("r"))["lists"]["l"]] == ["5", "2", "3", "4"]


async def test_others_get_their_turn_while_a_room_has_much_to_do(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROOM_CHANGES_MAX", 30)
    ann = await house.enter("ann")
    await ann.join("r", create=True)
    turn, turns, loop = 0, [], asyncio.get_running_loop()

    def count() -> None:
        nonlocal turn
        turn += 1
        if len(turns) < 21:
            loop.call_soon(count)

    take = Room.take

    def noting(room: Room, *step: Any, **by: Any) -> Any:
        turns.append(turn)
        return take(room, *step, **by)

    monkeypatch.setattr(Room, "take", noting)
    count()
    for n in range(1, 21):
        ann.step("r", n, *[map_set("m", str(key), n) for key in range(10)])
    ann.step("r", 21, {"op": "map.compare", "map": "m", "key": "0", "value": 3})
    await ann.next("refused")
    assert len(set(turns)) >= 5
    ann.step("r", 22, map_set("m", "k", 1))
    assert (await ann.next("ack"))["seq"] <= 21


async def test_all_of_another_room_is_sent_when_what_was_sent_before_is_taken(
    house: House,
) -> None:
    for room in ("one", "two"):
        await house.make(room)
    ann = await house.enter("ann")
    ann.takes.clear()
    ann.ask("join", room="one", client="c")
    ann.ask("join", room="two", client="c")
    ben = await house.enter("ben")
    await ben.join("one", "b")
    assert ann.got[-1]["t"] == "welcome"
    ann.takes.set()
    assert [(await ann.next("joined"))["room"] for _ in range(2)] == ["one", "two"]


async def test_a_bug_that_a_step_meets_refuses_the_step_and_harms_nobody_else(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ann, ben = await house.enter("ann"), await house.enter("ben")
    await house.make("r", schemas=Schemas(maps={"m": {}}))
    await ann.join("r")
    await ben.join("r", "b")

    def admit(kind: str, name: str, value: Any) -> None:
        assert value != "odd"

    monkeypatch.setattr(Shapes, "step", lambda shapes: admit)
    ann.step("r", 1, map_set("m", "k", "odd"))
    ben.step("r", 1, map_set("m", "k", "even"))
    assert (await ann.next("refused", "left"))["code"] == "internal"
    assert (await ben.next("ack", "left"))["seq"] == 1
    assert "a step of ann" in caplog.text
