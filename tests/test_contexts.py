"""Context variables of coroutines that end in another context."""

from contextvars import ContextVar, copy_context
from types import coroutine
from typing import Any

from onceward.contexts import restore

VARIABLE = ContextVar("variable", default="outside")


@coroutine
def pause() -> Any:
    yield


async def work() -> None:
    token = VARIABLE.set("inside")
    try:
        await pause()
    finally:
        restore(VARIABLE, token)


def test_a_variable_is_restored_at_the_end() -> None:
    context, working = copy_context(), work()
    context.run(working.send, None)
    assert context.run(VARIABLE.get) == "inside"
    context.run(working.close)
    assert context.run(VARIABLE.get) == "outside"


def test_a_coroutine_can_be_closed_in_another_context() -> None:
    working = work()
    copy_context().run(working.send, None)
    working.close()
    assert VARIABLE.get() == "outside"
