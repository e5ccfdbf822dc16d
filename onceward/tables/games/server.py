"""The registered games, and operations on matches, each in a transaction.

Turn clocks are due entries: the owner of the slot ends matches of players who are out of time.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from onceward import limits
from onceward.errors import BadInput
from onceward.store.transaction import Transaction
from onceward.store.user_records import joins
from onceward.tables.games import (
    Game,
    Match,
    MatchEntry,
    Matches,
    MatchView,
    Rules,
    replay,
    view,
)
from onceward.tables.policy import names_fit


class Games:
    """Matches of the games that this application declares.

    Matches of other games on the same database are left alone; their clocks wait for an application
    that declares them.
    """

    def __init__(self, matches: Matches, games: Mapping[str, Game]) -> None:
        self.matches = matches
        matches.games = games

    def rules(self, name: str) -> Rules:
        """Return the rules of a game. Raises `no_such_game`."""
        return self.matches.game(name).rules

    def all_rules(self) -> list[Rules]:
        """Return the rules of all declared games."""
        return [game.rules for game in self.matches.games.values()]

    @joins
    async def begin(
        self,
        tx: Transaction,
        game: str,
        players: Mapping[str, str],
        *,
        place: str = "",
        turn_s: float | None = None,
    ) -> Match:
        """Start a match of `players`, by seat.

        `turn_s` is the time limit for each move, after which the player loses; default: no limit. A
        place has one match at a time. Raises `BadInput`.
        """
        rules = self.rules(game)
        return await self.matches.begin(tx, rules, players, place=place, turn_s=turn_s)

    @joins
    async def at(self, tx: Transaction, place: str) -> Match | None:
        """Return the match that is running at a place, or None."""
        return await self.matches.at(tx, place)

    @joins
    async def get(self, tx: Transaction, id_: str) -> Match:
        """Return a match, including hidden information. Raises `NoSuchMatch`."""
        return await self.matches.get(tx, id_)

    @joins
    async def play(
        self, tx: Transaction, match: Match, seat: str, move: Any, number: int | None = None
    ) -> Match:
        """Make a move. With `number`, the round that the player has seen, the call is idempotent.

        Raises `BadInput` for an illegal move.
        """
        rules = self._rules_of(match)
        return await self.matches.play(tx, rules, match, seat, move, number)

    @joins
    async def leave(self, tx: Transaction, match: Match, seat: str, *others: str) -> Match:
        """Resign for one or more players; the others win. Idempotent after the end."""
        return await self.matches.leave(tx, self._rules_of(match), match, seat, others)

    @joins
    async def expire(self, tx: Transaction, match: Match, *seats: str) -> Match:
        """End the match for the players who have not moved, or for `seats`.

        If the match has a clock, it changes nothing before the deadline.
        """
        return await self.matches.expire(tx, self._rules_of(match), match, seats)

    @joins
    async def stop(
        self, tx: Transaction, match: Match, winners: Sequence[str] | None = None
    ) -> Match:
        """End a match with the given winners, or without a result."""
        return await self.matches.stop(tx, self._rules_of(match), match, winners)

    def view(self, match: Match, user: str | None = None) -> MatchView:
        """Return the match as a player sees it, or as spectators see it."""
        rules, players = self._rules_of(match), match.begun.players.items()
        seat = next((seat for seat, name in players if user is not None and name == user), None)
        return view(rules, match, seat)

    @joins
    async def log(self, tx: Transaction, id_: str) -> list[MatchEntry]:
        """Return the log of a finished match; before the end it would reveal hidden information.

        Raises `NoSuchMatch`, `match_on`.
        """
        match = await self.matches.get(tx, id_)
        if match.outcome is None:
            raise BadInput(
                "the game is still running; its log is available after the end", code="match_on"
            )
        return await self.matches.log(tx, id_)

    @joins
    async def replay(self, tx: Transaction, id_: str) -> list[MatchView]:
        """Return the states of a finished match, move by move, as spectators saw them.

        Raises `NoSuchMatch`, `match_on`.
        """
        log = await self.log(tx, id_)
        rules = self.rules((await self.get(tx, id_)).begun.game)
        return [view(rules, match) for match in replay(rules, log)]

    def _rules_of(self, match: Match) -> Rules:
        if not isinstance(match, Match):
            raise BadInput(f"expected a match, not {type(match).__name__}; get it by its id")
        return self.rules(match.begun.game)


def admit(rules: Any) -> None:
    """Raise `BadInput` for an invalid game."""
    name, seats = getattr(rules, "name", ""), getattr(rules, "seats", ())
    bytes_max = limits.SEATS_NAME_BYTES_MAX
    if not isinstance(rules, Rules) or not names_fit(name, bytes_max):
        raise BadInput(
            "a game must be an instance of a subclass of `Rules` with a name of at most "
            f"{bytes_max} bytes, not {str(rules)[:100]}"
        )
    fit = isinstance(seats, tuple) and all(names_fit(seat, bytes_max) for seat in seats)
    if not fit or not seats or len(set(seats)) < len(seats):
        raise BadInput(
            f"the seats of {name} must be a tuple of distinct names of at most {bytes_max} "
            f"bytes each, not {str(seats)[:100]}"
        )
