"""Transactions that come at the same time share a commit, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from onceward import limits
from onceward.errors import BadInput, Contention, StaleToken, Unavailable
from onceward.store.sharing import Call, SharedCommits
from onceward.store.transaction import Transaction
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

Fn = Callable[[Transaction], Awaitable[int]]


def add(name: str, *, before: Exception | None = None, after: Exception | None = None) -> Fn:
    """Add one to a number; fail before that or after it."""

    async def fn(tx: Transaction) -> int:
        if before is not None:
            raise before
        count = (await tx.get(("n", name)) or 0) + 1
        tx.put(("n", name), count)
        if after is not None:
            raise after
        return count

    return fn


def commits_of_numbers(apps: Apps) -> int:
    """How many commits have changed numbers."""
    return sum(any(write.key[0] == "n" for write in commit) for commit in apps.commits)


@virtual
async def test_they_run_one_after_the_other_in_few_commits() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        sharing = SharedCommits(app.store)
        apps.engines[0].latency_s = 0.001
        counts = await asyncio.gather(*[sharing.run(add("a"), writes=1) for _ in range(101)])
        assert sorted(counts) == list(range(1, 102))
        assert commits_of_numbers(apps) <= 4, "one alone, then as many as fit"
        assert sharing._tasks == set()
    assert apps.problems == []


@virtual
async def test_a_lone_one_waits_for_no_company() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        sharing = SharedCommits(app.store)
        for n in range(3):
            before = len(apps.commits)
            assert await sharing.run(add("a"), writes=1) == n + 1
            assert len(apps.commits) - before == 1
        assert sharing._tasks == set()


@pytest.mark.parametrize("when", ["before", "after"])
@virtual
async def test_one_that_fails_changes_nothing_for_itself_or_others(when: str) -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        sharing = SharedCommits(app.store)
        apps.engines[0].latency_s = 0.001
        fns = [add("good"), add("good"), add("bad", **{when: BadInput("no")}), add("good")]  # type: ignore[arg-type]
        outcomes = await asyncio.gather(
            *[sharing.run(fn, writes=1) for fn in fns], return_exceptions=True
        )
        assert sorted(n for n in outcomes if isinstance(n, int)) == [1, 2, 3]
        assert isinstance(outcomes[2], BadInput)
        apps.engines[0].latency_s = 0
        assert await app.store.run(lambda tx: tx.get(("n", "bad"))) is None
        assert await app.store.run(lambda tx: tx.get(("n", "good"))) == 3


@virtual
async def test_what_the_engine_refuses_of_one_is_refused_to_no_other() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        sharing = SharedCommits(app.store)
        apps.engines[0].latency_s = 0.001
        fns = [add("good"), add("good"), add("x" * (limits.SORT_BYTES_MAX + 1)), add("good")]
        outcomes = await asyncio.gather(
            *[sharing.run(fn, writes=1) for fn in fns], return_exceptions=True
        )
        assert isinstance(outcomes.pop(2), BadInput)
        assert sorted(n for n in outcomes if isinstance(n, int)) == [1, 2, 3]


@virtual
async def test_one_that_always_meets_conflicts_holds_no_other_up() -> None:
    apps = Apps(shared=False)

    async def hot(tx: Transaction) -> int:
        count: int = await tx.get(("n", "hot"))
        await other.store.run(add("hot"))
        return count

    async with apps.make() as app, apps.make() as other:
        sharing = SharedCommits(app.store)
        apps.engines[0].latency_s = 0.001
        fns = [add("good"), add("good"), hot, add("good")]
        running = [asyncio.create_task(sharing.run(fn, writes=1)) for fn in fns]
        done = await asyncio.gather(running[0], running[1], running[3])
        assert sorted(done) == [1, 2, 3]
        assert not running[2].done()
        await asyncio.wait([running[2]])
        assert isinstance(running[2].exception(), Contention)


@virtual
async def test_nobody_waits_for_an_answer_that_does_not_come() -> None:
    apps = Apps(shared=False)

    async def cancelled(tx: Transaction) -> int:
        raise asyncio.CancelledError

    async with apps.make() as app:
        sharing = SharedCommits(app.store)
        apps.engines[0].latency_s = 0.001
        fns = [add("good"), add("good"), cancelled]
        outcomes = await asyncio.gather(
            *[sharing.run(fn, writes=1) for fn in fns], return_exceptions=True
        )
        assert outcomes[0] == 1
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[1:])
        assert sharing._tasks == set()


@virtual
async def test_no_hook_of_one_that_failed_is_called() -> None:
    apps = Apps(shared=False)
    told: list[str] = []

    def telling(name: str, error: Exception | None = None) -> Fn:
        async def fn(tx: Transaction) -> int:
            tx.on_durable(lambda: told.append(name))
            return await add(name, before=error)(tx)

        return fn

    async with apps.make() as app:
        sharing = SharedCommits(app.store)
        apps.engines[0].latency_s = 0.001
        fns = [telling("a"), telling("b"), telling("bad", BadInput("no")), telling("c")]
        await asyncio.gather(*[sharing.run(fn, writes=1) for fn in fns], return_exceptions=True)
    assert told == ["a", "b", "c"]


@virtual
async def test_more_writes_than_were_announced_are_divided() -> None:
    apps = Apps(shared=False)

    async def much(tx: Transaction) -> None:
        before = tx.size
        for n in range(limits.COMMIT_WRITES_MAX // 3):
            tx.put(("much", f"{before}-{n}"), n)

    async with apps.make() as app:
        sharing = SharedCommits(app.store)
        apps.engines[0].latency_s = 0.001
        await asyncio.gather(*[sharing.run(much, writes=1) for _ in range(20)])


class Noting:
    """A member that notes what happens to it."""

    writes = 2
    reads = ()

    def __init__(self, fn: Fn) -> None:
        self.fn = fn
        self.attempts = 0
        self.undone = 0
        self.outcomes: list[object] = []

    async def attempt(self, tx: Transaction) -> int:
        self.attempts += 1
        return await self.fn(tx)

    def on_undo(self) -> None:
        self.undone += 1

    def on_outcome(self, outcome: object) -> None:
        self.outcomes.append(outcome)


@virtual
async def test_one_that_fails_is_undone_and_the_others_run_once() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        sharing = SharedCommits(app.store)
        error = BadInput("no")
        members = [Noting(add(name)) for name in "abc"]
        members.insert(1, Noting(add("bad", after=error)))
        for member in members:
            sharing.add(member)
        await sharing.finish()
        assert [member.attempts for member in members] == [1] * 4
        assert [member.undone for member in members] == [0, 1, 0, 0]
        assert [member.outcomes for member in members] == [[1], [error], [1], [1]]
        assert commits_of_numbers(apps) == 1


@virtual
async def test_functions_run_in_order_in_as_few_commits_as_hold_them() -> None:
    apps = Apps(shared=False)

    def large(n: int) -> Fn:
        async def fn(tx: Transaction) -> int:
            if n == 7:
                raise BadInput("no")
            tx.put(("large", str(n)), "x" * (limits.COMMIT_BYTES_MAX // 12))
            return await add("n")(tx)

        return fn

    async with apps.make() as app:
        sharing = SharedCommits(app.store)
        outcomes = await sharing.run_all([Call(add("n"), 3) for _ in range(150)])
        assert outcomes == list(range(1, 151))
        assert commits_of_numbers(apps) == 2
        *outcomes, last = await sharing.run_all([Call(large(n), 3) for n in range(40)])
        assert last == 189
        assert isinstance(outcomes[7], BadInput)
        await sharing.run_all([])


@virtual
async def test_functions_behind_a_commit_that_failed_are_not_begun() -> None:
    apps = Apps(shared=False)
    begun: list[int] = []

    def one(n: int) -> Fn:
        async def fn(tx: Transaction) -> int:
            begun.append(n)
            if n == 40:
                raise Unavailable("away")
            tx.put(("first", str(n)), n)
            tx.put(("second", str(n)), n)
            return await add(str(n))(tx)

        return fn

    async with apps.make() as app:
        sharing = SharedCommits(app.store)
        with pytest.raises(Unavailable):
            await sharing.run_all([Call(one(n), 3) for n in range(90)])
        assert begun == list(range(41))
        stored = [await app.store.run(lambda tx, n=n: tx.get(("n", str(n)))) for n in range(90)]
        assert stored == [1] * 33 + [None] * 57


@virtual
async def test_an_engine_that_batches_commits_gets_each_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        engine = apps.engines[0]
        monkeypatch.setattr(type(engine), "shares_commits", False)
        engine.latency_s = 0.001
        asked: list[int] = []
        get = engine.get
        monkeypatch.setattr(
            engine, "get", lambda keys, now_ms: asked.append(len(keys)) or get(keys, now_ms)
        )
        sharing = SharedCommits(app.store)
        calls = [
            sharing.run(add(str(n)), writes=1, reads=[("n", str(n)), ("m", str(n))])
            for n in range(9)
        ]
        assert await asyncio.gather(*calls) == [1] * 9
        assert asked.count(2) == 9
        assert commits_of_numbers(apps) == 9


@virtual
async def test_jobs_that_end_at_the_same_time_share_commits_and_each_ends_once() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        for n in range(30):
            await app.send("q", n, key=f"k{n}")
        claims = await app.claim("q", "w", lease_s=10, max=30)
        apps.engines[0].latency_s = 0.001
        before = len(apps.commits)
        ends = [app.complete(claim.id, claim.token, claim.body) for claim in claims]
        ends += [app.complete(claims[7].id, "another token"), app.complete(claims[8].id, "")]
        ends.append(app.complete(claims[9].id, claims[9].token, object()))
        outcomes = await asyncio.gather(*ends, return_exceptions=True)
        assert outcomes[:30] == [None] * 30
        assert all(isinstance(outcome, StaleToken) for outcome in outcomes[30:])
        assert len(apps.commits) - before <= 6
        for claim in claims:
            assert (await app.job(claim.id)).result == claim.body
    assert apps.problems == []


@virtual
async def test_a_result_that_cannot_be_stored_spoils_no_other_job() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        for n in range(9):
            await app.send("q", n, key=f"k{n}")
        claims = await app.claim("q", "w", lease_s=10, max=9)
        apps.engines[0].latency_s = 0.001
        ends = [
            app.complete(claim.id, claim.token, object() if n == 4 else n)
            for n, claim in enumerate(claims)
        ]
        outcomes = await asyncio.gather(*ends, return_exceptions=True)
        assert isinstance(outcomes.pop(4), BadInput)
        assert outcomes == [None] * 8
        assert (await app.job(claims[4].id)).state == "running"
        await app.complete(claims[4].id, claims[4].token)
    assert apps.problems == []


@virtual
async def test_what_all_of_them_read_for_sure_is_read_with_one_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        for n in range(9):
            await app.send("q", n, key=f"k{n}")
        claims = await app.claim("q", "w", lease_s=10, max=9)
        engine = apps.engines[0]
        engine.latency_s = 0.001
        asked: list[int] = []
        get = engine.get
        monkeypatch.setattr(
            engine, "get", lambda keys, now_ms: asked.append(len(keys)) or get(keys, now_ms)
        )
        await asyncio.gather(*[app.complete(claim.id, claim.token) for claim in claims])
        assert asked == [1, 8], "of one alone, and of the others"


@virtual
async def test_what_ends_when_the_application_stops_is_finished() -> None:
    apps = Apps(shared=False)
    app = await apps.make().start()
    for n in range(9):
        await app.send("q", n, key=f"k{n}")
    claims = await app.claim("q", "w", lease_s=10, max=9)
    apps.engines[0].latency_s = 1
    ends = [asyncio.create_task(app.complete(claim.id, claim.token)) for claim in claims]
    await apps.sleep(0.5)
    await app.stop()
    assert [await end for end in ends] == [None] * 9
