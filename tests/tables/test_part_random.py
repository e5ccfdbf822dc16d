"""Random policies, people and times: whatever happens, what must hold at tables does."""

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceward import limits
from onceward.errors import BadInput
from onceward.tables import policy_of
from tests.tables.club import Club, new_club, problems

pytestmark = pytest.mark.no_cover

USERS = [f"u{number}" for number in range(10)]
SOME = st.sampled_from(USERS)
TIMES = st.sampled_from([0, 5_000, 20_000])
POLICIES = st.fixed_dictionaries(
    {
        "seats": st.sampled_from([["X", "O"], ["A", "B", "C", "D"]]),
        "lanes": st.sampled_from([["main"], ["vip", "main"]]),
        "party_max": st.sampled_from([1, 2]),
        "tiers": st.sampled_from([[], [1_190, 1_210]]),
        "widen_ms": st.sampled_from([0, 7_000]),
        "rated": st.booleans(),
        "max_wins": st.sampled_from([0, 2]),
        "draw": st.sampled_from(["swap", "stay", "back"]),
        "max_draws": st.sampled_from([0, 2]),
        "loser": st.sampled_from(["back", "leave"]),
        "idle": st.sampled_from(["back", "leave"]),
        "idle_ms": TIMES,
        "grace_ms": TIMES,
        "waiting_ms": TIMES,
        "ready_ms": TIMES,
        "rematch_ms": TIMES,
        "break_ms": TIMES,
        "bot_ms": TIMES,
        "bots": st.just(["b1", "b2", "b3"]),
        "opens": st.booleans(),
        "waitlist_max": st.sampled_from([3, 1_000]),
    }
)
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), SOME, st.sampled_from(["", "vip"]), st.none() | SOME),
        st.tuples(st.just("join"), SOME, st.just(""), st.none()),
        st.tuples(st.sampled_from(["leave", "ready", "watch", "away", "back", "heartbeat"]), SOME),
        st.tuples(st.just("result"), st.integers(0, 5)),
        st.tuples(st.just("turn"), SOME),
        st.tuples(st.sampled_from(["pause", "resume"])),
        st.tuples(st.just("pass"), st.sampled_from([1_000, 6_000, 30_000])),
    ),
    max_size=40,
)


async def do(club: Club, name: str, *told: Any) -> None:
    if name == "pass":
        await club.pass_ms(told[0])
    elif name == "join":
        user, lane, other = told
        await club.join(user, lane=lane, party=[other] if other else [])
    elif name == "result":
        table = await club.get()
        players = sorted(table.players.values())
        winners = players[told[0] : told[0] + 1]
        await club.result(*winners, game=table.number)
    elif name == "turn":
        await club.do("turn", [told[0]])
    else:
        await club.do(name, *told)


async def judge(club: Club, policy: dict[str, Any]) -> None:
    assert problems(club.engine) == []
    for id_ in list(club.screen.shown):
        head, lines = club.head(id_), club.line(id_)
        waiting = [user for users in lines.values() for party in users for user in party]
        seated = [seat.user for seat in head.seats.values()]
        assert len(seated) == len(set(seated)) <= len(policy["seats"])
        assert not set(seated) & set(waiting)
        assert len(waiting) == len(set(waiting)) == head.waiting
        assert (head.phase == "playing") <= (len(seated) == len(policy["seats"]))
        for lane, parties in lines.items():
            assert head.lanes[lane].waiting == len(parties)
            for place, users in enumerate(parties):
                assert (await club.place(users[-1], table=id_)).position == place + 1
    judge_waitlist(club)
    shown = {
        key: value["user"]
        for (map_, key), value in club.screen.shown["t"].items()
        if map_ == "seats" and value is not None
    }
    assert shown == {marker: seat.user for marker, seat in club.head().seats.items()}


def judge_waitlist(club: Club) -> None:
    """The first ones of each lane are shown, and no others."""
    shown: dict[str, dict[int, tuple[str, ...]]] = {}
    for (map_, _), value in club.screen.shown["t"].items():
        if map_ == "waitlist":
            shown.setdefault(value["lane"], {})[value["number"]] = value["users"]
    found = {lane: [users for _, users in sorted(ones.items())] for lane, ones in shown.items()}
    most = {key: max(limits.SEATS_SHOWN // lane.size, 1) for key, lane in club.head().lanes.items()}
    assert found == {lane: ones[: most[lane]] for lane, ones in club.line().items()}


def judge_order(club: Club) -> None:
    """Whoever sat down together did so in order, and nobody has gone twice."""
    gone: dict[tuple[str, str], list[int]] = {}
    for table, changes in club.screen.steps:
        came = any(c.map in ("seats", "opened") and not c.gone for c in changes)
        for change in changes:
            if change.map == "line":
                before = gone.setdefault((table, change.key), [])
                recent = change.value["gone"]
                numbers = recent[len(recent) - (change.value["went"] - len(before)) :]
                assert len(numbers) == change.value["went"] - len(before)
                if came and len(numbers) > 1:
                    assert numbers == sorted(numbers)
                assert not set(before) & set(numbers)
                before += numbers


PLAIN = {"seats": ["X", "O"], "waitlist_max": 3}


@given(POLICIES, DEEDS, st.sampled_from([1, 3, 32]))
@example({**PLAIN, "waiting_ms": 5_000}, [("watch", "u1"), ("back", "u1"), ("pass", 30_000)], 1)
@settings(max_examples=80)
def test_whatever_happens_what_must_hold_does(
    policy: dict[str, Any], deeds: list[tuple[Any, ...]], shown: int
) -> None:
    async def run() -> None:
        club = await new_club()
        made = policy_of(policy)
        await club.run(lambda tx: club.seats.create(tx, "t", policy=made))
        for name, *told in deeds:
            before = club.screen.copy()
            try:
                await do(club, name, *told)
            except BadInput:
                club.screen.restore(before)  # it makes no sense just now, and nothing was written
            await judge(club, policy)
        judge_order(club)
        assert club.largest_commit < 90
        await club.do("close")
        await club.pass_ms(1_000)
        await club.engine.sweep(club.clock.at_ms)  # signs of life expire by themselves
        assert not [key for key in club.records("stand", "lane", "heartbeat") if "#t#" in key[0]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "SEATS_SHOWN", shown)
        asyncio.run(run())
