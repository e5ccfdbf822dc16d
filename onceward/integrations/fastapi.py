"""Onceward in an application of FastAPI, in one process and one event loop.

app = onceward.App()
web = FastAPI()
install(web, app, path="/onceward", auth=Auth(dev=True))


@web.get("/stock/{item}")
async def stock(item: str, app: CurrentApp) -> int: ...
"""

from typing import Annotated

try:
    from fastapi import Depends
except ModuleNotFoundError as error:
    needs = "fastapi: pip install 'onceward[fastapi]'"
    raise ModuleNotFoundError(f"{__name__} needs {needs}", name=error.name) from error

from starlette.requests import HTTPConnection

from onceward import App
from onceward.integrations import starlette
from onceward.integrations.starlette import install, lifespan, respond

__all__ = ["CurrentApp", "current_app", "install", "lifespan", "respond"]


async def current_app(connection: HTTPConnection) -> App:
    """The application that is installed in the web application of a request or WebSocket. In tests,
    replace it with `web.dependency_overrides[current_app]`. Raises `BadInput`."""
    return starlette.current_app(connection)


CurrentApp = Annotated[App, Depends(current_app)]
"""The type of a parameter that gets the application."""
