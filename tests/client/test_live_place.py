"""One's own place at a table, live, and after a connection that was lost."""

import asyncio
from collections.abc import Callable

import pytest

from onceward.client import Client, Place
from tests.client.served import Served

pytestmark = pytest.mark.timeout(150)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110 - nobody else could tell
            await asyncio.sleep(0)


async def test_a_place_follows_the_line_without_being_asked_for() -> None:
    async with Served() as served, Client(served.url) as client:
        await client.tables.create(id="t", policy={"idle_s": 0, "lanes": ["vip", "main"]})
        for number in range(6):
            await client.tables.join("t", user=f"u{number}")
        async with client.live(token="dev:me") as live:
            followed = await client.tables.follow("t", live)
            assert (followed.place.role, followed.place.position) == ("waiting", 5)
            told: list[Place] = []
            end = followed.subscribe(told.append)
            asked = 0
            place = client.tables.place

            async def counted(id_: str, *, user: str = "") -> Place:
                nonlocal asked
                asked += 1
                return await place(id_, user=user)

            client.tables.place = counted  # type: ignore[method-assign]
            await client.tables.leave("t", user="u3")
            await until(lambda: followed.place.position == 4)
            await client.tables.result("t", winners=["u0"], game=1)
            await until(lambda: followed.place.position == 3)
            await client.tables.join("t", user="late")
            await until(lambda: followed.place.waiting == 5)
            await client.tables.join("t", user="vip", lane="vip")
            await until(lambda: followed.place.ahead == 3)
            assert asked == 0
            assert followed.place.wait_ms > 0
            true = await place("t", user="me")
            assert (true.position, true.ahead) == (followed.place.position, followed.place.ahead)
            for user in ("vip", "u4", "u5"):
                await client.tables.leave("t", user=user)
            await client.tables.result("t", winners=["u0"], game=2)
            await until(lambda: followed.place.role == "seated")
            assert asked >= 1
            assert told[-1].marker == followed.place.marker != ""
            await client.tables.leave("t", user="me")
            await until(lambda: followed.place.role == "")
            end()
            followed.close()
            followed.close()


@pytest.mark.parametrize("names", [True, False])
async def test_a_place_follows_a_join_by_another_connection(names: bool) -> None:
    async with Served() as served, Client(served.url) as client:
        await client.tables.create(id="t", policy={"idle_s": 0, "waitlist_names": names})
        for user in ("u0", "u1", "u2"):
            await client.tables.join("t", user=user)
        async with client.live(token="dev:me") as live:
            followed = await client.tables.follow("t", live)
            assert followed.place.position == 2
            for _ in range(2):
                await client.tables.leave("t", user="me")
                await until(lambda: followed.place.role == "")
                # Nobody tells this connection, but the table's room.
                await client.tables.join("t", user="me")
                await until(lambda: followed.place.role == "waiting")
                assert followed.place.position == 2
            await client.tables.leave("t", user="me")
            await until(lambda: followed.place.role == "")
            await client.tables.watch("t", user="me")
            await client.tables.join("t", user="me")
            await until(lambda: followed.place.role == "waiting")
            await client.tables.close("t")
            await until(lambda: (followed.place.role, followed.place.phase) == ("", "closed"))
            followed.close()


async def test_an_estimate_stands_still_while_a_table_is_paused() -> None:
    async with Served() as served, Client(served.url) as client:
        await client.tables.create(id="t", policy={"idle_s": 0, "game_s": 3_600})
        for user in ("u0", "u1"):
            await client.tables.join("t", user=user)
        async with client.live(token="dev:me") as live:
            followed = await client.tables.follow("t", live)
            assert followed.place.position == 1
            await client.tables.pause("t")
            state = live.rooms["table:t"].map("table")
            await until(lambda: state.get("state")["paused"])
            told = followed.wait_ms
            assert told == (await client.tables.place("t", user="me")).wait_ms, "as the server says"
            assert followed.wait_ms == told
            followed.close()


async def test_who_is_not_at_a_table_does_not_ask_with_every_join() -> None:
    async with Served() as served, Client(served.url) as client:
        await client.tables.create(id="t", policy={"idle_s": 0})
        async with client.live(token="dev:me") as live:
            followed = await client.tables.follow("t", live)
            await client.tables.leave("t", user="me")
            await until(lambda: followed.place.role == "")
            place, asked = client.tables.place, 0

            async def counted(id_: str, *, user: str = "") -> Place:
                nonlocal asked
                asked += 1
                return await place(id_, user=user)

            client.tables.place = counted  # type: ignore[method-assign]
            for number in range(20):
                await client.tables.join("t", user=f"u{number}")
            room = live.rooms["table:t"]
            await until(lambda: len(room.map("waitlist").whole()) == 18)
            assert asked == 0, "the names of all who wait are shown"
            followed.close()


async def test_a_place_is_asked_for_where_too_much_has_happened() -> None:
    async with Served() as served, Client(served.url) as client:
        await client.tables.create(id="t", policy={"idle_s": 0})
        for number in range(60):
            await client.tables.join("t", user=f"u{number}")
        async with client.live(token="dev:me") as live:
            followed = await client.tables.follow("t", live)
            assert followed.place.position == 59

            for start in (0, 10, 20, 30):

                async def some(tx: object, start: int = start) -> None:
                    for number in range(10 + start, 20 + start):
                        await served.app.seats.leave(tx, "t", f"u{number}")  # type: ignore[arg-type]

                await served.app.run(some)  # type: ignore[arg-type]
            await until(lambda: followed.place.position == 19)
            followed.close()


async def test_parties_that_came_before_are_still_counted_when_the_line_changes() -> None:
    async with Served() as served, Client(served.url) as client:
        await client.tables.create(id="t", policy={"idle_s": 0, "party_max": 2})
        for user in ("u0", "u1"):
            await client.tables.join("t", user=user)
        await client.tables.join("t", user="p", party=["q"])
        async with client.live(token="dev:me") as live:
            followed = await client.tables.follow("t", live)
            assert (followed.place.position, followed.place.ahead) == (1, 2)
            await client.tables.join("t", user="late")
            await until(lambda: followed.place.waiting == 4)
            assert (followed.place.position, followed.place.ahead) == (1, 2)
            followed.close()
