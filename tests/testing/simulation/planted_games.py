"""Games at tables with one mistake planted in each copy: what the simulator must find.

As `tests.testing.planted`; `python -m tests.testing.simulation.planted_games` finds new seeds.
"""

import sys
from typing import Any

import msgspec

from onceward.store.user_records import admit_tx
from onceward.tables import Change, Seats
from onceward.tables.games import Matches
from onceward.tables.games import match as pure
from onceward.tables.referee import TableReferee
from onceward.tables.rounds import Rounds
from onceward.testing.simulation.games import Playings
from tests.testing.planted import Bug, find


class ShowsPending(TableReferee):
    """Everyone sees a match as the first player does."""

    async def _show(self, tx, table, match):
        first = next(iter(match.begun.players.values()))
        seen = msgspec.to_builtins(self._games.view(match, first))
        key = "now" if match.outcome is None else "last"
        await self._board.show(admit_tx(tx), table.id, [Change("game", key, seen)])


class SeesAll(Matches):
    """A hidden move is applied when it comes, and not when all have come."""

    def _step(self, tx, rules, match, entry):
        if isinstance(entry, pure.MatchMoved) and len(match.awaited) > 1:
            after = msgspec.structs.replace(match, entries=match.entries + 1)
            after.state = [*match.state, [entry.seat, entry.move]]
            after.pending = {**match.pending, entry.seat: entry.move}
            self._write(tx, match, after, entry)
            return after
        return super()._step(tx, rules, match, entry)


class LateCounts(Seats):
    """A move counts whenever it comes, if nobody has looked at the clock yet."""

    async def move(self, tx, id_, user, move, *, key=""):
        tx = admit_tx(tx)
        now_ms, tx.now_ms = tx.now_ms, 0
        try:
            sitting = await self._seated(tx, id_, user)
        finally:
            tx.now_ms = now_ms
        seat = sitting.seat_of(user)
        if seat.turn and seat.due_ms and seat.due_ms <= now_ms:
            seat.due_ms = now_ms + 1
            await sitting.save()
        return await super().move(tx, id_, user, move, key=key)


class EarlyClock(Seats):
    """The clock of a table is fast."""

    async def turn(self, tx, id_, users, *, keep=False):
        tx = admit_tx(tx)
        await super().turn(tx, id_, users, keep=keep)
        sitting = await self._rounds.load(tx, id_)
        for seat in sitting.head.seats.values():
            seat.due_ms -= 300 if seat.turn and not keep else 0
        await sitting.save()


class FromMemory(Matches):
    """A match is kept in memory, and not looked at again."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.kept: dict[str, Any] = {}

    async def get(self, tx, id_):
        if id_ not in self.kept:
            self.kept[id_] = await super().get(tx, id_)
        return self.kept[id_]

    def _write(self, tx, before, after, entry):
        super()._write(tx, before, after, entry)
        self.kept[after.begun.id] = after


class EndedApart(TableReferee):
    """A game that is left at the table goes on as a match."""

    async def ended(self, tx, table, ending):
        if ending.reason != "left":
            await super().ended(tx, table, ending)


class TurnUnsaid(TableReferee):
    """The table is not told for whom the game waits."""

    async def _go_on(self, tx, table, match, *, keep=False):
        if match.outcome is None and match.entries > 2:
            await self._show(tx, table, match)
        else:
            await super()._go_on(tx, table, match, keep=keep)


class _RatedTwice(Rounds):
    async def finish(self, sitting, winners, reason, gone):
        if reason == "left":
            await self._rate(sitting, winners, reason)
        return await super().finish(sitting, winners, reason, gone)


class RatedTwice(Seats):
    """Whoever leaves a game is rated for it when it ends, and once more."""

    rounds_type = _RatedTwice


class Kept(Seats):
    """Whoever is refused leaves something behind in the transaction."""

    async def move(self, tx, id_, user, move, *, key=""):
        tx = admit_tx(tx)
        if move == 7:
            sitting = await self._rounds.load(tx, id_)
            seat = sitting.seat_of(user)
            if seat is not None and sitting.head.phase == "playing":
                seat.turn = True
                await sitting.save()
        return await super().move(tx, id_, user, move, key=key)


def planted(**broken: type[Any]) -> type[Playings]:
    [one] = broken.values()
    return type(one.__name__, (Playings,), broken)


PLANTED = {
    "everyone sees what one player sees": Bug(
        planted(referee_type=ShowsPending), ("secret shown",), 0
    ),
    "a hidden move is applied at once": Bug(
        planted(matches_type=SeesAll), ("another state", "secret shown", "error"), 0
    ),
    "a late move counts": Bug(planted(seats_type=LateCounts), ("too late",), 0),
    "the clock is fast": Bug(planted(seats_type=EarlyClock), ("clock too early",), 0),
    "a match is kept in memory": Bug(
        planted(matches_type=FromMemory),
        ("log rewritten", "another state", "table and match differ", "error", "wrong turn"),
        150,
    ),
    "a match goes on without its table": Bug(
        planted(referee_type=EndedApart), ("table and match differ", "error"), 0
    ),
    "the table is not told whose turn it is": Bug(
        planted(referee_type=TurnUnsaid), ("wrong turn",), 0
    ),
    "a game is rated twice": Bug(planted(seats_type=RatedTwice), ("wrong rating",), 0),
    "what is refused is left behind": Bug(planted(seats_type=Kept), ("wrong turn",), 0),
}


if __name__ == "__main__":
    for name, bug in PLANTED.items():
        if len(sys.argv) < 2 or sys.argv[1] in name:
            print(f"{name}: {find(bug, range(3000))}", flush=True)
