"""A FastAPI application with its own routes, and the Onceward API mounted beside them.

    pip install fastapi 'onceward[server]'
    python examples/mounted.py

    curl -X PUT 'localhost:8000/orders/1042?item=lamp'
    curl localhost:8000/stock/lamp
    curl localhost:8000/onceward/readyz

The routes use the `App` directly, in this process. Other programs use the same queues, jobs and
locks over HTTP, below /onceward.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

import onceward
from onceward.web import Auth, Server

STOCK = 5

app = onceward.App("sqlite:///shop.db")


@app.handler("orders")
async def sell(job: onceward.Job) -> str:
    item = job.body["item"]
    left = await left_of(job.tx, item)
    if not left:
        raise onceward.Fail(f"no {item} is left")
    job.tx.put(("stock", item), left - 1)  # commits together with the end of the job
    return f"one {item} sold"


async def left_of(tx: Any, item: str) -> int:
    left = await tx.get(("stock", item))
    return STOCK if left is None else left


# Dev mode: only programs on this machine can connect. In production: `Auth([ApiKey(...)])`.
server = Server(app, Auth(dev=True))


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    async with server:  # frameworks do not start and stop mounted applications
        yield


web = FastAPI(title="Shop", lifespan=lifespan)


@web.exception_handler(onceward.OncewardError)
async def refuse(request: Request, error: onceward.OncewardError) -> JSONResponse:
    """Return errors with their HTTP status, such as a reused order number."""
    return JSONResponse({"detail": error.message}, error.kind.status)


@web.put("/orders/{number}")
async def order(number: str, item: str) -> dict[str, Any]:
    """Place an order. Idempotent for its number."""
    receipt = await app.send("orders", {"item": item}, key=number)
    job = await app.wait(receipt.id, timeout_s=10)
    if job.state == "failed":
        raise HTTPException(409, job.reason)
    return {"order": number, "state": job.state, "result": job.result}


@web.get("/stock/{item}")
async def stock(item: str) -> dict[str, Any]:
    return {"item": item, "left": await app.run(lambda tx: left_of(tx, item))}


web.mount("/onceward", server)

if __name__ == "__main__":
    import uvicorn

    # At shutdown, waiting requests are cancelled after this number of seconds.
    uvicorn.run(web, port=8000, timeout_graceful_shutdown=5)
