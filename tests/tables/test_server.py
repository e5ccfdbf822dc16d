"""Tables of an application: many at once, by the clock, and after a restart."""

import itertools
from pathlib import Path
from typing import Any

import pytest

import onceward
from onceward import limits
from onceward.errors import BadInput
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


@virtual
async def test_what_is_due_happens_by_itself() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.tables.create("t", policy={"idle_s": 10, "warn_s": 3, "bot_s": 5})
        await app.tables.join("t", "ann")
        await apps.sleep(6)
        assert (await app.tables.get("t")).players == {"X": "ann", "O": "bot"}
        await apps.sleep(8)
        seat = (await app.tables.get("t")).seats["X"]
        assert seat is not None
        assert seat.warned
        await app.tables.close("t")
        await apps.sleep(1)


@virtual
async def test_another_application_takes_over_what_is_due() -> None:
    apps = Apps()
    one, other = apps.make(node_lease_s=2.0), apps.make(node_lease_s=2.0)
    process = await apps.start(one)
    await apps.start(other)
    await one.tables.create("t", policy={"idle_s": 60, "grace_s": 20})
    await one.tables.join("t", "ann")
    await other.tables.join("t", "ben")
    await one.tables.away("t", "ann")
    process.kill()
    await apps.sleep(40)
    assert (await other.tables.get("t")).players == {"O": "ben"}
    await other.stop()


async def test_a_table_is_there_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/club.db"
    async with onceward.App(url) as app:
        await app.tables.create("t")
        for user in ("ann", "ben", "cas", "dan"):
            await app.tables.join("t", user)
    async with onceward.App(url) as app:
        assert (await app.tables.get("t")).players == {"X": "ann", "O": "ben"}
        assert (await app.tables.place("t", "dan")).position == 2
        await app.tables.result("t", ["ben"], game=1)
        assert (await app.tables.get("t")).players == {"X": "cas", "O": "ben"}


@virtual
async def test_a_live_view_has_space_for_the_longest_names_in_all_lanes() -> None:
    lanes = [f"{number}-" + "l" * 30 for number in range(6)]
    policy = {"seats": list("ABCDEFGH"), "party_max": 8, "lanes": lanes, "waiting_s": 0}
    names = (
        f"{number:08d}".ljust(limits.SEATS_USER_BYTES_MAX, '"') for number in itertools.count()
    )
    async with Apps(shared=False).make() as app:
        await app.tables.create("t", policy=policy)
        for _ in range(8):
            await app.tables.join("t", next(names))
        for lane, size in itertools.product(lanes, range(1, 9)):
            for _ in range(limits.SEATS_SHOWN // size + 1):
                user, *party = (next(names) for _ in range(size))
                await app.tables.join("t", user, lane=lane, party=party)
        shown = await app.run(lambda tx: app.rooms.map(tx, "table:t", "waitlist"))
        assert shown is not None
        assert len(shown) == len(lanes) * sum(limits.SEATS_SHOWN // size for size in range(1, 9))


async def test_what_cannot_be_meant_is_refused() -> None:
    app = onceward.App("memory://")
    referee: Any = object()
    for game, what in (("", referee), ("x" * 33, referee), ("nim", referee)):
        with pytest.raises(BadInput):
            app.referee(game, what)

    class Nothing:
        async def begin(self, *_: Any) -> None: ...

        async def move(self, *_: Any) -> None: ...

        async def ended(self, *_: Any) -> None: ...

    app.referee("nim", Nothing())  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="already"):
        app.referee("nim", Nothing())  # type: ignore[arg-type]
    async with app:
        await app.tables.create("t")
        with pytest.raises(BadInput, match="a list of names"):
            await app.tables.result("t", "ann")
