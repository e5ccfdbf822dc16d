"""Matches in transactions: head, log and clock change together, and go together."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import pytest

from onceward import limits
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput, NoSuchMatch
from onceward.keys import Key
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.tables.games import (
    Match,
    Matches,
    MatchLate,
    MatchMoved,
    Outcome,
    Rules,
    match_key,
    replay,
)
from onceward.tables.games.part import PURGE_RECORDS, PURGE_WRITES
from tests.quick import START_MS, QuickClock
from tests.schedule.jobs import all_records
from tests.tables.games.playing import Guess, Nim

T = TypeVar("T")

NIM = Nim()
PLAYERS = {"first": "Ann", "second": "Bob"}


class Hall:
    """Matches on a memory engine, each call in a commit of its own."""

    def __init__(self, rules: Rules = NIM) -> None:
        self.rules = rules
        self.clock = QuickClock()
        self.engine = MemoryEngine()
        self.store = Store(self.engine, self.clock)
        self.part = Matches(self.store.ids, slots=1)

    async def run(self, fn: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self.store.run(fn)

    async def begin(self, **options: Any) -> str:
        players = dict(zip(self.rules.seats, ("Ann", "Bob"), strict=True))
        match = await self.run(lambda tx: self.part.begin(tx, self.rules, players, **options))
        return match.begun.id

    async def get(self, id_: str) -> Match:
        return await self.run(lambda tx: self.part.get(tx, id_))

    async def play(self, id_: str, seat: str, move: Any, number: int | None = None) -> Match:
        async def fn(tx: Transaction) -> Match:
            match = await self.part.get(tx, id_)
            return await self.part.play(tx, self.rules, match, seat, move, number)

        return await self.run(fn)

    async def leave(self, id_: str, seat: str) -> Match:
        async def fn(tx: Transaction) -> Match:
            return await self.part.leave(tx, self.rules, await self.part.get(tx, id_), seat)

        return await self.run(fn)

    async def due(self, entry: Key) -> Any:
        return await self.run(lambda tx: self.part.fall_due(tx, entry, lambda name: self.rules))

    def entries(self) -> list[Key]:
        return sorted(key for key in all_records(self.engine) if key[0].startswith("due#"))

    def of(self, id_: str) -> list[str]:
        return sorted(key[1] for key in all_records(self.engine) if key[0] == match_key(id_)[0])


async def hall(rules: Rules = NIM) -> Hall:
    made = Hall(rules)
    await made.engine.open()
    return made


async def test_what_is_in_the_log_makes_the_match_that_is_stored() -> None:
    here = await hall()
    id_ = await here.begin(turn_s=10.0, place="t")
    for seat, move in (("first", 3), ("second", 3), ("first", 1)):
        here.clock.at_ms += 1_000
        await here.play(id_, seat, move)
    match = await here.get(id_)
    log = await here.run(lambda tx: here.part.log(tx, id_))
    assert [entry.at_ms - START_MS for entry in log] == [0, 1_000, 2_000, 3_000]
    assert msgspec.json.encode(replay(NIM, log)[-1]) == msgspec.json.encode(match)
    assert match.outcome == Outcome(("first",))
    assert (match.begun.players, match.begun.place) == (PLAYERS, "t")


async def test_seeds_differ_from_match_to_match() -> None:
    here = await hall()
    ids = [await here.begin() for _ in range(5)]
    seeds = {(await here.get(id_)).begun.seed for id_ in ids}
    assert len(seeds) == len(set(ids)) == 5
    assert {len(seed) for seed in seeds} == {32}


async def test_what_is_refused_writes_nothing_and_what_comes_again_neither() -> None:
    here = await hall()
    id_ = await here.begin(turn_s=10.0)
    await here.play(id_, "first", 2, 0)
    before = all_records(here.engine)
    for seat, move, number in (("first", 2, None), ("second", 9, 1), ("second", 1, 0)):
        with pytest.raises(BadInput):
            await here.play(id_, seat, move, number)
    match = await here.play(id_, "first", 2, 0)
    assert match.awaited == ["second"]
    assert all_records(here.engine) == before


async def test_a_match_needs_someone_on_each_seat() -> None:
    here = await hall()
    for players in ({}, {"first": "Ann"}, {**PLAYERS, "third": "Cid"}):
        with pytest.raises(BadInput):
            await here.run(lambda tx, players=players: here.part.begin(tx, NIM, players))
    for odd in (None, 5, "first", ["first", "second"]):
        with pytest.raises(BadInput, match="players must be a mapping of seats"):
            await here.run(lambda tx, odd=odd: here.part.begin(tx, NIM, odd))
    for place in (None, 5, True, [], {}, ()):
        with pytest.raises(BadInput, match="a place must be text"):
            await here.begin(place=place)
    with pytest.raises(BadInput):
        await here.begin(turn_s=-1.0)
    assert all_records(here.engine) == {}


@pytest.mark.parametrize("seats", [None, 5, "first", [5], ["third"], [["first"]]])
async def test_who_wins_or_loses_sits_there(seats: Any) -> None:
    here = await hall()
    match = await here.get(await here.begin())
    before = all_records(here.engine)
    ends: list[Any] = [
        lambda tx: here.part.leave(tx, NIM, match, "first", seats),
        lambda tx: here.part.expire(tx, NIM, match, seats),
    ]
    if seats is not None:
        ends.append(lambda tx: here.part.stop(tx, NIM, match, seats))
    for end in ends:
        with pytest.raises(BadInput, match=r"seats must be a list|the seats of"):
            await here.run(end)
    assert all_records(here.engine) == before


@pytest.mark.parametrize("id_", ["", "nope", "x" * 2_000, "a#b\x00"])
async def test_a_match_that_is_not_there_is_nothing_to_work_on(id_: str) -> None:
    here = await hall()
    for call in (
        here.get(id_),
        here.play(id_, "first", 1),
        here.run(lambda tx: here.part.log(tx, id_)),
    ):
        with pytest.raises(NoSuchMatch):
            await call


async def test_one_entry_stands_for_the_time_of_a_round() -> None:
    here = await hall()
    id_ = await here.begin(turn_s=10.0)
    [first] = here.entries()
    here.clock.at_ms += 4_000
    await here.play(id_, "first", 1)
    [second] = here.entries()
    assert second > first
    assert await here.due(first) is None, "of a round that is over"
    assert here.entries() == [second]
    assert await here.due(second) is None, "too early"
    assert here.entries() == [second]
    here.clock.at_ms += 10_000
    after = await here.due(second)
    assert after.outcome == Outcome(("first",), "timeout")
    assert (await here.get(id_)).outcome == after.outcome
    log = await here.run(lambda tx: here.part.log(tx, id_))
    assert log[-2:] == [
        MatchMoved("first", 1, START_MS + 4_000),
        MatchLate(START_MS + 14_000),
    ]
    assert await here.due(second) is None, "again, it does nothing"


async def test_a_place_has_one_match_at_a_time() -> None:
    here = await hall()

    async def at() -> str | None:
        match = await here.run(lambda tx: here.part.at(tx, "corner"))
        return None if match is None else match.begun.id

    assert await at() is None
    first = await here.begin(place="corner")
    with pytest.raises(BadInput) as error:
        await here.begin(place="corner")
    assert error.value.code == "other_game"
    await here.play(first, "first", 3)
    assert await at() == first
    await here.begin(place="window")
    await here.begin()
    await here.begin()
    await here.leave(first, "first")
    assert await at() is None
    second = await here.begin(place="corner")
    await here.leave(first, "second")  # it is over, and its place is another one's
    assert await at() == second


async def test_a_match_without_a_clock_waits_for_ever() -> None:
    here = await hall(Guess())
    id_ = await here.begin()
    await here.play(id_, "even", "heads")
    assert here.entries() == []
    here.clock.at_ms += 10**10
    assert (await here.play(id_, "odd", "heads")).outcome == Outcome(("even",))


async def test_a_match_is_forgotten_a_while_after_its_end_however_long_its_log_is() -> None:
    class Long(Nim):
        def start(self, seed: str) -> Any:
            return {"left": 2 * PURGE_RECORDS + 5, "taker": ""}

    here = await hall(Long())
    id_ = await here.begin(turn_s=10.0)
    for number in range(2 * PURGE_RECORDS):
        await here.play(id_, here.rules.seats[number % 2], 1)
    await here.leave(id_, "first")
    assert len(here.of(id_)) == 2 * PURGE_RECORDS + 3
    [entry] = here.entries()
    here.clock.at_ms += limits.MATCH_RETENTION_MS - 1
    assert await here.due(entry) is None
    assert (await here.get(id_)).outcome is not None, "not yet"
    here.clock.at_ms += 1
    rounds = 0
    while entries := here.entries():

        async def act(tx: Transaction, entry: Key = entries[0]) -> int:
            await here.part.fall_due(tx, entry, lambda name: here.rules)
            return tx.size

        size = await here.run(act)
        assert size <= PURGE_WRITES
        rounds += 1
        here.clock.at_ms += 1
        with pytest.raises(NoSuchMatch):
            await here.get(id_)
    assert rounds == 3
    assert here.of(id_) == []


async def test_who_leaves_ends_it_and_stopping_it_counts_for_nobody() -> None:
    here = await hall()
    id_ = await here.begin()
    assert (await here.leave(id_, "first")).outcome == Outcome(("second",), "left")
    assert (await here.leave(id_, "second")).outcome == Outcome(("second",), "left")
    id_ = await here.begin()

    async def stop(tx: Transaction) -> Match:
        return await here.part.stop(tx, NIM, await here.part.get(tx, id_))

    for _ in range(2):
        assert (await here.run(stop)).outcome == Outcome((), "stopped")
    assert (await here.get(id_)).entries == 2
