"""A shop with tables in its own SQL database. Each order changes them exactly once.

    pip install 'onceward[postgres]' 'sqlalchemy[asyncio]' aiosqlite
    python shop.py lamp lamp sofa    # creates the tables, and orders three items
    onceward work shop:app           # runs the jobs

An order is stored and enqueued in one transaction (SQL outbox). Its job reduces the stock in a SQL
step. Another job writes the invoice: with PostgreSQL in a joint commit, with SQLite in a SQL step.

    export SHOP_DATABASE=postgresql://shop@db/shop    # for the shop and Onceward
"""

import asyncio
import os
import sys
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import onceward
from onceward import sql

URL = os.environ.get("SHOP_DATABASE", "sqlite:///shop.db")
POSTGRESQL = URL.startswith("postgresql:")
JOBS = URL if POSTGRESQL else os.environ.get("ONCEWARD_DATABASE", "sqlite:///jobs.db")
LEASE_S = float(os.environ.get("SHOP_LEASE_S", "8"))  # until a crashed process is replaced
STOCK = 1_000_000

engine = create_async_engine(
    URL.replace("postgresql:", "postgresql+asyncpg:").replace("sqlite:", "sqlite+aiosqlite:")
)
Session = async_sessionmaker(engine)
app = onceward.App(JOBS, node_lease_s=LEASE_S)
app.sql_outbox(URL, name="shop", lease_s=LEASE_S)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[str] = mapped_column(unique=True)
    item: Mapped[str]


class Stock(Base):
    __tablename__ = "stock"
    item: Mapped[str] = mapped_column(primary_key=True)
    left: Mapped[int]


class Sale(Base):
    """No constraint prevents a second sale of an order: Onceward does."""

    __tablename__ = "sales"
    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[str]
    item: Mapped[str]
    left: Mapped[int]


class Invoice(Base):
    __tablename__ = "invoices"
    id: Mapped[int] = mapped_column(primary_key=True)
    serial: Mapped[int]
    number: Mapped[str]


class Counter(Base):
    """The serial of the last invoice. Serials have no gaps."""

    __tablename__ = "counters"
    name: Mapped[str] = mapped_column(primary_key=True)
    last: Mapped[int]


async def create_tables(*items: str) -> None:
    """Create all tables, those of Onceward included. In a real shop, a migration does that."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
        for statement in sql.statements(engine.dialect.name):
            await connection.exec_driver_sql(statement)
    async with Session.begin() as session:
        for item in items:
            if await session.get(Stock, item) is None:
                session.add(Stock(item=item, left=STOCK))
        if await session.get(Counter, "invoices") is None:
            session.add(Counter(name="invoices", last=0))


async def place(number: str, item: str) -> None:
    """Store an order. Its job is enqueued in the same transaction, in the order of commits."""
    async with Session.begin() as session:
        await sql.enqueue_async(session, "orders", {"number": number, "item": item}, order_key=item)
        session.add(Order(number=number, item=item))


async def take(session: AsyncSession, number: str, item: str) -> int:
    """Reduce the stock. The function of a SQL step: it must not commit."""
    stock = await session.get_one(Stock, item, with_for_update=True)
    stock.left -= 1
    session.add(Sale(number=number, item=item, left=stock.left))
    await session.flush()
    return stock.left


async def write_invoice(session: AsyncSession, number: str) -> int:
    counter = await session.get_one(Counter, "invoices")
    counter.last += 1
    session.add(Invoice(serial=counter.last, number=number))
    await session.flush()
    return counter.last


@app.handler("orders", lease_s=LEASE_S, attempts_max=0)
async def sell(job: onceward.Job) -> int:
    left = await job.sql_step(Session, take, job.body["number"], job.body["item"])
    await job.send("invoices", job.body["number"])  # with the end of this job
    return left


@app.handler("invoices", lease_s=LEASE_S, attempts_max=0)
async def bill(job: onceward.Job) -> int:
    serial: int
    if POSTGRESQL:  # one commit: the invoice, the record, and the end of the job
        connection: Any = await job.sql()
        serial = await connection.fetchval("UPDATE counters SET last = last + 1 RETURNING last")
        await connection.execute(
            "INSERT INTO invoices (serial, number) VALUES ($1, $2)", serial, job.body
        )
    else:
        serial = await job.sql_step(Session, write_invoice, job.body)
    job.tx.put(("invoices", job.body), serial)
    return serial


async def main(*items: str) -> None:
    await create_tables(*items)
    for item in items:
        await place(os.urandom(8).hex(), item)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
