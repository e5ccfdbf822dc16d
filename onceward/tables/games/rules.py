"""The interface of game rules: pure functions on plain data.

    class Nim(Rules):
        name, seats = "nim", ("first", "second")

        def start(self, seed): ...
        def moves(self, state, seat): ...
        def apply(self, state, seat, move): ...
        def outcome(self, state): ...

States and moves are JSON. The functions must be deterministic: no clock, no random numbers except
from the seed of `start` (with `shuffled` and `drawn`), and no side effects. Then a game can be
replayed from its log.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, TypeVar

from onceward.api.matches import Outcome

T = TypeVar("T")


DRAW = Outcome()


def won(*seats: str) -> Outcome:
    """The outcome in which these seats win and all others lose."""
    return Outcome(seats)


class Rules:
    """A turn-based game, or one with simultaneous hidden moves."""

    name: ClassVar[str]
    seats: ClassVar[tuple[str, ...]]
    """The names of the seats, in the order of their turns."""
    simultaneous: ClassVar[bool] = False
    """Whether all seats move at once. Moves stay hidden until the round is complete."""

    def start(self, seed: str) -> Any:
        """Return the state before the first move. `seed` differs for each game and is secret until
        the end."""
        raise NotImplementedError

    def moves(self, state: Any, seat: str) -> Iterable[Any]:
        """Return the legal moves of a seat whose turn it is."""
        raise NotImplementedError

    def apply(self, state: Any, seat: str, move: Any) -> Any:
        """Return the state after a move. The move is one of `moves`."""
        raise NotImplementedError

    def outcome(self, state: Any) -> Outcome | None:
        """Return the result of the game, or None while it continues."""
        raise NotImplementedError

    def view(self, state: Any, seat: str | None) -> Any:
        """Return the visible part of a state for a seat. Default: the whole state.

        None is the view of spectators and of the live view. Override it for games with hidden
        information.
        """
        return state

    def movers(self, state: Any, number: int) -> Sequence[str]:
        """Return the seats whose turn it is in round `number`, from 0.

        Several seats move hidden from each other; their moves are applied together.
        """
        return self.seats if self.simultaneous else (self.seats[number % len(self.seats)],)

    def bot(self, state: Any, seat: str, seed: str) -> Any:
        """Return the move of a bot. Default: a random legal move."""
        moves = list(self.moves(state, seat))
        return moves[drawn(seed, len(moves))]

    def reveal(self, state: Any, moves: Mapping[str, Any]) -> Any:
        """Return the state after the moves of a round, by seat in the order of the seats."""
        for seat, move in moves.items():
            state = self.apply(state, seat, move)
        return state


def drawn(seed: str, below: int, number: int = 0) -> int:
    """Return a uniform pseudo-random number from 0 to below `below`, determined by seed and
    number."""
    digest = blake2b(f"{seed},{number}".encode(), digest_size=16).digest()
    return int.from_bytes(digest) * below >> 128


def shuffled(seed: str, items: Iterable[T]) -> list[T]:
    """Return the items in a pseudo-random order, determined by the seed."""
    mixed = list(items)
    for last in range(len(mixed) - 1, 0, -1):
        at = drawn(seed, last + 1, last)
        mixed[at], mixed[last] = mixed[last], mixed[at]
    return mixed
