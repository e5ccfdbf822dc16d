"""The referee: connects matches with tables and applies the rules of games.

The public state of a game is in the map `game` of the table's room: `now` is the running game, and
`last` the final state of the previous one. Hidden information is never published there. The table
keeps the clock.
"""

from typing import Any

import msgspec

from onceward import keys
from onceward.errors import BadInput
from onceward.store.user_records import UserTransaction, admit_tx
from onceward.tables import Board, Change, Ending, Seats, Table
from onceward.tables.games import Match, MatchView, Rules
from onceward.tables.games.server import Games

LIVE = "game"
"""The name of the map in the table's room."""


class Move(msgspec.Struct, forbid_unknown_fields=True):
    """A move with the game and round that its player has seen, which makes it idempotent."""

    move: Any
    number: int | None = None
    """The number of the round."""
    match: str | None = None


class TableReferee:
    """The referee of one game, for all tables with that game."""

    def __init__(self, rules: Rules, games: Games, seats: Seats, board: Board) -> None:
        self.seats = rules.seats
        """The seats of tables with this game."""
        self.answers = MatchView
        """The type of the response to a move."""
        self._rules = rules
        self._games = games
        self._part = seats
        self._board = board

    async def begin(self, tx: UserTransaction, table: Table) -> None:
        """Start a match of the seated players."""
        match = await self._games.begin(tx, self._rules.name, table.players, place=place(table.id))
        match = await self._bots_move(tx, table, match)
        await self._go_on(tx, table, match)

    async def move(self, tx: UserTransaction, table: Table, user: str, move: Any) -> MatchView:
        """Judge a move, which may be a `Move`; returns the player's view after it. Raises
        `BadInput` for an illegal move."""
        match = await self._games.at(tx, place(table.id))
        seat = table.marker_of(user)
        if match is None or seat is None:
            raise BadInput(
                f"no game is running at {table.id!r}; wait until enough players are ready",
                code="no_game",
            )
        made = read(move)
        if made.match not in (None, match.begun.id):
            raise BadInput(
                "a newer game is running; reload the state before you move",
                code="other_game",
                match=match.begun.id,
            )
        after = await self._games.play(tx, match, seat, made.move, made.number)
        if after.entries > match.entries:
            after = await self._bots_move(tx, table, after)
            await self._go_on(tx, table, after, keep=after.number == match.number)
        return self._games.view(after, user)

    async def ended(self, tx: UserTransaction, table: Table, ending: Ending) -> None:
        """End the match of a game that the table has ended, unless the match has ended already."""
        match = await self._games.at(tx, place(table.id))
        if match is None:
            return
        won = [seat for seat, user in ending.players.items() if user in ending.winners]
        lost = [seat for seat in ending.players if seat not in won]
        if ending.reason == "idle":
            match = await self._games.expire(tx, match, *lost)
        elif ending.reason in ("left", "lost") and lost:
            match = await self._games.leave(tx, match, *lost)
        else:
            told = won if ending.reason == "result" else None
            match = await self._games.stop(tx, match, told)
        await self._show(tx, table, match)

    async def _bots_move(self, tx: UserTransaction, table: Table, match: Match) -> Match:
        """Make the moves of bots while it is their turn."""
        while True:
            bots = [seat for seat in match.awaited if _is_bot(table, seat)]
            if not bots:
                return match
            chance = keys.join(match.begun.seed, match.number, bots[0])
            state = msgspec.json.decode(msgspec.json.encode(match.state))
            move = self._rules.bot(state, bots[0], chance)
            match = await self._games.play(tx, match, bots[0], move)

    async def _go_on(
        self, tx: UserTransaction, table: Table, match: Match, *, keep: bool = False
    ) -> None:
        """Publish the state of the match; set the turn at the table, or end its game."""
        await self._show(tx, table, match)
        players = match.begun.players
        if match.outcome is None:
            awaited = [players[seat] for seat in match.awaited]
            await self._part.turn(tx, table.id, awaited, keep=keep)
        else:
            winners = [players[seat] for seat in match.outcome.winners]
            await self._part.result(tx, table.id, winners, game=table.number)

    async def _show(self, tx: UserTransaction, table: Table, match: Match) -> None:
        seen = msgspec.to_builtins(self._games.view(match))
        changes = [Change(LIVE, "now", seen)]
        if match.outcome is not None:
            changes = [Change(LIVE, "last", seen), Change(LIVE, "now", gone=True)]
        await self._board.show(admit_tx(tx), table.id, changes)


def place(table: str) -> str:
    """The place of a table's match."""
    return keys.join("table", table)


def table_of(place: str) -> str | None:
    """The table of a place, or None for other places."""
    kind, *rest = keys.split(place)
    return rest[0] if kind == "table" and len(rest) == 1 else None


def read(move: Any) -> Move:
    """Decode a move: a plain one, or one with its game and round. Raises `BadInput`."""
    if not isinstance(move, dict) or "move" not in move or not move.keys() <= _MEMBERS:
        return Move(move)
    try:
        return msgspec.convert(move, Move)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"invalid move: {error}; see the rules of the game", code="wrong_type"
        ) from error


_MEMBERS = set(Move.__struct_fields__)


def _is_bot(table: Table, marker: str) -> bool:
    seat = table.seats[marker]
    return seat is not None and seat.bot
