"""A plain function in place of an async one: an error that names it, and nothing is written."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial, wraps
from typing import Any

import pytest

from onceward.app import App
from onceward.client import Client
from onceward.engine.memory import MemoryEngine
from onceward.errors import BadInput
from onceward.functions import admit_async
from tests.schedule.jobs import all_records


def plain(tx: Any) -> int:
    tx.put(("stock", "lamp"), 1)
    return 1


async def generator(tx: Any) -> AsyncIterator[int]:
    yield 1


async def right(*_: Any) -> int:
    return 1


@wraps(right)
def wrapped(*args: Any) -> Awaitable[int]:
    return right(*args)


class Referee:
    async def begin(self, *_: Any) -> None: ...
    async def move(self, *_: Any) -> None: ...
    def ended(self, *_: Any) -> None: ...


def mistakes(app: App) -> dict[str, Callable[[], Any]]:
    return {
        "a transaction .* plain is a plain one; use `async def`": lambda: app.run(plain),
        "a transaction .* generator is a generator; remove": lambda: app.run(generator),
        "a transaction .* <lambda> is a plain one": lambda: app.run(lambda tx: 5),
        "a transaction must be an async function, not int": lambda: app.run(5),
        "a transaction .* <lambda> is a plain": lambda: app.tables.run("t", lambda tx: None),
    }


async def test_a_plain_function_as_a_transaction_is_refused() -> None:
    async with App("memory://") as app:
        assert isinstance(app.engine, MemoryEngine)
        before = all_records(app.engine)
        for told, call in mistakes(app).items():
            with pytest.raises(BadInput, match=told):
                await call()
        assert all_records(app.engine) == before
        for fn in (right, wrapped, partial(right, 1), lambda tx: right(tx)):
            assert await app.run(fn) == 1


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (lambda app: app.referee("chess", Referee()), "'ended' of a referee .* Referee.ended is a"),
        (lambda app: app.mount("/x", plain), "a mounted ASGI application .* plain is a plain one"),
        (lambda app: app.mount("/x", Wsgi()), "Wsgi does not .*; wrap a WSGI application"),
        (lambda app: Client("http://h").worker("q", generator), "worker must return its result"),
    ],
    ids=["referee", "mount", "wsgi", "worker"],
)
def test_a_plain_function_is_refused_when_it_is_declared(
    declare: Callable[[App], Any], told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        declare(App("memory://"))


class Wsgi:
    def __call__(self, environ: Any, start_response: Any) -> Any: ...


def test_what_may_return_an_awaitable_is_admitted() -> None:
    for fn in (right, wrapped, partial(right), lambda: right(), Referee().begin, print):
        admit_async(fn, "it")
