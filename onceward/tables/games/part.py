"""Matches in transactions: their records, logs and clocks.

A match is its head, which says how it stands, and the entries of its log; whatever happens to it
writes both. While someone has a limited time to move, one entry in due stands for that. When the
match has ended, the same kind of entry stands for the day when it is forgotten.
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
"""The kind of its entries in due."""
LOG = "log"
_SEED_BYTES = 16
# How many records of a match are removed in one commit.
PURGE_RECORDS = 40
# Who removes a match removes so many records of it, and its entry, and writes another one.
PURGE_WRITES = PURGE_RECORDS + 3


Late = Callable[[UserTransaction, Match], Awaitable[None]]


class Game(NamedTuple):
    """A game as it was declared."""

    rules: Rules
    late: Late | None = None
    """Called when the time for a move was over, in that commit."""


class Matches:
    """All matches of a database."""

    def __init__(self, ids: Ids, slots: int) -> None:
        self.games: Mapping[str, Game] = {}
        """The games that are declared here, by name."""
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
        """Let players, by seat, begin a game. `turn_s` is how long one may think about a move;
        without it the match has no clock of its own. At a place there is one match at a time.
        Raises `BadInput` if a seat is empty, there is no such seat, or the place is taken."""
        if not isinstance(players, Mapping):
            raise BadInput(f"players are names by seat, not {type(players).__name__}")
        if set(players) != set(rules.seats):
            raise BadInput(f"{rules.name} is played from the seats {', '.join(rules.seats)}")
        if not all(type(player) is str and player for player in players.values()):
            raise BadInput("players are known by their names", code="bad_name")
        if place != "" and await tx.get(playing_key(place)) is not None:
            raise BadInput(f"a game is on at {place!r}", code="other_game")
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
        """A match as it stands. Raises `NoSuchMatch`."""
        found = None
        if type(id_) is str and len(id_) == LENGTH:
            found = await tx.get(match_key(id_), Match)
        if found is None:
            raise NoSuchMatch(f"there is no match {str(id_)[:100]!r}", id=str(id_)[:100])
        return found

    async def at(self, tx: Transaction, place: str) -> Match | None:
        """The match that is on at a place, if one is."""
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
        """Make a move, once for its round if `number` says which one that is: sent again, it
        changes nothing. Raises `BadInput` for a move that may not be made."""
        match = await self._now(tx, match)
        entry = referee.play(rules, match, seat, move, tx.now_ms, number)
        return self._step(tx, rules, match, entry)

    async def leave(
        self, tx: Transaction, rules: Rules, match: Match, seat: str, others: Sequence[str] = ()
    ) -> Match:
        """Let a player give up, or several; once the match has ended it changes nothing."""
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
        """End a match so that it does not count, or as is said from outside; one that has ended
        stays as it is."""
        match = await self._now(tx, match)
        if winners is not None:
            _admit_seats(match, winners)
        return self._step(tx, rules, match, referee.stop(match, tx.now_ms, winners))

    async def expire(
        self, tx: Transaction, rules: Rules, match: Match, seats: Sequence[str] = ()
    ) -> Match:
        """Let those lose who have not moved in time; changes nothing if the match has a clock of
        its own, and that is not at its end."""
        match = await self._now(tx, match)
        _admit_seats(match, seats)
        return self._step(tx, rules, match, referee.late(match, tx.now_ms, seats))

    async def log(self, tx: Transaction, id_: str) -> list[MatchEntry]:
        """What has happened in a match, with its secrets. Raises `NoSuchMatch`."""
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
        """A match as it is by this transaction, whenever it was read: a step from how it was
        before would undo what has happened since."""
        return await self.get(tx, match.begun.id)

    def game(self, name: str) -> Game:
        """A game that is declared here. Raises `no_such_game`."""
        game = self.games.get(name) if type(name) is str else None
        if game is None:
            raise OncewardError(
                f"no game {str(name)[:100]!r} is declared here: app.game(…)", code="no_such_game"
            )
        return game

    async def act_on_due(self, tx: Transaction, entry: Key) -> None:
        """Act on an entry in due by the rules of the games that are declared here. Raises
        `no_such_game` for a match of another one: its clock waits for an application that has it.
        """
        match = await self.fall_due(tx, entry, lambda name: self.game(name).rules)
        if match is not None:
            late = self.game(match.begun.game).late
            if late is not None:
                await late(UserTransaction(tx), match)

    async def fall_due(
        self, tx: Transaction, entry: Key, rules_of: Callable[[str], Rules]
    ) -> Match | None:
        """Act on an entry in due: a time that is over, or a match to be forgotten. Returns the
        match if the time for a move was over: it has ended."""
        due, id_, _ = keys.split(entry[1])
        tx.delete(entry)
        match = await tx.get(match_key(id_), Match)
        if match is not None and self._entry(match) != entry:
            return None  # of a round that is over
        if int(due) > tx.now_ms:
            tx.put(entry, MATCH_DUE)  # not yet
            return None
        if match is None or match.outcome is not None:
            await self._purge(tx, id_)
            return None
        return await self.expire(tx, rules_of(match.begun.game), match)

    def read_to_fall_due(self, entry: Key) -> list[Key]:
        return [match_key(keys.split(entry[1])[1])]

    async def _purge(self, tx: Transaction, id_: str) -> None:
        """Remove a match, or some of it, and come again if there is more."""
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
        """Note that a place is taken, or free again."""
        key = playing_key(match.begun.place)
        if match.outcome is None:
            tx.put(key, match.begun.id)
        else:
            tx.delete(key)

    def _entry(self, match: Match) -> Key | None:
        """Where it waits for its time, if it has one."""
        due_ms = match.due_ms
        if match.outcome is not None:
            due_ms = match.ended_ms + limits.MATCH_RETENTION_MS
        return None if due_ms is None else self._entry_at(due_ms, match.begun.id)

    def _entry_at(self, due_ms: int, id_: str) -> Key:
        slot = crc32(id_.encode()) % self._slots
        return due_partition(slot), keys.join(due_ms, id_, MATCH_DUE)


def _admit_seats(match: Match, seats: Sequence[str]) -> None:
    """Raise `BadInput` for what are no seats of this match: nobody could win or lose there."""
    known = list(match.begun.players)
    if isinstance(seats, str) or not isinstance(seats, Collection):
        raise BadInput("the seats of a game are told as a list", code="bad_name")
    if any(seat not in known for seat in seats):
        raise BadInput(f"the seats of this game are {', '.join(known)}", code="bad_name")


def match_key(id_: str) -> Key:
    """Where a match stands."""
    return _partition(id_), "head"


def playing_key(place: str) -> Key:
    """Where it stands which match is on at a place. Raises `BadInput` for what is no text."""
    if not isinstance(place, str):
        raise BadInput(f"a place is text, not {type(place).__name__}", code="bad_name")
    return "playing", keys.join(place)


def _partition(id_: str) -> str:
    return keys.join("match", id_)
