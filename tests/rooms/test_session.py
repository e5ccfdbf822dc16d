"""One connection: who it is, what it may do, and how it ends."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onceward import limits
from onceward.engine.memory import MemoryEngine
from onceward.store import Store
from onceward.testing import VirtualClock, run_virtual
from tests.rooms.people import Badge, House, Person, map_set, open_house


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as house:
        yield house


DEEP = '{"t":"say","room":"r","event":"e","value":' + "[" * 200 + "]" * 200 + "}"
LARGE = json.dumps({"t": "say", "room": "r", "event": "e", "value": "x" * limits.FRAME_BYTES_MAX})
# What nobody can understand ends the connection.
BAD: dict[str, tuple[bytes, str]] = {
    "not JSON": (b"{", "not_json"),
    "nothing": (b"", "not_json"),
    "no object": (b"[]", "wrong_type"),
    "unknown type": (b'{"t":"dance"}', "unknown_frame"),
    "no type": (b'{"room":"r"}', "unknown_frame"),
    "too large": (LARGE.encode(), "frame_too_large"),
    "too deep": (DEEP.encode(), "too_deep"),
    "bad UTF-8": (b'{"t":"say","room":"r","event":"\xff"}', "not_text"),
    "a surrogate": (b'{"t":"say","room":"r","event":"\\ud800"}', "not_text"),
    "a member twice": (b'{"t":"leave","room":"r","room":"s"}', "duplicate_member"),
    "the presence of another": (
        b'{"t":"presence.set","room":"r","name":"cursor","user":"ben","value":1}',
        "unknown_member",
    ),
    "a member is missing": (b'{"t":"leave"}', "missing_member"),
    "a member of another type": (b'{"t":"leave","room":1}', "wrong_type"),
    "an unknown operation": (
        b'{"t":"ops","room":"r","n":1,"ops":[{"op":"map.steal","map":"m"}]}',
        "wrong_type",
    ),
    "not a number": (b'{"t":"say","room":"r","event":"e","value":NaN}', "not_json"),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_nobody_can_understand_ends_the_connection_alone(
    house: House, name: str
) -> None:
    raw, code = BAD[name]
    ann, ben = await house.enter("ann"), await house.enter("ben")
    await ann.join("r", create=True)
    await ben.join("r")
    ann.session.receive(raw)
    reason = await ann.closed()
    assert reason == code or (code == "not_json" and reason == "not_a_number")
    assert (await ben.next("went"))["t"] == "went"
    ben.step("r", 1, map_set("m", "k", 1))
    assert (await ben.next("ack"))["seq"] == 1


# What is understood and refused ends nothing.
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a room that may not be read": (
        {"t": "join", "room": "secret", "client": "c"},
        "left",
        "not_allowed",
    ),
    "a room that is not there": (
        {"t": "join", "room": "none", "client": "c"},
        "left",
        "no_such_room",
    ),
    "a room that it is in": ({"t": "join", "room": "r", "client": "c"}, "left", "bad_request"),
    "a room without a name": ({"t": "join", "room": "", "client": "c"}, "left", "bad_name"),
    "a client without a name": ({"t": "join", "room": "none", "client": ""}, "left", "bad_name"),
    "a room that may not be made": (
        {"t": "join", "room": "none", "client": "c", "create": True},
        "left",
        "not_allowed",
    ),
    "a step where only reading is allowed": (
        {"t": "ops", "room": "view", "n": 1, "ops": [map_set("m", "k", 1)]},
        "refused",
        "not_allowed",
    ),
    "a step in another room": (
        {"t": "ops", "room": "x", "n": 1, "ops": [map_set("m", "k", 1)]},
        "refused",
        "not_joined",
    ),
    "a step of nothing": ({"t": "ops", "room": "r", "n": 1, "ops": []}, "refused", "bad_request"),
    "a step without a number": (
        {"t": "ops", "room": "r", "n": 0, "ops": [map_set("m", "k", 1)]},
        "refused",
        "wrong_type",
    ),
    "a value against the schema": (
        {"t": "ops", "room": "r", "n": 1, "ops": [map_set("shaped", "k", "text")]},
        "refused",
        "bad_shape",
    ),
    "a presence against the schema": (
        {"t": "presence.set", "room": "r", "name": "cursor", "value": "here"},
        "error",
        "bad_shape",
    ),
    "a presence that is too large": (
        {"t": "presence.set", "room": "r", "name": "p", "value": "x" * 20_000},
        "error",
        "value_too_large",
    ),
    "a presence for no time": (
        {"t": "presence.set", "room": "r", "name": "p", "value": 1, "ttl_ms": 0},
        "error",
        "wrong_type",
    ),
    "a presence in another room": (
        {"t": "presence.set", "room": "x", "name": "p", "value": 1},
        "error",
        "not_joined",
    ),
    "words where only reading is allowed": (
        {"t": "say", "room": "view", "event": "e"},
        "error",
        "not_allowed",
    ),
    "words that are too many": (
        {"t": "say", "room": "r", "event": "e", "value": "x" * 70_000},
        "error",
        "value_too_large",
    ),
    "words to nobody": (
        {"t": "tell", "room": "r", "to": "x", "event": "e"},
        "error",
        "no_such_member",
    ),
    "a second hello": ({"t": "hello"}, "error", "bad_request"),
    "the token of another": ({"t": "token", "token": "ben"}, "error", "not_allowed"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_refused_ends_nothing(house: House, name: str) -> None:
    from onceward.api.rooms import Schemas

    asked, kind, code = REFUSED[name]
    number = {"type": "number"}
    await house.make("r", schemas=Schemas(maps={"shaped": number}, presences={"cursor": number}))
    await house.make("view")
    await house.make("secret")
    house.tokens["ben"] = Badge("ben")
    scopes = [("write", "r"), ("read", "view"), ("write", "x"), ("read", "none"), ("read", "")]
    ann = await house.enter("ann", *scopes)
    await ann.join("r")
    await ann.join("view")
    ann.ask(**asked)
    answer = await ann.next()
    assert (answer["t"], answer["code"]) == (kind, code)
    assert answer.get("detail")
    ann.step("r", 7, map_set("m", "k", 1))
    assert (await ann.next())["t"] == "ack"
    assert ann.code is None


async def test_the_first_frame_says_who_it_is(house: House) -> None:
    house.tokens["secret"] = Badge("ann", until_ms=house.hub.now_ms() + 60_000)
    person = Person(house.hub, None)
    person.ask("hello", token="secret")
    welcome = await person.next()
    assert welcome["user"] == "ann"
    assert welcome["until_ms"] == house.tokens["secret"].until_ms


@pytest.mark.parametrize("token", ["", "unknown"])
async def test_who_cannot_say_who_it_is_is_not_let_in(house: House, token: str) -> None:
    person = Person(house.hub, None)
    person.ask("hello", token=token)
    assert await person.closed() == "no_credentials"


async def test_nothing_comes_before_hello(house: House) -> None:
    person = Person(house.hub, Badge("ann"))
    person.ask("join", room="r", client="c", create=True)
    assert await person.closed() == "no_credentials"
    assert not house.hub.rooms


async def test_a_new_token_may_allow_less(house: House) -> None:
    ann = await house.enter("ann")
    await ann.join("kept", create=True)
    await ann.join("lost", create=True)
    house.tokens["less"] = Badge("ann", ("read", "kept"))
    ann.ask("token", token="less")
    assert (await ann.next())["t"] == "welcome"
    left = await ann.next()
    assert (left["room"], left["code"]) == ("lost", "not_allowed")
    ann.step("kept", 1, map_set("m", "k", 1))
    assert (await ann.next())["code"] == "not_allowed"


async def test_a_connection_is_in_so_many_rooms(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROOMS_PER_CONNECTION_MAX", 2)
    ann = await house.enter("ann")
    await ann.join("a", create=True)
    await ann.join("b", create=True)
    ann.ask("join", room="c", client="c", create=True)
    assert (await ann.next())["code"] == "bad_request"


def virtually(main: Any) -> None:
    """Run with a hub whose time is virtual."""

    async def run() -> None:
        engine = MemoryEngine()
        await engine.open()
        async with open_house(Store(engine, VirtualClock())) as house:
            await main(house)

    run_virtual(run())


def test_who_says_nothing_at_first_is_not_waited_for() -> None:
    async def main(house: House) -> None:
        person = Person(house.hub, Badge("ann"))
        before_ms = house.hub.now_ms()
        assert await person.closed() == "too_slow"
        assert house.hub.now_ms() - before_ms == limits.HELLO_S * 1000

    virtually(main)


def test_a_token_that_expires_ends_the_connection_unless_another_one_came() -> None:
    async def main(house: House) -> None:
        start_ms = house.hub.now_ms()
        for name, after_ms in (("first", 15_000), ("second", 100_000)):
            house.tokens[name] = Badge("ann", until_ms=start_ms + after_ms)
        ann, ben = Person(house.hub, None), Person(house.hub, None)
        for person in (ann, ben):
            person.ask("hello", token="first")
            await person.next()
        await house.store.clock.sleep(14)
        ben.ask("token", token="second")
        assert await ann.closed() == "token_expired"
        assert house.hub.now_ms() == start_ms + 15_000
        assert (await ben.next())["until_ms"] == start_ms + 100_000
        await house.store.clock.sleep(80)
        assert ben.code is None
        await house.store.clock.sleep(10)
        assert ben.reason == "token_expired"

    virtually(main)


def test_one_who_leaves_takes_its_presence_along() -> None:
    async def main(house: House) -> None:
        ann, ben = await house.enter("ann"), await house.enter("ben")
        await ann.join("r", create=True)
        await ben.join("r")
        ben.ask("presence.set", room="r", name="cursor", value={"x": 1})
        told = await ann.next("presence")
        assert (told["name"], told["user"], told["value"]) == ("cursor", "ben", {"x": 1})
        ben.ask("leave", room="r")
        assert (await ann.next("gone"))["user"] == "ben"
        assert house.hub.now_ms() % 1000 < 100  # at once, but for the pause between two tellings

    virtually(main)


def test_one_who_is_lost_for_a_moment_never_seems_gone() -> None:
    async def main(house: House) -> None:
        ann = await house.enter("ann")
        await ann.join("r", create=True)
        first, second = await house.enter("ben"), await house.enter("ben")
        await first.join("r")
        await second.join("r", "tab")
        first.ask("presence.set", room="r", name="cursor", value=1, ttl_ms=600_000)
        await ann.next("presence")
        assert sum(f["t"] == "presence" for f in second.got) == 1  # the other tab is told
        first.lose()
        await house.store.clock.sleep(60)
        assert (await house.enter("cat") and await _presences(house)) == {"cursor": {"ben": 1}}
        second.lose()
        await house.store.clock.sleep(limits.ROOM_GRACE_S - 1)
        third = await house.enter("ben")
        assert (await third.join("r"))["presences"] == {"cursor": {"ben": 1}}
        await house.store.clock.sleep(60)
        assert not [f for f in ann.got if f["t"] == "gone"]
        third.lose()
        lost_ms = house.hub.now_ms()
        assert (await ann.next("gone"))["user"] == "ben"
        assert house.hub.now_ms() - lost_ms == limits.ROOM_GRACE_S * 1000

    virtually(main)


async def _presences(house: House) -> Any:
    dan = await house.enter("dan")
    joined = await dan.join("r")
    dan.ask("leave", room="r")
    return joined["presences"]


def test_a_presence_without_renewal_is_over_in_time() -> None:
    async def main(house: House) -> None:
        ann, ben = await house.enter("ann"), await house.enter("ben")
        await ann.join("r", create=True)
        await ben.join("r")
        start_ms = house.hub.now_ms()
        ben.ask("presence.set", room="r", name="typing", value=True, ttl_ms=5_000)
        await house.store.clock.sleep(3)
        ben.ask("presence.set", room="r", name="typing", value=True, ttl_ms=5_000)
        assert (await ann.next("gone"))["name"] == "typing"
        assert house.hub.now_ms() == start_ms + 8_000
        assert sum(f["t"] == "presence" for f in ann.got) == 1  # renewing is no news

    virtually(main)


def test_a_busy_presence_is_told_seldom_and_its_last_value_always() -> None:
    async def main(house: House) -> None:
        ann, ben = await house.enter("ann"), await house.enter("ben")
        await ann.join("r", create=True)
        await ben.join("r")
        for x in range(1000):
            ben.ask("presence.set", room="r", name="cursor", value=x)
            await house.store.clock.sleep(0.001)
        await house.store.clock.sleep(1)
        told = [f["value"] for f in ann.got if f["t"] == "presence"]
        assert told[0] == 0
        assert told[-1] == 999
        assert told == sorted(told)
        assert len(told) <= 1000 / limits.PRESENCE_PAUSE_MS + 2
        assert not [f for f in ben.got if f["t"] == "presence"]

    virtually(main)


def test_many_who_come_at_once_are_told_of_together() -> None:
    async def main(house: House) -> None:
        watcher = await house.enter("watcher")
        me = (await watcher.join("r", create=True))["me"]
        crowd = [await house.enter(f"u{number}") for number in range(100)]
        before = watcher.writes
        ids = {me} | {(await person.join("r"))["me"] for person in crowd}
        await house.store.clock.sleep(1)
        assert watcher.writes - before <= 2
        for person in (watcher, *crowd):
            joined = next(frame for frame in person.got if frame["t"] == "joined")
            known = [member["id"] for member in joined["members"]]
            came = [frame["id"] for frame in person.got if frame["t"] == "came"]
            assert set(known) | set(came) == ids  # everybody knows everybody, once
            assert len(known) + len(came) == len(ids)
        for person in crowd[1:]:
            person.lose()
        await house.store.clock.sleep(1)
        went = [frame["id"] for frame in crowd[0].got if frame["t"] == "went"]
        assert len(went) == len(set(went)) == 99

    virtually(main)


def test_a_room_with_nobody_in_it_forgets_its_presences_and_rests() -> None:
    async def main(house: House) -> None:
        ann = await house.enter("ann")
        await ann.join("r", create=True)
        ann.ask("presence.set", room="r", name="cursor", value=1)
        ann.lose()
        await house.store.clock.sleep(limits.ROOM_GRACE_S + limits.ROOM_IDLE_S + 1)
        assert not house.hub.rooms

    virtually(main)


def test_who_takes_nothing_of_a_room_is_not_sent_another_one() -> None:
    async def main(house: House) -> None:
        ann = await house.enter("ann")
        ann.takes.clear()
        ann.ask("join", room="r", client="c", create=True)
        await house.store.clock.sleep(limits.READER_S - 1)
        assert ann.code is None
        assert await ann.closed() == "slow_reader"
        assert not house.hub.sessions

    virtually(main)


def test_of_many_who_are_cut_off_at_once_a_few_go_in_each_turn_and_others_hear_meanwhile() -> None:
    async def main(house: House) -> None:
        ann = await house.enter("ann")
        await ann.join("r", create=True)
        slow = [await house.enter(f"slow{n}") for n in range(3 * limits.CUT_OFF_AT_ONCE)]
        for person in slow:
            await person.join("r")
        for person in slow:
            person.session.cut_off()
            person.session.cut_off()
        assert not any(person.code for person in slow)
        ann.skip()
        ann.ask("ping")
        await ann.next("pong")
        assert any(person.code is None for person in slow), "she has not waited for all of them"
        assert {await person.closed() for person in slow} == {"slow_reader"}
        assert list(house.hub.sessions) == [ann.session]
        assert house.store.meters.total("room_closes", code="slow_reader") == len(slow)

    virtually(main)
