"""Whatever a program hands to an application by mistake: a clear error, and nothing is written."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onceward.api import room_changes as op
from onceward.app import App
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput, NoSuchJob, OncewardError, Unavailable
from onceward.keys import Key, kind_of
from onceward.recurrence import Interval
from onceward.store.transaction import Transaction
from onceward.tables import Policy
from onceward.webhooks import endpoints
from onceward.webhooks.delivery import Outward
from onceward.webhooks.timers import Call, Send, Spec
from tests.schedule.jobs import all_records

NAN, INF = float("nan"), float("inf")
NO_TEXT: list[Any] = [None, 5, True, 1.5, b"x", ["x"], {"x": 1}, {"x"}, ()]
NO_NUMBER: list[Any] = [None, "5", b"5", [5], {}, NAN]
NO_WHOLE: list[Any] = [*NO_NUMBER, True, 1.5, INF]
NO_SECONDS: list[Any] = [*NO_NUMBER, True, INF, -1, 10**30]
BAD_PAUSES: list[Any] = [*NO_SECONDS, 0, 10**7]
NO_TX: list[Any] = [5, True, "tx", [], {}, MemoryEngine()]
NO_FUNCTION: list[Any] = ["f", 5, [], {}]
NO_LIST: list[Any] = [None, 5, "xy", b"xy", {}]
BAD_TAGS: list[Any] = [
    *("red", "", b"red", 5, True, {}, {"red"}, iter(["red"])),
    *([""], [None], ["a", "a"], ["x" * 65], ["a\n"], ["\ud800"], list("abcdefghijk")),
]
SECRET = "whsec_" + "A" * 43 + "="
URL = "https://example.com/x"
LATER = {"delay_s": 1_000_000}
POLICIES: list[dict[str, Any]] = [
    *({"kind": "x"}, {"draw": None}, {"rated": 1}, {"opens": "yes"}, {"ladder": None}),
    *({"seats": {"X": 1, "O": 2}}, {"lanes": 5}, {"tiers": ""}, {"bots": None}),
]
Told = Callable[[App, Any], Awaitable[Any]]


def but(values: list[Any], *others: Any) -> list[Any]:
    """The values without those that mean something where they are tried."""
    return [value for value in values if not any(value is other for other in others)]


def in_tx(call: Callable[[Transaction], Awaitable[Any]], app: App) -> Awaitable[Any]:
    return app.store.run(call)


BAD: dict[str, tuple[Told, list[Any]]] = {
    "send: queue": (lambda app, v: app.send(v, 1, key="k"), NO_TEXT),
    "send: key": (lambda app, v: app.send("q", 1, key=v), NO_TEXT[1:]),
    "send: caller": (lambda app, v: app.send("q", 1, key="k", caller=v), NO_TEXT),
    "send: delay": (lambda app, v: app.send("q", 1, key="k", delay_s=v), NO_SECONDS),
    "send: tags": (lambda app, v: app.send("q", 1, tags=v), BAD_TAGS),
    "timers.set: tags": (lambda app, v: app.timers.set(queue="q", tags=v, **LATER), BAD_TAGS),
    "timers.set: tags of a call": (
        lambda app, v: app.timers.set(url=URL, tags=v, **LATER),
        [["a"]],
    ),
    "send: option": (lambda app, v: app.send("q", 1, key="k", **{v: 1}), ["colour", "body_"]),
    "send_many: queue": (lambda app, v: app.send_many(v, []), NO_TEXT),
    "send_many: messages": (lambda app, v: app.send_many("q", v), NO_LIST),
    "send_many: once to be had": (
        lambda app, v: app.send_many("q", (m for m in [v])),  # type: ignore[arg-type]
        [{"body": 1, "key": "k"}],
    ),
    "send: queue without a key": (lambda app, v: app.send(v, 1), NO_TEXT),
    "send: caller without a key": (lambda app, v: app.send("q", 1, caller=v), NO_TEXT),
    "send: option without a key": (lambda app, v: app.send("q", 1, **{v: 1}), ["colour", "delay"]),
    "send: delay without a key": (lambda app, v: app.send("q", 1, delay_s=v), NO_SECONDS),
    "send: transaction": (lambda app, v: app.send("q", 1, key="k", tx=v), NO_TX),
    "send: transaction without a key": (lambda app, v: app.send("q", 1, tx=v), NO_TX),
    "job: transaction": (lambda app, v: app.job("x", tx=v), NO_TX),
    "cancel: transaction": (lambda app, v: app.cancel("x", tx=v), NO_TX),
    "timers: transaction": (lambda app, v: app.timers.get("t", tx=v), NO_TX),
    "job": (lambda app, v: app.job(v), NO_TEXT),
    "wait": (lambda app, v: app.wait(v, 0), NO_TEXT),
    "wait: for": (lambda app, v: app.wait("x", v), but(NO_SECONDS, None)),
    "cancel": (lambda app, v: app.cancel(v), NO_TEXT),
    "move": (lambda app, v: app.move(v), NO_TEXT),
    "claim: queue": (lambda app, v: app.claim(v, "w", lease_s=1), NO_TEXT),
    "claim: worker": (lambda app, v: app.claim("q", v, lease_s=1), NO_TEXT),
    "claim: lease": (lambda app, v: app.claim("q", "w", lease_s=v), NO_SECONDS),
    "claim: max": (lambda app, v: app.claim("q", "w", lease_s=1, max=v), NO_WHOLE),
    "claim: wait": (lambda app, v: app.claim("q", "w", lease_s=1, wait_s=v), NO_SECONDS),
    "complete": (lambda app, v: app.complete(v, "t"), NO_TEXT),
    "fail": (lambda app, v: app.fail(v, "t", "why"), NO_TEXT),
    "extend": (lambda app, v: app.extend(v, "t", 1), NO_TEXT),
    "run": (lambda app, v: app.run(v), [None, *NO_FUNCTION]),
    "run: line": (lambda app, v: app.run(_nothing, line=v), but(NO_TEXT, None)),
    "queues: settings": (
        lambda app, v: app.queues.configure("q", failure_queue=v),
        ["\ud800", 5, []],
    ),
    "queues: pause": (lambda app, v: app.queues.configure("q", retry_first_s=v), BAD_PAUSES),
    "queues: names": (lambda app, v: app.queues.configure("q", **{v: 1}), ["retry_first_ms", "x"]),
    "queues: failed": (lambda app, v: app.queues.failed("q", limit=v), NO_WHOLE),
    "queues: progress": (lambda app, v: app.queues.purge("q", progress=v), [None, *NO_FUNCTION]),
    "queues: retry": (lambda app, v: app.queues.retry(v), NO_TEXT),
    "queues: settle": (lambda app, v: app.queues.settle(v, "call", done=True), NO_TEXT),
    "timers: id": (lambda app, v: app.timers.set(v, queue="q", **LATER), but(NO_TEXT, None)),
    "timers: caller": (
        lambda app, v: app.timers.set("t", queue="q", caller=v, **LATER),
        NO_TEXT,
    ),
    "timers: key": (
        lambda app, v: app.timers.set(queue="q", key=v, **LATER),
        but(NO_TEXT, None),
    ),
    "timers: url": (lambda app, v: app.timers.set("t", url=v, **LATER), NO_TEXT),
    "timers: endpoint": (lambda app, v: app.timers.set("t", endpoint=v, **LATER), NO_TEXT),
    "timers: headers": (
        lambda app, v: app.timers.set("t", url=URL, headers=v, **LATER),
        ["x", 5, ["x"], {"x": 5}, {5: "x"}, {"x": None}, {"x": "\n"}],
    ),
    "timers: append_id": (
        lambda app, v: app.timers.set("t", url=URL, append_id=v, **LATER),
        [None, 1, 0, "yes", []],
    ),
    "timers: delay": (
        lambda app, v: app.timers.set("t", queue="q", delay_s=v),
        NO_SECONDS,
    ),
    "timers: time": (lambda app, v: app.timers.set("t", queue="q", at_ms=v), NO_WHOLE),
    "timers: interval": (
        lambda app, v: app.timers.set("t", queue="q", every_s=v),
        NO_SECONDS,
    ),
    "timers: spec": (lambda app, v: app.timers.put(v, "t"), [None, {}, "t", Send("q")]),
    "timers: target": (
        lambda app, v: app.timers.put(Spec(v, delay_ms=1), "t"),
        [None, {}, "q", Interval(5, 0)],
    ),
    "timers: call": (
        lambda app, v: app.timers.put(Spec(Call(**v), delay_ms=1), "t"),
        [{"url": URL, "endpoint": None}, {"endpoint": 5}, {"url": URL, "headers": None}],
    ),
    "timers: repeat": (
        lambda app, v: app.timers.put(Spec(Send("q"), repeat=v), "t"),
        [5, "@daily", Send("q")],
    ),
    "timers: get": (lambda app, v: app.timers.get(v), NO_TEXT),
    "timers: get of": (lambda app, v: app.timers.get("t", caller=v), NO_TEXT),
    "timers: move": (lambda app, v: app.timers.move(v, delay_s=1), NO_TEXT),
    "timers: cancel": (lambda app, v: app.timers.cancel(v), NO_TEXT),
    "timers: find": (lambda app, v: app.timers.find(limit=v), NO_WHOLE),
    "timers: prefix": (lambda app, v: app.timers.find(prefix=v), [["x"], {"x"}, b"x", 1.5, True]),
    "locks: find": (lambda app, v: app.locks.find(limit=v), [*NO_WHOLE, 0, -1, 10**9]),
    "locks: after": (lambda app, v: app.locks.find(after=v), [["x"], {"x"}, b"x", 1.5, True]),
    "rooms: schemas": (
        lambda app, v: in_tx(lambda tx: app.rooms.create(tx, "new", schemas=v), app),
        ["x", 5, ["x"], {"maps": {}}],
    ),
    "rooms: other schemas": (
        lambda app, v: in_tx(lambda tx: app.rooms.configure(tx, "r", schemas=v), app),
        ["", "x", (), [], 0, {"maps": {}}],
    ),
    "rooms: step": (lambda app, v: in_tx(lambda tx: app.rooms.change(tx, "r", v), app), NO_LIST),
    "rooms: client": (
        lambda app, v: in_tx(lambda tx: app.rooms.change(tx, "r", STEP, client=v, n=1), app),
        NO_TEXT,
    ),
    "rooms: number": (
        lambda app, v: in_tx(lambda tx: app.rooms.change(tx, "r", STEP, n=v), app),
        [*NO_WHOLE, -1, 10**30],
    ),
    "rooms: amount": (
        lambda app, v: in_tx(lambda tx: app.rooms.map_add(tx, "r", "m", "k", v), app),
        [True, False, None, "1", [1], {}],
    ),
    "rooms: map": (lambda app, v: in_tx(lambda tx: app.rooms.map(tx, "r", v), app), NO_TEXT),
    "rooms: map get": (
        lambda app, v: in_tx(lambda tx: app.rooms.map_get(tx, "r", v, "k"), app),
        NO_TEXT,
    ),
    "rooms: key": (
        lambda app, v: in_tx(lambda tx: app.rooms.map_get(tx, "r", "m", v), app),
        NO_TEXT,
    ),
    "rooms: list": (lambda app, v: in_tx(lambda tx: app.rooms.list(tx, "r", v), app), NO_TEXT),
    "rooms: insert": (
        lambda app, v: in_tx(lambda tx: app.rooms.list_insert(tx, "r", v, 0, 1), app),
        NO_TEXT,
    ),
    "rooms: position": (
        lambda app, v: in_tx(
            lambda tx: app.rooms.change(tx, "r", [op.ListInsert("l", "i", 1, at=v)]), app
        ),
        but(NO_TEXT, None),
    ),
    "rooms: look": (
        lambda app, v: in_tx(lambda tx: app.rooms.peek(tx, "r", v), app),
        [None, *NO_FUNCTION],
    ),
    "rooms: log": (lambda app, v: in_tx(lambda tx: app.rooms.log(tx, "r", v), app), NO_WHOLE),
    "rooms: log of": (
        lambda app, v: in_tx(lambda tx: app.rooms.log(tx, "r", 0, v), app),
        NO_WHOLE,
    ),
    "rooms: as it was": (
        lambda app, v: in_tx(lambda tx: app.rooms.load(tx, "r", v), app),
        but(NO_WHOLE, None),
    ),
    "rooms: found by": (
        lambda app, v: in_tx(lambda tx: app.rooms.find(tx, meta=v), app),
        ["x", 5, ["x"]],
    ),
    "tables: id": (lambda app, v: app.tables.pause(v), NO_TEXT),
    "tables: game": (lambda app, v: app.tables.create("new", game=v), NO_TEXT),
    "tables: by": (lambda app, v: app.tables.create("new", by=v), NO_TEXT),
    "tables: policy": (
        lambda app, v: app.tables.create("new", policy=Policy(**v)),
        POLICIES,
    ),
    "tables: rules": (
        lambda app, v: app.tables.create("new", policy=v),
        [
            *({"draw": "\ud800"}, {"ladder": "\ud800"}, "x", 5, {"turn_ms": 1_000}, {"turns": 1}),
            *({"turn_s": value} for value in ("1", True, -1, INF, 10**9, [1])),
        ],
    ),
    "tables: party": (lambda app, v: app.tables.join("t", "ann", party=v), NO_LIST[:4]),
    "tables: turn": (lambda app, v: app.tables.turn("t", v), [None, 5, "ann"]),
    "tables: users": (lambda app, v: app.tables.run("t", _nothing, v), [None, 5, "ann"]),
    "tables: heartbeat": (lambda app, v: app.tables.heartbeat("t", v), [None, 5, "ann"]),
    "tables: run": (lambda app, v: app.tables.run("t", v), [None, *NO_FUNCTION]),
    "tables: leaders": (
        lambda app, v: app.tables.leaders("l", after=v),
        [5, "x", (), (1, 2), (1.5, "x"), (1, "x", 3)],
    ),
    "games: rules": (lambda app, v: _call(app.games.rules, v), NO_TEXT),
    "games: view": (lambda app, v: _call(app.games.view, v), NO_TEXT),
    "games: at": (lambda app, v: in_tx(lambda tx: app.games.at(tx, v), app), NO_TEXT),
    "endpoints: id": (
        lambda app, v: in_tx(lambda tx: endpoints.put(tx, v, URL, SECRET), app),
        NO_TEXT,
    ),
    "endpoints: caller": (
        lambda app, v: in_tx(lambda tx: endpoints.put(tx, "e", URL, SECRET, caller=v), app),
        NO_TEXT,
    ),
    "endpoints: url": (
        lambda app, v: in_tx(lambda tx: endpoints.put(tx, "e", v, SECRET), app),
        NO_TEXT,
    ),
    "endpoints: secret": (
        lambda app, v: in_tx(lambda tx: endpoints.put(tx, "e", URL, v), app),
        NO_TEXT,
    ),
    "endpoints: headers": (
        lambda app, v: in_tx(lambda tx: endpoints.put(tx, "e", URL, SECRET, headers=v), app),
        ["x", 5, ["x"], {"x": 5}, {5: "x"}, {"host": "x"}],
    ),
    "endpoints: description": (
        lambda app, v: in_tx(lambda tx: endpoints.put(tx, "e", URL, SECRET, description=v), app),
        NO_TEXT,
    ),
    "endpoints: disabled": (
        lambda app, v: in_tx(lambda tx: endpoints.put(tx, "e", URL, SECRET, disabled=v), app),
        [None, 1, "yes", []],
    ),
    "endpoints: overlap": (
        lambda app, v: in_tx(lambda tx: endpoints.rotate(tx, "known", SECRET, overlap_ms=v), app),
        [*NO_WHOLE, -1],
    ),
}
STEP = [op.MapSet("m", "k", 1)]


async def _nothing(tx: Transaction) -> None: ...


async def _call(call: Callable[[Any], Any], value: Any) -> Any:
    return call(value)


def kept(engine: MemoryEngine) -> dict[Key, Any]:
    """All records but those by which a node says that it is there."""
    found = all_records(engine)
    return {key: value for key, value in found.items() if kind_of(key[0]) not in ("node", "slot")}


@pytest.mark.parametrize("name", BAD)
async def test_what_cannot_be_meant_is_told_at_once_and_nothing_is_written(name: str) -> None:
    engine = MemoryEngine()
    call, values = BAD[name]
    async with App(engine, slots=4, outward=Outward()) as app:
        await app.run(lambda tx: app.rooms.create(tx, "r"))
        await app.store.run(lambda tx: endpoints.put(tx, "known", URL, SECRET))
        await app.tables.create("t")
        before = kept(engine)
        for value in values:
            with pytest.raises(OncewardError) as raised:
                async with asyncio.timeout(10):
                    await call(app, value)
            assert raised.value.kind.status < 500, value
            assert len(raised.value.message) > 10
            assert kept(engine) == before, value


@pytest.mark.parametrize("reason", [None, 5, b"x", ["x"], {}])
async def test_a_reason_that_is_no_text_ends_no_job(reason: Any) -> None:
    async with App(MemoryEngine()) as app:
        id_ = (await app.send("q", 1)).id
        async with asyncio.timeout(10):
            [claim] = await app.claim("q", "w", lease_s=10)
        for call in (app.cancel(id_, reason), app.fail(id_, claim.token, reason)):
            with pytest.raises(BadInput, match="a reason must be text"):
                await call
        assert (await app.job(id_)).state == "running"
        await app.complete(id_, claim.token)


async def test_who_goes_on_after_a_bad_reason_has_cancelled_nothing() -> None:
    async with App(MemoryEngine()) as app:
        id_ = (await app.send("q", 1)).id

        async def fn(tx: Transaction) -> None:
            with pytest.raises(BadInput):
                await app.cancel(id_, 5, tx=tx)  # type: ignore[arg-type]
            tx.put(("a", "b"), 1)

        await app.run(fn)
        assert (await app.job(id_)).state == "queued"
        assert len(await app.claim("q", "w", lease_s=10)) == 1


@pytest.mark.parametrize("id_", NO_TEXT)
async def test_what_is_no_text_is_the_id_of_no_job(id_: Any) -> None:
    async with App(MemoryEngine()) as app:
        for call in (app.job(id_), app.wait(id_), app.complete(id_, "t")):
            with pytest.raises(NoSuchJob, match="is not a job id"):
                await call


MADE: dict[str, dict[str, Any]] = {
    "no database": {"url": None},
    "a number for a database": {"url": 5},
    "a name": {"name": None},
    "bytes for a name": {"name": b"app"},
    "a list for a name": {"name": ["app"]},
    "slots": {"slots": "4"},
    "no slots": {"slots": None},
    "true for slots": {"slots": True},
    "half a slot": {"slots": 1.5},
    "too few slots": {"slots": 0},
    "too many slots": {"slots": 10**9},
    "a lease": {"node_lease_s": "30"},
    "true for a lease": {"node_lease_s": True},
    "a time to drain": {"drain_s": None},
    "outward": {"outward": True},
    "a store": {"store": None},
}


@pytest.mark.parametrize("options", MADE.values(), ids=MADE)
def test_an_application_is_made_of_what_can_be_meant(options: dict[str, Any]) -> None:
    url = options.pop("url") if "url" in options else MemoryEngine()
    with pytest.raises(BadInput):
        App(url, **options)


PARTS = ("queues", "locks", "timers", "rooms", "games", "tables", "seats", "hub", "store", "node")


@pytest.mark.parametrize("part", [*PARTS, "inbox", "senders", "delivery", "meters"])
def test_what_comes_with_the_start_says_so_before(part: str) -> None:
    app = App(MemoryEngine())
    with pytest.raises(Unavailable, match="use it within `async with app`") as raised:
        getattr(app, part)
    assert raised.value.code == "node_stopped"
    with pytest.raises(AttributeError, match="has no attribute 'timer'"):
        app.timer  # type: ignore[attr-defined]  # noqa: B018


async def test_an_application_that_runs_cannot_be_started() -> None:
    async with App(MemoryEngine()) as app:
        with pytest.raises(BadInput, match="is already running"):
            await app.start()
        assert (await app.send("q", 1)).id


async def test_another_event_loop_is_told_where_the_application_runs() -> None:
    async with App(MemoryEngine()) as app:

        def elsewhere(call: Callable[[], Awaitable[Any]]) -> str:
            async def main() -> None:
                await call()

            with pytest.raises(BadInput, match="in another event loop") as raised:
                asyncio.run(main())
            return raised.value.message

        for call in (lambda: app.send("q", 1, key="k"), lambda: app.send("q", 1), app.stop):
            assert "run_coroutine_threadsafe" in await asyncio.to_thread(elsewhere, call)
        assert (await app.send("q", 1)).id
