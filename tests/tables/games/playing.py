"""Games to try the base with: turns, hidden moves, secrets, chance, and turns that are skipped."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from onceward.tables.games import MatchBegun, Outcome, Rules, shuffled, won
from onceward.tables.games import match as referee
from onceward.tables.games.match import Match


class Nim(Rules):
    """Who takes the last match wins."""

    name, seats = "nim", ("first", "second")

    def start(self, seed: str) -> Any:
        return {"left": 7, "taker": ""}

    def moves(self, state: Any, seat: str) -> list[int]:
        return [count for count in (1, 2, 3) if count <= state["left"]]

    def apply(self, state: Any, seat: str, move: Any) -> Any:
        state["left"] -= move  # it is nobody else's
        return {**state, "taker": seat}

    def outcome(self, state: Any) -> Outcome | None:
        return None if state["left"] else won(state["taker"])


class Trumps(Rules):
    """Three players get three cards each and play them at the same time; the best of each round
    counts, and who sits out has no card left. Hands are secret."""

    name, seats, simultaneous = "trumps", ("a", "b", "c"), True

    def start(self, seed: str) -> Any:
        cards = shuffled(seed, range(9))
        hands = {seat: sorted(cards[3 * at : 3 * at + 3]) for at, seat in enumerate(self.seats)}
        return {"hands": hands, "won": dict.fromkeys(self.seats, 0), "shown": []}

    def moves(self, state: Any, seat: str) -> list[int]:
        return list(state["hands"][seat])

    def apply(self, state: Any, seat: str, move: Any) -> Any:
        state["hands"][seat].remove(move)
        return state

    def reveal(self, state: Any, moves: Any) -> Any:
        state = super().reveal(state, moves)
        state["won"][max(moves, key=moves.__getitem__)] += 1
        state["shown"].append(moves)
        return state

    def movers(self, state: Any, number: int) -> Sequence[str]:
        return [seat for seat in self.seats if state["hands"][seat]]

    def outcome(self, state: Any) -> Outcome | None:
        if any(state["hands"].values()):
            return None
        most = max(state["won"].values())
        return Outcome(tuple(seat for seat in self.seats if state["won"][seat] == most))

    def view(self, state: Any, seat: str | None) -> Any:
        hands = {one: hand if one == seat else len(hand) for one, hand in state["hands"].items()}
        return {**state, "hands": hands}


class Guess(Rules):
    """Both say heads or tails; the first wins if they say the same."""

    name, seats, simultaneous = "guess", ("even", "odd"), True

    def start(self, seed: str) -> Any:
        return {}

    def moves(self, state: Any, seat: str) -> list[str]:
        return ["heads", "tails"]

    def apply(self, state: Any, seat: str, move: Any) -> Any:
        return {**state, seat: move}

    def outcome(self, state: Any) -> Outcome | None:
        if not state:
            return None
        return won("even" if state["even"] == state["odd"] else "odd")


TURNS_MS = {"nim": 10_000, "trumps": 20_000}
GAMES: tuple[Rules, ...] = (Nim(), Trumps(), Guess())


def begun(rules: Rules, seed: str = "seed") -> MatchBegun:
    players = {seat: f"user-{seat}" for seat in rules.seats}
    turn_ms = TURNS_MS.get(rules.name)
    return MatchBegun("match-1", rules.name, players, seed, 1_000, turn_ms, "table-1")


def fresh(rules: Rules, seed: str = "seed") -> Match:
    return referee.begin(rules, begun(rules, seed))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["move"] * 12 + ["late", "leave"]),
        st.integers(0, 2),
        st.integers(0, 9),
        st.integers(0, 3_000),
    ),
    max_size=30,
)
"""What players try: what, at which seat, which of the moves, and after how long."""
