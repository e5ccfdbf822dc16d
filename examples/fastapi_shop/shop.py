"""A shop with FastAPI and Pydantic: one model for the request, the job and its result.

    pip install 'onceward[fastapi]' uvicorn
    uvicorn shop:web --port 8000

    curl -X PUT localhost:8000/orders/1042 -H 'Content-Type: application/json' -d '{"item": "lamp"}'
    curl localhost:8000/stock/lamp
    curl localhost:8000/onceward/readyz

An order with the same number takes effect once. The API and the console of Onceward are below
/onceward, for this machine only.
"""

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

import onceward
from onceward import Job, JobFailed
from onceward.integrations.fastapi import CurrentApp, install
from onceward.web import Auth

STOCK = 5


class Order(BaseModel):
    item: str = Field(min_length=1, max_length=50)
    count: int = Field(1, gt=0)


class Sale(BaseModel):
    item: str
    left: int


class Accepted(BaseModel):
    job: str


app = onceward.App()  # ONCEWARD_DATABASE, or sqlite:///onceward.db


@app.handler("orders", attempts_max=3)
async def sell(job: Job[Order]) -> Sale:
    key = ("stock", job.body.item)
    left = await job.tx.get(key)
    left = (STOCK if left is None else left) - job.body.count
    if left < 0:
        raise onceward.Fail(f"not enough of {job.body.item} left")
    job.tx.put(key, left)  # commits together with the end of the job
    return Sale(item=job.body.item, left=left)


web = FastAPI(title="Shop")
install(web, app, path="/onceward", auth=Auth(dev=True))


@web.put("/orders/{number}")
async def buy(number: str, order: Order) -> Sale:
    """Place an order and wait for it. Idempotent for its number."""
    receipt = await sell.enqueue(order, key=number)
    try:
        return await sell.result(receipt.id, timeout_s=10)
    except JobFailed as error:
        raise HTTPException(409, error.reason) from error


@web.post("/orders", status_code=202)
async def request(order: Order) -> Accepted:
    """Place an order that is sold later."""
    receipt = await sell.enqueue(order)
    return Accepted(job=receipt.id)


@web.get("/stock/{item}")
async def stock(item: str, app: CurrentApp) -> Sale:
    left = await app.run(lambda tx: tx.get(("stock", item), int))
    return Sale(item=item, left=STOCK if left is None else left)
