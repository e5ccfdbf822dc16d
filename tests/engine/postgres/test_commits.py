"""What the server makes of a batch: members judged in order, whatever others do meanwhile."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from onceward import limits
from onceward.engine.base import ABSENT, Check, Delete, Put, Write
from onceward.engine.postgres import PostgresEngine
from onceward.engine.postgres.batch import Member
from onceward.engine.postgres.commits import CommitLink, LostBatch, Ticket, cut
from onceward.engine.postgres.link import Lost, Rejected
from onceward.errors import BadInput, Conflict, OutcomeUnknown, StorageFull, Unavailable
from onceward.testing.postgres import PostgresServer

A, B, C = ("p", "a"), ("p", "b"), ("p", "c")
NOW_MS = 1_000


@asynccontextmanager
async def outsider(url: str) -> AsyncIterator[Any]:
    """Someone else's connection, with a transaction begun."""
    connection = await asyncpg.connect(url.partition("?")[0])
    try:
        await connection.execute("BEGIN")
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def engine(url: str) -> AsyncIterator[PostgresEngine]:
    async with PostgresEngine(url) as engine:
        yield engine


async def sharing(engine: PostgresEngine, *commits: list[Write]) -> list[Any]:
    """What becomes of commits that go in one batch."""
    calls = [engine.commit(writes, NOW_MS) for writes in commits]
    return await asyncio.gather(*calls, return_exceptions=True)


async def values(engine: PostgresEngine, *keys: tuple[str, str]) -> list[bytes | None]:
    return [record and record.value for record in await engine.get(keys, NOW_MS)]


async def until_waiting(connection: Any, count: int = 1) -> None:
    """Wait until so many statements of others stand before a lock."""
    query = """
        SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%commit_lane%'
    """
    while await connection.fetchval(query) < count:
        # What a transaction has once seen of the activity, it sees to its end.
        await connection.execute("SELECT pg_stat_clear_snapshot()")


def lost(verdict: object) -> list[Any]:
    assert isinstance(verdict, Conflict)
    keys = verdict.details["keys"]
    assert isinstance(keys, list)
    return keys


async def test_of_a_batch_that_puts_one_absent_key_the_first_wins(engine: PostgresEngine) -> None:
    verdicts = await sharing(
        engine, *([Put(A, str(number).encode(), None, ABSENT)] for number in range(4))
    )
    assert [lost(verdict) for verdict in verdicts[1:]] == [[A]] * 3
    assert await values(engine, A) == [b"0"]
    [record] = await engine.get([A], NOW_MS)
    assert record is not None
    assert record.version == verdicts[0]


async def test_each_member_sees_what_those_before_it_have_done(engine: PostgresEngine) -> None:
    verdicts = await sharing(
        engine,
        [Put(A, b"1", None, ABSENT)],
        [Check(A, ABSENT), Put(B, b"1")],
        [Delete(A)],
        [Check(A, ABSENT), Put(C, b"1")],
        [Put(A, b"2", None, ABSENT)],
    )
    assert [isinstance(verdict, Conflict) for verdict in verdicts] == [
        False, True, False, False, False,
    ]  # fmt: skip
    assert await values(engine, A, B, C) == [b"2", None, b"1"]


async def test_a_loser_leaves_nothing_to_those_behind_it(engine: PostgresEngine) -> None:
    verdicts = await sharing(
        engine,
        [Put(A, b"1", None, ABSENT), Check(B, 7)],
        [Put(A, b"2", None, ABSENT)],
        [Delete(A), Check(B, 7)],
    )
    assert lost(verdicts[0]) == [B]
    assert lost(verdicts[2]) == [B]
    [record] = await engine.get([A], NOW_MS)
    assert record is not None
    assert (record.value, record.version) == (b"2", verdicts[1])


@pytest.mark.parametrize("there", [False, True])
async def test_the_last_of_several_blind_writes_stays(engine: PostgresEngine, there: bool) -> None:
    for last in ([Put(A, b"last")], [Delete(A)]):
        await engine.commit([Put(A, b"0") if there else Delete(A)], NOW_MS)
        for before in ([Put(A, b"1")], [Delete(A)], [Put(A, b"1"), Put(B, b"1")]):
            verdicts = await sharing(engine, [Put(A, b"first")], before, last)  # type: ignore[arg-type]
            assert len(set(verdicts)) == 3
            kept = last[0].value if isinstance(last[0], Put) else None
            assert await values(engine, A) == [kept]


async def test_what_is_not_there_may_be_checked_and_deleted_without_leaving_a_trace(
    engine: PostgresEngine,
) -> None:
    await engine.commit([Check(A, ABSENT), Delete(B), Put(C, b"1")], NOW_MS)
    assert [record.key for record in await engine.scan("p", NOW_MS)] == [C]
    verdicts = await sharing(engine, [Check(A, ABSENT), Check(C, 1), Put(B, b"1")], [Delete(A)])
    assert lost(verdicts[0]) == [C]
    assert [record.key for record in await engine.scan("p", NOW_MS)] == [C]


async def test_an_expired_record_is_replaced_by_who_sees_it_absent(engine: PostgresEngine) -> None:
    version = await engine.commit([Put(A, b"old", NOW_MS)], 0)
    verdicts = await asyncio.gather(
        engine.commit([Check(A, ABSENT), Put(B, b"1")], NOW_MS - 1),
        engine.commit([Put(A, b"1", None, version)], NOW_MS),
        engine.commit([Put(A, b"2", None, ABSENT)], NOW_MS),
        return_exceptions=True,
    )
    assert lost(verdicts[0]) == lost(verdicts[1]) == [A]
    assert await values(engine, A) == [b"2"]


async def test_a_record_changed_while_the_batch_waits_is_found_where_it_is_now(
    engine: PostgresEngine, url: str, schema: str
) -> None:
    version = await engine.commit([Put(A, b"1"), Put(B, b"1")], NOW_MS)
    async with outsider(url) as other:
        # The same version at another place in the table, so that the expectation holds.
        await other.execute(f"UPDATE {schema}.record SET value = 'moved'")
        writes = [Put(A, b"2", None, version), Delete(B, version)]
        commit = asyncio.create_task(engine.commit(writes, NOW_MS))
        await until_waiting(other)
        await other.execute("COMMIT")
        await commit
    assert await values(engine, A, B) == [b"2", None]


async def test_a_version_that_changes_while_the_batch_waits_is_a_conflict(
    engine: PostgresEngine, url: str, schema: str
) -> None:
    version = await engine.commit([Put(A, b"1")], NOW_MS)
    async with outsider(url) as other:
        await other.execute(f"UPDATE {schema}.record SET version = 1, value = 'theirs'")
        commit = asyncio.create_task(engine.commit([Put(A, b"2", None, version)], NOW_MS))
        await until_waiting(other)
        await other.execute("COMMIT")
        with pytest.raises(Conflict):
            await commit
    assert await values(engine, A) == [b"theirs"]


@pytest.mark.parametrize("write", [Put(A, b"2"), Put(A, b"2", None, ABSENT), Delete(A)], ids=str)
async def test_a_record_that_goes_away_between_claim_and_lock_is_claimed_again(
    engine: PostgresEngine, url: str, schema: str, write: Write
) -> None:
    await engine.commit([Put(A, b"1")], NOW_MS)
    async with outsider(url) as other:
        # Locked, but not yet deleted: the claim finds it there, and the lock has to wait.
        await other.execute(f"SELECT FROM {schema}.record FOR UPDATE")
        commit = asyncio.create_task(engine.commit([write], NOW_MS))
        await until_waiting(other)
        await other.execute(f"DELETE FROM {schema}.record; COMMIT")
        await commit
    assert await values(engine, A) == [b"2" if isinstance(write, Put) else None]


async def test_who_inserts_first_wins_though_the_other_began_earlier(
    engine: PostgresEngine, url: str, schema: str
) -> None:
    async with outsider(url) as other:
        await other.execute(f"INSERT INTO {schema}.record VALUES ('p', 'a', 'theirs', 1)")
        commits = [
            asyncio.create_task(engine.commit([Check(A, ABSENT), Put(B, b"1")], NOW_MS)),
            asyncio.create_task(engine.commit([Put(A, b"1", None, ABSENT)], NOW_MS)),
            asyncio.create_task(engine.commit([Put(C, b"1")], NOW_MS)),
        ]
        await until_waiting(other)
        await other.execute("COMMIT")
        verdicts = await asyncio.gather(*commits, return_exceptions=True)
    assert [isinstance(verdict, Conflict) for verdict in verdicts] == [True, True, False]
    assert await values(engine, A, B, C) == [b"theirs", None, b"1"]


async def test_readers_never_see_a_claim(engine: PostgresEngine, url: str, schema: str) -> None:
    await engine.commit([Put(B, b"1")], NOW_MS)
    async with outsider(url) as other:
        await other.execute(f"SELECT FROM {schema}.record FOR UPDATE")
        commit = asyncio.create_task(engine.commit([Put(A, b"2"), Put(B, b"2")], NOW_MS))
        await until_waiting(other)
        assert await values(engine, A, B) == [None, b"1"]
        assert [record.value for record in await engine.scan("p", NOW_MS)] == [b"1"]
        await other.execute("COMMIT")
        await commit
    assert await values(engine, A, B) == [b"2", b"2"]


async def test_what_one_member_cannot_store_does_not_harm_the_others(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if a partition slipped through that is too long for the index.
    monkeypatch.setattr("onceward.engine.postgres.batch.stored_partition", lambda name: name)
    text = "".join(chr(0x4E00 + number**3 % 20_011) for number in range(1_020))
    key = (text[:680], text[680:])
    verdicts = await sharing(engine, [Put(A, b"1")], [Put(key, b"1")], [Put(B, b"1")])
    assert isinstance(verdicts[1], BadInput)
    assert await values(engine, A, B) == [b"1", b"1"]


async def test_a_record_that_someone_holds_fails_none_but_those_who_need_it(
    engine: PostgresEngine, url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.commit([Put(A, b"0")], NOW_MS)
    link = await engine._commits._links.take()
    await link.wait_for_locks(50)
    engine._commits._links.give(link)
    with monkeypatch.context() as patch:
        patch.setattr(limits, "LOCK_MS", 50)
        async with outsider(url) as other:
            await other.execute(f"SELECT FROM {schema}.record FOR UPDATE")
            verdicts = await sharing(
                engine, [Put(B, b"1")], [Put(A, b"1")], [Delete(A)], [Put(C, b"1")]
            )
    assert [type(verdict) for verdict in verdicts] == [int, Unavailable, Unavailable, int]
    assert await values(engine, A, B, C) == [b"0", b"1", b"1"]
    await engine.commit([Put(A, b"2")], NOW_MS)
    assert [row[0] for row in await link.fetch("SHOW lock_timeout")] == ["5s"]


@pytest.mark.parametrize(("patience_s", "kind"), [(30.0, int), (0.0, Unavailable)])
async def test_what_takes_too_long_together_is_tried_one_by_one_for_a_while(
    engine: PostgresEngine,
    monkeypatch: pytest.MonkeyPatch,
    patience_s: float,
    kind: type[object],
) -> None:
    commit: Callable[[CommitLink, Any], Awaitable[Any]] = CommitLink.commit

    async def refuse(self: CommitLink, batch: Any) -> Any:
        if len(batch.members) > 1:
            raise Rejected("57014", "too slow")
        return await commit(self, batch)

    monkeypatch.setattr(CommitLink, "commit", refuse)
    monkeypatch.setattr(limits, "BATCH_ALONE_S", patience_s)
    verdicts = await sharing(engine, [Put(A, b"1")], [Put(B, b"1")])
    assert [type(verdict) for verdict in verdicts] == [kind, kind]


async def test_commits_of_one_turn_share_one_call(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    commit = CommitLink.commit

    async def counted(self: CommitLink, batch: Any) -> Any:
        calls.append(len(batch.members))
        return await commit(self, batch)

    monkeypatch.setattr(CommitLink, "commit", counted)
    await sharing(engine, *([Put(("p", f"{number}"), b"1")] for number in range(50)))
    assert calls == [50]


async def test_a_cancelled_commit_that_was_not_sent_is_never_made(engine: PostgresEngine) -> None:
    commit = asyncio.create_task(engine.commit([Put(A, b"1")], NOW_MS))
    await asyncio.sleep(0)
    commit.cancel()
    await sharing(engine, [Put(B, b"1")])
    assert await values(engine, A, B) == [None, b"1"]


def members(count: int, writes: int, size_bytes: int) -> Any:
    rows = [Put(("p", f"{number}"), b"1") for number in range(writes)]
    return [Member(rows, 0, size_bytes, None, None) for _ in range(count)]


@pytest.mark.parametrize(
    ("count", "writes", "size_bytes", "first"),
    [
        (10, 3, 100, 10),
        (limits.BATCH_COMMITS_MAX + 10, 1, 100, limits.BATCH_COMMITS_MAX),
        (50, 100, 100, limits.BATCH_WRITES_MAX // 100),
        (10, 1, limits.COMMIT_BYTES_MAX, limits.BATCH_BYTES_MAX // limits.COMMIT_BYTES_MAX),
        (2, 1, 2 * limits.BATCH_BYTES_MAX, 1),
    ],
)
def test_a_batch_is_bounded(count: int, writes: int, size_bytes: int, first: int) -> None:
    queue = deque(members(count, writes, size_bytes))
    assert len(cut(queue)) == first
    assert len(queue) == count - first


@pytest.mark.parametrize(
    ("sqlstate", "kind", "code"),
    [
        ("53100", StorageFull, "storage_full"),
        ("22021", BadInput, "bad_value"),
        ("54000", BadInput, "bad_value"),
        ("25006", Unavailable, "engine_unreachable"),
        ("55P03", Unavailable, "engine_unreachable"),
        ("57014", Unavailable, "engine_unreachable"),
        ("42P01", Unavailable, "storage_failed"),
    ],
)
async def test_what_the_server_refuses_is_told_as_our_own_error(
    engine: PostgresEngine,
    monkeypatch: pytest.MonkeyPatch,
    sqlstate: str,
    kind: type[Exception],
    code: str,
) -> None:
    async def refuse(self: CommitLink, batch: Any) -> Any:
        raise Rejected(sqlstate, "no")

    monkeypatch.setattr(CommitLink, "commit", refuse)
    verdicts = await sharing(engine, [Put(A, b"1")], [Put(B, b"1")])
    assert [type(verdict) for verdict in verdicts] == [kind, kind]
    assert {verdict.code for verdict in verdicts} == {code}


async def test_a_batch_rolled_back_for_others_is_sent_again_but_not_for_ever(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = ["40001", "40P01"]
    commit: Callable[[CommitLink, Any], Awaitable[Any]] = CommitLink.commit

    async def refuse(self: CommitLink, batch: Any) -> Any:
        if refusals:
            raise Rejected(refusals.pop(), "try again")
        return await commit(self, batch)

    monkeypatch.setattr(CommitLink, "commit", refuse)
    await engine.commit([Put(A, b"1")], NOW_MS)
    assert await values(engine, A) == [b"1"]
    refusals.extend(["40P01"] * 2 * limits.BATCH_TRIES_MAX)
    with pytest.raises(Unavailable, match="try again"):
        await engine.commit([Put(A, b"2")], NOW_MS)
    assert len(refusals) == limits.BATCH_TRIES_MAX


async def test_a_hook_that_raises_harms_no_one_else(engine: PostgresEngine) -> None:
    def broken(version: object) -> None:
        raise ZeroDivisionError("a mistake")

    outcomes = await asyncio.gather(
        engine.commit([Put(A, b"1")], NOW_MS, broken),
        engine.commit([Put(B, b"1")], NOW_MS),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown, int]
    assert await values(engine, A, B) == [b"1", b"1"]


@pytest.mark.parametrize("lost", [False, True])
async def test_a_watch_that_raises_fails_no_commit(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("a mistake")

    async def lose(self: CommitLink, batch: Any) -> Any:
        raise LostBatch(Ticket(lane=0, number=1), Lost("gone"))

    if lost:
        monkeypatch.setattr(CommitLink, "commit", lose)
    noticed: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noticed.append(context))
    with engine.watch("p") as watch:
        watch.on_hint = broken
        outcomes = await sharing(engine, [Put(A, b"1")], [Put(B, b"1")])
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown if lost else int] * 2
    assert [str(context["exception"]) for context in noticed] == ["a mistake"] * 2


async def test_engines_that_share_records_lose_no_update_and_never_deadlock(
    server: PostgresServer, url: str
) -> None:
    """Every version of a record is the base of one change at the most."""
    engines = [await PostgresEngine(url).open() for _ in range(3)]
    keys = [("p", f"{number}") for number in range(6)]
    bases: list[tuple[tuple[str, str], Any]] = []

    async def caller(number: int) -> None:
        engine = engines[number % 3]
        for turn in range(12):
            mine = [keys[(number + turn * step) % 6] for step in range(3)]
            mine = list(dict.fromkeys(mine))
            records = await engine.get(mine, NOW_MS)
            writes: list[Write] = []
            for place, (key, record) in enumerate(zip(mine, records, strict=True)):
                expect = ABSENT if record is None else record.version
                kind = (number + turn + place) % 5
                if kind == 0 and record is not None:
                    writes.append(Delete(key, expect))
                elif kind == 1:
                    writes.append(Check(key, expect))
                else:
                    writes.append(Put(key, f"{number}.{turn}".encode(), None, expect))
            try:
                await engine.commit(writes[:: (-1) ** number], NOW_MS)
            except Conflict:
                continue
            changes = [write for write in writes if not isinstance(write, Check)]
            bases.extend((w.key, w.expect) for w in changes if w.expect is not ABSENT)

    await asyncio.gather(*map(caller, range(24)))
    for engine in engines:
        await engine.close()
    assert len(bases) == len(set(bases))
    assert len(bases) > 20
    assert "deadlock detected" not in server.log
