"""The Onceward server in an application of FastAPI, beside its own routes."""

import asyncio
import runpy
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import uvicorn

from onceward.client import ClaimedJob, Client
from onceward.errors import KeyReused, NoSuchJob

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "mounted.py"


@pytest.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The address of the application."""
    monkeypatch.chdir(tmp_path)
    web = runpy.run_path(str(EXAMPLE))["web"]
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    config = uvicorn.Config(web, log_config=None, lifespan="on", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listening]))
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    await serving


async def test_both_are_served_side_by_side(shop: str) -> None:
    async with aiohttp.ClientSession(shop) as session, Client(f"{shop}/onceward") as client:
        for _ in range(3):
            async with session.put("/orders/1042?item=lamp") as answer:
                assert answer.status == 200
                assert (await answer.json())["result"] == "one lamp sold"
        async with session.get("/stock/lamp") as answer:
            assert await answer.json() == {"item": "lamp", "left": 4}

        # The same order over the API is the same job: but for another caller, since each has
        # keys of its own.
        receipt = await client.send("orders", {"item": "sofa"}, key="1042", wait_s=30)
        assert (receipt.duplicate, receipt.result) == (False, "one sofa sold")
        with pytest.raises(KeyReused):
            await client.send("orders", {"item": "lamp"}, key="1042")
        async with session.get("/stock/sofa") as answer:
            assert (await answer.json())["left"] == 4


async def test_all_of_the_api_is_below_the_prefix(shop: str) -> None:
    async def greet(claim: ClaimedJob) -> str:
        return f"Hello {claim.body}"

    async with aiohttp.ClientSession(shop) as session, Client(f"{shop}/onceward") as client:
        worker = client.worker("greetings", greet, wait_s=1)
        working = asyncio.create_task(worker.run())
        receipt = await client.send("greetings", "Ann", key="k", wait_s=30)
        assert receipt.result == "Hello Ann"
        worker.stop()
        await working
        async with client.locks.hold(["a/b"]):
            assert (await client.locks.get("a/b")).held == 1
        with pytest.raises(NoSuchJob):
            await client.jobs.get("nothing")
        for path in ("readyz", "healthz", "metrics", "docs", "openapi.json"):
            async with session.get(f"/onceward/{path}") as answer:
                assert answer.status == 200, path
        async with session.get("/onceward/nothing") as answer:
            assert (answer.status, (await answer.json())["code"]) == (404, "not_found")


async def test_the_application_keeps_its_own_pages(shop: str) -> None:
    async with aiohttp.ClientSession(shop) as session:
        async with session.get("/docs") as answer:
            assert "Shop" in await answer.text()
        async with session.get("/v1/queues") as answer:
            assert (answer.status, await answer.json()) == (404, {"detail": "Not Found"})
        for number in range(5):
            await session.put(f"/orders/{number}?item=lamp")
        async with session.put("/orders/6?item=lamp") as answer:
            assert (answer.status, await answer.json()) == (409, {"detail": "no lamp is left"})
        async with session.put("/orders/1?item=sofa") as answer:
            assert answer.status == 422
            assert "with another body" in (await answer.json())["detail"]
