"""What an application can be made from, and what may be asked of it when."""

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from onceward import limits
from onceward.engine.base import Engine
from onceward.errors import BadInput, Unavailable
from onceward.node import Node
from onceward.schedule import is_whole
from onceward.webhooks.delivery import Outward
from onceward.work.declarations import Declared


class Running(Declared):
    """An application that runs or does not. While it runs it belongs to one event loop."""

    node: Node

    def __init__(self) -> None:
        super().__init__()
        self._starting = False
        self._stack: AsyncExitStack | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    if not TYPE_CHECKING:  # else nothing would be known of any attribute

        def __getattr__(self, name: str) -> Any:
            # Only for what is not there: `app.timers` and the like come with the start.
            if any(name in vars(kind).get("__annotations__", ()) for kind in type(self).__mro__):
                raise _not_running()
            raise AttributeError(f"an application has no attribute {name!r}")

    def _must_run(self) -> None:
        if self._stack is None or not self.node.running:
            raise _not_running()
        self._must_be_in_its_loop()

    def _must_be_in_its_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise BadInput(
                "the application runs in another event loop: call it there, from other threads "
                "by `asyncio.run_coroutine_threadsafe`"
            )

    def _must_be_stopped(self, what: str) -> None:
        if self._stack is not None or self._starting:
            raise BadInput(f"the application is running: {what} before it starts")


def admit_app(url: Any, name: Any, slots: Any, outward: Any, store: Any) -> None:
    """Raise `BadInput` for what no application can be made from."""
    if not isinstance(url, str | Engine):
        raise BadInput(
            f"an application has the URL of a database or an engine, not {type(url).__name__}"
        )
    most = limits.APP_CHARS_MAX
    if not isinstance(name, str) or not (0 < len(name) <= most and _is_plain(name)):
        raise BadInput(f"an application's name has 1 to {most} plain characters")
    if not is_whole(slots) or not 0 < slots <= limits.SLOTS_MAX:
        raise BadInput(f"a database has 1 to {limits.SLOTS_MAX} slots, not {str(slots)[:100]}")
    if not isinstance(outward, Outward | None):
        raise BadInput(f"`outward` is an `Outward`, not {type(outward).__name__}")
    if not callable(store):
        raise BadInput("`store` is a function that makes a store of an engine")


def _not_running() -> Unavailable:
    return Unavailable(
        "the application is not running: use it within `async with app`", code="node_stopped"
    )


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
