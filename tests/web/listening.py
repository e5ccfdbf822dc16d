"""An ASGI application on a real port, with the protocols that `onceward serve` uses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from onceward.web.protocol import Protocol
from onceward.web.websocket import WebSocket


@asynccontextmanager
async def listening(app: Any, **options: Any) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    """The server and its port, while the context lasts."""
    defaults = {"http": Protocol, "ws": WebSocket, "proxy_headers": False, "interface": "asgi3"}
    given = {**defaults, **options}
    config = uvicorn.Config(app, lifespan="off", log_config=None, host="127.0.0.1", port=0, **given)
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield server, server.servers[0].sockets[0].getsockname()[1]
    finally:
        await server.shutdown()
