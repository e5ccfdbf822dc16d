"""Twenty handlers with mistakes that people make, each with its repaired twin.

`PAIRS` maps a name to two functions, which return an application. `python -m
tests.testing.proof.corpus` runs all of them: 60 seconds each at most.
"""

import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import httpx

import onceward
from onceward.app import App
from onceward.testing.proof import Proof, SimulationFailed, prove

BANK = "https://bank.example/pay"
STOCK = "https://stock.example/left"


async def post(body: Any, key: str | None = None, url: str = BANK) -> str:
    headers = {"Idempotency-Key": key} if key else {}
    async with httpx.AsyncClient() as http:
        response = await http.post(url, json=body, headers=headers)
    response.raise_for_status()
    return str(response.json()["id"])


def app_of(*examples: Any, **settings: Any) -> Callable[[Callable[..., Any]], Callable[[], App]]:
    """A function that returns an application whose only handler is the decorated function, which
    gets the application and the job."""

    def declare(fn: Callable[..., Any]) -> Callable[[], App]:
        def make() -> App:
            app = App("memory://")

            @app.handler("work", examples=examples, **settings)
            async def handle(job: Any) -> Any:
                return await fn(app, job)

            @app.handler("sent")
            async def sent(job: Any) -> None:
                job.tx.put(("sent", job.id), job.body)

            return app

        return make

    return declare


ORDERS = ({"order": 1, "amount": 5}, {"order": 2, "amount": 7})


@app_of(*ORDERS)
async def call_outside_a_step(app, job):
    job.tx.put(("receipt", job.id), await post(job.body))


@app_of(*ORDERS)
async def call_in_a_step(app, job):
    receipt = await job.step("pay", post, job.body, job.id)
    job.tx.put(("receipt", job.id), receipt)


@app_of(*ORDERS)
async def call_before_a_step(app, job):
    await post(job.body)
    await job.step("mail", post, job.body, job.id, "https://mail.example/send")


@app_of(*ORDERS)
async def two_steps(app, job):
    await job.step("pay", post, job.body, job.id)
    await job.step("mail", post, job.body, job.id, "https://mail.example/send")


@app_of({"buyer": 1}, {"buyer": 2})
async def check_then_act_outside(app, job):
    async with httpx.AsyncClient() as http:
        found = await http.get(STOCK)
        left = found.json()["left"] if found.status_code == 200 else 3
        if left > 0:
            await http.put(STOCK, json={"left": left - 1})


@app_of({"buyer": 1}, {"buyer": 2})
async def check_and_act_inside(app, job):
    left = await job.tx.get(("stock", "left"))
    left = 3 if left is None else left
    if left > 0:
        job.tx.put(("stock", "left"), left - 1)


@app_of({"player": "ann"}, {"player": "bob"})
async def lost_update(app, job):
    key = ("score", job.body["player"])
    score = await app.run(lambda tx: tx.get(key)) or 0
    job.tx.put(key, score + 1)


@app_of({"player": "ann"}, {"player": "bob"})
async def update_in_one_transaction(app, job):
    key = ("score", job.body["player"])
    job.tx.put(key, (await job.tx.get(key) or 0) + 1)


@app_of(*ORDERS)
async def new_key_for_each_attempt(app, job):
    await job.step("pay", post, job.body, uuid.uuid4().hex)


@app_of(*ORDERS)
async def key_of_the_attempt(app, job):
    await post(job.body, f"{job.id}-{job.attempt}")


@app_of(*ORDERS)
async def key_of_the_job(app, job):
    await post(job.body, job.id)


@app_of(*ORDERS)
async def other_body_with_the_same_key(app, job):
    await post({**job.body, "attempt": job.attempt}, job.id)


@app_of(*ORDERS)
async def timer_without_an_id(app, job):
    await app.timers.set(queue="sent", body=job.body, delay_s=60)


@app_of(*ORDERS)
async def timer_in_the_transaction(app, job):
    await app.timers.set(queue="sent", body=job.body, delay_s=60, tx=job.tx)


@app_of(({"op": "order"}, {"op": "pay"}))
async def timer_not_cancelled(app, job):
    if job.body["op"] == "order":
        await app.timers.set("reminder", queue="sent", body="pay!", delay_s=600, tx=job.tx)
    elif await app.run(lambda tx: tx.get(("order", "open"))):
        await app.timers.cancel("reminder", tx=job.tx)
    if job.body["op"] == "order":
        job.tx.put(("order", "open"), True)


@app_of(({"op": "order"}, {"op": "pay"}))
async def timer_cancelled_or_not_set(app, job):
    if job.body["op"] == "order":
        if not await job.tx.get(("order", "paid")):
            await app.timers.set("reminder", queue="sent", body="pay!", delay_s=600, tx=job.tx)
        job.tx.put(("order", "open"), True)
    else:
        if not await job.tx.get(("order", "open")):
            raise onceward.Retry("the order is not here yet", after_s=1)
        if not await job.tx.get(("order", "paid")):
            await app.timers.cancel("reminder", tx=job.tx)
        job.tx.put(("order", "paid"), True)


@app_of(({"name": "ann"}, {"rename": "bob"}))
async def order_of_messages_assumed(app, job):
    if "name" in job.body:
        job.tx.put(("user", "1"), job.body["name"])
    elif await job.tx.get(("user", "1")):
        job.tx.put(("user", "1"), job.body["rename"])


@app_of(({"name": "ann"}, {"rename": "bob"}), attempts_max=0)
async def order_of_messages_awaited(app, job):
    known = await job.tx.get(("user", "1"))
    if "name" in job.body:
        job.tx.put(("user", "1"), known or job.body["name"])
    elif known is None:
        raise onceward.Retry("the user is not here yet", after_s=1)
    else:
        job.tx.put(("user", "1"), job.body["rename"])


@app_of(*ORDERS, attempts_max=2)
async def charged_again_on_redrive(app, job):
    if job.attempt == 1:
        await post(job.body, f"{job.id}-{len(job.reason)}")
    await post(job.body, job.id, "https://mail.example/send")


@app_of(*ORDERS, attempts_max=2)
async def charged_once_on_redrive(app, job):
    await job.step("pay", post, job.body, job.id)
    await post(job.body, job.id, "https://mail.example/send")


@app_of(*ORDERS)
async def message_sent_at_once(app, job):
    await app.send("sent", job.body)


@app_of(*ORDERS)
async def message_sent_with_the_job(app, job):
    await job.send("sent", job.body)


@app_of({"items": 3}, {"items": 2})
async def fan_out_without_keys(app, job):
    for number in range(job.body["items"]):
        await app.send("sent", number)


@app_of({"items": 3}, {"items": 2})
async def fan_out_with_keys(app, job):
    for number in range(job.body["items"]):
        await app.send("sent", number, key=f"{job.id}/{number}")


@app_of({"n": 1}, {"n": 2})
async def counted_in_another_transaction(app, job):
    async def add(tx):
        tx.put(("count", "all"), (await tx.get(("count", "all")) or 0) + job.body["n"])

    await app.run(add)


@app_of({"n": 1}, {"n": 2})
async def counted_in_the_transaction_of_the_job(app, job):
    job.tx.put(("count", "all"), (await job.tx.get(("count", "all")) or 0) + job.body["n"])


@app_of({"n": 1}, {"n": 2})
async def counted_in_a_step(app, job):
    async def add(tx):
        tx.put(("count", "all"), (await tx.get(("count", "all")) or 0) + job.body["n"])

    await job.step("count", app.run, add)


@app_of(*ORDERS)
async def error_swallowed(app, job):
    try:
        await post(job.body, job.id)
    except httpx.HTTPError:
        return "ignored"
    return "paid"


@app_of(*ORDERS, attempts_max=0)
async def error_raised(app, job):
    await post(job.body, job.id)
    return "paid"


@app_of(*ORDERS)
async def marked_before_it_is_done(app, job):
    async def mark(tx):
        done = await tx.get(("done", job.id))
        tx.put(("done", job.id), True)
        return done

    if not await app.run(mark):
        await post(job.body, job.id)


@app_of(*ORDERS)
async def marked_when_it_is_done(app, job):
    if not await app.run(lambda tx: tx.get(("done", job.id))):
        await post(job.body, job.id)
    job.tx.put(("done", job.id), True)


@app_of({"amount": 1}, {"amount": 2})
async def transfer_in_two_transactions(app, job):
    async def book(tx, account, amount):
        tx.put(("account", account), (await tx.get(("account", account)) or 0) + amount)

    await app.run(lambda tx: book(tx, "ann", -job.body["amount"]))
    await app.run(lambda tx: book(tx, "bob", job.body["amount"]))


@app_of({"amount": 1}, {"amount": 2})
async def transfer_in_one_transaction(app, job):
    for account, amount in (("ann", -job.body["amount"]), ("bob", job.body["amount"])):
        key = ("account", account)
        job.tx.put(key, (await job.tx.get(key) or 0) + amount)


@app_of(*ORDERS)
async def result_depends_on_the_attempt(app, job):
    return "on time" if job.attempt == 1 else "late"


@app_of(*ORDERS)
async def result_depends_on_the_body(app, job):
    return job.body["amount"]


SEEN: set[str] = set()


@app_of(*ORDERS)
async def known_in_memory(app, job):
    if job.id in SEEN:
        return
    SEEN.add(job.id)
    await post(job.body, job.id)


@app_of({"n": 1}, {"n": 2})
async def two_reads_at_two_moments(app, job):
    used = await app.run(lambda tx: tx.get(("budget", "used"))) or 0
    if used + job.body["n"] > 3:
        return "refused"
    job.tx.put(("budget", "used"), used + job.body["n"])
    return "granted"


@app_of({"n": 1}, {"n": 2})
async def one_read_in_the_transaction(app, job):
    used = await job.tx.get(("budget", "used")) or 0
    if used + job.body["n"] > 3:
        return "refused"
    job.tx.put(("budget", "used"), used + job.body["n"])
    return "granted"


PAIRS: dict[str, tuple[Callable[[], App], Callable[[], App]]] = {
    "call outside a step": (call_outside_a_step, call_in_a_step),
    "side effect before a step": (call_before_a_step, two_steps),
    "check then act outside": (check_then_act_outside, check_and_act_inside),
    "lost update": (lost_update, update_in_one_transaction),
    "new key for each attempt": (new_key_for_each_attempt, call_in_a_step),
    "key of the attempt": (key_of_the_attempt, key_of_the_job),
    "other body with the same key": (other_body_with_the_same_key, key_of_the_job),
    "timer without an id": (timer_without_an_id, timer_in_the_transaction),
    "timer not cancelled": (timer_not_cancelled, timer_cancelled_or_not_set),
    "order of messages assumed": (order_of_messages_assumed, order_of_messages_awaited),
    "double charge on redrive": (charged_again_on_redrive, charged_once_on_redrive),
    "message sent at once": (message_sent_at_once, message_sent_with_the_job),
    "fan-out without keys": (fan_out_without_keys, fan_out_with_keys),
    "retry that is not idempotent": (
        counted_in_another_transaction,
        counted_in_the_transaction_of_the_job,
    ),
    "write in a step": (counted_in_a_step, counted_in_the_transaction_of_the_job),
    "error swallowed": (error_swallowed, error_raised),
    "marked before it is done": (marked_before_it_is_done, marked_when_it_is_done),
    "transfer in two transactions": (transfer_in_two_transactions, transfer_in_one_transaction),
    "result depends on the attempt": (result_depends_on_the_attempt, result_depends_on_the_body),
    "known in memory": (known_in_memory, key_of_the_job),
    "decision on an old read": (two_reads_at_two_moments, one_read_in_the_transaction),
}


# Modules are not loaded again when a simulated node restarts, so its memory outlives crashes.
MISSED = {"known in memory"}


def main(seconds: float = 60.0) -> None:
    """Report which mistakes are found, with the lines of their timelines."""
    only = sys.argv[1:] or list(PAIRS)
    for name in only:
        wrong, right = PAIRS[name]
        SEEN.clear()
        start = time.monotonic()
        try:
            prove(Proof(wrong), range(10_000), seconds=seconds)
            print(f"MISSED {name}", flush=True)
        except SimulationFailed as failed:
            found_s, lines = time.monotonic() - start, str(failed).splitlines()
            events = sum(" s " in line[:13] for line in lines)
            print(f"{name}: {failed.kind} in {found_s:.1f} s, {events} lines", flush=True)
        try:
            print(f"    repaired: {prove(Proof(right), range(40), seconds=seconds)}", flush=True)
        except SimulationFailed as failed:
            print(f"    FALSE ALARM {failed}", flush=True)


if __name__ == "__main__":
    main()
