"""Tables at their edges: what is refused leaves nothing, and what happens twice is once."""

from typing import Any

import pytest

from onceward.api.tables import Rating
from onceward.errors import BadInput, OncewardError
from onceward.tables.records import ladder_key, rating_key
from tests.schedule.jobs import all_records
from tests.tables.club import Club, new_club, problems
from tests.tables.test_lifecycle import nim


@pytest.fixture
async def club() -> Club:
    return await new_club()


async def test_what_is_refused_leaves_nothing_in_a_transaction_that_goes_on(club: Club) -> None:
    await nim(club, waitlist_max=1, spectators_max=0, party_max=2)
    await club.join("ann", "ben", "cas")
    await club.do("move", "ann", 1, key="k")
    before = all_records(club.engine)
    seats = club.seats

    async def try_all(tx: Any) -> list[str]:
        codes = []
        for refused in (
            lambda: seats.join(tx, "t", "dan"),
            lambda: seats.join(tx, "t", "dan", party=["eve"]),
            lambda: seats.join(tx, "t", "dan", party=["cas"]),
            lambda: seats.watch(tx, "t", "dan"),
            lambda: seats.move(tx, "t", "ben", 9, key="l"),
            lambda: seats.result(tx, "t", ["ann", "dan"]),
            lambda: seats.create(tx, "t"),
        ):
            with pytest.raises(BadInput) as error:
                await refused()
            codes.append(error.value.code)
        tx.put(("mine", "own"), codes)
        return codes

    codes = await club.run(try_all)
    assert codes[0] == codes[1] == codes[3] == "table_full"
    assert codes[4:] == ["bad_move", "not_seated", "table_exists"]
    after = all_records(club.engine)
    assert after.keys() - before.keys() == {("mine", "own")}
    assert {key: after[key] for key in before} == before


@pytest.mark.parametrize("user", ["", "a\x00b", "x" * 329, "\ud800", 5, None, ["ann"]])
async def test_who_can_be_nobody_is_refused_everywhere(club: Club, user: Any) -> None:
    await club.create()
    before = all_records(club.engine)
    for name in ("join", "leave", "watch", "ready", "away", "back", "heartbeat", "place"):
        with pytest.raises(BadInput) as error:
            await club.do(name, user)
        assert error.value.code == "bad_name", name
    with pytest.raises(BadInput):
        await club.do("move", user, 1)
    assert all_records(club.engine) == before


async def test_what_makes_no_sense_is_refused(club: Club) -> None:
    await club.create()
    await club.join("a", "b")
    wrong: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("join", ("c",), {"lane": 5}),
        ("join", ("c",), {"party": ["c"]}),
        ("result", ("a",), {}),
        ("result", (None,), {}),
        ("result", ([5],), {}),
        ("result", (["a"],), {"game": 2}),
    ]
    for name, args, options in wrong:
        with pytest.raises(BadInput):
            await club.do(name, *args, **options)
    policies: tuple[Any, ...] = (["seats"], "speed", 5, {"turn_s": "5"}, {"turn_ms": 5_000})
    for policy in policies:
        with pytest.raises(BadInput) as error:
            await club.do("create", policy=policy, table="other")
        assert error.value.code == "bad_policy"
    assert "did you mean 'turn_s'?" in error.value.message
    with pytest.raises(BadInput):
        await club.do("create", game=5, table="other")
    for after in ((-1, "a"), (10**9, "a"), ("1", "a")):
        with pytest.raises(BadInput):
            await club.run(lambda tx, after=after: club.seats.leaders(tx, "x", after=after))
    assert await club.players() == {"X": "a", "O": "b"}


# Those who are not there.


async def test_who_runs_out_of_time_again_and_again_is_gone(club: Club) -> None:
    game = await nim(club, turn_s=10)
    await club.join("ann", "ben")
    await club.pass_ms(3_600_000)
    # Nobody is there: two games were lost on time, and no third one.
    assert [ending.reason for ending in game.endings] == ["idle", "idle"]
    assert await club.players() == {}
    assert not club.records("stand", "lane", "due")


async def test_who_has_moved_meanwhile_stays_in_line(club: Club) -> None:
    game = await nim(club, turn_s=10, idle_s=0)
    await club.join("ann", "ben", "cas")
    await club.pass_ms(10_000)  # ann
    assert await club.players() == {"X": "cas", "O": "ben"}
    await club.do("move", "cas", 1)
    await club.pass_ms(10_000)  # ben, whose place ann takes
    assert await club.players() == {"X": "cas", "O": "ann"}
    await club.do("move", "cas", 1)
    await club.do("move", "ann", 1)
    await club.do("move", "cas", 1)
    await club.pass_ms(10_000)  # ann again, who has moved
    assert [ending.reason for ending in game.endings] == ["idle"] * 3
    assert (await club.place("ann")).role == "waiting"
    await club.do("move", "cas", 1)
    await club.pass_ms(10_000)  # ben again, who has not
    assert (await club.place("ben")).role == ""
    assert problems(club.engine) == []


async def test_a_move_after_its_time_is_too_late_also_if_nobody_has_looked(club: Club) -> None:
    await nim(club, turn_s=10)
    await club.join("ann", "ben")
    club.clock.at_ms += 9_999
    await club.do("move", "ann", 1)
    club.clock.at_ms += 10_000
    before = all_records(club.engine)
    with pytest.raises(BadInput) as error:
        await club.do("move", "ben", 1)
    assert error.value.code == "out_of_time"
    assert all_records(club.engine) == before


async def test_a_connection_lost_or_a_turn_begun_during_a_pause_has_its_whole_time_after_it(
    club: Club,
) -> None:
    await club.create(grace_s=10, turn_s=20)
    await club.join("ann", "ben")
    await club.do("pause")
    await club.pass_ms(60_000)
    await club.do("away", "ann")
    await club.do("turn", ["ben"])
    await club.pass_ms(60_000)
    await club.do("resume")
    assert club.head().seats["X"].away_ms == club.clock.at_ms + 10_000
    assert club.head().seats["O"].due_ms == club.clock.at_ms + 20_000
    await club.pass_ms(10_000)
    assert await club.players() == {"O": "ben"}


async def test_an_answer_that_is_asked_for_again_is_of_the_same_type(club: Club) -> None:
    game = await nim(club)
    game.answers = Rating  # type: ignore[attr-defined]

    async def move(tx: Any, table: Any, user: str, move: Any) -> Any:
        return Rating(5)

    game.move = move  # type: ignore[method-assign]
    await club.join("ann", "ben")
    first = await club.do("move", "ann", 1, key="k")
    assert await club.do("move", "ann", 1, key="k") == first == Rating(5)


# Tables that are opened.


async def test_who_asks_twice_for_a_table_gets_one(club: Club) -> None:
    await club.create("pool", opens=True, party_max=2)
    await club.join("ann", "ben", table="pool")
    opened = (await club.place("ann", table="pool")).opened
    again = await club.join("ann", table="pool")
    assert (again.role, again.opened) == ("", opened)
    with pytest.raises(BadInput, match=opened):
        await club.join("cas", party=["ben"], table="pool")
    await club.join("cas", table="pool")
    assert (await club.place("cas", table="pool")).role == "waiting"
    assert club.head("pool").opened == 1
    # Who has left there may have another one.
    await club.leave("ann", table=opened)
    other = (await club.join("ann", table="pool")).opened
    assert other not in ("", opened)
    assert await club.players(other) == {"X": "cas", "O": "ann"}


async def test_parties_that_fill_a_table_get_it_whoever_else_waits_between_them(
    club: Club,
) -> None:
    await club.create("pool", opens=True, seats=list("ABCDE"), party_max=3)
    await club.join("ann", table="pool", party=["abe"])
    await club.join("one", table="pool")
    place = await club.join("ben", table="pool", party=["bob", "bea"])
    table = await club.get(place.opened)
    assert set(table.players.values()) == {"ann", "abe", "ben", "bob", "bea"}
    assert (await club.place("one", table="pool")).position == 1


async def test_parties_of_another_size_that_came_before_count_for_the_wait(club: Club) -> None:
    await club.create(seats=["A", "B", "C"], party_max=2)
    await club.join("ann", "ben", "cas")
    for number in range(5):
        await club.join(f"p{number}", party=[f"q{number}"])
    alone = await club.join("dan")
    assert (alone.position, alone.ahead) == (1, 10)
    last = await club.join("p9", party=["q9"])
    assert (last.position, last.ahead) == (6, 11)


async def test_all_of_the_largest_table_change_places_whatever_lanes_they_wait_in(
    club: Club,
) -> None:
    markers = [f"m{n}" for n in range(8)]
    tiers = [1_000, 1_100, 1_300]
    await club.create(
        seats=markers,
        lanes=["vip", "main"],
        kind="ranked",
        tiers=tiers,
        draw="back",
        widen_s=0.001,
        turn_s=0,
    )

    async def give(tx: Any) -> None:
        for number in range(8):
            rating = Rating([900, 1_050, 1_200, 1_400][number % 4])
            tx.put(rating_key("tables", f"w{number}"), rating)
            tx.put(ladder_key("tables", rating.rating, f"w{number}"), rating)

    await club.run(give)
    await club.join(*[f"u{n}" for n in range(8)])
    for number in range(200):  # so that blocks and groups are counted in each lane
        user, lane = f"w{number % 8}", ["vip", "main"][number // 4 % 2]
        await club.join(user, lane=lane)
        await club.join(f"v{number}", lane=lane)
        if number < 192:
            await club.leave(user)
        if number % 3:
            await club.leave(f"v{number}")
    await club.result()
    await club.settle()
    assert len(await club.players()) == 8
    assert club.largest_commit < 100
    assert problems(club.engine) == []


async def test_a_table_whose_game_nobody_knows_here_is_not_played_at(club: Club) -> None:
    await nim(club)
    del club.seats.referees["nim"]
    await club.join("ann")
    with pytest.raises(OncewardError) as error:
        await club.join("ben")
    assert error.value.code == "no_game"
    assert await club.players() == {"X": "ann"}
