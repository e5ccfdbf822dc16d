"""The event loop of a whole process: uvloop if it is installed."""

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """For `asyncio.Runner`."""
    try:
        import uvloop  # faster, but only in the extra `server`, and not on Windows
    except ModuleNotFoundError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
