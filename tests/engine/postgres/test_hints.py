"""Hints between nodes: they come, they are few, and nothing depends on them."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import asyncpg
import pytest

from onceward import limits
from onceward.engine.base import ABSENT, Check, Delete, Put, Watch
from onceward.engine.postgres import PostgresEngine
from onceward.engine.postgres.hints import HashedWatchers, Hints, hash_of
from onceward.engine.postgres.link import Link, Rejected
from onceward.testing.postgres import PostgresServer

WAIT_S = 20.0
CUT_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'onceward' AND pid <> pg_backend_pid()
"""


class Eavesdropper:
    """Hears what nodes tell each other, and says nothing itself unless told to."""

    def __init__(self, connection: Any, schema: str) -> None:
        self.channel = f"onceward_{schema}"
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self._connection = connection

    async def listen(self) -> None:
        await self._connection.add_listener(
            self.channel, lambda _c, _pid, _channel, payload: self.heard.put_nowait(payload)
        )

    async def say(self, payload: str) -> None:
        text = f"eavesdropper {payload}"
        await self._connection.execute("SELECT pg_notify($1, $2)", self.channel, text)

    async def next(self) -> str:
        """The next word, without the name of who said it."""
        async with asyncio.timeout(WAIT_S):
            return (await self.heard.get()).partition(" ")[2]


@pytest.fixture
async def eavesdropper(server: PostgresServer, schema: str) -> AsyncIterator[Eavesdropper]:
    connection = await asyncpg.connect(server.url)
    eavesdropper = Eavesdropper(connection, schema)
    await eavesdropper.listen()
    yield eavesdropper
    await connection.close()


def test_a_watch_is_found_by_the_hash_of_its_partition() -> None:
    watchers = HashedWatchers()
    watch, other = watchers.add("p"), watchers.add("q")
    hinted: list[str] = []
    watch.on_hint = lambda: hinted.append("p")
    other.on_hint = lambda: hinted.append("q")
    watchers.hint_hashed([hash_of("p"), hash_of("nowhere")])
    assert hinted == ["p"]
    watchers.hint_all()
    assert sorted(hinted) == ["p", "p", "q"]
    watch.close()
    watch.close()
    watchers.hint_hashed([hash_of("p")])
    watchers.hint_all()
    assert sorted(hinted) == ["p", "p", "q", "q"]
    other.close()
    assert not watchers._watches


async def test_a_watch_may_be_closed_by_its_own_hint() -> None:
    watchers = HashedWatchers()
    watches = [watchers.add("p") for _ in range(3)]
    for watch in watches:
        watch.on_hint = watch.close
    watchers.hint_hashed([hash_of("p")])
    assert not watchers._watches
    watches = [watchers.add("p") for _ in range(3)]
    hinted: list[Watch] = []
    for watch in watches:
        watch.on_hint = partial(close_and_note, watch, hinted)
    watchers.hint([Put(("p", "a"), b"1")])
    assert hinted == watches


def close_and_note(watch: Watch, hinted: list[Watch]) -> None:
    watch.close()
    hinted.append(watch)


async def test_a_node_alone_tells_no_one_but_itself(url: str, eavesdropper: Eavesdropper) -> None:
    async with PostgresEngine(url) as engine:
        assert await eavesdropper.next() == "hello"
        with engine.watch("p") as watch:
            await engine.commit([Put(("p", "a"), b"1")], 0)
            assert await watch.wait(0)
        # When a neighbour turns up, it is told to look at everything, and then of each change.
        await eavesdropper.say("hello")
        assert await eavesdropper.next() == "hello"
        assert await eavesdropper.next() == "*"
        await engine.commit([Put(("p", "a"), b"2"), Check(("q", "a"), ABSENT)], 0)
        assert await eavesdropper.next() == hash_of("p")
        await engine.commit([Delete(("q", "a"))], 0)
        assert await eavesdropper.next() == hash_of("q")


async def test_changes_of_many_partitions_are_told_in_one_word(
    url: str, eavesdropper: Eavesdropper
) -> None:
    async with PostgresEngine(url) as engine:
        await eavesdropper.next()
        await eavesdropper.say("there")
        assert [await eavesdropper.next() for _ in range(2)] == ["there", "*"]
        await asyncio.gather(
            *(engine.commit([Put((f"{n}", "a"), b"1")], 0) for n in range(limits.HINTS_MAX + 1))
        )
        told: list[str] = []
        while "*" not in told and len(told) < limits.HINTS_MAX:
            told += (await eavesdropper.next()).split(",")
        assert "*" in told or len(set(told)) > limits.HINTS_MAX - 100


async def test_nodes_find_each_other_and_pass_hints_on(url: str) -> None:
    async with PostgresEngine(url) as one, PostgresEngine(url) as other:
        for writer, reader in [(one, other), (other, one)] * 3:
            with reader.watch("p") as watch:
                watch.clear()
                await writer.commit([Put(("p", "a"), b"1")], 0)
                assert await watch.wait(WAIT_S)


async def test_who_knows_of_his_own_commits_is_hinted_by_those_of_others_only(url: str) -> None:
    async with PostgresEngine(url) as one, PostgresEngine(url) as other:
        with one.watch("p") as watch, one.watch("p") as everything:
            watch.others_only = True
            # When the nodes have found each other, they are told to look at all. That may be on
            # its way still, but not behind what is told later.
            await until_together(one, other)
            with one.watch("later") as later:
                await other.commit([Put(("later", "a"), b"1")], 0)
                assert await later.wait(WAIT_S)
            watch.clear()
            await one.commit([Put(("p", "a"), b"1")], 0)
            assert await everything.wait(0)
            assert not await watch.wait(0)
            await other.commit([Put(("p", "a"), b"2")], 0)
            assert await watch.wait(WAIT_S)


async def until_together(*engines: PostgresEngine) -> None:
    """Wait until all have heard of each other, and have nothing more to say."""
    for engine in engines:
        while engine._hints.alone or engine._hints._many:
            with engine.watch("nothing") as watch:
                await watch.wait(0.01)


async def test_a_commit_that_its_caller_does_not_wait_for_is_like_one_of_others(url: str) -> None:
    async with PostgresEngine(url) as engine:
        with engine.watch("p") as watch:
            watch.others_only = True
            assert await watch.wait(WAIT_S), "it begins to listen"
            watch.clear()
            await engine.commit([Put(("p", "a"), b"1")], 0)
            assert not await watch.wait(0)
            answer = engine._commits._answer

            def cancelled(members: Any, verdicts: Any) -> None:
                commit.cancel()
                members[0].done.cancel()
                answer(members, verdicts)

            engine._commits._answer = cancelled  # type: ignore[method-assign]
            commit = asyncio.create_task(engine.commit([Put(("p", "a"), b"2")], 0))
            await asyncio.wait([commit])
            assert await watch.wait(WAIT_S)


async def test_a_node_that_begins_to_listen_again_looks_at_everything(
    url: str, eavesdropper: Eavesdropper
) -> None:
    async with PostgresEngine(url) as engine:
        assert await eavesdropper.next() == "hello"
        admin = await Link.connect(engine.target)
        with engine.watch("p") as watch:
            watch.clear()
            await admin.fetch(CUT_OTHERS)
            assert await watch.wait(WAIT_S)
        await admin.close()


async def test_whatever_keeps_a_node_from_listening_it_tries_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistakes = [ZeroDivisionError("a mistake"), KeyError("another")]
    listen = Link.listen

    async def fail(self: Link, channel: str, heard: Any) -> None:
        if mistakes:
            raise mistakes.pop()
        await listen(self, channel, heard)

    monkeypatch.setattr(Link, "listen", fail)
    async with PostgresEngine(url) as engine:
        with engine.watch("p") as watch:
            assert await watch.wait(WAIT_S)
    assert not mistakes


async def test_who_can_listen_but_not_speak_tries_ever_more_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            enough.set_result(None)
            await asyncio.Event().wait()

    class Dumb:
        """As much of a link as `Hints` uses."""

        def on_closed(self, closed: Any) -> None: ...

        async def listen(self, channel: str, heard: Any) -> None: ...

        async def fetch(self, query: str, *arguments: object) -> Any:
            raise Rejected("53400", "the queue is full")

        def drop(self) -> None: ...

    async def connect() -> Any:
        return Dumb()

    hints = Hints(connect, "channel", HashedWatchers())
    monkeypatch.setattr(asyncio, "sleep", noted)
    hints.open()
    await enough
    await hints.close()
    assert pauses == [0.05, 0.1, 0.2, 0.4]


async def test_what_changes_while_no_one_can_be_told_is_told_later(
    url: str, eavesdropper: Eavesdropper
) -> None:
    async with PostgresEngine(url) as engine:
        await eavesdropper.next()
        await eavesdropper.say("there")
        assert [await eavesdropper.next() for _ in range(2)] == ["there", "*"]
        admin = await Link.connect(engine.target)
        await admin.fetch(CUT_OTHERS)
        await engine.commit([Put(("p", "a"), b"1")], 0)
        assert await eavesdropper.next() == "hello"
        assert await eavesdropper.next() in ("*", hash_of("p"))
        await admin.close()


async def test_a_long_silence_makes_a_node_think_that_it_is_alone(
    url: str, monkeypatch: pytest.MonkeyPatch, eavesdropper: Eavesdropper
) -> None:
    monkeypatch.setattr(limits, "LISTEN_S_MAX", 0.02)
    async with PostgresEngine(url) as engine:
        hints: Hints = engine._hints
        assert await eavesdropper.next() == "hello"
        await eavesdropper.say("there")
        while hints.alone:
            await eavesdropper.next()
        while not hints.alone:
            await eavesdropper.next()
