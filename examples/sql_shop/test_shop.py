"""Tests of the shop.

SHOP_DATABASE=sqlite:///test.db ONCEWARD_DATABASE=memory:// pytest
"""

import asyncio

from shop import Counter, Invoice, Order, Sale, Session, Stock, app, create_tables, engine, place
from sqlalchemy import select


def test_an_order_is_sold_and_billed_once() -> None:
    asyncio.run(_orders("7", "8", "9"))


async def _orders(*numbers: str) -> None:
    await create_tables("lamp")
    async with Session() as session:
        before = (await session.get_one(Stock, "lamp")).left
    async with app:
        for number in numbers:
            await place(number, "lamp")
        while len(await app.run(lambda tx: tx.scan("invoices"))) < len(numbers):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with Session() as session:
        assert (await session.get_one(Stock, "lamp")).left == before - 3
        assert (await session.get_one(Counter, "invoices")).last == 3
        for column in (Order.number, Sale.number, Invoice.number):
            found = await session.scalars(select(column))
            assert sorted(found) == ["7", "8", "9"]
    await engine.dispose()
