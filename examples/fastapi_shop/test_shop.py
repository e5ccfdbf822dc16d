"""Tests of the shop, without a network and with a database in memory.

pip install pytest httpx
ONCEWARD_DATABASE=memory:// pytest
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from httpx import ASGITransport, AsyncClient
from shop import app, web


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def shop(anyio_backend: str) -> AsyncIterator[AsyncClient]:
    transport = ASGITransport(web, client=("127.0.0.1", 1))
    async with (
        web.router.lifespan_context(web),  # starts and stops Onceward
        AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


@pytest.mark.anyio
async def test_a_repeated_order_is_sold_once(shop: AsyncClient) -> None:
    orders = [shop.put("/orders/1", json={"item": "lamp", "count": 2}) for _ in range(5)]
    for response in await asyncio.gather(*orders):
        assert (response.status_code, response.json()) == (200, {"item": "lamp", "left": 3})
    assert (await shop.get("/stock/lamp")).json() == {"item": "lamp", "left": 3}


@pytest.mark.anyio
async def test_what_is_not_there_is_not_sold(shop: AsyncClient) -> None:
    response = await shop.put("/orders/2", json={"item": "rug", "count": 6})
    assert (response.status_code, response.json()["detail"]) == (409, "not enough of rug left")
    assert (await shop.get("/stock/rug")).json()["left"] == 5


@pytest.mark.anyio
async def test_an_order_can_be_sold_later(shop: AsyncClient) -> None:
    response = await shop.post("/orders", json={"item": "sofa"})
    assert response.status_code == 202
    job = await app.wait(response.json()["job"], timeout_s=30)
    assert (job.state, job.result) == ("succeeded", {"item": "sofa", "left": 4})


@pytest.mark.anyio
async def test_invalid_orders_are_rejected(shop: AsyncClient) -> None:
    response = await shop.put("/orders/3", json={"item": "", "count": 0})
    assert response.status_code == 422
    assert [error["loc"] for error in response.json()["detail"]] == [
        ["body", "item"],
        ["body", "count"],
    ]
    await shop.put("/orders/4", json={"item": "chair"})
    reused = await shop.put("/orders/4", json={"item": "table"})
    assert (reused.status_code, reused.json()["code"]) == (422, "key_reused")
    assert reused.headers["content-type"] == "application/problem+json"


@pytest.mark.anyio
async def test_other_programs_use_the_api_below_its_path(shop: AsyncClient) -> None:
    assert (await shop.get("/onceward/readyz")).json() == {"status": "ready"}
    message = {"body": {"item": "desk"}, "key": "7"}
    response = await shop.post("/onceward/v1/inbox/orders?wait_ms=30000", json=message)
    assert response.json()["result"] == {"item": "desk", "left": 4}
    message = {"body": {"item": 5}, "key": "8"}
    response = await shop.post("/onceward/v1/inbox/orders?wait_ms=30000", json=message)
    assert response.json()["reason"].startswith("body.item: input should be a valid string")
