"""The interface of game rules: pure functions on plain data.

    class Nim(Rules):
        name, seats = "nim", ("first", "second")

        def start(self, seed): ...
        def moves(self, state, seat): ...
        def apply(self, state, seat, move): ...
        def outcome(self, state): ...

States and moves are JSON. The functions read no clock, make no chance of their own (`start` gets
a seed, from which `shuffled` and `drawn` make what they need) and change nothing outside: so a
game is told again from its log, move by move.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, TypeVar

from onceward.api.matches import Outcome

T = TypeVar("T")


DRAW = Outcome()


def won(*seats: str) -> Outcome:
    """A game that these seats have won, and the others lost."""
    return Outcome(seats)


class Rules:
    """A turn-based game, or one in which all move at the same time, hidden from each other."""

    name: ClassVar[str]
    seats: ClassVar[tuple[str, ...]]
    """Of the players, in the order of their turns."""
    simultaneous: ClassVar[bool] = False
    """Whether all move at once: nobody sees a move before the last one has come."""

    def start(self, seed: str) -> Any:
        """The state before the first move. `seed` is another text for each game, and nobody sees
        it before the end."""
        raise NotImplementedError

    def moves(self, state: Any, seat: str) -> Iterable[Any]:
        """The moves that someone has, whose turn it is."""
        raise NotImplementedError

    def apply(self, state: Any, seat: str, move: Any) -> Any:
        """The state after a move. It is one of `moves`."""
        raise NotImplementedError

    def outcome(self, state: Any) -> Outcome | None:
        """How the game has ended; None: it goes on."""
        raise NotImplementedError

    def view(self, state: Any, seat: str | None) -> Any:
        """What someone may see of a state: all of it, unless the game has secrets. None is
        whoever looks on, and what everyone sees live."""
        return state

    def movers(self, state: Any, number: int) -> Sequence[str]:
        """Whose turn it is in round `number`, from 0 on. Several: each moves, hidden from the
        others, and the moves count together once all have come."""
        return self.seats if self.simultaneous else (self.seats[number % len(self.seats)],)

    def bot(self, state: Any, seat: str, seed: str) -> Any:
        """The move of a bot: any of those it has, by chance, unless you write a better one."""
        moves = list(self.moves(state, seat))
        return moves[drawn(seed, len(moves))]

    def reveal(self, state: Any, moves: Mapping[str, Any]) -> Any:
        """The state after the moves of a round, by seat and in the order of seats."""
        for seat, move in moves.items():
            state = self.apply(state, seat, move)
        return state


def drawn(seed: str, below: int, number: int = 0) -> int:
    """A number from 0 on that is below another, by chance: the same for the same seed and
    number, and each of them as likely."""
    digest = blake2b(f"{seed},{number}".encode(), digest_size=16).digest()
    return int.from_bytes(digest) * below >> 128


def shuffled(seed: str, items: Iterable[T]) -> list[T]:
    """Items in an order by chance: the same for the same seed."""
    mixed = list(items)
    for last in range(len(mixed) - 1, 0, -1):
        at = drawn(seed, last + 1, last)
        mixed[at], mixed[last] = mixed[last], mixed[at]
    return mixed
