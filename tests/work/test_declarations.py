"""What is declared is checked when it is declared, not when it is too late."""

from typing import Any, cast

import pytest

from onceward.app import App
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput
from tests.tables.games.playing import Nim


async def nothing(job: Any) -> None: ...


BAD: dict[str, Any] = {
    "queue: name": lambda app: app.queue("no such name"),
    "queue: setting": lambda app: app.queue("q", nonsense=1),
    "queue: value": lambda app: app.queue("q", limit=-1),
    "queue: kind": lambda app: app.queue("q", paused=object()),
    "queue: pause in ms": lambda app: app.queue("q", retry_first_ms=1_000),
    "queue: no pause": lambda app: app.queue("q", retry_first_s=0),
    "queue: negative pause": lambda app: app.queue("q", retry_first_s=-1),
    "queue: pause in words": lambda app: app.queue("q", retry_first_s="1"),
    "queue: true pause": lambda app: app.queue("q", retry_max_s=True),
    "queue: list of pauses": lambda app: app.queue("q", retry_first_s=[1]),
    "queue: first pause above the longest": lambda app: app.queue("q", retry_max_s=0.5),
    "queue: endless retention": lambda app: app.queue("q", job_retention_s=float("inf")),
    "handler: queue": lambda app: app.handler("")(nothing),
    "handler: lease": lambda app: app.handler("q", lease_s=0)(nothing),
    "handler: no lease": lambda app: app.handler("q", lease_s=float("nan"))(nothing),
    "handler: long lease": lambda app: app.handler("q", lease_s=10**9)(nothing),
    "handler: concurrency": lambda app: app.handler("q", concurrency=0)(nothing),
    "handler: batch": lambda app: app.handler("q", batch=17)(nothing),
    "handler: negative batch": lambda app: app.handler("q", batch=-1)(nothing),
    "handler: pause in ms": lambda app: app.handler("q", retry_first_ms=1_000)(nothing),
    "handler: old name": lambda app: app.handler("q", attempts=3)(nothing),
    "handler: attempts": lambda app: app.handler("q", attempts_max=-1)(nothing),
    "handler: setting": lambda app: app.handler("q", nonsense=1)(nothing),
    "handler: no function": lambda app: app.handler("q")("nothing"),
    "handler: list of queues": lambda app: app.handler(["q"])(nothing),
    "handler: true lease": lambda app: app.handler("q", lease_s=True)(nothing),
    "handler: any concurrency": lambda app: app.handler("q", concurrency=None)(nothing),
    "handler: half a concurrency": lambda app: app.handler("q", concurrency=1.5)(nothing),
    "handler: endless concurrency": lambda app: app.handler("q", concurrency=float("inf"))(nothing),
    "handler: concurrency in words": lambda app: app.handler("q", concurrency="two")(nothing),
    "handler: true batch": lambda app: app.handler("q", batch=True)(nothing),
    "handler: half a batch": lambda app: app.handler("q", batch=1.5)(nothing),
    "handler: half a character": lambda app: app.handler("q", failure_queue="\ud800")(nothing),
    "outbox: no function": lambda app: app.outbox("q")("nothing"),
    "outbox: asks nothing": lambda app: app.outbox("q", policy="hold", ask=5)(nothing),
    "outbox: policy": lambda app: app.outbox("q", policy="never")(nothing),
    "outbox: ask": lambda app: app.outbox("q", ask=nothing)(nothing),
    "outbox: batch": lambda app: app.outbox("q", batch=5)(nothing),
    "outbox: setting": lambda app: app.outbox("q", nonsense=5)(nothing),
    "every: queue": lambda app: app.every(1, "no such name"),
    "every: time": lambda app: app.every(0, "q"),
    "every: no time": lambda app: app.every(float("nan"), "q"),
    "every: long time": lambda app: app.every(10**12, "q"),
    "every: body": lambda app: app.every(1, "q", object()),
    "every: order key": lambda app: app.every(1, "q", order_key=""),
    "every: name": lambda app: app.every(1, "q", name="x" * 1_000),
    "every: half a character": lambda app: app.every(1, "q", name="\ud800"),
    "every: number for a name": lambda app: app.every(1, "q", name=5),
    "every: bytes for a name": lambda app: app.every(1, "q", name=b"x"),
    "every: true": lambda app: app.every(True, "q"),
    "cron: list for a name": lambda app: app.cron("@daily", "q", name=["x"]),
    "game: late": lambda app: app.game(Nim(), late=5),
    "mount: prefix": lambda app: app.mount(None, nothing),
    "mount: bytes": lambda app: app.mount(b"/shop", nothing),
    "mount: nothing": lambda app: app.mount("/shop", None),
    "cron: nonsense": lambda app: app.cron("at noon", "q"),
    "cron: zone": lambda app: app.cron("@daily", "q", zone="Nowhere"),
    "cron: queue": lambda app: app.cron("@daily", "no such name"),
}


@pytest.mark.parametrize("declare", BAD.values(), ids=BAD)
async def test_what_cannot_be_meant_is_refused_and_the_rest_still_starts(declare: Any) -> None:
    app = App(MemoryEngine())
    with pytest.raises(BadInput):
        declare(app)
    app.handler("q")(nothing)
    async with app:
        assert app.node.queue_settings.names() == []


def test_a_queue_has_one_handler() -> None:
    app = App(MemoryEngine())
    app.handler("q", limit=1)(nothing)
    with pytest.raises(BadInput, match="already has a handler"):
        app.handler("q", limit=2)
    with pytest.raises(BadInput, match="already has a handler"):
        app.outbox("q")
    later = app.handler("r")
    app.handler("r")(nothing)
    with pytest.raises(BadInput, match="already has a handler"):
        later(nothing)
    assert app._declared.settings["q"] == {"limit": 1}


def test_a_name_recurs_once() -> None:
    app = App(MemoryEngine())
    app.every(1, "q")
    app.every(1, "q", name="other")
    with pytest.raises(BadInput, match="two recurring jobs have the id every:q"):
        app.every(2, "q")


@pytest.mark.parametrize(
    ("setting", "nearest"),
    [
        ("attempts", "attempts_max"),
        ("retry_first_ms", "retry_first_s"),
        ("key_retention_ms", "key_retention_s"),
        ("limit_by_key", "limit_per_key"),
    ],
)
async def test_an_unknown_setting_is_answered_with_the_nearest_one(
    setting: str, nearest: str
) -> None:
    told = f"unknown name '{setting}'; did you mean '{nearest}'"
    app = App(MemoryEngine())
    for declare in (app.queue, app.handler, app.outbox):
        with pytest.raises(BadInput) as rejected:
            declare("q", **{setting: 1})
        assert told in rejected.value.message
    async with app:
        with pytest.raises(BadInput) as rejected:
            await app.queues.configure("q", **{setting: 1})
        assert told in rejected.value.message


async def test_durations_of_settings_are_given_in_seconds() -> None:
    app = App(MemoryEngine())
    app.queue("q", key_retention_s=None, job_retention_s=86_400)
    app.handler("q", retry_first_s=0.0101, retry_max_s=60)(nothing)
    async with app:
        settings = app.node.queue_settings("q")
        assert (settings.retry_first_ms, settings.retry_max_ms) == (11, 60_000)  # never shorter
        assert (settings.key_retention_ms, settings.job_retention_ms) == (None, 86_400_000)
        changed = await app.queues.configure("q", retry_first_s=2.5)
        assert (changed.retry_first_ms, changed.retry_max_ms) == (2_500, 60_000)


async def test_settings_come_together_and_those_not_named_stay() -> None:
    engine = MemoryEngine()
    app = App(engine)
    app.queue("q", limit=1, rate=5)
    app.queue("q", rate=6)
    app.handler("q", attempts_max=7)(nothing)
    async with app:
        settings = app.node.queue_settings("q")
        assert (settings.limit, settings.rate, settings.attempts_max) == (1, 6, 7)
        await app.queues.pause("q")
    other = App(MemoryEngine(engine.memory))
    other.queue("q", limit=2)
    async with other:
        settings = other.node.queue_settings("q")
        assert (settings.limit, settings.rate, settings.paused) == (2, 6, True)


async def test_nothing_can_be_declared_while_the_application_runs() -> None:
    app = App(MemoryEngine())
    later = app.handler("q")
    async with app:
        for declare in (
            lambda: app.queue("q"),
            lambda: app.handler("r"),
            lambda: app.outbox("r"),
            lambda: app.every(1, "q"),
            lambda: app.cron("@daily", "q"),
            lambda: later(nothing),
        ):
            with pytest.raises(BadInput, match="is running"):
                declare()
    app.queue("q")


async def test_a_function_that_is_declared_can_still_be_called() -> None:
    app = App(MemoryEngine())
    for declared in (app.handler("q")(nothing), app.outbox("r")(nothing)):
        assert declared.__wrapped__ is nothing
        assert declared.__name__ == nothing.__name__
        assert declared.__doc__ == nothing.__doc__
        assert await declared(cast(Any, None)) is None
