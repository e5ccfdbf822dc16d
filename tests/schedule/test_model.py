"""Random operations against a small model: no job is lost, none ends twice, order is held."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.errors import StaleToken
from onceward.schedule import Claim
from tests.quick import START_MS
from tests.schedule.jobs import Jobs, new_jobs, problems

DELAYS_MS = st.sampled_from([0, 0, 0, 1, 50, 100, 1_000])
PICKS = st.integers(0, 50)

OPERATIONS = st.one_of(
    st.tuples(
        st.just("send"),
        st.sampled_from([None, "a", "b"]),
        DELAYS_MS,
        st.sampled_from([0, 5]),
        st.sampled_from([0, 1, 2]),
    ),
    st.tuples(st.just("claim"), st.sampled_from([100, 1_000])),
    st.tuples(st.just("complete"), PICKS),
    st.tuples(st.just("fail"), PICKS, st.one_of(st.none(), DELAYS_MS)),
    st.tuples(st.just("extend"), PICKS, st.sampled_from([1, 100, 2_000])),
    st.tuples(st.just("release"), PICKS),
    st.tuples(st.just("pass"), st.sampled_from([1, 50, 100, 1_000])),
)


@dataclass
class Expected:
    """What should be true of one job."""

    key: str | None
    due_ms: int
    priority: int
    attempts_max: int
    attempts: int = 0
    token: str = ""
    until_ms: int = 0
    end: str = ""

    def over(self, end: str = "") -> None:
        self.token, self.end = "", end

    def failed(self, retry_ms: int | None) -> None:
        used_up = self.attempts_max and self.attempts >= self.attempts_max
        self.over("failed" if retry_ms is None or used_up else "")
        self.due_ms = retry_ms or 0


class Model:
    """The jobs in the order they were sent, and the real ones beside them."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.expected: dict[str, Expected] = {}
        self.claims: list[Claim] = []

    def stage(self, id_: str) -> str:
        job = self.expected[id_]
        if job.end:
            return job.end
        if job.key is not None:
            line = [i for i, j in self.expected.items() if j.key == job.key and not j.end]
            if line[0] != id_:
                return "blocked"
        if job.token:
            return "running"
        return "due" if job.due_ms > self.jobs.clock.at_ms else "ready"

    async def send(self, key: str | None, delay_ms: int, priority: int, attempts_max: int) -> None:
        due_ms = self.jobs.clock.at_ms + delay_ms
        id_ = await self.jobs.send(
            order_key=key, due_ms=due_ms, priority=priority, attempts_max=attempts_max
        )
        self.expected[id_] = Expected(key, due_ms, priority, attempts_max)

    async def claim(self, lease_ms: int) -> None:
        ready = [job for id_, job in self.expected.items() if self.stage(id_) == "ready"]
        claim = await self.jobs.claim(lease_ms=lease_ms)
        assert (claim is not None) == bool(ready)
        if claim is not None:
            assert self.stage(claim.id) == "ready"
            job = self.expected[claim.id]
            assert job.priority == min(other.priority for other in ready)
            job.attempts += 1
            assert claim.attempt == job.attempts
            job.token, job.until_ms = claim.token, claim.lease_until_ms
            self.claims.append(claim)

    def pick(self, number: int) -> tuple[Claim, Expected | None] | None:
        """A claim made some time ago; with its job if that is still held by it."""
        if not self.claims:
            return None
        claim = self.claims[number % len(self.claims)]
        job = self.expected[claim.id]
        return claim, job if job.token == claim.token else None

    async def complete(self, number: int) -> None:
        if picked := self.pick(number):
            claim, job = picked
            if job is None:
                with pytest.raises(StaleToken):
                    await self.jobs.complete(claim)
            else:
                await self.jobs.complete(claim)
                job.over("succeeded")

    async def fail(self, number: int, delay_ms: int | None) -> None:
        if picked := self.pick(number):
            claim, job = picked
            retry_ms = None if delay_ms is None else self.jobs.clock.at_ms + delay_ms
            if job is None:
                with pytest.raises(StaleToken):
                    await self.jobs.fail(claim, retry_ms)
            else:
                await self.jobs.fail(claim, retry_ms)
                job.failed(retry_ms)

    async def extend(self, number: int, lease_ms: int) -> None:
        if picked := self.pick(number):
            claim, job = picked
            if job is None:
                with pytest.raises(StaleToken):
                    await self.jobs.extend(claim, lease_ms)
            else:
                job.until_ms = max(job.until_ms, self.jobs.clock.at_ms + lease_ms)
                assert await self.jobs.extend(claim, lease_ms) == job.until_ms

    async def release(self, number: int) -> None:
        if picked := self.pick(number):
            claim, job = picked
            if job is None:
                with pytest.raises(StaleToken):
                    await self.jobs.release(claim)
            else:
                await self.jobs.release(claim)
                job.over()
                job.attempts -= 1

    async def pass_ms(self, passed_ms: int) -> None:
        now_ms = self.jobs.clock.at_ms + passed_ms
        for job in self.expected.values():
            if job.token and job.until_ms <= now_ms:
                job.failed(now_ms)
        await self.jobs.pass_ms(passed_ms)

    async def check(self) -> None:
        for id_ in self.expected:
            assert await self.jobs.stage(id_) == self.stage(id_)
        assert problems(self.jobs.engine) == []


async def play(operations: list[tuple]) -> None:
    model = Model(await new_jobs())
    assert model.jobs.clock.at_ms == START_MS
    for name, *arguments in operations:
        await getattr(model, "pass_ms" if name == "pass" else name)(*arguments)
        await model.check()
    # In the end all can be worked off.
    for _ in range(3 * len(operations)):
        await model.pass_ms(10_000)
        while any(model.stage(id_) == "ready" for id_ in model.expected):
            await model.claim(1_000)
            await model.complete(len(model.claims) - 1)
            await model.check()
    assert all(job.end for job in model.expected.values())


@given(st.lists(OPERATIONS, max_size=40))
def test_whatever_happens_jobs_are_where_the_model_says(operations: list[tuple]) -> None:
    asyncio.run(play(operations))
