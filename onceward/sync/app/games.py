"""Synchronous classes. Written by `make generate` from `onceward.tables.games.server`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onceward.store.user_records import SyncTransaction
from onceward.sync.app.transaction import Transaction
from onceward.sync.bridge import Facade, target
from onceward.tables.games import Match, MatchEntry, MatchView, Rules
from onceward.tables.games.server import Games as AsyncGames


class Games(Facade[AsyncGames]):
    """Matches of the games that this application declares."""

    def rules(self, name: str) -> Rules:
        """Return the rules of a game. Raises `no_such_game`."""
        return self._target.rules(name)

    def all_rules(self) -> list[Rules]:
        """Return the rules of all declared games."""
        return self._target.all_rules()

    def begin(
        self,
        tx: Transaction | SyncTransaction,
        game: str,
        players: Mapping[str, str],
        *,
        place: str = "",
        turn_s: float | None = None,
    ) -> Match:
        """Start a match of `players`, by seat."""
        return self._portal.run(
            self._target.begin(target(tx), game, players, place=place, turn_s=turn_s)
        )

    def at(self, tx: Transaction | SyncTransaction, place: str) -> Match | None:
        """Return the match that is running at a place, or None."""
        return self._portal.run(self._target.at(target(tx), place))

    def get(self, tx: Transaction | SyncTransaction, id_: str) -> Match:
        """Return a match, including hidden information. Raises `NoSuchMatch`."""
        return self._portal.run(self._target.get(target(tx), id_))

    def play(
        self,
        tx: Transaction | SyncTransaction,
        match: Match,
        seat: str,
        move: Any,
        number: int | None = None,
    ) -> Match:
        """Make a move. With `number`, the round that the player has seen, the call is
        idempotent."""
        return self._portal.run(self._target.play(target(tx), match, seat, move, number))

    def leave(
        self, tx: Transaction | SyncTransaction, match: Match, seat: str, *others: str
    ) -> Match:
        """Resign for one or more players; the others win. Idempotent after the end."""
        return self._portal.run(self._target.leave(target(tx), match, seat, *others))

    def expire(self, tx: Transaction | SyncTransaction, match: Match, *seats: str) -> Match:
        """End the match for the players who have not moved, or for `seats`."""
        return self._portal.run(self._target.expire(target(tx), match, *seats))

    def stop(
        self, tx: Transaction | SyncTransaction, match: Match, winners: Sequence[str] | None = None
    ) -> Match:
        """End a match with the given winners, or without a result."""
        return self._portal.run(self._target.stop(target(tx), match, winners))

    def view(self, match: Match, user: str | None = None) -> MatchView:
        """Return the match as a player sees it, or as spectators see it."""
        return self._target.view(match, user)

    def log(self, tx: Transaction | SyncTransaction, id_: str) -> list[MatchEntry]:
        """Return the log of a finished match; before the end it would reveal hidden information."""
        return self._portal.run(self._target.log(target(tx), id_))

    def replay(self, tx: Transaction | SyncTransaction, id_: str) -> list[MatchView]:
        """Return the states of a finished match, move by move, as spectators saw them."""
        return self._portal.run(self._target.replay(target(tx), id_))
