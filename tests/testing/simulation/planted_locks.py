"""Locks with one mistake planted in each copy: what the simulator must find.

As `tests.testing.planted`; `python -m tests.testing.simulation.planted_locks` finds new seeds.
"""

import sys
from typing import Any

from onceward.locks import GRANT_DUE, Head, LockTable, Waiters
from onceward.locks.records import hold_key
from onceward.testing.simulation.locks import LockUses
from tests.testing.planted import Bug, find


class _Pushy(Head):
    @property
    def free(self) -> bool:
        return self.open


class Barging(LockTable):
    """A newcomer takes what is free, whoever waits for it."""

    async def _heads_for(self, tx, capacities):
        heads, new = await super()._heads_for(tx, capacities)
        pushy = {
            name: _Pushy(**{field: getattr(head, field) for field in Head.__struct_fields__})
            for name, head in heads.items()
        }
        return pushy, new


class FenceForgotten(LockTable):
    """The tokens of a name that was forgotten begin anew."""

    async def _heads_for(self, tx, capacities):
        heads, new = await super()._heads_for(tx, capacities)
        for name in new:
            heads[name].token = 0
        return heads, new


class ShortLease(LockTable):
    """A renewal is worth less than the holder thinks."""

    async def renew(self, tx, id_, lease_ms=None):
        request = await self.get(tx, id_)
        return await super().renew(tx, id_, request and max(1, request.lease_ms // 4))


class _Table(LockTable):
    lines_type: type[Waiters]

    def __init__(self, ids: Any, slots: int, **options: Any) -> None:
        super().__init__(ids, slots, **options)
        self.lines = self.lines_type(ids, slots)


class NobodyNext(Waiters):
    """A release leaves it to others to find out."""

    async def settle(self, tx, due, names, room):
        pass


class RenewalIgnored(Waiters):
    """A lease ends when it would have ended without a renewal."""

    async def until_ms(self, tx, request):
        return request.until_ms


class RestForgotten(Waiters):
    """Those who do not fit into the commit are forgotten."""

    async def settle(self, tx, due, names, room):
        await super().settle(tx, due, names, room)
        for key in [key for key in tx._writes if key[1].endswith(GRANT_DUE)]:
            tx.delete(key)


class BlockUnchecked(Waiters):
    """What keeps a request from being granted is not checked at the commit."""

    async def _is_blocked(self, tx, request, first_of):
        before = set(tx._checked)
        blocked = await super()._is_blocked(tx, request, first_of)
        if blocked:
            for key in set(tx._checked) - before:
                del tx._checked[key]
        return blocked


class BlockIgnored(Waiters):
    """Who is first in one line is granted, whatever the others say."""

    async def _is_blocked(self, tx, request, first_of):
        return False


class HoldLeft(Waiters):
    """The hold of one whose lease ran out, or who let go, stays where it is."""

    async def remove(self, tx, request):
        heads = await super().remove(tx, request)
        for name, token in request.tokens.items():
            del tx._writes[hold_key(name, token, self._slots)]
        return heads


class LastFirst(Waiters):
    """The one who came last is granted first."""

    async def _front(self, tx, name):
        scan = tx.scan
        tx.scan = lambda *args, **options: scan(*args, **options, reverse=True)
        try:
            return await super()._front(tx, name)
        finally:
            tx.scan = scan


class OnlyFirst(Waiters):
    """Several names are granted one by one, and the rest forgotten."""

    def grant(self, tx, request, heads):
        name = next(iter(heads))
        super().grant(tx, request, {name: heads.pop(name)})
        for name, head in heads.items():
            self._use(tx, name, head)


class Crossing(LockUses):
    """All want one of two locks, or both, and not for long."""

    clients = (5, 5)
    operations = (40, 40)

    def setup(self, random):
        super().setup(random)
        self.capacities = {"a": 1, "b": 1}
        self.lease_ms = 10_000

    def request(self, random):
        return random.choice((["a"], ["b"], ["a", "b"])), None, [0.0] * random.choice((0, 1))


def with_table(broken: type[LockTable], scenario: type[LockUses] = LockUses) -> type[LockUses]:
    return type(broken.__name__, (scenario,), {"table": broken})


def with_lines(broken: type[Waiters], scenario: type[LockUses] = LockUses) -> type[LockUses]:
    return with_table(type(broken.__name__, (_Table,), {"lines_type": broken}), scenario)


TWO = ("two holders", "lost", "stale write")
PLANTED = {
    "newcomers overtake those who wait": Bug(with_table(Barging), ("out of order", "cycle"), 8),
    "tokens begin anew when a name is forgotten": Bug(
        with_table(FenceForgotten), ("token went back", "token twice", "stale write"), 5
    ),
    "renewals are ignored": Bug(with_lines(RenewalIgnored), TWO, 2),
    "a renewal is worth less than promised": Bug(with_table(ShortLease), TWO, 2),
    "a release grants nobody": Bug(with_lines(NobodyNext), ("stuck",), 5),
    "who does not fit in is forgotten": Bug(with_lines(RestForgotten), ("stuck",), 5),
    "what blocks a request is not checked": Bug(
        with_lines(BlockUnchecked, Crossing), ("stuck",), 28
    ),
    "what blocks a request is ignored": Bug(with_lines(BlockIgnored), (*TWO, "out of order"), 1),
    "a hold stays after its end": Bug(with_lines(HoldLeft), (*TWO, "miscounted"), 2),
    "the last is granted first": Bug(with_lines(LastFirst), ("out of order", "cycle"), 2),
    "names are granted one by one": Bug(with_lines(OnlyFirst), ("all or none",), 8),
}


if __name__ == "__main__":
    for name, bug in PLANTED.items():
        if len(sys.argv) < 2 or sys.argv[1] in name:
            print(f"{name}: {find(bug, range(3000))}", flush=True)
