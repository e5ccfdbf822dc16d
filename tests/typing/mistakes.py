"""The program `correct.py` with one mistake in each marked line, which type checkers must find."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import msgspec

from onceward import App, Job, JobFailed, Receipt, SyncJob, Transaction, sync
from onceward.client import ClaimedJob, Client

app = App("memory://")


@dataclass
class Mail:
    to: str
    subject: str = ""


@dataclass
class Sent:
    id: str
    cents: int


class Order(TypedDict):
    item: str


class Charge(msgspec.Struct):
    cents: int


async def charge(cents: int, *, currency: str = "EUR") -> Charge:
    return Charge(cents)


def price(order: Order) -> int:
    return len(order["item"])


async def reverse(cents: int) -> Charge:
    return Charge(-cents)


async def found() -> Charge:
    return Charge(0)


app.queue("reports", limit="5", retry_first_s=0.5, key_fields=["id"])  # mistake: type of a setting


@app.handler("mails", lease_s=60, attempts_max=3)
async def send(job: Job[Mail]) -> Sent:
    to: str = job.body.too  # mistake: field of a body
    zero = await job.step("zero", reverse, 0)
    first = await job.step("charge", charge, to)  # mistake: type of an argument of a step
    second = await job.step("more", charge, 5, curency="USD")  # mistake: keyword of a step
    third = await job.step("once", reverse, "5", at_most_once=True)  # mistake: argument of a step
    cents: int = zero.amount  # mistake: field of a step's result
    cents += first.cents + second.cents + third.cents
    cents += await job.step("price", price, {"items": "lamp"})  # mistake: body of a step
    asked = await job.step("ask", reverse, 1, at_most_once=True, ask=price)  # mistake: ask
    await job.send("orders", {"item": "x"}, delay=5)  # mistake: option of job.send
    return Charge(cents + asked.cents)  # mistake: result of a handler


@app.handler("orders")
async def order(job: Job[Order]) -> str:
    receipt: Receipt = await send.enqueue(Mail(job.body["item"]), tx=job)  # mistake: transaction
    return receipt.id


@app.handler("news", batch=10)
async def news(jobs: list[Job[Mail]]) -> list[Sent] | None:
    return [Sent(job.id, len(job.body.subject)) for job in jobs]


@app.outbox("charges", policy="hold")
async def pay(job: Job[Charge]) -> None:
    print(job.id, job.body.cents)


async def check(job: Job[Order]) -> str:
    return job.body["item"]


async def check_body(body: Order) -> str:
    return body["item"]


async def check_many(jobs: list[Job[Order]]) -> list[str]:
    return [job.id for job in jobs]


async def check_lists(orders: list[Order]) -> list[str]:
    return [order["item"] for order in orders]


app.handler("settings", attempts=3)(check)  # mistake: name of a setting
app.outbox("outbox", policy="once")(check)  # mistake: policy of an outbox
app.handler("checks")(check_body)  # mistake: a function of a body
app.handler("lists", batch=2)(check_lists)  # mistake: a function of bodies


@app.handler("parents")
async def parent(job: Job[int]) -> int:
    await job.gather(send.child("Ann"))  # mistake: body of a child
    await job.gather(send.child(Mail("Bob"), order="a"))  # mistake: option of a child
    both = await job.gather(send.child(Mail("Cleo")), send.child(Mail("Dan")))
    return sum(sent.amount for sent in both)  # mistake: result of a child


@app.handler("untyped")
async def untyped(job: Job) -> None:
    print(job.body["anything"], await job.step("late", lambda: charge(5)))


@app.handler("direct")
def direct(job: SyncJob[int]) -> int:
    price_of: str = job.step("price", price, {"item": "x"})  # mistake: result of a plain step
    back = job.step("back", reverse, [price_of], at_most_once=True)  # mistake: argument
    receipt = job.call(send.enqueue, "Ann", tx=job.tx)  # mistake: a call
    job.tx.put(("direct", receipt.id), back.cents)
    return job.body


def plain_job(job: SyncJob[int]) -> None:
    print(job.body)


def plain_async(job: Job[int]) -> None:
    print(job.body)


app.handler("plain")(plain_async)  # mistake: the job of a coroutine function


app.every(60, "reports", tags=["daily"], priorty=3)  # mistake: option of a recurring job
app.cron("0 9 * * *", "reports", name="daily", order_key=5)  # mistake: type of an option


async def main(names: Sequence[str]) -> None:
    receipt = await send.enqueue(Mail("Ann"), key="k", delay=5)  # mistake: name of an option
    await send.enqueue(Mail("Ann"), priority="1")  # mistake: type of an option
    await send.enqueue(Mail("Ann"), tags=5)  # mistake: type of tags
    await send.enqueue(Sent("Ann", 5))  # mistake: body of another type
    await order.enqueue({"item": 5})  # mistake: field of a body
    await order.enqueue(key="a")  # mistake: no body
    order.enqueue({"item": "lamp"}, key="b")  # mistake: not awaited
    await direct.enqueue("5", limit_key="x")  # mistake: body of a plain function
    await news.enqueue([Mail("all")], attempts_max=1)  # mistake: a batch in place of a body
    await pay.enqueue(5, order_key="5")  # mistake: body of an outbox
    await untyped.enqueue({"anything": [1, None]})
    await app.send("orders", {"item": "rug"}, due=5)  # mistake: option of send
    await app.send({"item": "rug"})  # mistake: no queue
    await app.queues.configure("orders", rate=5, pause=True)  # mistake: setting of a queue
    sent: Mail = await send.result(receipt.id, timeout_s=5)  # mistake: type of a result
    print(sent.cent)  # mistake: field of a result
    again = await app.result(receipt.id, Sent)
    print(again.amount + 1)  # mistake: field of a result with a type
    many: list[Sent] = await app.result(receipt.id, list[Mail])  # mistake: list of another type
    try:
        print(many, await app.result(receipt.id, timeout=1.5))  # mistake: time limit
    except JobFailed as error:
        print(error.id, error.state, error.type, error.reasons)  # mistake: attribute of an error


async def save(tx: Transaction) -> str:
    return (await send.enqueue(Mail("Ann"), tx=tx)).job  # mistake: attribute of a receipt


async def remote(client: Client) -> None:
    async def work(claim: ClaimedJob) -> str:
        return claim.id

    worker = client.worker("mails", work, concurrency=4, lease=10)  # mistake: option of a worker
    result: Mail = await client.jobs.result("id", Sent)  # mistake: type of a result of the client
    await client.send("mails", {"to": result.id}, keys="k")  # mistake: option of the client
    await worker.run()


def synchronous(app: sync.App) -> None:
    @app.handler("mails")
    def send(job: SyncJob[Mail]) -> Sent:
        return Sent(job.id, 1)

    receipt = send.enqueue(Order(item="x"), delay_s=5)  # mistake: body in synchronous code
    sent = send.result(receipt.id)
    print(sent.to)  # mistake: field of a result in synchronous code
    app.send("orders", {"item": "rug"}, prio=1)  # mistake: option in synchronous code
    again: Sent = app.result(receipt.id, Mail)  # mistake: type of a result
    app.run(lambda tx: app.rooms.map_set(tx, "b", "m", "k", again, create="yes"))  # mistake: create
