"""Random operations at a table against a small model with plain lists."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tables.club import Club, new_club, problems

pytestmark = pytest.mark.no_cover

USERS = [f"u{number}" for number in range(9)]
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.sampled_from(USERS), st.sampled_from(["", "vip"])),
        st.tuples(st.just("join"), st.sampled_from(USERS), st.just("")),
        st.tuples(st.just("leave"), st.sampled_from(USERS)),
        st.tuples(st.just("result"), st.integers(0, 5)),
        st.tuples(st.just("draw")),
        st.tuples(st.just("pause")),
        st.tuples(st.just("resume")),
    ),
    max_size=60,
)
POLICIES = st.fixed_dictionaries(
    {
        "seats": st.sampled_from([["X", "O"], ["A", "B", "C"]]),
        "max_wins": st.sampled_from([0, 1, 2, 5]),
        "draw": st.sampled_from(["swap", "stay", "back"]),
        "max_draws": st.sampled_from([0, 2]),
        "loser": st.sampled_from(["back", "leave"]),
    }
)


class Model:
    """A table as it should be: seats by marker, and two lanes that are lists."""

    def __init__(self, policy: dict[str, Any]) -> None:
        self.policy = policy
        self.seats: dict[str, str] = {}
        self.wins: dict[str, int] = {}
        self.lane_of: dict[str, str] = {}
        self.lines: dict[str, list[str]] = {"vip": [], "main": []}
        self.playing = self.paused = False
        self.draws = self.game = 0

    @property
    def line(self) -> list[str]:
        return self.lines["vip"] + self.lines["main"]

    def join(self, user: str, lane: str) -> None:
        if user not in self.seats.values() and user not in self.line:
            self.lane_of[user] = lane or "main"
            self.lines[lane or "main"].append(user)
            self.settle()

    def leave(self, user: str) -> None:
        for line in self.lines.values():
            if user in line:
                line.remove(user)
        if user in self.seats.values():
            others = [other for other in self.seats.values() if other != user]
            if self.playing:
                self.end(others, gone=user)
            else:
                self.seats = {m: u for m, u in self.seats.items() if u != user}
                self.settle()

    def end(self, winners: list[str], gone: str = "") -> None:
        self.playing = False
        if winners:
            self.draws = 0
            for user in self.seats.values():
                self.wins[user] = self.wins.get(user, 0) + 1 if user in winners else 0
        else:
            self.draws += 1
        up = []
        if gone:
            up.append(gone)
        if self.line and not gone and not winners:
            if self.policy["draw"] == "back" or 0 < self.policy["max_draws"] <= self.draws:
                up += self.seats.values()
        elif self.line:
            up += [u for u in self.seats.values() if u not in winners and u != gone]
            most = self.policy["max_wins"]
            up += [u for u in self.seats.values() if u in winners and 0 < most <= self.wins[u]]
        if up:
            self.draws = 0
        elif not winners and self.policy["draw"] == "swap":
            markers = [m for m in self.policy["seats"] if m in self.seats]
            users = [self.seats[m] for m in markers]
            self.seats = dict(zip(markers, [users[-1], *users[:-1]], strict=True))
        for user in up:
            self.seats = {m: u for m, u in self.seats.items() if u != user}
            if user != gone and (self.policy["loser"] == "back" or user in winners or not winners):
                self.lines[self.lane_of[user]].append(user)
            self.wins.pop(user)
        self.settle()

    def settle(self) -> None:
        if self.paused or self.playing:
            return
        for marker in self.policy["seats"]:
            if marker not in self.seats and self.line:
                user = self.line[0]
                self.lines[self.lane_of[user]].remove(user)
                self.seats[marker] = user
                self.wins[user] = 0
        if len(self.seats) == len(self.policy["seats"]):
            self.playing = True
            self.game += 1


async def judge(club: Club, model: Model) -> None:
    table = await club.get()
    assert table.players == model.seats
    assert (table.phase == "playing") == model.playing
    assert table.number == model.game
    assert table.waiting == len(model.line)
    lines = {lane: [user for (user,) in users] for lane, users in club.line().items()}
    assert lines == {lane: users for lane, users in model.lines.items() if users}
    for user in USERS:
        place = await club.place(user)
        if user in model.seats.values():
            assert model.seats[place.marker] == user
        elif user in model.line:
            assert place.role == "waiting"
            assert place.position == model.lines[model.lane_of[user]].index(user) + 1
            assert place.ahead == model.line.index(user)
        else:
            assert place.role == ""
    shown = club.screen.shown["t"]
    seated = {key: seat for (map_, key), seat in shown.items() if map_ == "seats"}
    assert {key: seat["user"] for key, seat in seated.items() if seat} == model.seats
    assert list(seated) == list(table.seats), "empty seats are shown as that"
    assert shown["table", "state"]["waiting"] == len(model.line)


@given(POLICIES, OPERATIONS)
@settings(max_examples=60)
def test_a_table_is_always_as_the_model_says(
    policy: dict[str, Any], operations: list[tuple[Any, ...]]
) -> None:
    async def run() -> None:
        club = await new_club()
        await club.create(**policy, lanes=["vip", "main"])
        model = Model(policy)
        for name, *told in operations:
            if name == "join":
                await club.join(told[0], lane=told[1])
                model.join(*told)
            elif name == "leave":
                await club.leave(told[0])
                model.leave(told[0])
            elif name == "result" and model.playing:
                winner = list(model.seats.values())[told[0] % len(model.seats)]
                await club.result(winner, game=model.game)
                model.end([winner])
            elif name == "draw" and model.playing:
                await club.result(game=model.game)
                model.end([])
            elif name == "pause":
                await club.do("pause")
                model.paused = True
            elif name == "resume":
                await club.do("resume")
                model.paused = False
                model.settle()
            await judge(club, model)
        assert not problems(club.engine)
        assert club.largest_commit < 40

    asyncio.run(run())
