"""The matches of pairs of players, with referee, clock and log like any other game."""

from apps.rps.records import place
from apps.rps.rules import FIRST, SECOND, RockPaperScissors
from onceward import App, Match, Retry, Transaction

_PAUSE_S = 0.2


class Duels:
    """All matches. Players are identified by their ids."""

    def __init__(self, app: App, throw_s: float | None) -> None:
        """`throw_s` is the time limit to throw back; None for no limit."""
        self._app = app
        self._throw_s = throw_s

    async def throw(
        self, tx: Transaction, me: str, them: str, play: str
    ) -> tuple[str | None, str | None]:
        """Throw in the match of two players, and start one if none is running.

        Returns the earlier throws of both; a player who has thrown does not throw again. Raises
        `Retry` at the moment when the time limit ends.
        """
        games, where = self._app.games, place(me, them)
        match = await games.at(tx, where)
        if match is None:
            seats = {FIRST: me, SECOND: them}
            match = await games.begin(
                tx, RockPaperScissors.name, seats, place=where, turn_s=self._throw_s
            )
        mine, theirs = thrown(match, me), thrown(match, them)
        if mine is None:
            if match.due_ms is not None and tx.now_ms >= match.due_ms:
                raise Retry("the time limit of this game is ending", after_s=_PAUSE_S)
            await games.play(tx, match, _seat(match, me), play)
        return mine, theirs

    async def leave(self, tx: Transaction, gone: str, opponent: str) -> None:
        """End the running match of a player who has left."""
        match = await self.at(tx, gone, opponent)
        if match is not None:
            await self._app.games.leave(tx, match, _seat(match, gone))

    async def at(self, tx: Transaction, one: str, other: str) -> Match | None:
        """Return the running match of two players, or None."""
        return await self._app.games.at(tx, place(one, other))


def thrown(match: Match, player: str) -> str | None:
    """The throw of a player in a running match."""
    play: str | None = match.pending.get(_seat(match, player))
    return play


def _seat(match: Match, player: str) -> str:
    return FIRST if match.begun.players[FIRST] == player else SECOND
