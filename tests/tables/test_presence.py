"""Connections to the room of a table: who loses the last one has the time of grace."""

from collections.abc import Awaitable, Callable
from typing import Any

from onceward.app import App
from onceward.errors import Unavailable
from onceward.tables.server import Tables
from tests.rooms.people import Badge, Person
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


async def enter(app: App, name: str, table: str = "t", client: str = "c") -> Person:
    """Someone who is connected to the room of a table."""
    person = Person(app.hub, Badge(name))
    person.ask("hello")
    await person.next("welcome")
    await person.join(f"table:{table}", client)
    return person


async def until(apps: Apps, look: Callable[[], Awaitable[bool]]) -> None:
    while not await look():
        await apps.sleep(0.01)


async def seat(app: App, marker: str = "X", table: str = "t") -> Any:
    return (await app.tables.get(table)).seats[marker]


@virtual
async def test_a_seat_is_kept_for_who_comes_back_in_time() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.tables.create("t", policy={"grace_s": 10, "idle_s": 0})
        for user in ("ann", "ben", "cas"):
            await app.tables.join("t", user)
        ann, second = await enter(app, "ann"), await enter(app, "ann", client="d")
        ann.lose()
        await apps.sleep(20)
        assert (await seat(app)).user == "ann"  # by the other connection
        second.lose()

        async def is_away() -> bool:
            return bool((await seat(app)).away_ms)

        await until(apps, is_away)
        await apps.sleep(5)
        third = await enter(app, "ann")
        await apps.sleep(20)
        assert ((await seat(app)).user, (await seat(app)).away_ms) == ("ann", 0)
        third.lose()
        await apps.sleep(11)
        assert (await seat(app)).user == "cas"
        assert (await app.tables.place("t", "ann")).role == ""


@virtual
async def test_who_is_connected_gives_signs_of_life() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.tables.create("t", policy={"waiting_s": 60, "idle_s": 0})
        for user in ("ann", "ben", "cas", "dan"):
            await app.tables.join("t", user)
        cas = await enter(app, "cas")
        await apps.sleep(200)
        assert (await app.tables.place("t", "cas")).position == 1
        assert (await app.tables.place("t", "dan")).role == ""
        cas.lose()
        await apps.sleep(61)
        assert (await app.tables.place("t", "cas")).role == ""


@virtual
async def test_trouble_with_the_engine_is_waited_out() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.tables.create("t", policy={"grace_s": 10, "idle_s": 0})
        for user in ("ann", "ben"):
            await app.tables.join("t", user)
        ann = await enter(app, "ann")
        failing = [Unavailable("away")] * 3
        away = app.tables.away

        async def fail(id_: str, user: str) -> Any:
            if failing:
                raise failing.pop()
            return await away(id_, user)

        app.tables.away = fail  # type: ignore[method-assign]
        ann.lose()

        async def is_away() -> bool:
            return bool((await seat(app)).away_ms)

        await until(apps, is_away)
        assert not failing


@virtual
async def test_other_rooms_and_tables_that_are_not_there_are_let_be() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.tables.create("t")
        person = Person(app.hub, Badge("ann"))
        person.ask("hello")
        await person.join("other", create=True)
        await enter(app, "ann")
        person.lose()
        await apps.sleep(1)
        assert isinstance(app.tables, Tables)


@virtual
async def test_the_view_follows_the_table_step_by_step() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.tables.create("t")
        watcher = await enter(app, "wat")
        for user in ("ann", "ben", "cas", "dan", "eve"):
            await app.tables.join("t", user)
        eve = await app.tables.place("t", "eve")
        await app.tables.leave("t", "cas")
        await app.tables.result("t", ["ann"])
        await app.tables.join("t", "fay")
        lanes: list[Any] = []
        waitlist: dict[str, Any] = {}
        while len(lanes) < 6:
            change = await watcher.next("change")
            lanes += [op["value"] for op in change["ops"] if op["map"] == "line"]
            for op in change["ops"]:
                if op["map"] == "waitlist" and op["op"] == "map.set":
                    waitlist[op["key"]] = op["value"]["users"]
                elif op["map"] == "waitlist":
                    del waitlist[op["key"]]
        assert list(waitlist.values()) == [["eve"], ["ben"], ["fay"]]
        # Who knows its number needs no list: each lower one that went since is one less.
        last = lanes[-1]
        since = last["gone"][len(last["gone"]) - (last["went"] - eve.went) :]
        position = eve.position - sum(number < eve.number for number in since)
        assert position == (await app.tables.place("t", "eve")).position == 1
        assert last["waiting"] == (await app.tables.get("t")).waiting


@virtual
async def test_who_serves_the_room_no_longer_says_nothing_of_who_is_there() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.tables.create("t", policy={"waiting_s": 60, "idle_s": 0})
        for user in ("ann", "ben", "cas"):
            await app.tables.join("t", user)
        cas = await enter(app, "cas")
        app.hub.rooms["table:t"].end("room_moved", "it is served elsewhere")
        assert (await cas.next("left"))["code"] == "room_moved"
        await apps.sleep(61)
        assert (await app.tables.place("t", "cas")).role == ""


@virtual
async def test_a_table_that_was_closed_is_made_again_with_a_new_room() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        for number in range(3):
            await app.tables.create("t")
            await app.tables.join("t", f"ann{number}")
            watcher = await enter(app, "wat", client=f"c{number}")
            seats = await app.run(lambda tx: app.rooms.map(tx, "table:t", "seats"))
            assert seats is not None
            assert seats["X"]["user"] == f"ann{number}"
            await app.tables.close("t")
            watcher.lose()
