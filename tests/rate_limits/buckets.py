"""Rate limits on a memory engine with a clock that a test moves, and a model of one bucket."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any

from onceward.engine.memory import Memory, MemoryEngine
from onceward.rate_limits import RateLimits, Taken
from onceward.rate_limits.invariants import RULES
from onceward.store import Store
from tests.quick import QuickClock
from tests.schedule.jobs import all_records

Step = tuple[str, int]
"""("take", tokens), ("pass", ms) or ("reset", 0)."""


class Buckets:
    """Everything that can happen to rate limits, each in its own commit."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.clock = QuickClock()
        self.engine = MemoryEngine(memory)
        self.store = Store(self.engine, self.clock)
        self.limits = RateLimits()

    async def take(self, key: str, tokens: int = 1, **limit: Any) -> Taken:
        return await self.store.run(lambda tx: self.limits.take(tx, key, tokens, **limit))

    async def reset(self, key: str) -> None:
        await self.store.run(lambda tx: self.limits.reset(tx, key))

    def problems(self) -> list[str]:
        """What the invariants find in the records."""
        records = all_records(self.engine)
        return [
            problem
            for record in records.values()
            for rule in RULES
            for problem in rule.judge(record, records.get)
        ]


async def opened(memory: Memory | None = None) -> Buckets:
    buckets = Buckets(memory)
    await buckets.engine.open()
    return buckets


@dataclass
class Model:
    """A bucket that is refilled every millisecond, in exact numbers."""

    rate: Fraction
    burst: int
    level: Fraction = field(init=False)

    def __post_init__(self) -> None:
        self.level = Fraction(self.burst)

    def take(self, tokens: int) -> tuple[bool, float, float]:
        if tokens > self.level:
            wait_ms = ceil((tokens - self.level) * 1_000 / self.rate)
            return False, float(self.level), wait_ms / 1_000
        self.level -= tokens
        return True, float(self.level), 0.0

    def pass_(self, ms: int) -> None:
        self.level = min(self.level + self.rate * ms / 1_000, Fraction(self.burst))


async def follow(rate_milli: int, burst: int, steps: Sequence[Step]) -> None:
    """Take the steps on a bucket and its model, and compare the answers. The rate is in thousandths
    of a token per second, so that no refill is rounded."""
    buckets, model = await opened(), Model(Fraction(rate_milli, 1_000), burst)
    for what, number in steps:
        if what == "take":
            found = await buckets.take("k", number, rate=rate_milli / 1_000, burst=burst)
            assert (found.allowed, found.remaining, found.retry_after_s) == model.take(number)
        elif what == "pass":
            buckets.clock.at_ms += number
            model.pass_(number)
        else:
            await buckets.reset("k")
            model.level = Fraction(burst)
        assert buckets.problems() == []


async def race(nodes: Sequence[Store], burst: int, takes: int) -> int:
    """Take one token at a time on all nodes at once; returns how many were given."""
    limits = RateLimits()

    async def take(store: Store) -> bool:
        taken = await store.run(
            lambda tx: limits.take(tx, "raced", rate=0.001, burst=burst), line="raced"
        )
        return bool(taken)

    given = await asyncio.gather(*[take(nodes[at % len(nodes)]) for at in range(takes)])
    return sum(given)
