"""The matches of players, two by two: each is refereed, clocked and logged like any other game."""

from apps.rps.records import place
from apps.rps.rules import FIRST, SECOND, RockPaperScissors
from onceward import App, Match, Retry, Transaction

_PAUSE_S = 0.2


class Duels:
    """All of them. Players are known by their ids."""

    def __init__(self, app: App, throw_s: float | None) -> None:
        """`throw_s`: how long one may take to throw back; None: as long as one likes."""
        self._app = app
        self._throw_s = throw_s

    async def throw(
        self, tx: Transaction, me: str, them: str, play: str
    ) -> tuple[str | None, str | None]:
        """Throw in the match of two players, which begins with that if none is on. Returns what
        both had thrown before; whoever had does not again. Raises `Retry` at the moment when the
        time to throw back is over."""
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
                raise Retry("the clock is about to end this game", after_s=_PAUSE_S)
            await games.play(tx, match, _seat(match, me), play)
        return mine, theirs

    async def leave(self, tx: Transaction, gone: str, opponent: str) -> None:
        """Someone has left: a match that is on between two is over."""
        match = await self.at(tx, gone, opponent)
        if match is not None:
            await self._app.games.leave(tx, match, _seat(match, gone))

    async def at(self, tx: Transaction, one: str, other: str) -> Match | None:
        """The match that is on between two, if one is."""
        return await self._app.games.at(tx, place(one, other))


def thrown(match: Match, player: str) -> str | None:
    """What a player has thrown in a match that is on."""
    play: str | None = match.pending.get(_seat(match, player))
    return play


def _seat(match: Match, player: str) -> str:
    return FIRST if match.begun.players[FIRST] == player else SECOND
