"""Matches in transactions: their records, logs and clocks.

A match has a head with its current state and one record per log entry; every change writes both.
While a move has a deadline, the match has one due entry for it. After the end, the same kind of
entry removes the match at the end of its retention.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from onceward import keys, limits
from onceward.api.matches import MatchBegun, MatchEntry
from onceward.errors import BadInput, NoSuchMatch, OncewardError
from onceward.ids import LENGTH, Ids
from onceward.keys import Key
from onceward.schedule import due_partition, milliseconds
from onceward.store.transaction import Transaction
from onceward.store.user_records import UserTransaction
from onceward.tables.games import match as referee
from onceward.tables.games.match import Match
from onceward.tables.games.rules import Rules

MATCH_DUE = "match"
"""The kind of due entries of matches."""
LOG = "log"
_SEED_BYTES = 16
# The maximum number of records of a match that one commit removes.
PURGE_RECORDS = 40
# Writes of a purge: the records, the due entry, and its replacement.
PURGE_WRITES = PURGE_RECORDS + 3


Late = Callable[[UserTransaction, Match], Awaitable[None]]


class Game(NamedTuple):
    """A declared game."""

    rules: Rules
    late: Late | None = None
    """Called in the commit that ends a match for lack of time."""


class Matches:
    """All matches of a database."""

    def __init__(self, ids: Ids, slots: int) -> None:
        self.games: Mapping[str, Game] = {}
        """The games declared in this application, by name."""
        self._ids = ids
        self._slots = slots

    async def begin(
        self,
        tx: Transaction,
        rules: Rules,
        players: Mapping[str, str],
        *,
        place: str = "",
        turn_s: float | None = None,
    ) -> Match:
        """Start a match of `players`, by seat.

        `turn_s` limits the time for each move; without it the match has no clock. A place has one
        match at a time. Raises `BadInput` if a seat is empty or unknown, or the place is taken.
        """
        if not isinstance(players, Mapping):
            raise BadInput(
                f"players must be a mapping of seats to names, not {type(players).__name__}"
            )
        if set(players) != set(rules.seats):
            raise BadInput(
                f"{rules.name} has the seats {', '.join(rules.seats)}; give one player for each"
            )
        if not all(type(player) is str and player for player in players.values()):
            found = next(one for one in players.values() if type(one) is not str or not one)
            raise BadInput(
                f"the name of a player must be text, not {found!r:.100}", code="bad_name"
            )
        if place != "" and await tx.get(playing_key(place)) is not None:
            raise BadInput(
                f"a game is already running at {place!r}; end it first", code="other_game"
            )
        begun = MatchBegun(
            id=self._ids.new(),
            game=rules.name,
            players={seat: players[seat] for seat in rules.seats},
            seed=self._ids.token(_SEED_BYTES),
            at_ms=tx.now_ms,
            turn_ms=None if turn_s is None else milliseconds(turn_s, "the time for a move"),
            place=place,
        )
        match = referee.begin(rules, begun)
        self._write(tx, None, match, begun)
        return match

    async def get(self, tx: Transaction, id_: str) -> Match:
        """Return the current state of a match. Raises `NoSuchMatch`."""
        found = None
        if type(id_) is str and len(id_) == LENGTH:
            found = await tx.get(match_key(id_), Match)
        if found is None:
            raise NoSuchMatch(
                f"match {str(id_)[:100]!r} not found; check its id. Ended games are removed "
                "after a time",
                id=str(id_)[:100],
            )
        return found

    async def at(self, tx: Transaction, place: str) -> Match | None:
        """Return the match that is running at a place, or None."""
        id_ = await tx.get(playing_key(place), str)
        return None if id_ is None else await self.get(tx, id_)

    async def play(
        self,
        tx: Transaction,
        rules: Rules,
        match: Match,
        seat: str,
        move: Any,
        number: int | None = None,
    ) -> Match:
        """Make a move. With the round in `number`, the call is idempotent.

        Raises `BadInput` for an illegal move.
        """
        match = await self._now(tx, match)
        entry = referee.play(rules, match, seat, move, tx.now_ms, number)
        return self._step(tx, rules, match, entry)

    async def leave(
        self, tx: Transaction, rules: Rules, match: Match, seat: str, others: Sequence[str] = ()
    ) -> Match:
        """End the match by resignation of one or more players. Idempotent after the end."""
        match = await self._now(tx, match)
        _admit_seats(match, others)
        return self._step(tx, rules, match, referee.leave(match, seat, tx.now_ms, others))

    async def stop(
        self,
        tx: Transaction,
        rules: Rules,
        match: Match,
        winners: Sequence[str] | None = None,
    ) -> Match:
        """End a match without a result, or with the given winners. Idempotent after the end."""
        match = await self._now(tx, match)
        if winners is not None:
            _admit_seats(match, winners)
        return self._step(tx, rules, match, referee.stop(match, tx.now_ms, winners))

    async def expire(
        self, tx: Transaction, rules: Rules, match: Match, seats: Sequence[str] = ()
    ) -> Match:
        """End the match for players who ran out of time.

        Changes nothing if the match has its own clock and the deadline is not reached.
        """
        match = await self._now(tx, match)
        _admit_seats(match, seats)
        return self._step(tx, rules, match, referee.late(match, tx.now_ms, seats))

    async def log(self, tx: Transaction, id_: str) -> list[MatchEntry]:
        """Return the log of a match, including hidden information. Raises `NoSuchMatch`."""
        match = await self.get(tx, id_)
        start, end = keys.below(LOG)
        kind: Any = MatchEntry
        log: list[MatchEntry] = []
        while len(log) < match.entries:
            limit = min(match.entries - len(log), limits.SCAN_RECORDS_MAX)
            rows = await tx.scan(_partition(id_), kind, start=start, end=end, limit=limit)
            if not rows:
                break
            log += [row.value for row in rows]
            start = keys.after(rows[-1].key[1])
        return log

    async def _now(self, tx: Transaction, match: Match) -> Match:
        """Read the match again in this transaction, so that a stale argument cannot undo newer
        moves."""
        return await self.get(tx, match.begun.id)

    def game(self, name: str) -> Game:
        """Return a declared game. Raises `no_such_game`."""
        game = self.games.get(name) if type(name) is str else None
        if game is None:
            raise OncewardError(
                f"game {str(name)[:100]!r} is not declared in this application; use app.game(…)",
                code="no_such_game",
            )
        return game

    async def act_on_due(self, tx: Transaction, entry: Key) -> None:
        """Process a due entry with the declared games.

        Raises `no_such_game` for a match of another game; its clock waits for an application that
        declares it.
        """
        match = await self.fall_due(tx, entry, lambda name: self.game(name).rules)
        if match is not None:
            late = self.game(match.begun.game).late
            if late is not None:
                await late(UserTransaction(tx), match)

    async def fall_due(
        self, tx: Transaction, entry: Key, rules_of: Callable[[str], Rules]
    ) -> Match | None:
        """Process a due entry: a deadline, or the end of a match's retention.

        Returns the match if the time for a move has run out; it has ended then.
        """
        due, id_, _ = keys.split(entry[1])
        tx.delete(entry)
        match = await tx.get(match_key(id_), Match)
        if match is not None and self._entry(match) != entry:
            return None  # of an earlier round
        if int(due) > tx.now_ms:
            tx.put(entry, MATCH_DUE)  # the deadline was moved
            return None
        if match is None or match.outcome is not None:
            await self._purge(tx, id_)
            return None
        return await self.expire(tx, rules_of(match.begun.game), match)

    def read_to_fall_due(self, entry: Key) -> list[Key]:
        return [match_key(keys.split(entry[1])[1])]

    async def _purge(self, tx: Transaction, id_: str) -> None:
        """Remove a match in limited steps; schedules another step if records remain."""
        rows = await tx.scan(_partition(id_), Any, limit=PURGE_RECORDS)
        for row in rows:
            tx.delete(row.key)
        if len(rows) == PURGE_RECORDS:
            tx.put(self._entry_at(tx.now_ms + 1, id_), MATCH_DUE)

    def _step(self, tx: Transaction, rules: Rules, match: Match, entry: MatchEntry | None) -> Match:
        if entry is None:
            return match
        after = referee.step(rules, match, entry)
        self._write(tx, match, after, entry)
        return after

    def _write(
        self, tx: Transaction, before: Match | None, after: Match, entry: MatchEntry
    ) -> None:
        id_ = after.begun.id
        tx.put(match_key(id_), after)
        tx.put((_partition(id_), keys.join(LOG, after.entries)), entry)
        if after.begun.place and (before is None or after.outcome is not None):
            self._place(tx, after)
        old = None if before is None else self._entry(before)
        new = self._entry(after)
        if old != new:
            if old is not None:
                tx.delete(old)
            if new is not None:
                tx.put(new, MATCH_DUE)

    def _place(self, tx: Transaction, match: Match) -> None:
        """Register the match at its place, or free the place after its end."""
        key = playing_key(match.begun.place)
        if match.outcome is None:
            tx.put(key, match.begun.id)
        else:
            tx.delete(key)

    def _entry(self, match: Match) -> Key | None:
        """The due entry of a match, if it has a deadline."""
        due_ms = match.due_ms
        if match.outcome is not None:
            due_ms = match.ended_ms + limits.MATCH_RETENTION_MS
        return None if due_ms is None else self._entry_at(due_ms, match.begun.id)

    def _entry_at(self, due_ms: int, id_: str) -> Key:
        slot = crc32(id_.encode()) % self._slots
        return due_partition(slot), keys.join(due_ms, id_, MATCH_DUE)


def _admit_seats(match: Match, seats: Sequence[str]) -> None:
    """Raise `BadInput` for unknown seats of this match."""
    known = list(match.begun.players)
    if isinstance(seats, str) or not isinstance(seats, Collection):
        raise BadInput(
            f"seats must be a list of names, not {type(seats).__name__}", code="bad_name"
        )
    if any(seat not in known for seat in seats):
        raise BadInput(
            f"unknown seat; the seats of this game are {', '.join(known)}", code="bad_name"
        )


def match_key(id_: str) -> Key:
    """The key of a match's head."""
    return _partition(id_), "head"


def playing_key(place: str) -> Key:
    """The key of the running match of a place. Raises `BadInput` if it is not text."""
    if not isinstance(place, str):
        raise BadInput(f"a place must be text, not {type(place).__name__}", code="bad_name")
    return "playing", keys.join(place)


def _partition(id_: str) -> str:
    return keys.join("match", id_)
