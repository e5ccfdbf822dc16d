"""The registered games, and operations on matches, each in a transaction.

Turn clocks are entries in due: whoever owns the slot lets those lose who have not moved in time.
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
    """Matches of the games that are declared here. Others on the same database are not touched,
    and their clocks wait for an application that knows them."""

    def __init__(self, matches: Matches, games: Mapping[str, Game]) -> None:
        self.matches = matches
        matches.games = games

    def rules(self, name: str) -> Rules:
        """Of a game. Raises `no_such_game`."""
        return self.matches.game(name).rules

    def all_rules(self) -> list[Rules]:
        """Of all games that are declared here."""
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
        """Let players, by seat, begin a game. `turn_s` is how long one may think about a move,
        before one loses; without it, as long as one likes. At a place there is one match at a
        time. Raises `BadInput`."""
        rules = self.rules(game)
        return await self.matches.begin(tx, rules, players, place=place, turn_s=turn_s)

    @joins
    async def at(self, tx: Transaction, place: str) -> Match | None:
        """The match that is on at a place, if one is."""
        return await self.matches.at(tx, place)

    @joins
    async def get(self, tx: Transaction, id_: str) -> Match:
        """A match, with its secrets. Raises `NoSuchMatch`."""
        return await self.matches.get(tx, id_)

    @joins
    async def play(
        self, tx: Transaction, match: Match, seat: str, move: Any, number: int | None = None
    ) -> Match:
        """Make a move. With `number`, the round that the player has seen, it counts once however
        often it is sent. Raises `BadInput` for a move that may not be made."""
        rules = self._rules_of(match)
        return await self.matches.play(tx, rules, match, seat, move, number)

    @joins
    async def leave(self, tx: Transaction, match: Match, seat: str, *others: str) -> Match:
        """Let a player give up, or several: the others win. Once it has ended, it changes
        nothing."""
        return await self.matches.leave(tx, self._rules_of(match), match, seat, others)

    @joins
    async def expire(self, tx: Transaction, match: Match, *seats: str) -> Match:
        """Let those lose who have yet to move, or some of them; not before its time, if it has a
        clock."""
        return await self.matches.expire(tx, self._rules_of(match), match, seats)

    @joins
    async def stop(
        self, tx: Transaction, match: Match, winners: Sequence[str] | None = None
    ) -> Match:
        """End a match from outside: these seats have won, or it counts for nobody."""
        return await self.matches.stop(tx, self._rules_of(match), match, winners)

    def view(self, match: Match, user: str | None = None) -> MatchView:
        """What someone sees of a match: a player what that player may, everyone else what all
        may."""
        rules, players = self._rules_of(match), match.begun.players.items()
        seat = next((seat for seat, name in players if user is not None and name == user), None)
        return view(rules, match, seat)

    @joins
    async def log(self, tx: Transaction, id_: str) -> list[MatchEntry]:
        """What has happened in a match that is over: before that, it would tell secrets. Raises
        `NoSuchMatch`, `match_on`."""
        match = await self.matches.get(tx, id_)
        if match.outcome is None:
            raise BadInput("the game is still on: its log is open after its end", code="match_on")
        return await self.matches.log(tx, id_)

    @joins
    async def replay(self, tx: Transaction, id_: str) -> list[MatchView]:
        """A match that is over, move by move, as whoever looks on has seen it. Raises
        `NoSuchMatch`, `match_on`."""
        log = await self.log(tx, id_)
        rules = self.rules((await self.get(tx, id_)).begun.game)
        return [view(rules, match) for match in replay(rules, log)]

    def _rules_of(self, match: Match) -> Rules:
        if not isinstance(match, Match):
            raise BadInput(f"this takes a match, not {type(match).__name__}: get it by its id")
        return self.rules(match.begun.game)


def admit(rules: Any) -> None:
    """Raise `BadInput` for what can be no game."""
    name, seats = getattr(rules, "name", ""), getattr(rules, "seats", ())
    bytes_max = limits.SEATS_NAME_BYTES_MAX
    if not isinstance(rules, Rules) or not names_fit(name, bytes_max):
        raise BadInput(
            f"a game is an object of a class of `Rules` that has a name, of at most {bytes_max} "
            "bytes"
        )
    fit = isinstance(seats, tuple) and all(names_fit(seat, bytes_max) for seat in seats)
    if not fit or not seats or len(set(seats)) < len(seats):
        raise BadInput(
            f"the seats of {name} are a tuple of names of at most {bytes_max} bytes, each there "
            "once"
        )
