"""The event loop of a whole process: uvloop if it is installed."""

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The loop factory for `asyncio.Runner`."""
    try:
        import uvloop  # faster; an optional dependency that does not support Windows
    except ModuleNotFoundError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
