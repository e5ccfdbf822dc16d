"""Tables with one mistake planted in each copy: what the simulator must find.

As `tests.testing.planted`; `python -m tests.testing.simulation.planted_seats` finds new seeds.
"""

import sys

from onceward.tables import Seats
from onceward.tables.records import Stand
from onceward.tables.rounds import Rounds
from onceward.tables.table import OpenTable
from onceward.tables.waitlist import Waitlist
from onceward.testing.simulation.seats import Seatings
from tests.testing.planted import Bug, find


class _WithSitting(Rounds):
    sitting_type: type[OpenTable]

    async def load(self, tx, id_, **options):
        return await self.sitting_type.load(tx, id_, self._board, self._slots, **options)


class HeadUnchecked(OpenTable):
    """The head is written, whoever has written it meanwhile."""

    async def save(self):
        await super().save()
        key = ("table#t", "head")
        self.tx.seen.pop(key, None)
        self.tx._checked.pop(key, None)


class NewcomerTwice(OpenTable):
    """Nobody looks whether someone is there already."""

    async def stand(self, user):
        found = await super().stand(user)
        return found if found is not None and found.role == "seated" else None


class LastFirst(OpenTable):
    """The last one in line sits down first."""

    async def next(self, key):
        lane = self.head.lanes[key]
        rows = await self.line.first(key, lane, 1_000)
        return await self.unline(key, int(rows[-1].key[1].split("#")[-1]))


class _Forgetful(Waitlist):
    async def _count(self, key, lane, number):
        pass


class GoneUncounted(OpenTable):
    """Who leaves the line is not counted for the positions behind."""

    def __init__(self, tx, id_, *args, **options):
        super().__init__(tx, id_, *args, **options)
        self.line = _Forgetful(tx, id_, self.head.epoch)


class StandLeft(OpenTable):
    """Who gets up is still known as someone who sits there."""

    async def forget(self, user):
        if self.seat_of(user) is None and await self.stand(user) is not None:
            self.put_stand(user, Stand("seated", 0))


class NobodyNext(Rounds):
    """A seat gets free, and nobody sits down."""

    async def _fill(self, sitting):
        if not sitting.head.waiting or len(sitting.head.seats) == 0:
            await super()._fill(sitting)


class UpForNobody(Rounds):
    """After a game players get up for someone who waits, and nobody may play with that one."""

    async def _fronts(self, sitting):
        """As if enough waited in each lane who fit together."""
        waits = await super()._fronts(sitting)
        return {key: found * len(sitting.policy.seats) for key, found in waits.items()}


class NoBreak(Rounds):
    """Whoever joins ends a break."""

    async def settle(self, sitting):
        ended_ms, sitting.head.ended_ms = sitting.head.ended_ms, 0
        await super().settle(sitting)
        sitting.head.ended_ms = ended_ms
        await sitting.save()


class PageSkips(Seats):
    """Each page of the waitlist begins one too far."""

    async def _waiters(self, sitting, key, most, start):
        return await super()._waiters(sitting, key, most, start + 1 if start else 0)


def with_sitting(broken: type[OpenTable]) -> type[Seatings]:
    return with_rounds(type(broken.__name__, (_WithSitting,), {"sitting_type": broken}))


def with_rounds(broken: type[Rounds]) -> type[Seatings]:
    return with_seats(type(broken.__name__, (Seats,), {"rounds_type": broken}))


def with_seats(broken: type[Seats]) -> type[Seatings]:
    return type(broken.__name__, (Seatings,), {"seats_type": broken})


ANY = ("there twice", "lost", "too many seated", "seated twice", "error", "wrong position")
PLANTED = {
    "the head is not checked": Bug(with_sitting(HeadUnchecked), (*ANY, "a seat is kept empty"), 42),
    "who waits joins again": Bug(with_sitting(NewcomerTwice), ANY, 0),
    "the last is seated first": Bug(with_sitting(LastFirst), ("overtaken",), 7),
    "who has gone is not counted": Bug(with_sitting(GoneUncounted), ("wrong position",), 1),
    "who got up is known as seated": Bug(with_sitting(StandLeft), ANY, 0),
    "nobody is next": Bug(with_rounds(NobodyNext), ("a seat is kept empty",), 0),
    "a page of the waitlist skips one": Bug(with_seats(PageSkips), ("wrong waitlist",), 1),
    "a break is not waited for": Bug(with_rounds(NoBreak), ("no break",), 0),
    "who gets up is not replaced": Bug(with_rounds(UpForNobody), ("got up for nobody",), 3),
}


if __name__ == "__main__":
    for name, bug in PLANTED.items():
        if len(sys.argv) < 2 or sys.argv[1] in name:
            print(f"{name}: {find(bug, range(3000))}", flush=True)
