"""Random operations against a small model: who is first in all its lines, and has room, holds."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.errors import LockLost
from onceward.locks import Request
from tests.locks.locking import Locking, new_locking, problems

pytestmark = pytest.mark.no_cover

CAPACITIES = {"a": 1, "b": 1, "c": 2, "d": 3}
NAMES = st.sets(st.sampled_from(sorted(CAPACITIES)), min_size=1)
LEASES_MS = st.sampled_from([100, 1_000, 5_000])
PICKS = st.integers(0, 50)

OPERATIONS = st.one_of(
    st.tuples(st.just("join"), NAMES, LEASES_MS),
    st.tuples(st.just("join"), NAMES, LEASES_MS),
    st.tuples(st.just("acquire"), NAMES, LEASES_MS),
    st.tuples(st.just("release"), PICKS, st.sampled_from([0, 8, 32])),
    st.tuples(st.just("withdraw"), PICKS),
    st.tuples(st.just("renew"), PICKS),
    st.tuples(st.just("pass"), st.sampled_from([1, 100, 1_000, 2_000])),
)


@dataclass
class Expected:
    """What should be true of one request."""

    names: set[str]
    lease_ms: int
    until_ms: int
    held: bool = False
    over: bool = False
    tokens: dict[str, int] = field(default_factory=dict)


class Model:
    """The requests in the order they came, and the real ones beside them."""

    def __init__(self, locking: Locking) -> None:
        self.locking = locking
        self.expected: list[Expected] = []
        self.requests: list[Request] = []
        self.newest = dict.fromkeys(CAPACITIES, 0)

    @property
    def now_ms(self) -> int:
        return self.locking.clock.at_ms

    def grant(self) -> None:
        """All who can hold, in order: a request waits for room, and for all before it."""
        taken: dict[str, int] = {}
        for one in self.expected:
            if one.held and not one.over:
                for name in one.names:
                    taken[name] = taken.get(name, 0) + 1
        blocked: set[str] = set()
        for one in self.expected:
            if one.over or one.held:
                continue
            room = all(taken.get(name, 0) < CAPACITIES[name] for name in one.names)
            if room and not one.names & blocked:
                one.held, one.until_ms = True, self.now_ms + one.lease_ms
                for name in one.names:
                    taken[name] = taken.get(name, 0) + 1
            else:
                blocked |= one.names

    def ask(self, names: set[str], lease_ms: int) -> Expected:
        one = Expected(names, lease_ms, self.now_ms + lease_ms)
        self.expected.append(one)
        self.grant()
        return one

    async def join(self, names: set[str], lease_ms: int) -> None:
        one = self.ask(names, lease_ms)
        capacities = {name: CAPACITIES[name] for name in sorted(names)}
        request = await self.locking.run(
            lambda tx: self.locking.table.join(tx, capacities, lease_ms=lease_ms)
        )
        assert request.held == one.held
        self.requests.append(request)

    async def acquire(self, names: set[str], lease_ms: int) -> None:
        one = self.ask(names, lease_ms)
        capacities = {name: CAPACITIES[name] for name in sorted(names)}
        request = await self.locking.run(
            lambda tx: self.locking.table.acquire(tx, capacities, lease_ms=lease_ms)
        )
        assert (request is not None) == one.held
        if request is None:
            self.expected.pop()
        else:
            self.requests.append(request)

    def pick(self, number: int) -> tuple[Request, Expected] | None:
        if not self.requests:
            return None
        index = number % len(self.requests)
        return self.requests[index], self.expected[index]

    async def release(self, number: int, room: int) -> None:
        if picked := self.pick(number):
            request, one = picked
            if one.over:
                with pytest.raises(LockLost):
                    await self.locking.release(request, room=room)
                return
            await self.locking.release(request, room=room)
            await self.locking.settle()
            one.over = True
            self.grant()

    async def withdraw(self, number: int) -> None:
        if picked := self.pick(number):
            request, one = picked
            kept = await self.locking.withdraw(request)
            assert (kept is not None) == (one.held and not one.over)
            await self.locking.settle()
            one.over = one.over or not one.held
            self.grant()

    async def renew(self, number: int) -> None:
        if picked := self.pick(number):
            request, one = picked
            if one.over:
                with pytest.raises(LockLost):
                    await self.locking.renew(request)
                return
            one.until_ms = max(one.until_ms, self.now_ms + one.lease_ms)
            assert await self.locking.renew(request) == one.until_ms

    async def pass_ms(self, passed_ms: int) -> None:
        for _ in range(passed_ms):
            live = [one for one in self.expected if not one.over]
            left_ms = min((one.until_ms - self.now_ms for one in live), default=passed_ms)
            step_ms = min(max(left_ms, 0), passed_ms)
            passed_ms -= step_ms
            await self.locking.pass_ms(step_ms)
            for one in live:
                one.over = one.until_ms <= self.now_ms
            self.grant()
            if not passed_ms:
                break

    async def check(self) -> None:
        for request, one in zip(self.requests, self.expected, strict=True):
            state = None if one.over else "held" if one.held else "waiting"
            found = await self.locking.get(request)
            assert (found and found.state) == state
            if found is not None and found.held and not one.tokens:
                one.tokens = found.tokens
        assert problems(self.locking.engine) == []
        for name in CAPACITIES:
            tokens = [one.tokens[name] for one in self.expected if name in one.tokens]
            assert len(tokens) == len(set(tokens))
            assert tokens == sorted(tokens), "tokens follow the line"


async def play(operations: list[tuple], unused_ms: int, slots: int) -> None:
    model = Model(await new_locking(unused_ms=unused_ms, slots=slots))
    for name, *arguments in operations:
        await getattr(model, "pass_ms" if name == "pass" else name)(*arguments)
        await model.check()
    # In the end all leases run out, and nothing is left but the fences.
    for _ in range(len(operations) + 2):
        await model.pass_ms(5_000)
        await model.check()
    assert all(one.over for one in model.expected)


@settings(max_examples=150)
@given(
    st.lists(OPERATIONS, max_size=40), st.sampled_from([50, 1_500, 10**7]), st.sampled_from([1, 4])
)
def test_whatever_happens_locks_are_held_as_the_model_says(
    operations: list[tuple], unused_ms: int, slots: int
) -> None:
    asyncio.run(play(operations, unused_ms, slots))
