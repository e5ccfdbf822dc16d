"""Reads: gets that share a statement, and what becomes of reads when connections break."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import pytest

import onceward
from onceward import limits
from onceward.clock import Clock
from onceward.engine.base import ABSENT, ANY, Check, Put
from onceward.engine.postgres import PostgresEngine
from onceward.engine.postgres.batch import Batch
from onceward.engine.postgres.commits import CommitLink
from onceward.engine.postgres.link import Link, Lost, Rejected
from onceward.engine.postgres.reads import Get, cut
from onceward.errors import BadInput, Conflict, Unavailable
from onceward.work.inbox import Receipt

KEYS = [("p", f"{number}") for number in range(10)]


@pytest.fixture
async def engine(url: str) -> AsyncIterator[PostgresEngine]:
    async with PostgresEngine(url) as engine:
        await engine.commit([Put(key, key[1].encode()) for key in KEYS], 0)
        yield engine


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements about records that were sent."""
    queries: list[str] = []
    fetch = Link.fetch

    async def noted(self: Link, query: str, *arguments: object) -> Any:
        if "record" in query:
            queries.append(query)
        return await fetch(self, query, *arguments)

    monkeypatch.setattr(Link, "fetch", noted)
    return queries


async def test_gets_of_one_turn_share_one_statement(
    engine: PostgresEngine, fetched: list[str]
) -> None:
    await engine.get(KEYS[:1], 0)
    fetched.clear()
    answers = await asyncio.gather(
        engine.get(KEYS[:3], 0), engine.get(KEYS[2:4], 0), engine.get([KEYS[0], ("p", "no")], 0)
    )
    seen = [[record and record.value for record in records] for records in answers]
    assert seen == [[b"0", b"1", b"2"], [b"2", b"3"], [b"0", None]]
    assert len(fetched) == 1


async def test_each_get_of_a_batch_has_its_own_time(engine: PostgresEngine) -> None:
    await engine.commit([Put(("p", "a"), b"1", 100)], 0)
    before, after = await asyncio.gather(
        engine.get([("p", "a")], 99), engine.get([("p", "a")], 100)
    )
    assert [record and record.value for record in before + after] == [b"1", None]


async def test_a_get_that_nobody_waits_for_is_not_made(
    engine: PostgresEngine, fetched: list[str]
) -> None:
    get = asyncio.create_task(engine.get(KEYS, 0))
    await asyncio.sleep(0)
    get.cancel()
    await asyncio.gather(get, return_exceptions=True)
    await asyncio.sleep(0)
    assert fetched == []


async def test_a_bad_key_is_refused_before_it_spoils_a_batch(engine: PostgresEngine) -> None:
    answers = await asyncio.gather(
        engine.get(KEYS[:1], 0),
        engine.get([("p", "\0")], 0),
        engine.get([("\ud800", "k")], 0),
        return_exceptions=True,
    )
    assert isinstance(answers[0], list)
    assert {error.code for error in answers[1:]} == {"bad_key"}  # type: ignore[union-attr]
    with pytest.raises(BadInput):
        await engine.scan("p", 0, start="\0")
    with pytest.raises(BadInput):
        await engine.scan("p", 2**70)


async def test_a_commit_of_checks_locks_nothing_and_has_no_version(
    engine: PostgresEngine, fetched: list[str]
) -> None:
    [record] = await engine.get(KEYS[:1], 0)
    assert record is not None
    fetched.clear()
    seen: list[Any] = []
    right = [Check(KEYS[0], record.version), Check(("p", "no"), ABSENT), Check(KEYS[1], ANY)]
    assert await engine.commit(right, 0, seen.append) == 0
    assert seen == [0]
    assert len(fetched) == 1
    with pytest.raises(Conflict) as conflict:
        await engine.commit([*right, Check(KEYS[2], ABSENT)], 0, seen.append)
    assert conflict.value.details["keys"] == [KEYS[2]]
    assert seen == [0]


async def test_a_check_that_expects_nothing_asks_nothing(
    engine: PostgresEngine, fetched: list[str]
) -> None:
    await engine.commit([Check(("p", "scan"), ANY)], 0)
    assert fetched == []


async def test_a_read_whose_connection_was_gone_is_made_again(engine: PostgresEngine) -> None:
    await engine.get(KEYS[:1], 0)
    admin = await Link.connect(engine.target)
    await admin.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> $1 AND "
        "application_name = 'onceward'",
        admin._connection.get_server_pid(),
    )
    await admin.close()
    [record] = await engine.get(KEYS[:1], 0)
    assert record is not None
    assert len(await engine.scan("p", 0)) == 10
    assert await engine.sweep(0) == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Lost("gone"), "engine_unreachable"),
        (Lost("slow", timed_out=True), "engine_unreachable"),
        (Rejected("57014", "too slow"), "engine_unreachable"),
        (Rejected("42P01", "no such table"), "storage_failed"),
    ],
    ids=["lost twice", "timed out", "cancelled", "broken"],
)
async def test_a_read_that_fails_says_why(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
) -> None:
    calls, fetch = 0, Link.fetch

    async def fail(self: Link, query: str, *arguments: object) -> Any:
        nonlocal calls
        if "record" not in query:
            return await fetch(self, query, *arguments)
        calls += 1
        raise error

    monkeypatch.setattr(Link, "fetch", fail)
    for read in (engine.get(KEYS, 0), engine.scan("p", 0), engine.sweep(0)):
        calls = 0
        with pytest.raises(Unavailable) as failed:
            await read
        assert failed.value.code == code
        again = isinstance(error, Lost) and not error.timed_out
        assert calls == (2 if again else 1)


async def test_a_get_that_fails_by_mistake_says_so(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Link, query: str, *arguments: object) -> Any:
        raise ZeroDivisionError("a mistake")

    await engine.get(KEYS, 0)
    monkeypatch.setattr(Link, "fetch", fail)
    for _ in range(2):
        with pytest.raises(Unavailable, match="a mistake") as failed:
            await engine.get(KEYS, 0)
        assert failed.value.code == "storage_failed"
    monkeypatch.undo()
    assert all(await engine.get(KEYS, 0))


async def test_closing_does_not_wait_for_a_scan_and_leaves_no_connection(
    url: str, schema: str
) -> None:
    async with PostgresEngine(url) as engine:
        other = await Link.connect(engine.target)
        await other.run("BEGIN")
        await other.run(f"LOCK TABLE {schema}.record IN ACCESS EXCLUSIVE MODE")
        scan = asyncio.create_task(engine.scan("p", 0))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not await other.fetch(waiting):
            await other.fetch("SELECT pg_stat_clear_snapshot()")
    assert not scan.done()
    await other.close()
    assert await scan == []


async def test_the_servers_clock_can_be_read(engine: PostgresEngine) -> None:
    clock = Clock()
    before_ms = clock.now_ms()
    now_ms = await engine.now_ms()
    assert before_ms - 1 <= now_ms <= clock.now_ms() + 1


async def test_what_others_hold_is_left_to_the_next_sweep(
    engine: PostgresEngine, schema: str
) -> None:
    await engine.commit([Put(("e", f"{number}"), b"1", 100) for number in range(4)], 0)
    other = await Link.connect(engine.target)
    await other.run("BEGIN")
    await other.fetch(
        f"SELECT FROM {schema}.record WHERE sort = '1' AND partition = 'e' FOR UPDATE"
    )
    assert await engine.sweep(100) == 3
    await other.run("ROLLBACK")
    assert await engine.sweep(100) == 1
    assert await engine.sweep(100) == 0
    await other.close()


async def test_a_node_whose_clock_is_ahead_sweeps_nothing_early(engine: PostgresEngine) -> None:
    now_ms = await engine.now_ms()
    minute_ms = 60_000
    for name, expires_at_ms in (
        ("valid", now_ms + minute_ms),
        ("just expired", now_ms - limits.SWEEP_SLACK_MS + minute_ms // 2),
        ("long expired", now_ms - limits.SWEEP_SLACK_MS - minute_ms),
    ):
        await engine.commit([Put(("e", name), b"1", expires_at_ms)], 0)
    assert await engine.sweep(now_ms + 3_600_000) == 1
    assert [record.key[1] for record in await engine.scan("e", 0)] == ["just expired", "valid"]


def test_a_statement_has_so_many_keys() -> None:
    def get(count: int) -> Any:
        return Get([("p", f"{number}") for number in range(count)], None)  # type: ignore[arg-type]

    queue = deque([get(100) for _ in range(limits.BATCH_KEYS_MAX // 100 + 5)])
    assert len(cut(queue)) == limits.BATCH_KEYS_MAX // 100
    assert len(queue) == 5
    assert len(cut(deque([get(2 * limits.BATCH_KEYS_MAX), get(1)]))) == 1


async def test_many_messages_take_few_round_trips(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips: list[str] = []
    fetch, commit = Link.fetch, CommitLink.commit

    async def fetching(self: Link, query: str, *arguments: object) -> Any:
        if "inbox#" in str(arguments):
            trips.append("get")
        return await fetch(self, query, *arguments)

    async def committing(self: CommitLink, batch: Batch) -> Any:
        if any(row[1].endswith("#job") for member in batch.members for row in member.rows):
            trips.append("commit")
        return await commit(self, batch)

    monkeypatch.setattr(Link, "fetch", fetching)
    monkeypatch.setattr(CommitLink, "commit", committing)
    async with onceward.App(url, slots=2) as app:
        messages: list[Any] = [{"body": n, "key": f"k{n}"} for n in range(500)]
        verdicts = await app.send_many("q", messages)
        assert len({verdict.id for verdict in verdicts if isinstance(verdict, Receipt)}) == 500
        assert len(trips) <= 6, trips
        trips.clear()
        again = await app.send_many("q", messages)
        assert [v.id for v in again if isinstance(v, Receipt) and v.duplicate] == [
            v.id for v in verdicts if isinstance(v, Receipt)
        ]
        assert len(trips) <= 6, trips
