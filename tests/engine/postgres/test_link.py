"""Connections: how a URL is read, and how those that are lost are replaced."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from onceward import limits
from onceward.engine.postgres.link import Crowded, Link, Links, Lost, Rejected, Target
from onceward.errors import BadInput, CannotOpen, Unavailable
from onceward.testing.postgres import PostgresServer


def test_the_schema_is_ours_and_the_rest_of_the_query_the_drivers() -> None:
    target = Target.parse("postgresql://u:pw@db.example:5433/app?schema=mine&sslmode=require")
    assert target.schema == "mine"
    assert target.dsn == "postgresql://u:pw@db.example:5433/app?sslmode=require"
    assert target.label == "db.example:5433/app (schema mine)"


def test_without_a_schema_it_is_onceward() -> None:
    target = Target.parse("postgresql:///app?host=/run/postgresql")
    assert target.schema == "onceward"
    assert target.dsn == "postgresql:///app?host=%2Frun%2Fpostgresql"
    assert target.label == "the local server/app (schema onceward)"


@pytest.mark.parametrize(
    "schema", ["", "Upper", "a-b", "pg_mine", "a;b", "1a", "é", "a" * 49, 'a"b', "a b"]
)
def test_a_schema_that_needs_quotes_is_refused(schema: str) -> None:
    with pytest.raises(BadInput) as refused:
        Target.parse(f"postgresql://host/db?schema={schema}")
    assert refused.value.code == "bad_engine_url"


async def test_a_url_that_the_driver_does_not_understand_is_a_bad_url() -> None:
    with pytest.raises(BadInput) as refused:
        await Link.connect(Target.parse("postgresql://host:port/db"))
    assert refused.value.code == "bad_engine_url"


async def test_when_no_host_is_a_primary_there_is_no_connection(server: PostgresServer) -> None:
    with pytest.raises(CannotOpen, match="target attribute") as refused:
        await Link.connect(Target.parse(f"{server.url}?target_session_attrs=standby"))
    assert refused.value.code == "engine_unreachable"


async def test_a_certificate_that_does_not_convince_is_not_a_bad_url(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*arguments: Any, **options: Any) -> Any:
        raise ssl.SSLCertVerificationError("it has expired")

    monkeypatch.setattr("asyncpg.connect", refuse)
    with pytest.raises(CannotOpen, match="has expired") as refused:
        await Link.connect(Target.parse(server.url))
    assert refused.value.code == "engine_unreachable"


async def test_an_error_of_the_server_leaves_the_link_usable(server: PostgresServer) -> None:
    link = await Link.connect(Target.parse(server.url))
    with pytest.raises(Rejected, match="division by zero") as refused:
        await link.fetch("SELECT 1 / 0")
    assert refused.value.sqlstate == "22012"
    with pytest.raises(Rejected):
        await link.fetch("SELECT $1::int", "no number")
    assert [tuple(row) for row in await link.fetch("SELECT 1")] == [(1,)]
    await link.close()
    assert link.closed


async def test_a_backend_that_is_told_to_stop_leaves_the_outcome_unknown(
    server: PostgresServer,
) -> None:
    link, other = [await Link.connect(Target.parse(server.url)) for _ in range(2)]
    pending = asyncio.create_task(link.fetch("SELECT pg_advisory_lock(1), pg_sleep(60)"))
    query = "SELECT pg_terminate_backend($1) FROM pg_locks WHERE locktype = 'advisory'"
    while not await other.fetch(query, link._connection.get_server_pid()):
        pass
    with pytest.raises(Lost, match="terminating"):
        await pending
    assert link.closed
    await other.close()


@pytest.mark.parametrize("sqlstate", ["08006", "08P01", "40003"])
async def test_an_error_that_does_not_say_what_became_of_it_leaves_the_outcome_unknown(
    server: PostgresServer, sqlstate: str
) -> None:
    link = await Link.connect(Target.parse(server.url))
    with pytest.raises(Lost, match="who knows"):
        await link.run(f"DO $$BEGIN RAISE 'who knows' USING ERRCODE = '{sqlstate}'; END$$")
    assert link.closed


async def test_an_answer_that_does_not_come_in_time_is_lost(server: PostgresServer) -> None:
    link = await Link.connect(Target.parse(server.url), answer_s=0.2)
    with pytest.raises(Lost) as lost:
        await link.fetch("SELECT pg_sleep(60)")
    assert lost.value.timed_out
    assert link.closed


async def test_a_cancelled_statement_takes_its_link_along(server: PostgresServer) -> None:
    link = await Link.connect(Target.parse(server.url))
    pending = asyncio.create_task(link.fetch("SELECT pg_sleep(60)"))
    await asyncio.sleep(0)
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending
    assert link.closed


async def test_the_server_gives_up_a_statement_before_the_caller_does(
    server: PostgresServer,
) -> None:
    link = await Link.connect(Target.parse(server.url))
    [(statement, lock)] = await link.fetch("""
        SELECT current_setting('statement_timeout'), current_setting('lock_timeout')
    """)
    assert (statement, lock) == ("10s", "5s")
    assert limits.STATEMENT_MS / 1e3 < limits.ANSWER_S
    await link.close()


class FakeLink:
    """As much of a link as `Links` uses."""

    def __init__(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    def drop(self) -> None:
        self.closed = True


class Source:
    """Makes links, or not."""

    def __init__(self) -> None:
        self.made: list[FakeLink] = []
        self.up = True
        self.error: CannotOpen | None = None
        self.tries = 0
        self.tried = asyncio.Event()

    async def make(self) -> Any:
        self.tries += 1
        self.tried.set()
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if not self.up:
            raise CannotOpen("the server is away.", code="engine_unreachable")
        self.made.append(FakeLink())
        return self.made[-1]


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECONNECT_S_MIN", 0.001)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_links_are_made_as_needed_and_used_again() -> None:
    source = Source()
    links: Links[Any] = Links(source.make, 2)
    one = await links.take()
    links.give(one)
    assert await links.take() is one
    assert await links.take() is source.made[1]
    assert len(source.made) == 2


async def test_who_waits_longest_is_served_first() -> None:
    source = Source()
    links: Links[Any] = Links(source.make, 1)
    link = await links.take()
    order: list[int] = []

    async def use(number: int) -> None:
        taken = await links.take()
        order.append(number)
        links.give(taken)

    tasks = [asyncio.create_task(use(number)) for number in range(3)]
    await asyncio.sleep(0)
    links.give(link)
    await use(3)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3]


async def test_a_link_that_was_lost_makes_room_for_another() -> None:
    source = Source()
    links: Links[Any] = Links(source.make, 1)
    link = await links.take()
    waiting = asyncio.create_task(links.take())
    await asyncio.sleep(0)
    link.closed = True
    links.give(link)
    assert await waiting is source.made[1]
    links.give(source.made[1])
    source.made[1].closed = True
    assert await links.take() is source.made[2]


async def test_who_gives_up_waiting_leaves_the_link_to_the_next() -> None:
    source = Source()
    links: Links[Any] = Links(source.make, 1)
    link = await links.take()
    first, second = asyncio.create_task(links.take()), asyncio.create_task(links.take())
    await asyncio.sleep(0)
    links.give(link)
    first.cancel()
    assert await second is link
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_while_the_server_is_away_all_are_told_so_at_once(quickly: None) -> None:
    source = Source()
    links: Links[Any] = Links(source.make, 1)
    link = await links.take()
    waiting = asyncio.create_task(links.take())
    await asyncio.sleep(0)
    source.up = False
    link.closed = True
    links.give(link)
    with pytest.raises(Unavailable, match="away") as away:
        await waiting
    assert away.value.code == "engine_unreachable"
    tries = source.tries
    with pytest.raises(Unavailable, match="Nothing was changed"):
        await links.take()
    assert source.tries == tries, "no one asks a server that is known to be away"
    await links.close()


async def test_links_are_back_as_soon_as_the_server_is(quickly: None) -> None:
    source = Source()
    source.up = False
    links: Links[Any] = Links(source.make, 1)
    with pytest.raises(Unavailable):
        await links.take()
    await until(lambda: source.tries > 2)
    source.up = True
    await until(lambda: bool(source.made))
    await asyncio.sleep(0)
    assert await links.take() is source.made[0]
    links.give(source.made[0])
    await links.close()
    assert source.made[0].closed


async def test_whatever_goes_wrong_with_a_connection_is_got_over(quickly: None) -> None:
    link = FakeLink()
    errors = [ZeroDivisionError("a mistake"), KeyError("another"), BadInput("no such file")]

    async def make() -> Any:
        if errors:
            raise errors.pop(0)
        return link

    links: Links[Any] = Links(make, 1)
    with pytest.raises(Unavailable, match="a mistake"):
        await links.take()
    while True:
        try:
            assert await links.take() is link
            break
        except Unavailable:
            await asyncio.sleep(0)
    await links.close()


async def test_when_there_is_no_room_for_more_links_those_that_there_are_are_shared() -> None:
    source = Source()
    links: Links[Any] = Links(source.make, 3)
    link = await links.take()
    source.error = Crowded("no room.")
    waiting = [asyncio.create_task(links.take()) for _ in range(2)]
    await until(lambda: len(links._waiting) == 2)
    tries = source.tries
    for take in waiting:
        links.give(link)
        assert await take is link
    late = asyncio.create_task(links.take())
    await until(lambda: len(links._waiting) == 1)
    assert source.tries == tries, "a full server is not asked all the time"
    link.closed = True
    links.give(link)
    with pytest.raises(Unavailable, match="no room"):
        await late
    await links.close()


async def test_a_link_given_back_while_another_could_not_be_made_is_taken() -> None:
    source = Source()
    links: Links[Any] = Links(source.make, 2)
    link = await links.take()
    source.error = Crowded("no room.")
    waiting = asyncio.create_task(links.take())
    await until(lambda: source.tries == 2)
    links.give(link)
    assert await waiting is link
    await links.close()


async def test_a_server_that_is_full_says_so(server: PostgresServer, schema: str) -> None:
    link = await Link.connect(Target.parse(server.url))
    await link.run(f"CREATE ROLE {schema} LOGIN CONNECTION LIMIT 1")
    target = Target.parse(server.url.replace("postgres@", f"{schema}@"))
    only = await Link.connect(target)
    with pytest.raises(Crowded, match="no further connections"):
        await Link.connect(target)
    await only.close()
    await link.close()


async def test_pauses_between_tries_grow_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            enough.set_result(None)
            await asyncio.Event().wait()

    async def away() -> Any:
        raise CannotOpen("the server is away.", code="engine_unreachable")

    links: Links[Any] = Links(away, 1)
    monkeypatch.setattr(asyncio, "sleep", noted)
    with pytest.raises(Unavailable):
        await links.take()
    await enough
    await links.close()
    assert pauses[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert set(pauses[5:]) == {limits.RECONNECT_S_MAX}


async def test_closing_ends_all_links_and_all_waiting() -> None:
    source = Source()
    links: Links[Any] = Links(source.make, 2)
    out, idle = await links.take(), await links.take()
    waiting = asyncio.create_task(links.take())
    await asyncio.sleep(0)
    links.give(idle)
    assert await waiting is idle
    waiting = asyncio.create_task(links.take())
    await asyncio.sleep(0)
    await links.close()
    for take in (waiting, links.take()):
        with pytest.raises(Unavailable) as refused:
            await take
        assert refused.value.code == "engine_closed"
    for link in (out, idle):
        links.give(link)
        assert link.closed, "what was out is closed when it comes back"


async def test_a_link_that_cannot_be_made_after_closing_is_not_tried_again() -> None:
    source = Source()
    source.up = False
    links: Links[Any] = Links(source.make, 1)
    taking = asyncio.create_task(links.take())
    await until(lambda: source.tries == 1)
    await links.close()
    with pytest.raises(Unavailable):
        await taking
    assert links._healing is None


async def test_closing_that_is_cut_off_leaves_no_link_open() -> None:
    class Slow(FakeLink):
        async def close(self) -> None:
            await asyncio.Event().wait()

    async def make() -> Any:
        return Slow()

    links: Links[Any] = Links(make, 2)
    taken = [await links.take(), await links.take()]
    for link in taken:
        links.give(link)
    closing = asyncio.create_task(links.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert [link.closed for link in taken] == [True, True]
